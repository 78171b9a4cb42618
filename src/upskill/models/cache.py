"""The cache gives an identical request its stored reply: a second asking costs nothing.

Everything that decides an answer is in the key, the seed too, so repeats with different seeds never share a reply.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any

from upskill.errors import ModelError, UpskillError
from upskill.models import Address, CacheMode, Model, Reply, ReplyStore, Request, ToolCall
from upskill.plain import compact, digest_text
from upskill.traces import Usage

_ASKED: ContextVar[list[str] | None] = ContextVar("asked", default=None)


@contextmanager
def track_keys() -> Generator[list[str]]:
    """The keys of every request that is made inside, so that the replies of a trial that errored can be forgotten."""
    asked: list[str] = []
    before = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(before)


_NOTED: ContextVar[dict[str, tuple[str, Usage]] | None] = ContextVar("noted", default=None)


@contextmanager
def track_usage() -> Generator[dict[str, tuple[str, Usage]]]:
    """What everyone but the students used inside, with their role, by the key of the request.

    A reply from the shelf is in it at the price it had when it was paid for, each once.
    """
    noted: dict[str, tuple[str, Usage]] = {}
    before = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(before)


class Cached:
    """Looks on the shelf before it asks. `refresh` only puts there; `replay` only takes, and a miss is an error."""

    def __init__(
        self,
        address: Address,
        opener: Callable[[], Awaitable[Model]],
        replies: ReplyStore,
        mode: CacheMode,
        role: str = "",
    ) -> None:
        self.address = address
        self.role = role  # with one, the requests are kept beside the replies
        self.replies = replies
        self.mode = mode
        self.hits = 0
        self._opener = opener
        self._model: Model | None = None

    async def open(self) -> None:
        if self._model is None and self.mode != "replay":
            self._model = await self._opener()

    async def reply(self, request: Request) -> Reply:
        key = request_key(self.address, request)
        if (asked := _ASKED.get()) is not None:
            asked.append(key)
        if self.mode != "refresh" and (text := self.replies.reply(key)) is not None:
            self.hits += 1
            return self._noted(key, read_reply(text))
        if self.mode == "replay":
            raise ModelError(
                f"{self.address.name}: this request has no stored reply, and --replay asks nobody",
                "Run once without --replay to record it.",
            )
        await self.open()
        assert self._model is not None
        reply = await self._model.reply(request)
        asked_for = write_request(request) if self.role else ""
        # A student's trial waits for its result to be on disk, and what the store got before is then there too.
        await self.replies.add_reply(
            key, self.address.name, write_reply(reply), self.role, asked_for, wait=bool(self.role)
        )
        return self._noted(key, reply)

    def _noted(self, key: str, reply: Reply) -> Reply:
        if self.role and (noted := _NOTED.get()) is not None:
            noted[key] = (self.role, reply.usage)
        return reply

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()


class BatchReplies:
    """Answers with what a batch has put on the shelf, and asks nobody: what has no reply has an error that says why."""

    def __init__(self, address: Address, replies: ReplyStore, errors: Mapping[str, UpskillError]) -> None:
        self.address = address
        self.replies = replies
        self.errors = errors

    async def reply(self, request: Request) -> Reply:
        key = request_key(self.address, request)
        if error := self.errors.get(key):
            raise copy(error)  # whoever catches it may add to its words
        if (text := self.replies.reply(key)) is None:
            raise ModelError(f"{self.address.name}: this request was not part of a batch")
        return read_reply(text)

    async def close(self) -> None:
        pass


def request_key(address: Address, request: Request) -> str:
    place = [address.provider, address.endpoint, address.base_url, address.model, address.effort]
    return digest_text(compact([place, request]))  # every request has its fields in one order


def write_request(request: Request) -> str:
    return compact(request)


def write_reply(reply: Reply) -> str:
    return compact(reply)


def read_reply(text: str) -> Reply:
    said: dict[str, Any] = json.loads(text)
    said["usage"] = Usage(**said["usage"])
    said["calls"] = tuple(ToolCall(**call) for call in said["calls"])
    said["thinking"] = tuple(said["thinking"])
    return Reply(**said)
