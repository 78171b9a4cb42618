"""The `sqlite` store as a file: new, old, newer, damaged, or one that cannot be written."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from test_store import PLAN, add_all, begin, result_of, together
from upskill import UsageError, open_store
from upskill.errors import StoreError
from upskill.runs.stores import tables
from upskill.runs.stores.sqlite_file import FILE
from upskill.runs.stores.tables import MIGRATIONS


def test_a_folder_can_be_given_as_a_path_or_as_a_url(tmp_path: Path) -> None:
    with open_store(tmp_path) as one, open_store(str(tmp_path)) as two, open_store(f"sqlite://{tmp_path}") as three:
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

        together(open_and_begin, 6)
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


def test_a_store_is_opened_as_soon_as_another_process_lets_go_of_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 500:  # a slow one
                other.execute("COMMIT")

        monkeypatch.setattr(tables, "time", SimpleNamespace(sleep=wait, monotonic=lambda: sum(waits)))
        with open_store(tmp_path) as store:
            begin(store)
    assert len(waits) == 500
