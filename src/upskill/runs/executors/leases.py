"""Leases: shares of the ceilings, so that workers on many machines keep them together without asking at every call.

Whoever cuts the work into chunks keeps the book. A worker spends its lease and no more, and says what it used. A lease
whose worker was lost counts as spent: ceilings fail closed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from upskill.errors import CeilingReached
from upskill.models.ledger import Ceilings, Ledger
from upskill.traces import Usage

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
            self.ledger.spent[role] = self.ledger.spent[role] + usage if role in self.ledger.spent else usage
            self._used.add(Ceilings(usage.cost_usd, usage.total_tokens, 0))
        self._used.calls += calls
        self._trials += trials

    def lose(self, lease: Ceilings) -> None:
        """Nobody knows what was spent of it."""
        self._return(lease)
        self._lost.add(lease)

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
        if left <= 0:
            return 0
        share = left / (2 * workers)
        if self._trials and (each := getattr(self._used, name) / self._trials):
            share = min(share, UNCERTAINTY * each * trials)
        return min(left, max(share, 1)) if name == "calls" else share
