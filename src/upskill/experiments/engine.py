"""What all experiments run their plans with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from upskill.errors import CeilingReached, UpskillError
from upskill.models import Model, Role
from upskill.models.addresses import resolve
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.running.gate import Measure
from upskill.runs.stores import Store, open_store

Tell = Callable[[str], None]
MAX_ERROR_RATE = 0.10  # share of the trials that may error before nothing can be decided
FEW_ERRORS = (
    3  # of a whole experiment: its parts are so small that one error may be half of their trials
)


@dataclass(slots=True)
class Engine:
    store: Store
    models: Models
    run_plan: Measure
    tell: Tell = lambda _: None
    trials: int = 0  # that were run
    errored: int = 0

    async def open_model(self, name: str, role: Role) -> Model:
        return await self.models.get(resolve(name, keys=self.models.context.keys), role)

    async def run_part(self, plan: Plan, cases: Sequence[str], seeds: range) -> Evaluation:
        """Run these cases of the plan as a part of an experiment."""
        wanted = set(cases)
        suite = replace(
            plan.suite,
            cases=tuple(case for case in plan.suite.cases if case.id in wanted),
            warnings=(),
        )
        part = replace(plan, suite=suite, seed=seeds.start, runs=len(seeds))
        options = RunOptions(purpose="search", partial=True)
        evaluation = await self.run_plan(part, options)
        self.trials += len(evaluation.outcomes)
        self.errored += sum(outcome.passed is None for outcome in evaluation.outcomes)
        if evaluation.halted:
            raise CeilingReached(evaluation.halted)
        has_many_errors = self.errored > max(FEW_ERRORS, MAX_ERROR_RATE * self.trials)
        is_broken = bool(evaluation.leaked or evaluation.bugs or evaluation.stopped)
        if (why := evaluation.why_failed) and (has_many_errors or is_broken):
            hint = "Fix this, then run the same command again. Finished trials are kept."
            raise UpskillError(f"{plan.skill.name} cannot be run: {why}", hint)
        return evaluation


def fit_rounds(plan: Plan, repeats: int | None, usual: int) -> tuple[Plan, int]:
    """The plan, and how many rounds its search may take. One round is greedy: what is seen is the truth."""
    is_exact = all(map(plan.is_exact, plan.addresses))
    rounds = 1 if is_exact else repeats or usual
    is_greedy = rounds == 1 and plan.temperature is None
    return (replace(plan, temperature=0.0) if is_greedy else plan), rounds


async def until_ceiling(search: Awaitable[object]) -> str:
    """Why it stopped before its end; empty if it did not. What is stored by then is enough to continue."""
    try:
        await search
    except CeilingReached as reached:
        return reached.message
    return ""


@asynccontextmanager
async def open_engine(
    store: Store | None, models: Models | None, events: Events | None
) -> AsyncGenerator[Engine]:
    """In memory, and with models that are closed in the end, if none are given."""
    seen = events or Events()
    with nullcontext(store) if store else open_store(None) as opened:
        async with models or Models(replies=opened) as ready:

            async def run_plan(plan: Plan, options: RunOptions) -> Evaluation:
                return await evaluate(
                    plan, store=opened, models=ready, options=options, events=seen
                )

            yield Engine(opened, ready, run_plan, seen.message)
