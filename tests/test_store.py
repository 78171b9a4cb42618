"""The store on real SQLite files: what is acknowledged stays, once, whoever else writes and whatever breaks."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import greetings
from upskill import Address, Plan, Result, Skill, Store, Suite, Trial, UsageError, open_store
from upskill.errors import StoreError
from upskill.runs.plan import Judgement
from upskill.runs.stores import Run
from upskill.runs.stores.sqlite import FILE
from upskill.runs.stores.tables import MIGRATIONS
from upskill.traces import Step, Trace, Usage

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")
PLAN = Plan(SKILL, Suite.parse(greetings(3)), (Address("one", "scripted", "one"),))
TRIALS = list(PLAN.trials())


def result_of(trial: Trial, passed: bool | None = True, *, plan: Plan = PLAN, answer: str = "ahoy") -> Result:
    return Result(
        trial,
        plan.key(trial),
        passed,
        "" if passed is not None else f"asking {trial.model}: no route",
        Trace((Step("thinking", "hm"), Step("assistant", answer)), Usage(10, 5, 4, 2, 0.25), "end", "one-2026"),
        (Judgement("contains", bool(passed), "looked"),),
        Usage(10, 5, 4, 2, 0.25),
        Usage(7, 1, cost_usd=0.5),
        1.25,
    )


async def add_all(store: Store, run: Run, results: Iterable[Result]) -> None:
    await asyncio.gather(*(store.add_result(run, result) for result in results))


def begin(store: Store, plan: Plan = PLAN, *, fresh: bool = False) -> Run:
    return store.start_run(plan, "0", fresh=fresh)[0]


# Results.


async def test_an_acknowledged_result_is_there_for_others_before_the_store_is_closed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        run = begin(store)
        await store.add_result(run, result_of(TRIALS[0]))
        assert other.scored_keys(run) == {PLAN.key(TRIALS[0])}


async def test_a_result_comes_back_whole_after_reopening(tmp_path: Path) -> None:
    results = [result_of(trial, passed) for trial, passed in zip(TRIALS, [True, False, None], strict=False)]
    with open_store(tmp_path) as store:
        run = begin(store)
        await add_all(store, run, results)
    with open_store(tmp_path) as store:
        found = {result.trial: result for result in store.results(run)}
        assert found == {result.trial: result for result in results}
        assert {(row.case, row.arm): row for row in store.outcomes(run)} == {
            (result.trial.case, result.trial.arm): result.outcome for result in results
        }


async def test_a_store_in_memory_keeps_results_until_it_is_closed() -> None:
    with open_store(None) as store:
        run = begin(store)
        await store.add_result(run, result_of(TRIALS[0]))
        assert [result.trial for result in store.results(run)] == [TRIALS[0]]
        with store.claim(run):
            pass


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("later", [True, False, None])
async def test_a_scored_result_never_changes(tmp_path: Path, first: bool, later: bool | None) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        await store.add_result(run, result_of(TRIALS[0], first, answer="first"))
        await store.add_result(run, result_of(TRIALS[0], later, answer="later"))
        (found,) = store.results(run)
        assert found == result_of(TRIALS[0], first, answer="first")


@pytest.mark.parametrize("later", [True, False, None])
async def test_an_errored_result_gives_way_to_a_later_one(tmp_path: Path, later: bool | None) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        await store.add_result(run, result_of(TRIALS[0], None, answer="first"))
        assert store.scored_keys(run) == set()
        await store.add_result(run, result_of(TRIALS[0], later, answer="later"))
        (found,) = store.results(run)
        assert found == result_of(TRIALS[0], later, answer="later")


async def test_results_can_be_asked_for_by_case_and_model(tmp_path: Path) -> None:
    two = replace(PLAN, models=(*PLAN.models, Address("two", "scripted", "two")))
    with open_store(tmp_path) as store:
        run = begin(store, two)
        await add_all(store, run, [result_of(trial, plan=two) for trial in two.trials()])
        found = [result.trial for result in store.results(run, "greet-2", "two")]
        assert found == [Trial("two", "greet-2", "baseline", 0), Trial("two", "greet-2", "skill", 0)]
        assert len(list(store.results(run))) == len(two)


async def test_errors_are_counted_by_model_and_message_most_frequent_first(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        for trial, error in zip(TRIALS, ["b", "a", "b", "c", "b", "a"], strict=True):
            await store.add_result(run, replace(result_of(trial, None), error=error))
        assert store.errors(run) == [("one", "b", 3), ("one", "a", 2), ("one", "c", 1)]
        assert store.errors(run, limit=1) == [("one", "b", 3)]


async def test_what_a_run_spent_is_told_by_role(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        await add_all(store, run, [result_of(trial) for trial in TRIALS[:2]])
        assert store.spent(run) == {"student": (30, 0.5), "judge": (16, 1.0)}
        await store.add_result(run, replace(result_of(TRIALS[2]), usage=Usage(1, 1)))
        assert store.spent(run) == {"student": (32, None), "judge": (24, 1.5)}


async def test_text_that_is_no_unicode_is_kept_and_comes_back(tmp_path: Path) -> None:
    odd = "half a pair: \ud83d, a zero \0, a smile 😀"
    with open_store(tmp_path) as store:
        run = begin(store)
        await store.add_result(run, result_of(TRIALS[0], answer=odd))
        await store.add_result(run, replace(result_of(TRIALS[1], None), error=odd))
        await store.add_reply("key", "one", f'"{odd}"')
        first, second = store.results(run)
        assert first.trace is not None
        assert first.trace.answer == odd
        assert second.error == odd.replace("\ud83d", "\\ud83d")
        assert store.reply("key") == f'"{odd}"'.replace("\ud83d", "\\ud83d")


async def test_a_reply_that_nobody_waited_for_can_be_forgotten_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for key in map(str, range(50)):
            await store.add_reply(key, "one", "{}", wait=False)
        await asyncio.gather(*(store.forget_reply(key) for key in map(str, range(49))))
        assert [key for key in map(str, range(50)) if store.reply(key)] == ["49"]


async def test_a_result_that_cannot_be_kept_is_an_error_and_the_next_one_is_kept(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        with pytest.raises(StoreError, match="cannot be saved: OverflowError"):
            await store.add_result(run, replace(result_of(TRIALS[0]), usage=Usage(2**70)))
        await store.add_result(run, result_of(TRIALS[0]))
        assert len(store.scored_keys(run)) == 1


async def test_two_thousand_results_at_once_are_all_kept(tmp_path: Path) -> None:
    large = replace(PLAN, runs=334)
    trials = list(large.trials())[:2000]
    with open_store(tmp_path) as store:
        run = begin(store, large)
        await add_all(store, run, [result_of(trial, plan=large) for trial in trials])
        with open_store(tmp_path) as other:
            assert other.scored_keys(run) == {large.key(trial) for trial in trials}
            assert other.run(run.id).passed == 2000


async def test_two_stores_write_to_one_file_at_once(tmp_path: Path) -> None:
    large = replace(PLAN, runs=50)
    trials = list(large.trials())
    with open_store(tmp_path) as one, open_store(tmp_path) as two:
        run, found = one.start_run(large, "0")
        same, found_again = two.start_run(large, "0")
        assert (run.id, found, found_again) == (same.id, False, True)

        async def write(store: Store, passed: bool) -> None:
            for start in range(0, len(trials), 20):
                await add_all(store, run, [result_of(t, passed, plan=large) for t in trials[start : start + 20]])

        await asyncio.gather(write(one, True), write(two, False))
        assert len(one.scored_keys(run)) == len(trials)
        now = one.run(run.id)
        assert now.passed + now.failed == len(trials)


async def test_a_result_is_written_even_if_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        waiting = asyncio.create_task(store.add_result(run, result_of(TRIALS[0])))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    with open_store(tmp_path) as store:
        assert store.scored_keys(run) == {PLAN.key(TRIALS[0])}


# Runs.


def test_a_run_is_named_by_its_skill_and_its_plan(tmp_path: Path) -> None:
    with open_store(tmp_path / "a") as one, open_store(tmp_path / "b") as two:
        assert begin(one).id == begin(two).id == f"greeter-{PLAN.fingerprint[:8]}"


def test_the_same_plan_is_the_same_run_until_someone_wants_a_fresh_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.find_run(PLAN) is None
        first, found = store.start_run(PLAN, "0")
        assert not found
        again, found = store.start_run(PLAN, "0")
        assert (again, found) == (first, True)
        second, found = store.start_run(PLAN, "0", fresh=True)
        assert (second.id, found) == (f"{first.id}-2", False)
        assert begin(store, fresh=True).id == f"{first.id}-3"
        latest, found = store.start_run(PLAN, "0")
        assert (latest.id, found) == (f"{first.id}-3", True)
        assert store.find_run(PLAN) == latest


def test_a_fresh_run_never_takes_the_name_of_another(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first, second = begin(store), begin(store, fresh=True)
        store.delete_run(first)
        third = begin(store, fresh=True)
        assert third.id not in (first.id, second.id)
        assert [run.id for run in store.runs()] == [second.id, third.id]


async def test_deleting_a_run_deletes_its_results_and_no_others(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first, second = begin(store), begin(store, fresh=True)
        await store.add_result(first, result_of(TRIALS[0]))
        await store.add_result(second, result_of(TRIALS[0]))
        store.delete_run(first)
        assert list(store.results(first)) == []
        assert len(list(store.results(second))) == 1


async def test_a_run_counts_what_it_has(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        assert (run.trials, run.passed, run.failed, run.errored, run.finished) == (6, 0, 0, 0, False)
        for trial, passed in zip(TRIALS, [True, True, False, None, True, False], strict=True):
            await store.add_result(run, result_of(trial, passed))
        run = store.run(run.id)
        assert (run.passed, run.failed, run.errored, run.finished) == (3, 2, 1, False)
        await store.add_result(run, result_of(TRIALS[3]))
        run = store.run(run.id)
        assert (run.passed, run.failed, run.errored, run.finished) == (4, 2, 0, True)
        assert run.models == ["one"]
        assert run.plan == PLAN.plain()


def test_a_run_is_found_by_its_id_its_beginning_or_as_the_last(tmp_path: Path) -> None:
    other = replace(PLAN, skill=Skill.new("sailor", "Sails.", "Hoist the main sail."))
    with open_store(tmp_path) as store:
        greeter, sailor = begin(store), begin(store, other)
        assert store.run(greeter.id) == store.run("gre") == greeter
        assert store.run("last") == store.run("sailor-") == sailor
        second = begin(store, fresh=True)
        assert store.run(greeter.id) == greeter  # whole, although another starts the same
        assert store.run("last") == second
        with pytest.raises(UsageError, match="2 runs start with 'gre'"):
            store.run("gre")
        with pytest.raises(UsageError, match="no run is called 'greter'") as caught:
            store.run("greter")
        assert caught.value.hint


def test_there_is_no_last_run_in_an_empty_store(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(UsageError, match="no run is called 'last'"):
        store.run("last")


# Claims.


def test_a_second_process_is_turned_away_from_a_run_that_is_being_carried_out(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        with store.claim(run):
            said = _claim_elsewhere(tmp_path)
            assert said == f"another process is already working on the run {run.id}"
        assert _claim_elsewhere(tmp_path) == "claimed"


def _claim_elsewhere(folder: Path) -> str:
    program = """
        import sys
        from upskill import UsageError, open_store
        with open_store(sys.argv[1]) as store:
            try:
                with store.claim(store.run("last")):
                    print("claimed")
            except UsageError as error:
                print(error)
    """
    argv = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    return subprocess.run(argv, capture_output=True, encoding="utf-8", check=True).stdout.strip()


def test_a_claim_ends_with_an_error_too_and_leaves_no_file_behind(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        with pytest.raises(ZeroDivisionError), store.claim(run):
            raise ZeroDivisionError
        with store.claim(run):
            pass
        assert {path.name for path in tmp_path.iterdir()} <= {FILE, f"{FILE}-wal", f"{FILE}-shm"}


def test_other_runs_can_be_carried_out_at_the_same_time(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, store.claim(begin(store)), store.claim(begin(store, fresh=True)):
        pass


def test_of_many_who_claim_a_run_at_once_only_one_has_it_at_a_time(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        inside: list[int] = []
        most: list[int] = []

        def claim(number: int) -> None:
            for _ in range(300):
                try:
                    with store.claim(run):
                        inside.append(number)
                        time.sleep(0.0002)
                        most.append(len(inside))
                        inside.remove(number)
                except UsageError:
                    continue

        _together(claim, 4)
        assert most
        assert set(most) == {1}


# Files that are new, old, newer, damaged, or cannot be written.


def test_an_empty_database_is_migrated(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with open_store(tmp_path) as store:
        begin(store)
    with _file(tmp_path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_an_older_database_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    with _file(tmp_path) as db:
        for migration in MIGRATIONS[:version]:
            migration(db)
        db.execute(f"PRAGMA user_version = {version}")
    with open_store(tmp_path) as store:
        begin(store)
    with _file(tmp_path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    with _file(tmp_path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UsageError, match="was written by a newer upskill") as caught:
        open_store(tmp_path)
    assert "Upgrade" in caught.value.hint
    with _file(tmp_path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    assert len(before) == (tmp_path / FILE).stat().st_size


def test_a_migration_is_done_wholly_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_way(db: sqlite3.Connection) -> None:
        MIGRATIONS[0](db)
        raise sqlite3.OperationalError("the power went out")

    monkeypatch.setattr("upskill.runs.stores.tables.MIGRATIONS", (half_way,))
    with pytest.raises(UsageError, match="the power went out"):
        open_store(tmp_path)
    monkeypatch.undo()
    with open_store(tmp_path) as store:
        begin(store)


def test_many_may_open_a_new_store_at_once_and_start_the_same_run(tmp_path: Path) -> None:
    for attempt in range(5):
        runs: list[tuple[str, bool]] = []

        def open_and_begin(_: int, folder: Path = tmp_path / str(attempt), runs: list[tuple[str, bool]] = runs) -> None:
            with open_store(folder) as store:
                run, found = store.start_run(PLAN, "0")
                runs.append((run.id, found))

        _together(open_and_begin, 6)
        assert len({run for run, _ in runs}) == 1
        assert sorted(found for _, found in runs) == [False] + [True] * 5


@pytest.mark.parametrize(
    "data", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4000], ids=["text", "header"]
)
def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path / FILE}: cannot be used as a store: ")) as caught:
        open_store(tmp_path)
    assert "--runs-dir" in caught.value.hint
    assert (tmp_path / FILE).read_bytes() == data


async def test_a_file_that_is_damaged_inside_is_a_clear_error(tmp_path: Path) -> None:
    large = replace(PLAN, runs=30)
    with open_store(tmp_path) as store:
        run = begin(store, large)
        await add_all(store, run, [result_of(trial, plan=large, answer="ahoy " * 200) for trial in large.trials()])
    with (tmp_path / FILE).open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(3 * 4096)
        file.write(b"\xa5" * (size - 6 * 4096))
    with open_store(tmp_path) as store:
        with pytest.raises(StoreError, match="malformed") as caught:
            list(store.results(run))
        assert "move it elsewhere" in caught.value.hint


def test_a_file_in_the_place_of_the_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be used as a store"):
        open_store(tmp_path / "runs")


def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with _as_somebody():
            for place in (Path(folder), Path(folder) / "runs"):
                with pytest.raises(UsageError, match="cannot be used as a store"):
                    open_store(place)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are a thing of Unix")
def test_a_full_disk_is_an_error_that_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    program = """
        import asyncio, resource, sys
        sys.path.insert(0, sys.argv[2])
        from dataclasses import replace
        from test_store import PLAN, begin, result_of
        from upskill import open_store
        from upskill.errors import StoreError

        async def fill(store, plan, run):
            for trial in plan.trials():
                await store.add_result(run, result_of(trial, plan=plan, answer="ahoy " * 1000))
                print(plan.key(trial), flush=True)

        plan = replace(PLAN, runs=100)
        with open_store(sys.argv[1]) as store:
            run = begin(store, plan)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
            try:
                asyncio.run(fill(store, plan, run))
            except StoreError as error:
                print("StoreError", error, "|", error.hint)
    """
    argv = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", check=True)
    *kept, said = done.stdout.splitlines()
    assert said.startswith(f"StoreError {tmp_path / FILE}: results cannot be saved: ")
    assert said.endswith("| Free some disk space, then run the same command again: it resumes from what was saved.")
    assert len(kept) > 10
    with open_store(tmp_path) as store:
        assert store.scored_keys(store.run("last")) >= set(kept)


@contextmanager
def _file(folder: Path) -> Generator[sqlite3.Connection]:
    db = sqlite3.connect(folder / FILE)
    try:
        yield db
        db.commit()
    finally:
        db.close()


@contextmanager
def _as_somebody() -> Generator[None]:
    """Without the rights of root, to whom no file is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def _together(work: Callable[[int], None], count: int) -> None:
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
