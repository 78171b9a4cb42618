"""An Executor runs the trials of a job, has each result stored, and hands it over as it arrives.

Kinds: `local` (this process, asyncio). One from another package is an entry point in the group `upskill.executors`: a
class that is called with how many trials of each model may run at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from upskill.models import ModelContext
from upskill.registry import Registry
from upskill.runs.plan import Plan, Result, Trial

EXECUTORS = Registry("executor", "upskill.executors", {"local": "upskill.runs.executors.local:Local"})


@dataclass(frozen=True)
class Job:
    """Trials of a plan with all it takes to run them: plain values that can be sent to another process or machine."""

    plan: Plan
    trials: tuple[Trial, ...]
    context: ModelContext
    previous: Mapping[Trial, Result] = field(default_factory=dict[Trial, Result])  # errored results of these trials

    def split(self, size: int) -> Iterator[Job]:
        """The same trials, at most so many at a time."""
        for start in range(0, len(self.trials), size):
            trials = self.trials[start : start + size]
            previous = {trial: self.previous[trial] for trial in trials if trial in self.previous}
            yield replace(self, trials=trials, previous=previous)


RunTrial = Callable[[Trial], Awaitable[Result | None]]  # None: a ceiling is reached, run no more
Persist = Callable[[Result], Awaitable[None]]  # returns when the result is on disk


class Executor(Protocol):
    def execute(self, job: Job, run: RunTrial, persist: Persist) -> AsyncGenerator[Result]:
        """Run these trials, in this order as far as possible; each result is stored before it is handed over.

        `run` runs a trial in this process, with the models that are open here. An executor that works elsewhere calls
        `upskill.runs.trial.run_job` there instead. A model whose result is `fatal` gets no further trial: those are
        missing, not errored, and wait for a resume.
        """
        ...
