"""What a cluster executor decides without a cluster: how trials are cut into chunks, and who may spend what."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import evaluate, write_script, write_skill
from upskill import ModelContext, Models, Skill, Suite, make_plan, open_store
from upskill.errors import CeilingReached
from upskill.models import Failures
from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.planning.plan import PlanOptions, Trial
from upskill.runs.running.executors import Job
from upskill.runs.running.executors.chunks import (
    CHUNK_SECONDS,
    MAX_CHUNK,
    MAX_CRASHES,
    Assignment,
    Chunk,
    ChunkQueue,
    Done,
    LeaseBook,
    Shared,
    Worker,
)
from upskill.traces import NO_USAGE, Usage

WORKERS = 4


def make_job(home: Path, *, cases: int = 200, runs: int = 1, models: int = 1) -> Job:
    skill = Skill.load(write_skill(home / "greeter", cases=cases))
    names = [f"m{number}" for number in range(models)]
    plan = make_plan(
        skill, models=names, options=PlanOptions(runs=runs, base_url="http://127.0.0.1:9/v1")
    )
    return Job(plan, tuple(plan.trials()), ModelContext(keys={"OPENAI_API_KEY": "sk-secret"}))


def make_queue(job: Job, concurrency: int = 8, ledger: Ledger | None = None) -> ChunkQueue:
    return ChunkQueue(job, concurrency, ledger or Ledger(), one_at_a_time=False)


def cut_all(queue: ChunkQueue) -> list[Assignment]:
    return list(iter(lambda: queue.assign(WORKERS), None))


def test_a_chunk_has_one_model_with_both_arms_and_takes_some_seconds_whatever_a_trial_takes(
    home: Path,
) -> None:
    for seconds, size in ((0.001, MAX_CHUNK), (0.5, int(CHUNK_SECONDS / 0.5) * 2), (60.0, 2)):
        queue = make_queue(make_job(home, cases=100, runs=100))
        first = cut_all(queue)
        assert [cut.chunk.width for cut in first] == [2] * WORKERS
        for cut in first:
            assert len({trial.model for trial in cut.chunk.trials}) == 1
            queue.settle(cut, Done(seconds=seconds * len(cut.chunk.trials) / cut.chunk.width))
        assert {len(cut.chunk.trials) for cut in cut_all(queue)} == {size}


def test_all_models_of_a_server_share_its_concurrency_and_every_trial_is_cut_once(
    home: Path,
) -> None:
    job = make_job(home, models=3)
    queue, cut_so_far = make_queue(job, concurrency=6), list[Trial]()
    while queue.left:
        running = cut_all(queue)
        assert sum(cut.chunk.width for cut in running) <= 6
        for cut in running:
            cut_so_far += cut.chunk.trials
            queue.settle(cut, Done(seconds=1.0))
    assert sorted(map(str, cut_so_far)) == sorted(map(str, job.trials))


def test_an_overloaded_server_gets_half_as_many_calls_from_all_workers_after_the_pause_it_asked_for(
    home: Path,
) -> None:
    queue = make_queue(make_job(home))
    for cut in cut_all(queue):
        queue.settle(cut, Done(left=cut.chunk.trials, overload=300.0))
    assert (cut_all(queue), 0 < queue.pause() <= 300) == ([], True)
    queue = make_queue(make_job(home))
    for cut in cut_all(queue):  # which all ran into it together
        queue.settle(cut, Done(left=cut.chunk.trials, overload=0.0))
    assert sum(cut.chunk.width for cut in cut_all(queue)) == 4


def test_errors_in_a_row_are_counted_over_all_workers(home: Path) -> None:
    queue = make_queue(make_job(home))
    for cut in cut_all(queue):
        queue.settle(cut, Done(left=cut.chunk.trials, failures={"m0": Failures(2, answered=False)}))
    cut = queue.assign(WORKERS)
    assert cut
    assert cut.chunk.failures == {"m0": 8}
    queue.settle(cut, Done(failures={"m0": Failures(1, answered=True)}))
    assert (after := queue.assign(WORKERS))
    assert after.chunk.failures == {"m0": 1}


def test_a_trial_that_kills_its_workers_is_found_and_given_up_and_no_other(home: Path) -> None:
    job = make_job(home, cases=40)
    queue, deadly, done, deaths = make_queue(job), list(job.trials)[33], list[Trial](), 0
    given_up: list[Trial] = []
    while cut := queue.assign(WORKERS):
        if deadly in cut.chunk.trials:
            deaths += 1
            given_up += filter(None, [queue.requeue_lost(cut, [])])
        else:
            done += cut.chunk.trials
            queue.settle(cut, Done(seconds=1.0))
    assert (given_up, len(set(done)), len(done), deaths) == ([deadly], 79, 79, MAX_CRASHES)


def test_leases_never_allow_more_than_the_ceiling_together_and_unspent_ones_come_back(
    home: Path,
) -> None:
    ledger = Ledger(Ceilings(cost_usd=1.0, tokens=1000, calls=20))
    book = LeaseBook(ledger)
    leases: list[Ceilings] = []
    while lease := book.grant(50, WORKERS):
        leases.append(lease)
    assert sum(lease.calls or 0 for lease in leases) <= 20
    assert sum(lease.tokens or 0 for lease in leases) <= 1000 + len(leases)
    assert sum(lease.cost_usd or 0 for lease in leases) <= 1.0
    for lease in leases:  # all but the first come back unspent
        book.settle(
            lease, 1 if lease is leases[0] else 0, {"student": Usage(1, 1, cost_usd=0.001)}, 1
        )
    assert ledger.calls == 1
    again = book.grant(50, WORKERS)
    assert again
    book.settle_lost(again, (), 100)
    rest = 0

    def spend() -> int:
        lease = book.grant(50, WORKERS)
        assert lease
        assert lease.calls
        book.settle(lease, lease.calls, {}, 1)
        return lease.calls

    while ledger.calls + (again.calls or 0) < 20:
        rest += spend()
    with pytest.raises(CeilingReached, match="counting what lost workers may have spent"):
        spend()
    assert 1 + (again.calls or 0) + rest == 20


async def test_of_a_worker_that_died_what_it_stored_counts_and_what_it_may_have_had_in_flight(
    home: Path,
) -> None:
    model = write_script(home / "model.yaml")
    plan = make_plan(Skill.load(write_skill(home / "greeter")), models=[model])
    with open_store(home / "runs") as store:
        done = await evaluate(plan, store=store)
        results = list(store.results(done.run))
    for stored in (0, 4):
        ledger = Ledger(Ceilings(calls=100))
        book = LeaseBook(ledger)
        first = book.grant(50, 1)
        assert first
        assert first.calls == 50
        book.settle_lost(first, results[:stored], 2)
        assert ledger.calls == stored
        assert ledger.total == sum((result.usage for result in results[:stored]), NO_USAGE)
        again = book.grant(50, 1)
        assert again
        assert again.calls == (100 - 50) // 2 if not stored else (100 - 4 - 2 * 3) // 2


def test_a_fraction_of_a_call_is_no_lease() -> None:
    ledger = Ledger(Ceilings(calls=20))
    book = LeaseBook(ledger)
    first = book.grant(4, 1)
    assert first
    book.settle(
        first, 3, {}, 2
    )  # 1.5 calls for each trial, so 4.5 may be in flight where one is lost
    second = book.grant(4, 1)
    assert second
    book.settle_lost(second, (), 1)
    while ledger.calls < 15:
        lease = book.grant(4, 1)
        assert lease
        assert lease.calls
        book.settle(lease, lease.calls, {}, lease.calls)
    with pytest.raises(CeilingReached):
        book.grant(4, 1)


async def test_a_worker_runs_what_the_store_does_not_have_and_says_how_the_rest_had_ended(
    home: Path,
) -> None:
    model = write_script(home / "model.yaml")
    plan = make_plan(Skill.load(write_skill(home / "greeter")), models=[model])
    trials = tuple(plan.trials())
    with open_store(home / "runs") as store:
        run, _ = store.start_run(plan, "1")
        shared = Shared(plan, run, ModelContext(), store.address, "off")

    def run_chunk(shared: Shared, chunk: Chunk) -> Done:
        with closing(Worker(shared)) as worker:
            return worker.run(chunk)

    chunk = Chunk(trials[:3], 2, Ceilings())
    first = await asyncio.to_thread(run_chunk, shared, chunk)
    assert (len(first.results), first.calls, first.left) == (3, 3, ())
    second = await asyncio.to_thread(run_chunk, shared, replace(chunk, trials=trials))
    assert (len(second.results), second.calls) == (len(trials), len(trials) - 3)
    limited = await asyncio.to_thread(
        run_chunk, replace(shared, store=None), replace(chunk, lease=Ceilings(calls=2))
    )
    assert (len(limited.results), limited.calls, len(limited.left), limited.stored) == (
        2,
        2,
        1,
        False,
    )
    with open_store(home / "runs") as store:
        done = await evaluate(plan, store=store)
        assert done.run.finished
        assert {result.outcome for result in store.results(run)} == {
            result.outcome for result in second.results
        }


def test_what_a_worker_sends_is_small_and_is_written_out_by_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(
        Skill.load(write_skill(home / "greeter", cases=100)),
        models=[write_script(home / "model.yaml")],
    )
    with open_store(home / "runs") as store:
        run, _ = store.start_run(plan, "1")
        shared = Shared(plan, run, ModelContext(), store.address, "off")
    written_out: list[Done] = []
    monkeypatch.setattr(Done, "__repr__", lambda done: written_out.append(done) or "")  # pyright: ignore
    with closing(Worker(shared)) as worker:
        done = worker.run(Chunk(tuple(plan.trials()), 8, Ceilings()))
    sent = pickle.dumps(done)
    with open_store(home / "runs") as store:
        outcomes = {result.outcome for result in store.results(run)}
    assert {result.outcome for result in pickle.loads(sent).results} == outcomes
    assert (len(done.results), len(sent) / 200 < 400, written_out) == (
        200,
        True,
        [],
    )  # bytes for each


def test_nothing_that_travels_shows_a_key_when_it_is_printed(home: Path) -> None:
    job = make_job(home, cases=4)
    with open_store(None) as store:
        run, _ = store.start_run(job.plan, "1")
    shared = Shared(job.plan, run, job.context, "postgresql://me:password@host/db", "use")
    assert "sk-secret" not in f"{job} {shared} {job.context}"
    assert "password" not in repr(shared)


def test_a_job_survives_pickling_with_keys_but_without_anything_live(home: Path) -> None:
    checks = [{"regex": "ahoy"}, {"json_schema": {"schema": {"type": "object"}}}]
    suite = Suite.parse([{"id": "a", "prompt": "Greet.", "checks": checks}])
    plan = make_plan(
        Skill.load(write_skill(home / "greeter")), suite, [write_script(home / "one.yaml")]
    )
    notes: list[str] = []
    context = ModelContext(keys={"OPENAI_API_KEY": "x"}, tell=notes.append)
    job = Job(plan, tuple(plan.trials()), Models(context).context.portable())
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert [copy.plan.key(trial) for trial in copy.trials] == [
        plan.key(trial) for trial in plan.trials()
    ]
    assert copy.context.keys == {"OPENAI_API_KEY": "x"}
