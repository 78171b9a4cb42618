"""Answers that many pages ask for: made once between two changes of the store, however many ask."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from aiohttp import hdrs, web

MOST_KEPT = 200  # different questions
WORTH_COMPRESSING = 2_000  # bytes


@dataclass(frozen=True)
class Answer:
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200
    until: float = math.inf  # on the monotonic clock: what is being computed comes without another change

    @classmethod
    def of(cls, found: object) -> Answer:
        return cls(json.dumps(found).encode())

    @cached_property
    def tag(self) -> str:
        return f'"{hashlib.blake2b(self.body, digest_size=12).hexdigest()}"'

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, compresslevel=1)

    def response(self, request: web.Request) -> web.Response:
        """What is sent: nothing but the tag where the page has this answer already."""
        headers = {**self.headers, "ETag": self.tag}
        if self.status == 200 and request.headers.get(hdrs.IF_NONE_MATCH) == self.tag:
            return web.Response(status=304, headers=headers)
        body = self.body
        if len(body) > WORTH_COMPRESSING and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            body, headers[hdrs.CONTENT_ENCODING] = self.compressed, "gzip"
        return web.Response(body=body, status=self.status, content_type="application/json", headers=headers)


class Answers:
    def __init__(self, latest_change: Callable[[], int | None]) -> None:
        """`latest_change`: a number that grows when pages are told of a change; None while nobody looks for any."""
        self._latest_change = latest_change
        self._change = 0
        self._made: dict[str, asyncio.Task[Answer]] = {}

    async def get(self, question: str, make: Callable[[], Awaitable[Answer]]) -> Answer:
        change = self._latest_change()
        if change is None:
            return await make()
        if change != self._change or len(self._made) >= MOST_KEPT:
            self._change = change
            self._made.clear()
        if task := self._made.get(question):
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None and time.monotonic() < task.result().until:
                return task.result()
        task = self._made[question] = asyncio.ensure_future(make())
        return await asyncio.shield(task)
