"""Leases: shares of the ceilings, so that workers on many machines keep them together without asking at every call.

Whoever cuts the work into chunks keeps the book. A worker spends its lease and no more, and says what it used. Of one
that was lost, what it stored counts, and what it may have had in flight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from upskill.errors import CeilingReached
from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.planning.plan import Result
from upskill.traces import NO_USAGE, Usage

UNCERTAINTY = 3  # trials may need this many times what they have needed so far


@dataclass
class _Sum:
    """How much of each of the three that may have a ceiling."""

    cost_usd: float = 0.0
    tokens: float = 0
    calls: float = 0

    def add(self, lease: Ceilings, sign: int = 1) -> None:
        for name in NAMES:
            setattr(self, name, getattr(self, name) + sign * (getattr(lease, name) or 0))


NAMES = tuple(each.name for each in fields(Ceilings))


class LeaseBook:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.ceilings = ledger.ceilings
        self._holders = 0
        self._outstanding = _Sum()
        self._lost = _Sum()
        self._used = _Sum()  # for the trials that are settled
        self._trials = 0

    def grant(self, trials: int, workers: int) -> Ceilings | None:
        """A lease for so many trials, one of about so many at a time; None while others hold all that is left.

        CeilingReached when that is how it stays.
        """
        self.ledger.check()
        shares = {name: self._share(name, trials, workers) for name in NAMES}
        if all(share is None or share > 0 for share in shares.values()):
            calls, tokens = shares["calls"], shares["tokens"]
            lease = Ceilings(
                shares["cost_usd"],
                None if tokens is None else math.ceil(tokens),
                None if calls is None else math.floor(calls),
            )
            self._holders += 1
            self._outstanding.add(lease)
            return lease
        if self._holders:
            return None
        raise CeilingReached("the ceiling is reached, with what workers that were lost may have spent")

    def settle(self, lease: Ceilings, calls: int, spent: Mapping[str, Usage], trials: int) -> None:
        """A worker is done with its lease: record what it used."""
        self._return(lease)
        self.ledger.calls += calls
        for role, usage in spent.items():
            self.ledger.spent[role] = self.ledger.spent.get(role, NO_USAGE) + usage
            self._used.add(Ceilings(usage.cost_usd, usage.total_tokens, 0))
        self._used.calls += calls
        self._trials += trials

    def lose(self, lease: Ceilings, stored: Sequence[Result], in_flight: int) -> None:
        """A worker died that had stored these results, and nobody knows how far it was with so many others."""
        calls = sum(max(1, len(result.asked)) for result in stored)
        student = sum((result.usage for result in stored), NO_USAGE)
        judge = sum((result.judging for result in stored), NO_USAGE)
        self.settle(lease, calls, {"student": student, "judge": judge} if stored else {}, len(stored))
        total = student + judge
        known = _Sum(total.cost_usd or 0.0, total.total_tokens, calls)
        for name in NAMES:
            unknown = max(0.0, (getattr(lease, name) or 0) - getattr(known, name))
            if self._trials and (each := self._per_trial(name)):
                unknown = min(unknown, UNCERTAINTY * each * in_flight)
            setattr(self._lost, name, getattr(self._lost, name) + unknown)

    def _per_trial(self, name: str) -> float:
        return getattr(self._used, name) / self._trials

    def _return(self, lease: Ceilings) -> None:
        self._holders -= 1
        self._outstanding.add(lease, -1)
        if not self._holders:
            self._outstanding = _Sum()  # exactly: fractions of dollars do not add up

    def _share(self, name: str, trials: int, workers: int) -> float | None:
        ceiling = getattr(self.ceilings, name)
        if ceiling is None:
            return None
        total = self.ledger.total
        spent = {"cost_usd": total.cost_usd or 0.0, "tokens": total.total_tokens, "calls": self.ledger.calls}[name]
        left = ceiling - spent - getattr(self._outstanding, name) - getattr(self._lost, name)
        if left <= 0 or (name == "calls" and left < 1):  # an estimate of what was lost has fractions
            return 0
        share = left / (2 * workers)
        if self._trials and (each := self._per_trial(name)):
            share = min(share, UNCERTAINTY * each * trials)
        return min(left, max(share, 1)) if name == "calls" else share
