"""The cache answers an identical request with the stored reply, at no cost.

The key covers everything that decides an answer, the seed included, so repeats with different seeds never share one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import fields
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from upskill.errors import ModelError, UpskillError
from upskill.models import Address, Asked, CacheMode, Message, Model, Reply, ReplyStore, Request, ToolCall
from upskill.models.identity import identity_of
from upskill.plain import compact, digest_text, json_writer
from upskill.traces import Usage

if TYPE_CHECKING:
    from _hashlib import HASH

    from upskill.models.cassette import Cassette

T = TypeVar("T")
_AFTER_MESSAGES = tuple(field.name for field in fields(Request))[1:]
_REPLY_FIELDS = tuple(field.name for field in fields(Reply))
_reply_values = attrgetter(*_REPLY_FIELDS)
SHORT = 4_000  # characters of a question whose hash is kept
SHORT_ONES = 2_000  # that are


class _Tracking(Generic[T]):
    """A list that what happens inside is added to. A class, as every trial opens three of them."""

    __slots__ = ("_before", "_variable")

    def __init__(self, variable: ContextVar[list[T] | None]) -> None:
        self._variable = variable

    def __enter__(self) -> list[T]:
        found: list[T] = []
        self._before = self._variable.set(found)
        return found

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._before)


_ASKED: ContextVar[list[Asked] | None] = ContextVar("asked", default=None)


def track_asked() -> _Tracking[Asked]:
    """Collects the hashes of all requests inside: the replies of an errored trial are forgotten, those of others can
    be exported."""
    return _Tracking(_ASKED)


def _track(asked: Asked) -> None:
    if (tracked := _ASKED.get()) is not None:
        tracked.append(asked)


_REUSED: ContextVar[list[Usage] | None] = ContextVar("reused", default=None)


def track_reused() -> _Tracking[Usage]:
    """Collects the usage of all replies to students inside that were stored before, and so were not paid for again."""
    return _Tracking(_REUSED)


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


class NotRecorded(ModelError):
    """A request has no stored reply, and nobody is to be asked."""


class CachedModel:
    """Looks a reply up before asking. `refresh` only stores; `replay` only looks up, and a miss is an error.

    With a cassette, replies are looked up there and nowhere else.
    """

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
        self._hasher = RequestHasher(address)  # of what it is now: a script may be edited while its model is open

    async def open(self) -> None:
        if self._model is None and self.mode != "replay":
            self._model = await self._opener()

    async def reply(self, request: Request) -> Reply:
        asked = self._hasher.hash(request, self.role)
        key = asked.key
        _track(asked)
        if (reply := self._look_up(asked)) is not None:
            self.hits += 1
            if not self.role and (reused := _REUSED.get()) is not None:
                reused.append(reply.usage)
            return self._note_usage(key, reply)
        if self.mode == "replay":
            raise NotRecorded(
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

    def _look_up(self, asked: Asked) -> Reply | None:
        if self.cassette is not None:
            return self.cassette.reply(self.address, asked.request)
        text = None if self.mode == "refresh" else self.replies.reply(asked.key)
        return None if text is None else read_reply(text)

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
        asked = hash_request(self.address, request)
        key = asked.key
        _track(asked)
        if error := self.errors.get(key):
            raise copy(error)  # whoever catches it may change its message
        if (text := self.replies.reply(key)) is None:
            raise ModelError(f"{self.address.name}: this request was not part of a batch")
        return read_reply(text)

    async def close(self) -> None:
        pass


def request_key(address: Address, request: Request) -> str:
    """A hash of everything that decides an answer."""
    return hash_request(address, request).key


def hash_request(address: Address, request: Request) -> Asked:
    return RequestHasher(address).hash(request)


class RequestHasher:
    """Hashes requests to one model. How they begin is hashed once: all trials of an arm share the first message, which
    may be a long skill, and all trials of a case and an arm the others too."""

    def __init__(self, address: Address) -> None:
        answers = identity_of(address)
        place = [address.provider, address.endpoint, address.base_url, address.model, address.effort, *answers]
        self._place = compact(place)
        self._begun = lru_cache(maxsize=16)(self._begin)
        self._short = lru_cache(maxsize=SHORT_ONES)(self._after_messages)

    def hash(self, request: Request, role: str = "") -> Asked:
        messages = request.messages
        if messages and messages[0].role == "system":
            with suppress(ValueError):
                is_short = len(messages) == 2 and not messages[1].thinking and len(messages[1].text) < SHORT
                key, alone = self._short(messages) if is_short else self._after_messages(messages)
                rest = _write_rest(request)
                key, alone = key.copy(), alone.copy()
                alone.update(rest)
                key.update(rest + b"]")
                return Asked(key.hexdigest()[:16], alone.hexdigest()[:16], role)
        written = compact(request)  # fields always come in the same order
        return Asked(digest_text(f"[{self._place},{written}]"), digest_text(written), role)

    def _begin(self, first: Message) -> tuple[HASH, HASH]:
        """The hashes of a key and of a request, as far as the end of the first message."""
        written = b'{"messages":[' + json_writer()(first)
        return sha256(f"[{self._place},".encode(errors="surrogatepass") + written), sha256(written)

    def _after_messages(self, messages: tuple[Message, ...]) -> tuple[HASH, HASH]:
        """The same as far as the end of the last message."""
        first, *others = messages
        key, alone = (begun.copy() for begun in self._begun(first))
        written = (b"," if others else b"") + json_writer()(others)[1:] + b","
        key.update(written)
        alone.update(written)
        return key, alone


def _write_rest(request: Request) -> bytes:
    """What follows the messages of a request, as JSON."""
    if request.schema is None and not request.tools:
        before, after = _around_seed(request.max_output_tokens, request.temperature, request.effort)
        return b"%b%b%b" % (before, b"null" if request.seed is None else b"%d" % request.seed, after)
    return json_writer()({name: getattr(request, name) for name in _AFTER_MESSAGES})[1:]


@lru_cache(maxsize=64, typed=True)  # 0 and 0.0 are equal and written differently
def _around_seed(max_output_tokens: int, temperature: float | None, effort: str) -> tuple[bytes, bytes]:
    before = json_writer()({"max_output_tokens": max_output_tokens, "temperature": temperature})
    after = json_writer()({"schema": None, "tools": (), "effort": effort})
    return before[1:-1] + b',"seed":', b"," + after[1:]


def write_request(request: Request) -> str:
    return compact(request)


def write_reply(reply: Reply) -> str:
    return compact(dict(zip(_REPLY_FIELDS, _reply_values(reply), strict=True)))  # half the price of the dataclass


def read_reply(text: str) -> Reply:
    fields: dict[str, Any] = json.loads(text)
    fields["usage"] = Usage(**fields["usage"])
    fields["calls"] = tuple(ToolCall(**call) for call in fields["calls"])
    fields["thinking"] = tuple(fields["thinking"])
    return Reply(**fields)
