"""An Executor carries trials: it runs those it is given and hands over each result as it arrives.

Kinds: `local` (this process, asyncio).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from upskill.registry import Registry
from upskill.trial import Plan, Result, Trial

EXECUTORS = Registry("executor", "upskill.executors", {"local": "upskill.executors.local:Local"})


class Executor(Protocol):
    def carry(self, plan: Plan, trials: Iterable[Trial]) -> AsyncIterator[Result]:
        """Run these trials, in this order as far as possible. Each result is handed over once."""
        ...
