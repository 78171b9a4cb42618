"""What a run of a million trials keeps in memory: neither what is left to run, nor what has run."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import astuple
from itertools import islice
from pathlib import Path

import pytest

from conftest import write_script, write_skill
from upskill import ModelContext, Plan, PlanOptions, Skill, evaluate, make_plan, open_store
from upskill.models.ledger import Ledger
from upskill.runs.planning.estimate import estimate
from upskill.runs.planning.pending import PendingTrials
from upskill.runs.planning.plan import Result, Trial
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.events import Events
from upskill.runs.running.executors import Job, Session
from upskill.runs.running.executors.chunks import ChunkQueue
from upskill.runs.running.executors.local import Local
from upskill.verdicts.outcome import Outcome

MB = 2**20


def plan_of(home: Path, cases: int, runs: int, models: Iterable[str] = ("a", "b")) -> Plan:
    skill = Skill.load(write_skill(home / "greeter", cases=cases))
    return make_plan(skill, models=models, options=PlanOptions(runs=runs, seed=3, base_url="http://127.0.0.1:9/v1"))


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that Python had in use at a time, beyond what it had before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def scored_of(trials: Iterable[Trial]) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = {}
    for trial in trials:
        group = trial.model, trial.case, trial.arm
        found[group] = found.get(group, 0) + 1
    return found


@pytest.mark.parametrize("share", [0, 1, 2, 3])
def test_what_is_left_is_the_plan_without_what_is_done_in_the_same_order(home: Path, share: int) -> None:
    plan = plan_of(home, 4, 5)
    every = list(plan.trials())
    done = [trial for number, trial in enumerate(every) if number % 3 < share]
    expected = [trial for trial in every if trial not in done]
    left = PendingTrials.of(plan, scored_of(done), map(astuple, done))
    assert (list(left), len(left)) == (expected, len(expected))
    assert [trial in left for trial in every] == [trial in expected for trial in every]
    assert estimate(plan, left, {}).words == estimate(plan, expected, {}).words
    for model in plan.addresses:
        for seed in plan.seeds:
            found = left.select([model], "skill", seed)
            wanted = [each for each in expected if (each.model, each.arm, each.seed) == (model, "skill", seed)]
            assert (list(found), len(found)) == (wanted, len(wanted))


def test_a_million_trials_are_cut_into_chunks_without_a_list_of_them(home: Path) -> None:
    plan = plan_of(home, 100, 5000, ["a"])
    half = (("a", case, "skill", seed) for case in plan.suite.by_id for seed in range(3, 2503))
    counts = {("a", case, "skill"): 2500 for case in plan.suite.by_id}

    def cut() -> None:
        left = PendingTrials.of(plan, counts, islice(half, 10_000))
        queue = ChunkQueue(Job(plan, left, ModelContext()), 64, Ledger(), one_at_a_time=False)
        assert len(left) == queue.left == 1_000_000 - 10_000
        chunks = [found.chunk for found in iter(lambda: queue.assign(4), None)]
        assert len({trial for chunk in chunks for trial in chunk.trials}) == sum(len(chunk.trials) for chunk in chunks)

    assert peak_of(cut) < 4 * MB


class Counting(Local):
    """Runs trials here, and counts how often it has to start."""

    def __init__(self) -> None:
        super().__init__(2)
        self.started = 0

    async def execute(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        self.started += 1
        assert isinstance(job.trials, PendingTrials)
        async for result in super().execute(job, session):
            yield result


async def test_what_has_run_is_in_the_store_and_nowhere_else(home: Path) -> None:
    seen: list[int] = []

    def count(_: Result) -> None:
        seen.append(sum(isinstance(one, Outcome) for one in gc.get_objects()))

    skill = Skill.load(write_skill(home / "greeter", cases=10))
    plan = make_plan(skill, models=[write_script(home / "model.yaml")])
    executor = Counting()
    with open_store(home / "runs") as store:
        before = sum(isinstance(one, Outcome) for one in gc.get_objects())
        await evaluate(plan, store=store, options=RunOptions(executor=executor), events=Events(result=count))
        assert (len(seen), max(seen) - before <= 1) == (20, True)
        # Nothing is left, so nothing is started: on a cluster, nobody has joined it.
        await evaluate(plan, store=store, options=RunOptions(executor=executor))
    assert executor.started == 1
