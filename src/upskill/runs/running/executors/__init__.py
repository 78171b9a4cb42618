"""An Executor runs the trials of a job, has each result stored, and hands it over as it arrives.

Kinds: `local` (this process, asyncio) and `ray` (this machine's cores, or a cluster). Another package can add one as an
entry point in the group `upskill.executors`: a class called with the number of concurrent trials per model.

- `chunks`: trials that a worker runs in one go, how they are cut, and the share of the ceilings that each may spend
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from upskill.models import ModelContext
from upskill.models.pool import Models
from upskill.registry import Registry
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.stores import Run

EXECUTORS = Registry(
    "executor",
    "upskill.executors",
    {
        "local": "upskill.runs.running.executors.local:Local",
        "ray": "upskill.runs.running.executors.ray:Ray",
    },
)


@dataclass(frozen=True, slots=True)
class Job:
    """Trials of a plan with all it takes to run them: plain values that can be sent to another process or machine."""

    plan: Plan
    trials: Sequence[Trial]  # in the order in which they are to be run
    context: ModelContext
    previous: Mapping[Trial, Result] = field(
        default_factory=dict[Trial, Result]
    )  # errored results of these trials


@dataclass(frozen=True, slots=True)
class Session:
    """What an executor of this process works with. The ledger of its models is the one that counts."""

    run: Run
    store: str | None = field(
        repr=False
    )  # where workers write results; None: only this process can
    models: Models
    run_trial: Callable[
        [Trial], Awaitable[Result | None]
    ]  # in this process; None: a ceiling is reached, run no more
    persist: Callable[[Result], Awaitable[None]]  # returns when the result is on disk
    settled: Callable[[Sequence[str]], Iterator[Result]]  # what the store has under these keys


class Executor(ABC):
    is_remote: ClassVar[bool] = (
        False  # workers elsewhere call the models, and write to the store themselves
    )
    makes_live_calls: ClassVar[bool] = True  # else a model is asked only for the plan's trials

    def check(self, plan: Plan, models: Models) -> None:  # noqa: B027 - most run any plan
        """UsageError where this plan cannot be run; called before a model is opened."""

    def open(self, plan: Plan, store: str | None) -> None:
        """Get ready to run, with workers that write to this store; UsageError before anything is paid for."""
        del store
        for case in plan.suite.cases:
            for named in case.checks:
                named.check.expect_tools()

    @abstractmethod
    def execute(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        """Run these trials, in this order as far as possible; each result is stored before it is handed over.

        A model whose result is `fatal` gets no further trial: those are missing, not errored. Results of remote workers
        have traces without texts. CeilingReached at the end where the session's ledger allows no more.
        """


@dataclass(frozen=True, slots=True)
class Resources:
    """What one trial needs of the machine it runs on. With any of them, a worker runs one trial at a time."""

    cpus: float | None = None
    gpus: float | None = None
    memory_mb: float | None = None

    @property
    def are_stated(self) -> bool:
        return any(value is not None for value in (self.cpus, self.gpus, self.memory_mb))
