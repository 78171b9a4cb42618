"""An Executor carries trials: it runs those it is given, keeps each result, and hands it over as it arrives.

Kinds: `local` (this process, asyncio).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Protocol

from upskill.registry import Registry
from upskill.runs.plan import Plan, Result, Trial

EXECUTORS = Registry("executor", "upskill.executors", {"local": "upskill.runs.executors.local:Local"})

RunTrial = Callable[[Plan, Trial], Awaitable[Result | None]]  # None: a ceiling is reached, run no more
Persist = Callable[[Result], Awaitable[None]]


class Executor(Protocol):
    def execute(self, plan: Plan, trials: Iterable[Trial], run: RunTrial, keep: Persist) -> AsyncGenerator[Result]:
        """Run these trials, in this order as far as possible; each result is kept before it is handed over.

        A model whose result is `fatal` gets no further trial: those are missing, not errored, and wait for a resume.
        """
        ...
