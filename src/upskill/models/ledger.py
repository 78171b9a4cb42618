"""The ledger counts what this process spends on models, by role, and enforces ceilings."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from upskill.errors import CeilingReached, ModelError
from upskill.models import Model, Reply, Request, Role
from upskill.traces import NO_USAGE, Usage


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that may be spent; None: no ceiling."""

    cost_usd: float | None = None
    tokens: int | None = None
    calls: int | None = None


@dataclass
class Ledger:
    ceilings: Ceilings = field(default_factory=Ceilings)
    calls: int = 0  # answered or not
    spent: dict[str, Usage] = field(default_factory=dict[str, Usage])

    @property
    def total(self) -> Usage:
        return sum(self.spent.values(), NO_USAGE)

    def count_call(self) -> None:
        self.check()
        self.calls += 1

    def check(self) -> None:
        ceilings = self.ceilings
        if ceilings.calls is not None and self.calls >= ceilings.calls:
            raise CeilingReached(f"the limit of {ceilings.calls:,} calls was reached")
        if ceilings.tokens is None and ceilings.cost_usd is None:
            return
        total = self.total
        if ceilings.tokens is not None and total.total_tokens >= ceilings.tokens:
            raise CeilingReached(
                f"the limit of {ceilings.tokens:,} tokens was reached ({total.total_tokens:,} used)"
            )
        if ceilings.cost_usd is not None and (
            total.cost_usd is None or total.cost_usd >= ceilings.cost_usd
        ):
            spent = "unknown" if total.cost_usd is None else f"${total.cost_usd:.4f}"
            raise CeilingReached(f"the limit of ${ceilings.cost_usd:g} was reached ({spent} spent)")

    def record(self, role: Role, usage: Usage) -> None:
        self.spent[role] = self.spent.get(role, NO_USAGE) + usage


# How a retry inside a model's `reply` reaches the ledger of the model around it.
_COUNT_CALL: ContextVar[Callable[[], None] | None] = ContextVar("count_call", default=None)


def count_retry() -> None:
    """Called before each retry: it counts as a call, with the same ceilings."""
    if (count_call := _COUNT_CALL.get()) is not None:
        count_call()


class MeteredModel:
    def __init__(self, model: Model, ledger: Ledger, role: Role) -> None:
        self.model = model
        self.ledger = ledger
        self.role: Role = role

    async def reply(self, request: Request) -> Reply:
        self.ledger.count_call()
        before = _COUNT_CALL.set(self.ledger.count_call)
        try:
            reply = await self.model.reply(request)
        except ModelError as error:
            if error.usage is not None:
                self.ledger.record(self.role, error.usage)
            raise
        finally:
            _COUNT_CALL.reset(before)
        self.ledger.record(self.role, reply.usage)
        return reply
