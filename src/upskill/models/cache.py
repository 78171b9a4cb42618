"""The cache answers a repeated request (same seed included) with the stored reply, at no cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from typing import TypeVar

from upskill.errors import ModelError, UpskillError
from upskill.models import Address, CacheMode, Model, Reply, ReplyStore, Request, RequestHash
from upskill.models.addresses import identity_of
from upskill.models.cassette import Cassette, read_reply
from upskill.plain import compact, digest_text
from upskill.traces import Usage

T = TypeVar("T")

_REQUESTS: ContextVar[list[RequestHash] | None] = ContextVar("requests", default=None)
_USAGE: ContextVar[dict[str, tuple[str, Usage]] | None] = ContextVar("usage", default=None)


@contextmanager
def _tracked(variable: ContextVar[T | None], collected: T) -> Generator[T]:
    before = variable.set(collected)
    try:
        yield collected
    finally:
        variable.reset(before)


def track_requests() -> AbstractContextManager[list[RequestHash]]:
    return _tracked(_REQUESTS, list[RequestHash]())


def track_usage() -> AbstractContextManager[dict[str, tuple[str, Usage]]]:
    """Collects role and usage by request key, of all but students."""
    return _tracked(_USAGE, dict[str, tuple[str, Usage]]())


def _track(hashes: RequestHash) -> None:
    if (tracked := _REQUESTS.get()) is not None:
        tracked.append(hashes)


class NotRecorded(ModelError):
    """A request has no stored reply, and nobody is to be asked."""


class CachedModel:
    """Looks a reply up before asking. `refresh` only stores; `replay` only looks up."""

    def __init__(
        self,
        address: Address,
        opener: Callable[[], Awaitable[Model]],
        replies: ReplyStore,
        mode: CacheMode,
        role: str = "",
        cassette: Cassette | None = None,
    ) -> None:
        self.address = address
        self.role = role  # with one, requests are stored with their replies
        self.replies = replies
        self.mode = mode
        self.cassette = cassette
        self.hits = 0
        self._opener = opener
        self._model: Model | None = None
        self._model_key = _model_key(address)  # a script may be edited later

    async def open(self) -> None:
        if self._model is None and self.mode != "replay":
            self._model = await self._opener()

    async def reply(self, request: Request) -> Reply:
        hashes = _hash_at(self._model_key, request, self.role)
        key = hashes.key
        _track(hashes)
        if (reply := self._look_up(hashes)) is not None:
            self.hits += 1
            return self._note_usage(key, reply)
        if self.mode == "replay":
            raise NotRecorded(
                f"{self.address.name}: no stored reply for this request, and --replay does not call models",
                "Run once without --replay to record it.",
                failure="not asked",
            )
        await self.open()
        assert self._model is not None
        reply = await self._model.reply(request)
        written = compact(request) if self.role else ""
        # A student's trial waits for its result, which is stored after the reply.
        await self.replies.add_reply(
            key, self.address.name, write_reply(reply), self.role, written, wait=bool(self.role)
        )
        return self._note_usage(key, reply)

    def _look_up(self, hashes: RequestHash) -> Reply | None:
        if self.cassette is not None:
            return self.cassette.reply(self.address, hashes.request)
        text = None if self.mode == "refresh" else self.replies.reply(hashes.key)
        return None if text is None else read_reply(text)

    def _note_usage(self, key: str, reply: Reply) -> Reply:
        if self.role and (usage := _USAGE.get()) is not None:
            usage[key] = (self.role, reply.usage)
        return reply


class BatchReplies:
    """Answers with the stored replies of a batch, and asks no model."""

    def __init__(
        self, address: Address, replies: ReplyStore, errors: Mapping[str, UpskillError]
    ) -> None:
        self.address = address
        self.replies = replies
        self.errors = errors

    async def reply(self, request: Request) -> Reply:
        hashes = _hash_at(_model_key(self.address), request)
        key = hashes.key
        _track(hashes)
        if error := self.errors.get(key):
            raise copy(error)  # whoever catches it may change its message
        if (text := self.replies.reply(key)) is None:
            raise ModelError(
                f"{self.address.name}: this request was not part of a batch", failure="not asked"
            )
        return read_reply(text)


def request_key(address: Address, request: Request) -> str:
    return _hash_at(_model_key(address), request).key


def _model_key(address: Address) -> str:
    parts = (address.provider, address.endpoint, address.base_url, address.model, address.effort)
    return compact([*parts, *identity_of(address)])


def _hash_at(model_key: str, request: Request, role: str = "") -> RequestHash:
    written = compact(request)  # fields always come in the same order
    return RequestHash(digest_text(f"[{model_key},{written}]"), digest_text(written), role)


def write_reply(reply: Reply) -> str:
    return compact(reply)
