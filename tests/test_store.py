"""The contract of every kind of store: what is acknowledged stays, once, whoever else writes. Kinds: see PLACES."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import cast

import pytest

from conftest import Upskill, evaluate, greetings, write_script, write_skill
from upskill import (
    Address,
    Plan,
    Result,
    RunOptions,
    Skill,
    Store,
    Suite,
    Trial,
    UsageError,
    open_store,
)
from upskill.errors import StoreError
from upskill.models import Reply, ToolCall
from upskill.models.cache import write_reply
from upskill.models.cassette import read_reply
from upskill.plain import compact
from upskill.runs.planning.plan import Arm, CheckFinding
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores import STORES, Page, Review, Run, find_store, without_password
from upskill.runs.stores.rows import files_from_json
from upskill.traces import Step, Trace, Usage
from upskill.verdicts.outcome import Outcome

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")
SAILOR = Skill.new("sailor", "Sails.", "Hoist the main sail.")
PLAN = Plan(SKILL, Suite.parse(greetings(3)), (Address("one", "anthropic", "one"),))
LONG = replace(PLAN, runs=3400)
TRIALS = list(PLAN.trials())

# Where to open a new store of each kind, given a folder that is not there yet. None: it is gone when it is closed.
PLACES: dict[str, Callable[[pytest.FixtureRequest, Path], str | None]] = {
    "sqlite": lambda _, folder: str(folder),
    "sqlite in memory": lambda _, __: None,
    "postgresql": lambda request, _: request.getfixturevalue("postgres").new_place(),
}
LASTING = [name for name in PLACES if "memory" not in name]


@pytest.fixture(params=PLACES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(PLACES[request.param](request, tmp_path / "runs")) as store:
        yield store


@pytest.fixture(params=LASTING)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be opened several times."""
    return str(PLACES[request.param](request, tmp_path / "runs"))


def result_of(
    trial: Trial, passed: bool | None = True, *, plan: Plan = PLAN, answer: str = "ahoy"
) -> Result:
    return Result(
        trial,
        plan.key(trial),
        passed,
        "" if passed is not None else f"asking {trial.model}: no route",
        Trace(
            (Step("thinking", "hm"), Step("assistant", answer)),
            Usage(10, 5, 4, 2, 0.25),
            "end",
            "one-2026",
        ),
        (CheckFinding("contains", bool(passed), "looked"),),
        Usage(10, 5, 4, 2, 0.25),
        Usage(7, 1, cost_usd=0.5),
        1.25,
        is_final=passed is not None,
    )


async def add_all(store: Store, run: Run, results: Iterable[Result]) -> None:
    await asyncio.gather(*(store.add_result(run, result) for result in results))


def begin(store: Store, plan: Plan = PLAN, *, new: bool = False) -> Run:
    """`new`: another run with the same trials."""
    if new:
        plan = replace(plan, max_output_tokens=plan.max_output_tokens + store.count_runs() + 1)
    return store.start_run(plan, "0")[0]


