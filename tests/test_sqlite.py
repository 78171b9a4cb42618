"""The `sqlite` store as a file: new, of another version, damaged, or one that cannot be written."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Upskill, write_script, write_skill
from test_store import PLAN, TRIALS, add_all, begin, result_of, together
from upskill import Result, UsageError, open_store
from upskill.errors import StoreError
from upskill.runs.stores import Page, Store, find_store, sqlite
from upskill.runs.stores.sqlite import FILE, SqliteDatabase
from upskill.runs.stores.tables import VERSION


def test_a_folder_can_be_given_as_a_path_or_as_a_url(tmp_path: Path) -> None:
    with (
        open_store(tmp_path) as one,
        open_store(str(tmp_path)) as two,
        open_store(f"sqlite://{tmp_path}") as three,
    ):
        run = begin(one)
        assert one.location == two.location == three.location == str(tmp_path / FILE)
        assert two.run("last") == three.run("last") == run


def test_a_claim_leaves_no_file_behind(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store)
        with pytest.raises(ZeroDivisionError), store.claim(run):
            raise ZeroDivisionError
        with store.claim(run):
            pass
        assert {path.name for path in tmp_path.iterdir()} <= {FILE, f"{FILE}-wal", f"{FILE}-shm"}


def test_an_empty_database_gets_its_tables(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with open_store(tmp_path) as store:
        begin(store)
    with _file(tmp_path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@pytest.mark.parametrize("version", [18, VERSION + 1])
def test_a_store_of_another_version_is_refused_and_left_alone(
    upskill: Upskill, home: Path, version: int
) -> None:
    open_store(home / "runs").close()
    with _file(home / "runs") as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = (home / "runs" / FILE).read_bytes()
    skill = write_skill(home / "greeter")
    for argv in (("runs",), ("list",), ("eval", skill, "-m", "scripted:none.yaml")):
        refused = upskill(*argv)
        assert refused.code == 2
        assert f"runs/{FILE}: a store of another version of upskill" in refused.err
        assert "Move the file elsewhere" in refused.err
        assert ("--store" in refused.err) == (argv != ("list",))  # which has no such option
    assert (home / "runs" / FILE).read_bytes() == before


def test_tables_are_created_wholly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise sqlite3.OperationalError("the power went out")

    monkeypatch.setattr(sqlite, "sqlite_indexes", fail)  # which come last
    with pytest.raises(UsageError, match="the power went out"):
        open_store(tmp_path)
    monkeypatch.undo()
    with open_store(tmp_path) as store:
        begin(store)


def test_many_may_open_a_new_store_at_once_and_start_the_same_run(tmp_path: Path) -> None:
    for attempt in range(5):
        runs: list[tuple[str, bool]] = []

        def open_and_begin(
            _: int, folder: Path = tmp_path / str(attempt), runs: list[tuple[str, bool]] = runs
        ) -> None:
            with open_store(folder) as store:
                run, found = store.start_run(PLAN, "0")
                runs.append((run.id, found))

        together(open_and_begin, 6)
        assert len({run for run, _ in runs}) == 1
        assert sorted(found for _, found in runs) == [False] + [True] * 5


@pytest.mark.parametrize(
    "data",
    [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4000],
    ids=["text", "header"],
)
def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(
        UsageError, match=re.escape(f"{tmp_path / FILE}: cannot be used as a store: ")
    ) as caught:
        open_store(tmp_path)
    assert "--store" in caught.value.hint
    assert (tmp_path / FILE).read_bytes() == data


async def test_damage_anywhere_in_the_file_is_noticed_before_anything_is_paid_for(
    tmp_path: Path,
) -> None:
    large = replace(PLAN, runs=30)
    with open_store(tmp_path / "whole") as store:
        run = begin(store, large)
        await add_all(
            store,
            run,
            [result_of(trial, plan=large, answer="ahoy " * 200) for trial in large.trials()],
        )
    whole = (tmp_path / "whole" / FILE).read_bytes()
    pages = len(whole) // 4096
    assert pages > 100
    for page in range(1, pages, pages // 12):
        damaged = whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :]
        folder = tmp_path / str(page)
        folder.mkdir()
        (folder / FILE).write_bytes(damaged)
        with pytest.raises(StoreError) as caught, open_store(folder) as store:
            store.database.check_damage()
        assert "move it elsewhere" in caught.value.hint


def test_a_command_that_meets_damage_says_so(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter", cases=30)
    evaluate = ("eval", folder, "-m", write_script(home / "student.yaml"))
    assert upskill(*evaluate).code == 0
    with (home / "runs" / FILE).open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    for argv in (("runs",), ("show", "last"), evaluate):
        done = upskill(*argv)
        assert (done.code, "Traceback" in done.err) == (3, False), (argv, done)
        assert "may be damaged" in done.err


# A file that cannot be written.


@contextmanager
def _read_only(source: Path) -> Generator[Path]:
    """A copy of a store that may be read and not written, and nobody to whom that does not apply."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        shutil.copytree(source, folder)
        for path in folder.iterdir():
            path.chmod(0o444)
        Path(temporary).chmod(0o755)
        folder.chmod(0o555)
        with _as_somebody():
            yield folder


