"""An Executor runs the trials of a job, has each result stored, and hands it over as it arrives.

Kinds: `local` (this process, asyncio) and `ray` (this machine's cores, or a cluster). One from another package is an
entry point in the group `upskill.executors`: a class that is called with how many trials of each model may run at a
time.

- `chunk`: trials that a worker runs in one go; `chunk_queue`: cuts them off what is to be run
- `leases`: the share of the ceilings that each worker may spend
- `garbage`: how often Python looks for some
- `ray_cluster`: starting Ray or joining a cluster
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Protocol, runtime_checkable

from upskill.models import ModelContext, Models
from upskill.record import record
from upskill.registry import Registry
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.stores import Run

EXECUTORS = Registry(
    "executor",
    "upskill.executors",
    {"local": "upskill.runs.running.executors.local:Local", "ray": "upskill.runs.running.executors.ray:Ray"},
)


@record
class Job:
    """Trials of a plan with all it takes to run them: plain values that can be sent to another process or machine."""

    plan: Plan
    trials: Collection[Trial]  # in the order in which they are to be run; there may be a million of them
    context: ModelContext
    previous: Mapping[Trial, Result] = field(default_factory=dict[Trial, Result])  # errored results of these trials

    def split(self, size: int) -> Iterator[Job]:
        """The same trials, at most so many at a time."""
        left = iter(self.trials)
        while trials := tuple(islice(left, size)):
            previous = {trial: self.previous[trial] for trial in trials if trial in self.previous}
            yield replace(self, trials=trials, previous=previous)


RunTrial = Callable[[Trial], Awaitable[Result | None]]  # None: a ceiling is reached, run no more
Persist = Callable[[Result], Awaitable[None]]  # returns when the result is on disk


class Executor(Protocol):
    def execute(self, job: Job, run: RunTrial, persist: Persist) -> AsyncGenerator[Result]:
        """Run these trials, in this order as far as possible; each result is stored before it is handed over.

        `run` runs a trial in this process, with the models that are open here. An executor elsewhere calls
        `run_job` there instead. A model whose result is `fatal` gets no further trial: those are
        missing, not errored, and wait for a resume.
        """
        ...


@record
class Session:
    """Where the results of a job go, and the models of this process: its ledger is the one that counts."""

    run: Run
    store: str | None = field(repr=False)  # its place; None: only this process can write to it
    models: Models
    persist: Persist
    scored: Callable[[Sequence[str]], Iterator[Result]]  # what the store has under these keys


@runtime_checkable
class RemoteExecutor(Protocol):
    """An executor whose workers write to the store themselves."""

    def check(self, plan: Plan, models: Models) -> None:
        """UsageError where this plan cannot be run; asked before a model is opened."""
        ...

    def open(self, store: str | None) -> None:
        """Get ready for workers that write to the store at this place; UsageError before anything is paid for."""
        ...

    def execute_remotely(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        """Run these trials; each result is stored before it is handed over, with a trace that has no texts in it.

        What workers spend counts in the ledger of the session; CeilingReached at the end where it allowed no more.
        """
        ...


@record
class Resources:
    """What one trial needs of the machine it runs on. With any of them, a worker runs one trial at a time."""

    cpus: float | None = None
    gpus: float | None = None
    memory_mb: float | None = None

    @property
    def given(self) -> bool:
        return any(value is not None for value in (self.cpus, self.gpus, self.memory_mb))
