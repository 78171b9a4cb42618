"""Models: the models that this process has open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from upskill.models import (
    Address,
    CacheMode,
    Failures,
    Model,
    ModelContext,
    OpenModel,
    ReplyStore,
    Role,
    StudentModel,
    open_model,
)
from upskill.models.cache import CachedModel
from upskill.models.cassette import Cassette
from upskill.models.ledger import Ledger, MeteredModel
from upskill.models.throttling import PatientModel


class Models:
    """The models this process has open: each address once, all closed together. In `replay` nothing is opened."""

    def __init__(
        self,
        context: ModelContext | None = None,
        *,
        replies: ReplyStore | None = None,
        cache: CacheMode = "use",
        ledger: Ledger | None = None,
        cassette: Cassette | None = None,
    ) -> None:
        self.context = context or ModelContext.load()
        self.replies = replies if cache != "off" else None
        self.cache: CacheMode = (
            "replay" if cassette else cache
        )  # never partly from a file and partly from a model
        self.ledger = ledger
        self.cassette = cassette
        self._open: dict[Address, OpenModel] = {}
        self._locks: dict[Address, asyncio.Lock] = {}
        self._in_role: dict[tuple[Address, str], Model] = {}
        self._users = 0
        self._cached: list[CachedModel] = []
        self.hits_elsewhere = 0  # of other processes that worked for this one
        self.answers_from_cache: dict[str, bool] = {}  # by name, of servers that were probed

    @property
    def hits(self) -> int:
        return sum(cached.hits for cached in self._cached) + self.hits_elsewhere

    @property
    def failures(self) -> dict[str, Failures]:
        """By name, of those that are open and count them."""
        return {
            address.name: Failures(breaker.failures, breaker.answered)
            for address, model in self._open.items()
            if (breaker := getattr(model, "breaker", None))
        }

    async def get(self, address: Address, role: Role = "student") -> Model:
        model = self._in_role.get((address, role))
        if model is None:
            model = await self._wrap(address, role)
            self._in_role[address, role] = model
        return model

    def stand_in(self, address: Address, model: Model, role: Role = "student") -> None:
        self._in_role[address, role] = model

    async def uncached(self, address: Address, role: Role = "student") -> Model:
        """Counted in the ledger, but without stored replies."""
        model: Any = await self._opened(address)
        if address.provider == "handoff" and role in ("student", "judge"):
            model = model.blinded()  # whoever answers must not learn which arm a request belongs to
        if role != "student":
            model = PatientModel(model, self.context.retries)
        model = MeteredModel(model, self.ledger, role) if self.ledger else model
        return StudentModel(model) if role == "student" else model

    async def _wrap(self, address: Address, role: Role) -> Model:
        async def opened() -> Model:
            return await self.uncached(address, role)

        if self.replies is None:
            return await opened()
        # Answers that lie in a folder are read again each time: a person may have changed them.
        refreshes = address.provider == "handoff" and self.cache == "use"
        cached = CachedModel(
            address,
            opened,
            self.replies,
            mode="refresh" if refreshes else self.cache,
            role="" if role == "student" else role,
            cassette=self.cassette,
        )
        await cached.open()
        self._cached.append(cached)
        return cached

    async def _opened(self, address: Address) -> OpenModel:
        async with self._locks.setdefault(address, asyncio.Lock()):
            if address not in self._open:
                self._open[address] = await open_model(address, self.context)
            return self._open[address]

    async def forget(self, keys: Iterable[str]) -> None:
        """Forget stored replies that led to an error, so that the next attempt asks again."""
        if self.replies is not None and self.cache != "replay":
            for key in keys:
                await self.replies.forget_reply(key)

    async def close(self) -> None:
        models, self._open = list(self._open.values()), {}
        self._in_role.clear()
        await asyncio.gather(*(model.close() for model in models))

    async def __aenter__(self) -> Models:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closed by the last who leaves: a search evaluates many times with the same models."""
        self._users -= 1
        if not self._users:
            await self.close()
