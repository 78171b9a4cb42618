"""What all experiments run their plans with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from upskill.authoring.search.loop import evaluation_error
from upskill.errors import CeilingReached
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.stores import Store, open_store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.verdicts.outcome import Outcome

RunPlan = Callable[[Plan, RunOptions], Awaitable[Evaluation]]


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs the plans of an experiment."""

    store: Store
    models: Models
    events: Events

    async def run_plan(self, plan: Plan, options: RunOptions) -> Evaluation:
        return await evaluate(plan, store=self.store, models=self.models, options=options, events=self.events)


@asynccontextmanager
async def open_engine(store: Store | None, models: Models | None, events: Events) -> AsyncGenerator[Engine]:
    """In memory, and with models that are closed in the end, if none are given."""
    with nullcontext(store) if store else open_store(None) as opened:
        async with models or Models(replies=opened) as ready:
            yield Engine(opened, ready, events)


async def run_version(
    plan: Plan, skill: Skill, cases: Sequence[str], seeds: range, run_plan: RunPlan
) -> Sequence[Outcome]:
    """What the students do with this version of the skill, as a part of an experiment."""
    suite, wanted = plan.suite, set(cases)
    subset = Suite(tuple(case for case in suite.cases if case.id in wanted), suite.source, suite.max_output_tokens)
    version = replace(plan, skill=skill, suite=subset, seed=seeds.start, runs=len(seeds))
    evaluation = await run_plan(version, RunOptions(keep_look=False, partial=True))
    if evaluation.halted:
        raise CeilingReached(evaluation.halted)
    if evaluation.too_many_errors:
        raise evaluation_error(f"{skill.name} cannot be run", evaluation)
    return evaluation.outcomes
