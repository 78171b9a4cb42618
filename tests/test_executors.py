"""A job can be carried to another process: an executor over a process pool gives what the local one gives."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import pickle
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from conftest import HELPFUL, write_script, write_skill
from upskill import ModelContext, Models, RunOptions, Skill, Suite, evaluate, make_plan, open_store
from upskill.runs.planning.plan import Plan, PlanOptions, Result
from upskill.runs.running.executors import Job, Persist, RunTrial
from upskill.runs.running.executors.garbage import COLLECT_AFTER
from upskill.runs.running.trial import run_job


class Pool:
    """Runs jobs in other processes. What runs there gets nothing but the pickled job."""

    def __init__(self, processes: int = 2) -> None:
        self.processes = processes

    async def execute(self, job: Job, run: RunTrial, persist: Persist) -> AsyncGenerator[Result]:
        del run  # runs trials in this process
        loop = asyncio.get_running_loop()
        with ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn")) as pool:
            parts = [loop.run_in_executor(pool, run_job, part) for part in job.split(3)]
            for part in asyncio.as_completed(parts):
                for result in await part:
                    await persist(result)
                    yield result


def plan_in(home: Path, options: PlanOptions | None = None) -> Plan:
    rules = [{"when": "guest 3", "error": "the line is dead"}, *HELPFUL]
    models = [write_script(home / "one.yaml", rules), write_script(home / "two.yaml")]
    return make_plan(Skill.load(write_skill(home / "greeter")), models=models, options=options)


def told(results: list[Result]) -> list[tuple[object, ...]]:
    """What two runs of the same trial must agree on: all but the time it took."""
    rows = [(one.trial, one.key, one.passed, one.error, one.usage, one.judgements) for one in results]
    return sorted(rows, key=lambda row: str(row[0]))


async def test_a_plan_runs_in_a_process_pool_and_ends_as_it_does_here(home: Path) -> None:
    plan = plan_in(home, PlanOptions(runs=2, temperature=0.0))
    with open_store(home / "here") as here, open_store(home / "there") as there:
        local = await evaluate(plan, store=here)
        pooled = await evaluate(plan, store=there, options=RunOptions(executor=Pool()))
        assert told(list(here.results(local.run))) == told(list(there.results(pooled.run)))
    assert pooled.errors == local.errors
    assert [verdict.lift for verdict in pooled.verdicts] == [verdict.lift for verdict in local.verdicts]
    assert len(pooled.outcomes) == len(plan) == 32


async def test_what_a_pool_has_stored_is_not_run_again(home: Path) -> None:
    plan = plan_in(home)
    with open_store(home / "runs") as store:
        await evaluate(plan, store=store, options=RunOptions(executor=Pool()))
        write_script(home / "one.yaml", [{"error": "nobody may be asked again"}])
        write_script(home / "two.yaml", [{"error": "nobody may be asked again"}])
        evaluation = await evaluate(plan, store=store, options=RunOptions(executor=Pool()))
    assert [message for _, message, _ in evaluation.errors] == ["asking scripted:one.yaml: nobody may be asked again"]
    assert evaluation.run.passed + evaluation.run.failed == 14


def test_a_job_survives_pickling_with_keys_but_without_anything_live(home: Path) -> None:
    suite = Suite.parse(
        [
            {
                "id": "a",
                "prompt": "Greet.",
                "checks": [{"regex": "ahoy"}, {"json_schema": {"schema": {"type": "object"}}}],
            }
        ]
    )
    plan = make_plan(Skill.load(write_skill(home / "greeter")), suite, [write_script(home / "one.yaml")])
    notes: list[str] = []
    context = ModelContext(keys={"OPENAI_API_KEY": "x"}, tell=notes.append)
    job = Job(plan, tuple(plan.trials()), Models(context).context.portable())
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert [copy.plan.key(trial) for trial in copy.trials] == [plan.key(trial) for trial in plan.trials()]
    assert copy.context.keys == {"OPENAI_API_KEY": "x"}


async def test_evaluations_that_overlap_leave_the_garbage_collector_as_it_was(home: Path) -> None:
    before = gc.get_threshold()
    slow = write_script(home / "slow.yaml", [{"seconds": 0.2, "answer": "hello"}])
    quick = write_script(home / "quick.yaml", [{"answer": "hello"}])
    skill = Skill.load(write_skill(home / "greeter"))
    during: list[int] = []

    async def run(model: str) -> None:
        await evaluate(make_plan(skill, models=[model]))
        during.append(gc.get_threshold()[0])

    # The one that begins last ends first, and the other way round.
    for models in ((slow, quick), (quick, slow)):
        await asyncio.gather(*map(run, models))
        assert gc.get_threshold() == before
    assert during == [COLLECT_AFTER, before[0]] * 2