def together(work: Callable[[int], None], count: int) -> None:
    """Do this in so many threads at once; whatever goes wrong in one goes wrong here."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# Results.


async def test_another_process_opens_it_by_its_place_and_finds_what_is_scored_by_key(
    place: str,
) -> None:
    results = [
        result_of(trial, passed) for trial, passed in zip(TRIALS, [True, False, None], strict=False)
    ]
    with open_store(place) as store:
        run = begin(store)
        await add_all(store, run, results)
        assert store.address
        with open_store(store.address) as other:
            keys = [PLAN.key(trial) for trial in TRIALS]
            assert {result.trial: result for result in other.settled_under(run, keys * 200)} == {
                result.trial: result for result in results[:2]
            }
            assert list(other.settled_under(run, keys[2:])) == []


async def test_results_and_outcomes_are_the_same_as_what_was_added(store: Store) -> None:
    run = begin(store)
    results = [
        result_of(trial, passed) for trial, passed in zip(TRIALS, [True, False, None], strict=False)
    ]
    results.append(replace(result_of(TRIALS[3], None), traceback="Traceback: a bug"))
    results.append(replace(result_of(TRIALS[4]), activated=True, leak="it read the skill"))
    results.append(replace(result_of(TRIALS[5]), activated=False, trace=None, findings=()))
    await add_all(store, run, results)
    assert {result.key: result for result in store.results(run)} == {
        result.key: result for result in results
    }
    assert {(row.case, row.arm): row for row in store.outcomes(run)} == {
        (result.trial.case, result.trial.arm): result.outcome for result in results
    }


async def test_a_scored_result_never_changes_and_an_errored_one_gives_way(store: Store) -> None:
    for first, later in product([True, False, None], repeat=2):
        run = begin(store, new=True)
        await store.add_result(run, result_of(TRIALS[0], first, answer="first"))
        assert len(set(store.settled(run))) == (first is not None)
        await store.add_result(run, result_of(TRIALS[0], later, answer="later"))
        stays = first is not None
        expected = result_of(
            TRIALS[0], first if stays else later, answer="first" if stays else "later"
        )
        assert list(store.results(run)) == [expected]


async def test_an_error_of_a_student_that_was_asked_stays(store: Store) -> None:
    run = begin(store)
    lost = replace(result_of(TRIALS[0], None), is_final=True)
    await store.add_result(run, lost)
    await store.add_result(run, result_of(TRIALS[0]))
    await store.add_result(run, result_of(TRIALS[1], None))
    assert [*store.results(run, TRIALS[0].case, arm=TRIALS[0].arm)] == [lost]
    assert [*store.settled(run)] == [TRIALS[0]]
    assert [result.trial for result in store.unsettled(run)] == [TRIALS[1]]
    other = begin(store, new=True)
    sources = {
        key: (number, key) for key, number in store.find_results("greeter", [lost.key]).items()
    }
    store.copy_results(other, sources)
    assert [*store.results(other)] == [lost]


async def test_a_page_is_so_many_results_in_their_order(store: Store) -> None:
    plan = replace(
        PLAN,
        runs=20,
        models=(*PLAN.models, Address("Zwei", "anthropic", "two"), Address("é", "anthropic", "e")),
    )
    run = begin(store, plan)
    await add_all(
        store, run, [result_of(trial, trial.seed % 2 == 0, plan=plan) for trial in plan.trials()]
    )
    everything = [result.trial for result in store.results(run)]
    assert everything == sorted(
        everything, key=lambda trial: (trial.case, trial.model, trial.seed, trial.arm)
    )
    pages = [
        [result.trial for result in store.results(run, page=Page(150, start))]
        for start in (0, 150, 300, 450)
    ]
    assert [trial for page in pages for trial in page] == everything
    assert [len(page) for page in pages] == [150, 150, 60, 0]
    failed = [
        result.trial for result in store.results(run, model="one", failed=True, page=Page(1000))
    ]
    assert failed == [trial for trial in everything if trial.seed % 2 and trial.model == "one"]


async def test_errors_are_counted_by_model_and_message_most_frequent_first(store: Store) -> None:
    run = begin(store)
    for trial, error in zip(TRIALS, ["b", "a", "b", "c", "b", "a"], strict=True):
        await store.add_result(run, replace(result_of(trial, None), error=error))
    assert store.errors(run) == [("one", "b", 3), ("one", "a", 2), ("one", "c", 1)]
    assert store.errors(run, limit=1) == [("one", "b", 3)]


async def test_what_a_run_spent_is_told_by_role(store: Store) -> None:
    run = begin(store)
    await add_all(store, run, [result_of(trial) for trial in TRIALS[:2]])
    assert store.spent(run) == {"student": (30, 0.5), "judge": (16, 1.0)}
    await store.add_result(run, replace(result_of(TRIALS[2]), usage=Usage(1, 1)))
    assert store.spent(run) == {"student": (32, None), "judge": (24, 1.5)}


async def test_a_trial_in_several_runs_was_paid_for_once(store: Store) -> None:
    first, second = begin(store), begin(store, new=True)
    await add_all(store, first, [result_of(trial) for trial in TRIALS[:2]])
    await add_all(store, second, [result_of(trial) for trial in TRIALS[1:3]])
    assert store.spent(first, second) == {"student": (45, 0.75), "judge": (24, 1.5)}
    assert store.spent() == {}


async def test_leaks_and_bugs_are_told_with_what_shows_them(store: Store) -> None:
    run = begin(store)
    await store.add_result(run, result_of(TRIALS[0]))
    await store.add_result(run, replace(result_of(TRIALS[1]), leak="it read the skill"))
    await store.add_result(
        run, replace(result_of(TRIALS[2], None), error="KeyError: 'x'", traceback="line 1\nline 2")
    )
    assert store.leaks(run) == [(TRIALS[1], "it read the skill")]
    assert list(store.bugs(run)) == [(TRIALS[2], "KeyError: 'x'", "line 1\nline 2")]
    assert store.errors(run) == []
    await store.add_result(run, result_of(TRIALS[2]))
    assert list(store.bugs(run)) == []  # it was run again


async def test_text_that_is_no_unicode_is_kept_and_comes_back(store: Store) -> None:
    odd = "half a pair: \ud83d, a zero \0, a smile 😀"
    run = begin(store)
    await store.add_result(run, result_of(TRIALS[0], answer=odd))
    await store.add_result(run, replace(result_of(TRIALS[1], None), error=odd))
    await store.add_reply("key", "one", f'"{odd}"')
    first, second = store.results(run)
    assert first.trace is not None
    assert first.trace.answer == odd
    assert second.error == odd.replace("\ud83d", "\\ud83d")
    assert store.reply("key") == f'"{odd}"'.replace("\ud83d", "\\ud83d")


async def test_a_reply_that_nobody_waited_for_can_be_forgotten_at_once(store: Store) -> None:
    for key in map(str, range(50)):
        await store.add_reply(key, "one", "{}", wait=False)
    await asyncio.gather(*(store.forget_reply(key) for key in map(str, range(49))))
    assert [key for key in map(str, range(50)) if store.reply(key)] == ["49"]


async def test_a_result_that_cannot_be_kept_is_an_error_and_the_next_one_is_kept(
    store: Store,
) -> None:
    run = begin(store)
    with pytest.raises(StoreError, match=r"cannot be (saved|written)"):
        await store.add_result(run, replace(result_of(TRIALS[0]), usage=Usage(2**70)))
    await store.add_result(run, result_of(TRIALS[0]))
    assert len(set(store.settled(run))) == 1


async def test_more_results_at_once_than_fit_into_a_commit_are_all_kept(place: str) -> None:
    large = replace(PLAN, runs=200)
    trials = list(large.trials())
    with open_store(place) as store:
        run = begin(store, large)
        await add_all(store, run, [result_of(trial, plan=large) for trial in trials])
        with open_store(place) as other:
            assert set(other.settled(run)) == set(trials)
            assert other.run(run.id).passed == len(trials)


async def test_two_processes_may_write_to_one_store_at_once(place: str) -> None:
    large = replace(PLAN, runs=20)
    trials = list(large.trials())
    with open_store(place) as one, open_store(place) as two:
        run, found = one.start_run(large, "0")
        same, found_again = two.start_run(large, "0")
        assert (run.id, found, found_again) == (same.id, False, True)

        async def write(store: Store, passed: bool) -> None:
            for start in range(0, len(trials), 20):
                await add_all(
                    store,
                    run,
                    [result_of(t, passed, plan=large) for t in trials[start : start + 20]],
                )

        await asyncio.gather(write(one, True), write(two, False))
        assert len(set(one.settled(run))) == len(trials)
        now = one.run(run.id)
        assert now.passed + now.failed == len(trials)


async def test_a_result_is_written_even_if_nobody_waits_for_it_any_more(place: str) -> None:
    with open_store(place) as store:
        run = begin(store)
        waiting = asyncio.create_task(store.add_result(run, result_of(TRIALS[0])))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    with open_store(place) as store:
        assert set(store.settled(run)) == {TRIALS[0]}


# Long runs.


async def fill(store: Store, count: int) -> Run:
    """A run with so many results, each of 2 KB."""
    run = begin(store, LONG)
    trials = islice(LONG.trials(), count)
    while some := [
        result_of(trial, plan=LONG, answer="ahoy " * 400) for trial in islice(trials, 1000)
    ]:
        await add_all(store, run, some)
    return run


async def test_a_long_run_is_read_row_by_row(store: Store) -> None:
    run = await fill(store, 2_000)
    for read, limit in (
        (store.results, 2_000_000),
        (store.outcomes, 600_000),
    ):  # all would be 7 MB and 800 KB
        tracemalloc.start()
        assert sum(1 for _ in read(run)) == 2_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit


async def test_results_can_be_written_and_read_while_others_are_iterated(store: Store) -> None:
    run = await fill(store, 500)
    results, outcomes, runs = store.results(run), store.outcomes(run), store.runs()
    assert (next(results).passed, next(outcomes).passed, next(runs)) == (
        True,
        True,
        store.run(run.id),
    )
    for trial in islice(LONG.trials(), 500, 550):
        await store.add_result(run, result_of(trial, plan=LONG))
        next(results)
    assert store.run(run.id).passed == len(set(store.settled(run))) == 550
    store.delete_run(begin(store, new=True))
    # Whether what was added meanwhile is among them is left open.
    assert 500 <= 51 + sum(1 for _ in results) <= 550
    assert 500 <= 1 + sum(1 for _ in outcomes) <= 550
    assert list(runs) == []


# Progress.


def counts(store: Store, run: Run) -> tuple[int, int, int]:
    """What is counted as the trials are added, held against what is there."""
    outcomes = [row.passed for row in store.outcomes(run)]
    found = store.run(run.id)
    progress = store.progress(run)
    assert (found.passed, found.failed, found.errored) == tuple(
        map(outcomes.count, (True, False, None))
    )
    assert sum(row.passed for row in progress) == found.passed
    spent = store.spent(run).values()
    assert sum(row.tokens for row in progress) == sum(tokens for tokens, _ in spent)
    return found.passed, found.failed, found.errored


async def test_progress_is_counted_as_results_come_change_are_copied_and_go(store: Store) -> None:
    run = begin(store)
    assert counts(store, run) == (0, 0, 0)
    await add_all(
        store, run, [result_of(TRIALS[0]), result_of(TRIALS[1], False), result_of(TRIALS[2], None)]
    )
    assert counts(store, run) == (1, 1, 1)
    await store.add_result(run, result_of(TRIALS[2], True))  # the errored one is replaced
    await store.add_result(run, result_of(TRIALS[0], False))  # a scored one is not
    assert counts(store, run) == (2, 1, 0)
    assert sum(row.cost_usd or 0 for row in store.progress(run)) == pytest.approx(3 * 0.75)
    await store.add_result(run, replace(result_of(TRIALS[3]), usage=Usage(1, 1, cost_usd=None)))
    assert {row.arm: row.cost_usd is None for row in store.progress(run)}[TRIALS[3].arm]
    other = begin(store, new=True)
    keys = {result.key: (run.number, result.key) for result in store.results(run)}
    store.copy_results(other, keys)
    store.copy_results(other, keys)
    assert counts(store, other) == counts(store, run) == (3, 1, 0)
    store.delete_run(run)
    assert counts(store, other) == (3, 1, 0)
    assert store.progress(run) == []


async def test_a_page_of_outcomes_begins_after_any_trial(store: Store) -> None:
    run = await fill(store, 200)
    whole = list(store.outcomes(run))
    places = [(row.case, row.model, row.seed, row.arm) for row in whole]
    assert places == sorted(places)
    found: list[Outcome] = []
    while page := list(store.outcomes(run, after=_trial(found[-1]) if found else None, limit=64)):
        assert len(page) <= 64
        found += page
    assert found == whole
    of_case = [row for row in whole if row.case == "greet-2"]
    assert list(store.outcomes(run, "greet-2", after=_trial(of_case[2]), limit=5)) == of_case[3:8]
    result = store.result(run, _trial(whole[10]))
    assert result is not None
    assert result.trial == _trial(whole[10])
    assert result.trace is not None
    assert store.result(run, replace(result.trial, seed=10**6)) is None


def _trial(row: Outcome) -> Trial:
    return Trial(row.model, row.case, cast("Arm", row.arm), row.seed)


async def test_skills_and_scores_are_counted(store: Store) -> None:
    sailing = replace(PLAN, skill=SAILOR)
    run, latest = begin(store), begin(store, new=True)
    sail = begin(store, sailing)
    assert store.skills() == {"greeter": (2, latest.id), "sailor": (1, sail.id)}
    long = replace(PLAN, runs=3)
    run = begin(store, long)
    wanted = [trial for trial in long.trials() if trial.arm == "skill"]
    marks: list[bool | None] = [True, False, None]
    results = [
        result_of(trial, marks[trial.seed % 3], plan=long)
        for trial in long.trials()
        if trial.case != "greet-3"
    ]
    gone = [result_of(trial, None, plan=long) for trial in wanted if trial.case == "greet-3"]
    await add_all(store, run, [*results, *gone])
    assert store.scores(run, "one", "skill") == {"greet-1": (1, 2), "greet-2": (1, 2)}
    assert store.scores(run, "two", "skill") == {}


async def test_what_a_person_says_of_an_answer_is_kept_and_can_be_changed(place: str) -> None:
    with open_store(place) as store:
        run, other = begin(store), begin(store, new=True)
        store.add_review(
            run, Review(TRIALS[1], "wrong", "no \ud800 greeting", "2026-01-01T00:00:00+00:00")
        )
        store.add_review(run, Review(TRIALS[0], "odd"))
        store.add_review(run, Review(TRIALS[0], "right", "on second thoughts"))
        store.add_review(other, Review(TRIALS[0], "wrong"))
        store.remove_review(other, TRIALS[0])
    with open_store(place) as store:
        found = {review.trial: review for review in store.reviews(run)}
        assert found[TRIALS[0]].verdict == "right"
        assert found[TRIALS[0]].note == "on second thoughts"
        assert found[TRIALS[0]].created
        assert found[TRIALS[1]] == Review(
            TRIALS[1], "wrong", "no \\ud800 greeting", "2026-01-01T00:00:00+00:00"
        )
        assert store.reviews(other) == []


# Runs.


def test_the_same_plan_is_the_same_run_however_many_rounds_it_has(store: Store) -> None:
    assert store.find_run(PLAN) is None
    first, found = store.start_run(PLAN, "0")
    assert (first.id, found) == (f"greeter-{PLAN.fingerprint[:8]}", False)
    for rounds in (1, 5):
        again, found = store.start_run(replace(PLAN, runs=rounds), "0")
        assert (again, found) == (first, True)
    grown = store.annotate(first, trials=30, runs=5)
    assert (grown.trials, grown.plan.runs, store.find_run(PLAN)) == (30, 5, grown)
    other, found = store.start_run(replace(PLAN, seed=7), "0")
    assert (found, other.id == first.id) == (False, False)


async def test_deleting_a_run_deletes_its_results_and_no_others(store: Store) -> None:
    first, second = begin(store), begin(store, new=True)
    await store.add_result(first, result_of(TRIALS[0]))
    await store.add_result(second, result_of(TRIALS[0]))
    store.delete_run(first)
    assert list(store.results(first)) == []
    assert len(list(store.results(second))) == 1
    assert [run.id for run in store.runs()] == [second.id]


async def test_a_run_is_finished_when_every_trial_has_a_result(store: Store) -> None:
    run = begin(store)
    plan = StoredPlan.of(PLAN)
    assert (run.trials, run.finished, run.models, run.plan) == (6, False, ["one"], plan)
    await add_all(store, run, [result_of(trial) for trial in TRIALS[1:]])
    assert not store.run(run.id).finished
    await store.add_result(run, replace(result_of(TRIALS[0], None), is_final=True))
    assert store.run(run.id).finished


def test_a_run_is_found_by_its_id_its_beginning_or_as_the_last(store: Store) -> None:
    with pytest.raises(UsageError, match="no runs yet"):
        store.run("last")
    greeter, sailor = begin(store), begin(store, replace(PLAN, skill=SAILOR))
    assert store.run(greeter.id) == store.run("gre") == greeter
    assert store.run("last") == store.run("sailor-") == sailor
    second = begin(store, new=True)
    assert store.run(greeter.id) == greeter  # whole, although another starts the same
    assert store.run("last") == second
    with pytest.raises(UsageError, match="2 runs start with 'gre'"):
        store.run("gre")
    with pytest.raises(UsageError, match="no run named 'greter'") as caught:
        store.run("greter")
    assert caught.value.hint


async def test_runs_are_listed_by_skill_and_in_either_order(store: Store) -> None:
    first, sailor, second = (
        begin(store),
        begin(store, replace(PLAN, skill=SAILOR)),
        begin(store, new=True),
    )
    await store.add_result(second, result_of(TRIALS[0]))
    assert list(store.runs()) == [first, sailor, replace(second, passed=1)]
    assert [run.id for run in store.runs(newest_first=True)] == [second.id, sailor.id, first.id]
    assert [run.id for run in store.runs("greeter", newest_first=True)] == [second.id, first.id]
    assert list(store.runs("nobody")) == []
    assert store.count_runs() == 3


def test_settings_of_an_analysis_are_stored_with_the_plan(store: Store) -> None:
    run = store.annotate(begin(store), tolerance=0.1, seen={})
    assert store.run(run.id).plan == replace(StoredPlan.of(PLAN), tolerance=0.1)
    assert store.annotate(run, tolerance=0.2).plan.tolerance == 0.2
    assert store.find_run(PLAN) == store.run(run.id)  # still the same trials


# Claims.


def test_a_second_process_is_turned_away_from_a_run_that_is_being_worked_on(place: str) -> None:
    with open_store(place) as store, open_store(place) as other:
        run = begin(store)
        assert not other.is_claimed(run)
        with (
            store.claim(run),
            store.claim(begin(store, new=True)),
        ):  # other runs can be worked on at the same time
            assert other.is_claimed(run)
            assert (
                _claim_elsewhere(place, run.id)
                == f"another process is already working on run {run.id}"
            )
        assert not other.is_claimed(run)
        assert _claim_elsewhere(place, run.id) == "claimed"


def _claim_elsewhere(place: str, run: str) -> str:
    program = """
        import sys
        from upskill import UsageError, open_store
        with open_store(sys.argv[1]) as store:
            try:
                with store.claim(store.run(sys.argv[2])):
                    print("claimed")
            except UsageError as error:
                print(error)
    """
    argv = [sys.executable, "-c", textwrap.dedent(program), place, run]
    return subprocess.run(argv, capture_output=True, encoding="utf-8", check=True).stdout.strip()


def test_of_many_who_claim_a_run_at_once_only_one_has_it_at_a_time(place: str) -> None:
    with open_store(place) as store:
        run = begin(store)
        inside: list[int] = []
        most: list[int] = []

        def claim(number: int) -> None:
            for _ in range(50):
                try:
                    with store.claim(run):
                        inside.append(number)
                        time.sleep(0.0002)
                        most.append(len(inside))
                        inside.remove(number)
                except UsageError:
                    continue

        together(claim, 4)
        assert most
        assert set(most) == {1}


# Replies, batches and candidates.


async def test_a_reply_is_found_by_its_key_until_it_is_forgotten(store: Store) -> None:
    assert store.reply("key") is None
    await store.add_reply("key", "one", "first")
    await store.add_reply("key", "one", "second")
    await store.add_reply("other", "one", "third")
    assert (store.reply("key"), store.reply("other")) == ("second", "third")
    await store.forget_reply("key")
    assert (store.reply("key"), store.reply("other")) == (None, "third")


async def test_requests_are_listed_with_their_role_where_they_were_given(store: Store) -> None:
    await store.add_reply("a", "one", "no request")
    await store.add_reply("b", "one", "yes", "teacher", "may I?")
    assert list(store.requests()) == [("teacher", "may I?", "yes")]


def test_a_reply_is_stored_with_all_its_fields() -> None:
    call = ToolCall("1", "run", {"command": ["ls"]})
    reply = Reply(
        "a \ud83d\ude00",
        Usage(1, 2, 3, 4, 0.5),
        "tools",
        (call,),
        ({"t": 1},),
        "hm",
        "m-1",
        0.25,
        2,
        "no",
        "f",
    )
    for one in (reply, Reply("half \ud800"), Reply("")):
        assert write_reply(one) == compact(one)
        assert read_reply(write_reply(one)) == one


def test_what_nobody_waited_for_is_stored_though_the_loop_was_stopped(tmp_path: Path) -> None:
    async def add(count: int) -> None:
        for number in range(count):
            await store.add_reply(f"key-{number}", "m", "{}", wait=False)
        asyncio.get_running_loop().stop()  # before anything is handed over

    with open_store(str(tmp_path)) as store:
        loop = asyncio.new_event_loop()
        coroutine = add(3)
        asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine)
        loop.run_forever()
        assert task.done()
        loop.close()
        asyncio.set_event_loop(None)
    with open_store(str(tmp_path)) as store:
        assert [store.reply(f"key-{number}") for number in range(4)] == ["{}", "{}", "{}", None]


def test_a_batch_is_pending_until_all_of_its_requests_are_settled(store: Store) -> None:
    batch = store.begin_batch("run", "one", "https://here", ["a", "b", "c"])
    other = store.begin_batch("run", "one", "https://there", ["a"])
    assert store.pending_batches("https://here") == [batch]
    batch = store.confirm_batch(batch, "batch-1")
    assert batch.id == "batch-1"
    store.settle_batch(batch, ["a"])
    assert store.pending_batches("https://here") == [replace(batch, keys=("b", "c"))]
    store.settle_batch(batch, ["b", "c"])
    assert store.pending_batches("https://here") == []
    store.settle_batch(other)
    assert store.pending_batches("https://there") == []


def test_a_candidate_is_stored_once_in_a_search_with_the_latest_decision(store: Store) -> None:
    changed = Skill.new("greeter", "Greets.", "Say ahoy twice.").with_file("data.bin", b"\xff\x00")
    first = store.add_candidate("search", SKILL, None, None, "", {})
    second = store.add_candidate(
        "search", changed, first.number, False, "no better \ud83d", {"lift": 0.1}
    )
    assert (second.parent, second.accepted, second.verdict) == (first.number, False, {"lift": 0.1})
    assert second.note == "no better \\ud83d"
    assert files_from_json(second.files) == list(changed.files)
    decided = store.add_candidate("search", SKILL, None, True, "kept", {"lift": 0.2})
    assert decided == replace(first, accepted=True, note="kept", verdict={"lift": 0.2})
    elsewhere = store.add_candidate("another", SKILL, None, None, "", {})
    assert list(store.candidates("greeter")) == [decided, second, elsewhere]
    assert list(store.candidates("nobody")) == []
    assert store.skills_with_candidates() == {"greeter": 3}


# Opening.


def test_every_kind_of_store_is_held_to_this_contract() -> None:
    assert {name.split()[0] for name in PLACES} == set(STORES.table)


def test_looking_for_a_store_never_creates_one(place: str) -> None:
    assert find_store(place) is None
    assert find_store(place) is None
    with open_store(place) as store:
        run = begin(store)
    found = find_store(place)
    assert found is not None
    with found:
        assert found.location
        assert found.run("last") == run


def test_a_store_in_memory_is_nowhere_and_shared_with_nobody() -> None:
    with open_store(None) as one, open_store(None) as two:
        begin(one)
        assert one.location is None
        assert two.count_runs() == 0


def test_a_url_of_an_unknown_kind_is_refused_and_the_known_ones_listed() -> None:
    for place in ("oracle://user:secret@host/runs", "ORACLE://host"):
        with pytest.raises(UsageError, match="unknown kind of store 'oracle'") as caught:
            open_store(place)
        assert "sqlite" in caught.value.hint
        assert "secret" not in f"{caught.value}{caught.value.hint}"


async def test_a_second_process_is_refused_before_it_changes_anything_of_a_run(
    home: Path, place: str
) -> None:
    model = Address(
        "student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:")
    )
    plan = replace(PLAN, models=(model,))
    with open_store(place) as first, open_store(place) as second:
        evaluation = await evaluate(plan, store=first)
        before = first.run("last")
        with (
            first.claim(evaluation.run),
            pytest.raises(UsageError, match="another process is already working"),
        ):
            await evaluate(
                plan, store=second, options=RunOptions(tolerance=0.5, until_decided=True)
            )
        assert first.run("last") == before


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("./runs", "./runs"),
        ("sqlite:///a:b@c", "sqlite:///a:b@c"),
        (
            "postgresql://me:secret@db.example.org:5433/runs",
            "postgresql://me@db.example.org:5433/runs",
        ),
        ("PostgreSQL://me:secret@[::1]:5433,[::2]/runs", "PostgreSQL://me@[::1]:5433,[::2]/runs"),
        (
            "postgresql:///runs?host=/tmp/sockets&user=me&password=secret",
            "postgresql:///runs?host=/tmp/sockets&user=me",
        ),
        (
            "postgresql://me:%73ecret@/runs?sslpassword=secret&schema=a",
            "postgresql://me@/runs?schema=a",
        ),
        ("postgresql:///runs?passfile=/home/secret&PASSWORD=secret", "postgresql:///runs"),
        # What is not a URL, because the password was not escaped.
        ("postgresql://me:secret@secret@host/runs", "postgresql://…"),
        ("postgresql://me:secret/secret@host/runs", "postgresql://…"),
        ("postgresql://me:secret?secret@host/runs", "postgresql://…"),
        ("postgresql://me:secret#secret@host/runs", "postgresql://…"),
        ("postgresql://me:secret", "postgresql://…"),
    ],
)
def test_a_place_is_shown_without_its_password(place: str, shown: str) -> None:
    assert without_password(place) == shown


@pytest.mark.parametrize(("flags", "is_ignored"), [((), True), (("--store", "recorded"), False)])
def test_git_ignores_the_default_folder_of_runs_and_no_folder_that_was_named(
    flags: tuple[str, ...], is_ignored: bool, home: Path, upskill: Upskill
) -> None:
    write_skill(home / "greeter")
    assert upskill("eval", "greeter", "-m", write_script(home / "model.json"), *flags).code == 0
    subprocess.run(["git", "init", "-q"], check=True)
    status = subprocess.run(
        ["git", "status", "--short", "-uall"], capture_output=True, text=True, check=True
    ).stdout
    assert ("/upskill.db" not in status) is is_ignored
