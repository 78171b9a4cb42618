"""The cache answers an identical request with the stored reply, at no cost.

The key covers everything that decides an answer, the seed included, so repeats with different seeds never share one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any

from upskill.errors import ModelError, UpskillError
from upskill.models import Address, CacheMode, Model, Reply, ReplyStore, Request, ToolCall
from upskill.models.identity import identity_of
from upskill.plain import compact, digest_text
from upskill.traces import Usage

_TRACKED_KEYS: ContextVar[list[str] | None] = ContextVar("tracked_keys", default=None)


@contextmanager
def track_keys() -> Generator[list[str]]:
    """Collects the keys of all requests inside, so that the replies of an errored trial can be forgotten."""
    keys: list[str] = []
    before = _TRACKED_KEYS.set(keys)
    try:
        yield keys
    finally:
        _TRACKED_KEYS.reset(before)


def _track(key: str) -> None:
    if (keys := _TRACKED_KEYS.get()) is not None:
        keys.append(key)


_REUSED: ContextVar[list[Usage] | None] = ContextVar("reused", default=None)


@contextmanager
def track_reused() -> Generator[list[Usage]]:
    """Collects the usage of all replies to students inside that were stored before, and so were not paid for again."""
    reused: list[Usage] = []
    before = _REUSED.set(reused)
    try:
        yield reused
    finally:
        _REUSED.reset(before)


_TRACKED_USAGE: ContextVar[dict[str, tuple[str, Usage]] | None] = ContextVar("tracked_usage", default=None)


@contextmanager
def track_usage() -> Generator[dict[str, tuple[str, Usage]]]:
    """Collects what all roles but the student used inside: role and usage by request key.

    A cached reply counts once, at the price that was paid for it.
    """
    usage: dict[str, tuple[str, Usage]] = {}
    before = _TRACKED_USAGE.set(usage)
    try:
        yield usage
    finally:
        _TRACKED_USAGE.reset(before)


class CachedModel:
    """Looks a reply up before asking. `refresh` only stores; `replay` only looks up, and a miss is an error."""

    def __init__(
        self,
        address: Address,
        opener: Callable[[], Awaitable[Model]],
        replies: ReplyStore,
        mode: CacheMode,
        role: str = "",
    ) -> None:
        self.address = address
        self.role = role  # with one, requests are stored with their replies
        self.replies = replies
        self.mode = mode
        self.hits = 0
        self._opener = opener
        self._model: Model | None = None
        self._identity = identity_of(address)  # as it is now: a script may be edited while its model is open

    async def open(self) -> None:
        if self._model is None and self.mode != "replay":
            self._model = await self._opener()

    async def reply(self, request: Request) -> Reply:
        key = request_key(self.address, request, self._identity)
        _track(key)
        if self.mode != "refresh" and (text := self.replies.reply(key)) is not None:
            self.hits += 1
            reply = read_reply(text)
            if not self.role and (reused := _REUSED.get()) is not None:
                reused.append(reply.usage)
            return self._note_usage(key, reply)
        if self.mode == "replay":
            raise ModelError(
                f"{self.address.name}: this request has no stored reply, and --replay asks no model",
                "Run once without --replay to record it.",
            )
        await self.open()
        assert self._model is not None
        reply = await self._model.reply(request)
        written = write_request(request) if self.role else ""
        # A student's trial waits for its result to be on disk, and the reply was handed to the store before it.
        await self.replies.add_reply(
            key, self.address.name, write_reply(reply), self.role, written, wait=bool(self.role)
        )
        return self._note_usage(key, reply)

    def _note_usage(self, key: str, reply: Reply) -> Reply:
        if self.role and (usage := _TRACKED_USAGE.get()) is not None:
            usage[key] = (self.role, reply.usage)
        return reply

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()


class BatchReplies:
    """Answers with the stored replies of a batch, and asks no model; a request without a reply has an error."""

    def __init__(self, address: Address, replies: ReplyStore, errors: Mapping[str, UpskillError]) -> None:
        self.address = address
        self.replies = replies
        self.errors = errors

    async def reply(self, request: Request) -> Reply:
        key = request_key(self.address, request)
        _track(key)
        if error := self.errors.get(key):
            raise copy(error)  # whoever catches it may change its message
        if (text := self.replies.reply(key)) is None:
            raise ModelError(f"{self.address.name}: this request was not part of a batch")
        return read_reply(text)

    async def close(self) -> None:
        pass


def request_key(address: Address, request: Request, identity: Sequence[object] | None = None) -> str:
    """A hash of everything that decides an answer; `identity` is what answers, where that is known already."""
    answers = identity_of(address) if identity is None else identity
    place = [address.provider, address.endpoint, address.base_url, address.model, address.effort, *answers]
    return digest_text(compact([place, request]))  # fields always come in the same order


def write_request(request: Request) -> str:
    return compact(request)


def write_reply(reply: Reply) -> str:
    return compact(reply)


def read_reply(text: str) -> Reply:
    fields: dict[str, Any] = json.loads(text)
    fields["usage"] = Usage(**fields["usage"])
    fields["calls"] = tuple(ToolCall(**call) for call in fields["calls"])
    fields["thinking"] = tuple(fields["thinking"])
    return Reply(**fields)