async def test_a_store_on_a_read_only_medium_can_be_read(tmp_path: Path) -> None:
    results = [result_of(trial) for trial in PLAN.trials()]
    with open_store(tmp_path) as store:
        run = begin(store)
        await add_all(store, run, results)
        with _read_only(tmp_path) as folder:  # with what the writer has not yet moved into the file
            assert (folder / f"{FILE}-wal").stat().st_size
            _check_readable(folder, results)
    with _read_only(tmp_path) as folder:
        with pytest.raises(UsageError, match="cannot be used as a store"):
            open_store(folder)
        _check_readable(folder, results)
        store = find_store(folder)
        assert store is not None
        with store, pytest.raises(StoreError, match="cannot be written"):
            store.delete_run(run)


def _check_readable(folder: Path, results: list[Result]) -> None:
    store = find_store(folder)
    assert store is not None
    with store:
        run = store.run("last")
        assert (run.passed, [each.id for each in store.runs()]) == (len(results), [run.id])
        assert {result.key: result for result in store.results(run)} == {
            result.key: result for result in results
        }
        assert len(list(store.outcomes(run))) == len(results)


# Many results.


class Traced(SqliteDatabase):
    """Writes down every query that it makes."""

    def __init__(self, folder: Path) -> None:
        self.queries: list[str] = []
        super().__init__(folder)

    def _connect(self) -> sqlite3.Connection:
        db = super()._connect()
        db.set_trace_callback(self.queries.append)
        return db

    def plans(self, table: str = "results") -> dict[str, list[str]]:
        """How SQLite carries out the queries since the last call that read this table."""
        made = dict.fromkeys(
            query for query in self.queries if query.strip().startswith("SELECT") and table in query
        )
        found = {
            query: [row[3] for row in self.rows(f"EXPLAIN QUERY PLAN {query}")] for query in made
        }
        self.queries.clear()
        return found


async def test_reports_and_pages_are_read_from_indexes_alone(tmp_path: Path) -> None:
    plan = replace(PLAN, runs=20)
    with Store(traced := Traced(tmp_path)) as store:
        run = begin(store, plan)
        await add_all(store, run, [result_of(trial, plan=plan) for trial in plan.trials()])
        await store.add_result(begin(store), result_of(TRIALS[0], None))
        traced.plans()
        list(store.runs())
        list(store.outcomes(run))
        list(store.bugs(run))
        list(store.unsettled(run))
        store.run(run.id)
        for read in (
            store.progress,
            store.snapshots,
            store.leaks,
            store.errors,
            store.spent,
            store.settled,
            store.last_seeds,
        ):
            read(run)
        for query, steps in traced.plans().items():
            for step in steps:
                # Those of errors and leaks have the rows that are meant and no others.
                few = "results_errored" in step or "results_leaked" in step
                assert "results" not in step or "COVERING INDEX" in step or few, (query, steps)
        list(store.results(run, page=Page(10, 20)))
        list(store.results(run, "greet-2", "one", failed=True, page=Page(10)))
        list(store.outcomes(run, after=TRIALS[2], limit=10))
        list(store.outcomes(run, "greet-2", after=TRIALS[2], limit=10))
        store.result(run, TRIALS[2])
        for query, steps in traced.plans().items():
            assert all("SEARCH results USING" in step for step in steps), (
                query,
                steps,
            )  # and nothing is sorted
            assert not any(step.endswith("PRIMARY KEY (run=?)") for step in steps), (
                query
            )  # all of the run


async def test_a_file_that_is_gone_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(Path("runs")) as store:
        run = begin(store)
        monkeypatch.chdir(tmp_path.parent)  # which makes nothing gone
        assert store.run(run.id).id == run.id
        (tmp_path / "runs" / FILE).rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match="the store was deleted, moved or replaced") as found:
            store.run(run.id)
        assert "damaged" not in found.value.hint
        (tmp_path / "elsewhere.db").rename(tmp_path / "runs" / FILE)
        assert store.run(run.id).id == run.id


def test_a_file_in_the_place_of_the_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="runs: not a folder"):
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
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
            try:
                asyncio.run(fill(store, plan, run))
            except StoreError as error:
                print("StoreError", error, "|", error.hint)
    """
    argv = [
        sys.executable,
        "-c",
        textwrap.dedent(program),
        str(tmp_path),
        str(Path(__file__).parent),
    ]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", check=True)
    *kept, said = done.stdout.splitlines()
    assert said.startswith(f"StoreError {tmp_path / FILE}: cannot be written: ")
    assert said.endswith(
        "| Free some disk space, then run the same command again: it resumes from what was saved."
    )
    assert len(kept) > 10
    with open_store(tmp_path) as store:
        assert {result.key for result in store.results(store.run("last"))} >= set(kept)


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
