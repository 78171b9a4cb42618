"""The `postgresql` store as a server: away and back, shared by many, and never telling its password."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from conftest import Done, Upskill, write_script, write_skill
from postgres_server import PASSWORD, QUOTED_PASSWORD
from postgres_server import Server as PostgresServer
from test_store import PLAN, TRIALS, add_all, begin, result_of
from upskill import UsageError, open_store
from upskill.errors import StoreError
from upskill.runs.stores import find_store
from upskill.runs.stores.tables import REPLIES, RESULTS, RUNS, VERSION

psycopg = pytest.importorskip("psycopg")
from upskill.runs.stores import postgres as postgres_store  # noqa: E402 - it needs psycopg


@contextmanager
def database(place: str) -> Generator[Any]:
    """The database itself, beside upskill, in the schema of this store."""
    url, _, schema = place.partition("&schema=")
    with psycopg.connect(f"{url}&options=-csearch_path%3D{schema}", autocommit=True) as db:
        yield db


@pytest.fixture
def place(postgres: PostgresServer) -> str:
    return postgres.new_place()


@pytest.fixture
def own(request: pytest.FixtureRequest, postgres: PostgresServer) -> Generator[PostgresServer]:
    """The server, running again after a test that stopped it."""
    yield postgres
    if not postgres.is_running:
        postgres.start()


# Away and back.


async def test_what_is_written_while_the_server_is_away_is_there_once_when_it_is_back(
    own: PostgresServer,
) -> None:
    large = replace(PLAN, runs=100)
    trials = list(large.trials())
    with open_store(own.new_place()) as store:
        run = begin(store, large)
        with store.claim(run):
            acknowledged: list[int] = []
            allowed = 200  # so that some are left for when the server is away

            async def work(part: int) -> None:
                for number in range(part, len(trials), 8):
                    while number >= allowed:
                        await asyncio.sleep(0.001)
                    await store.add_result(run, result_of(trials[number], plan=large))
                    acknowledged.append(number)

            async def disturb() -> None:
                nonlocal allowed
                for mode, until in (("fast", 100), ("immediate", 300)):
                    while len(acknowledged) < until:
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(own.stop, mode)
                    allowed += 200
                    await asyncio.sleep(0.05)
                    assert len(acknowledged) <= allowed - 200
                    await asyncio.to_thread(own.start)
                allowed = len(trials)

            await asyncio.gather(disturb(), *(work(part) for part in range(8)))
            assert set(store.settled(run)) == set(trials)
            assert store.run(run.id).passed == len(trials)  # each was counted once
            assert store.is_claimed(run)  # again, after the server had forgotten it
        assert not store.is_claimed(run)
        assert store.revision(run) == store.revision()


async def test_reading_and_starting_runs_wait_for_a_server_that_comes_back(
    own: PostgresServer,
) -> None:
    with open_store(own.new_place()) as store:
        first = begin(store)
        await store.add_result(first, result_of(TRIALS[0]))
        own.stop("immediate")
        back = threading.Thread(target=own.start)
        back.start()
        assert begin(store, new=True).id != first.id
        back.join()
        own.stop("fast")
        own.start()
        assert [result.trial for result in store.results(first)] == [
            TRIALS[0]
        ]  # its connections are gone
        own.stop("fast")
        own.start()
        assert store.run(first.id).passed == 1
        with store.claim(first):
            pass


async def test_a_server_that_stays_away_is_an_error_that_says_so(
    own: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_store, "PATIENCE", 0.5)
    with open_store(own.new_place()) as store:
        run = begin(store)
        stream = store.runs()
        assert next(stream) == run
        own.stop("fast")
        with caplog.at_level(logging.DEBUG):
            for work in (lambda: store.run(run.id), lambda: begin(store, new=True)):
                with pytest.raises(
                    StoreError, match=r"Connection refused|No such file|terminating"
                ) as caught:
                    work()
                assert "resumes" in caught.value.hint
            with pytest.raises(StoreError, match="cannot be written"):
                await store.add_result(run, result_of(TRIALS[0]))
        assert "connection lost, trying again" in caplog.text
        assert PASSWORD not in caplog.text
        with pytest.raises(UsageError, match="cannot be reached"):
            open_store(own.new_place())
        own.start()
        await store.add_result(run, result_of(TRIALS[0]))
        assert store.run(run.id).passed == 1


async def test_a_stream_that_breaks_in_the_middle_is_an_error_and_not_a_shorter_stream(
    own: PostgresServer,
) -> None:
    large = replace(PLAN, runs=60)
    with open_store(own.new_place()) as store:
        run = begin(store, large)
        await add_all(store, run, [result_of(trial, plan=large) for trial in large.trials()])
        stream = store.outcomes(run)
        next(stream)
        own.stop("immediate")
        own.start()
        with pytest.raises(StoreError, match="cannot be read"):
            list(stream)
        assert sum(1 for _ in store.outcomes(run)) == len(large)


async def test_a_store_that_is_closed_closes_the_connections_of_streams_that_nobody_read_to_their_end(
    place: str,
) -> None:
    large = replace(PLAN, runs=60)
    with open_store(place) as store:
        run = begin(store, large)
        await add_all(store, run, [result_of(trial, plan=large) for trial in large.trials()])
        stream = store.outcomes(run)
        next(stream)
    with pytest.raises(StoreError, match="cannot be read: the connection is closed"):
        list(stream)


async def test_a_claim_that_another_process_took_meanwhile_ends_the_work(
    own: PostgresServer,
) -> None:
    place = own.new_place()
    with open_store(place) as store, open_store(place) as other:
        run = begin(store)
        with store.claim(run):
            await store.add_result(run, result_of(TRIALS[0]))
            own.stop("fast")
            own.start()
            with other.claim(run):
                for _ in range(2):  # and does not go on all the same
                    with pytest.raises(StoreError, match="another process took over the run"):
                        await store.add_result(run, result_of(TRIALS[1]))
            await store.add_result(run, result_of(TRIALS[1]))
            assert other.is_claimed(run)


def test_a_process_that_is_killed_gives_up_its_claim(place: str) -> None:
    program = """
        import sys, time
        from upskill import open_store
        with open_store(sys.argv[1]) as store, store.claim(store.run("last")):
            print("claimed", flush=True)
            time.sleep(600)
    """
    with open_store(place) as store:
        run = begin(store)
        argv = [sys.executable, "-c", textwrap.dedent(program), place]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, encoding="utf-8") as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "claimed\n"
            with pytest.raises(UsageError, match="already working"), store.claim(run):
                pass
            holder.send_signal(signal.SIGKILL)
        while store.is_claimed(run):  # until the server has noticed
            continue
        with store.claim(run):
            pass


# Many at once.


async def test_many_processes_open_a_new_store_and_write_the_same_trials_at_once(
    place: str,
) -> None:
    program = """
        import asyncio, sys
        sys.path.insert(0, sys.argv[2])
        from dataclasses import replace
        from test_store import PLAN, add_all, begin, result_of
        from upskill import open_store
        plan = replace(PLAN, runs=10)

        async def main(place, number):
            with open_store(place) as store:
                run = begin(store, plan)
                trials = list(plan.trials())[:: 1 if number % 2 else -1]
                for start in range(0, len(trials), 17):
                    passed = [None, True, False][number % 3]
                    await add_all(store, run, [result_of(t, passed, plan=plan) for t in trials[start : start + 17]])

        asyncio.run(main(sys.argv[1], int(sys.argv[3])))
    """
    argv = [sys.executable, "-c", textwrap.dedent(program), place, str(Path(__file__).parent)]
    processes = [subprocess.Popen([*argv, str(number)]) for number in range(3)]
    assert [process.wait() for process in processes] == [0] * 3
    plan = replace(PLAN, runs=10)
    with open_store(place) as store:
        (run,) = store.runs()
        assert (run.passed + run.failed, run.errored) == (len(plan), 0)
        assert set(store.settled(run)) == set(plan.trials())
        outcomes = [row.passed for row in store.outcomes(run)]
        assert (run.passed, run.failed) == (outcomes.count(True), outcomes.count(False))
    with database(place) as db:
        versions = db.execute("SELECT version FROM version ORDER BY 1").fetchall()
        assert versions == [(VERSION,)]


async def test_the_same_trial_twice_in_one_commit_is_stored_by_the_rules(place: str) -> None:
    with open_store(place) as store:
        run = begin(store)
        same = [
            result_of(TRIALS[0], None, answer="a"),
            result_of(TRIALS[0], False, answer="b"),
            result_of(TRIALS[0]),
        ]
        await add_all(store, run, same)
        assert list(store.results(run)) == [same[1]]
        await asyncio.gather(*(store.add_reply("key", "one", text) for text in ("1", "2", "3")))
        assert store.reply("key") == "3"


# Versions and schemas.


def test_a_store_of_another_version_is_refused(place: str) -> None:
    open_store(place).close()
    with database(place) as db:
        db.execute("INSERT INTO version VALUES (18)")
    for opener in (open_store, find_store):
        with pytest.raises(UsageError, match=": a store of another version of upskill") as caught:
            opener(place)
        assert "another --store" in caught.value.hint


def test_several_stores_fit_into_one_database(postgres: PostgresServer) -> None:
    with open_store(postgres.new_place()) as one, open_store(postgres.new_place()) as two:
        run, same = begin(one), begin(two)
        assert run.number == same.number
        with one.claim(run), two.claim(same):  # which are not the same run
            assert two.count_runs() == 1


# What cannot be used.


def refused(place: str) -> str:
    with pytest.raises(UsageError) as caught:
        open_store(place)
    assert caught.value.hint
    told = (
        "".join(traceback.format_exception(caught.value)) + caught.value.hint
    )  # as UPSKILL_DEBUG shows it
    for secret in (PASSWORD, QUOTED_PASSWORD, "hunter2"):
        assert secret not in told
    return f"{caught.value.message}\n{caught.value.hint}"


def test_a_place_that_cannot_be_used_is_refused_with_words_and_without_its_password(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, port = f"host={postgres.folder}&port={postgres.port}", postgres.port
    assert "PGPASSWORD or ~/.pgpass" in refused(
        f"postgresql://upskill:hunter2@127.0.0.1:{port}/postgres"
    )
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    assert "password authentication failed" in refused(f"postgresql://upskill@/postgres?{here}")
    monkeypatch.delenv("PGPASSWORD")
    assert "createdb NAME" in refused(f"postgresql://upskill:{QUOTED_PASSWORD}@/none?{here}")
    assert "Is the server running" in refused("postgresql://upskill:hunter2@127.0.0.1:1/postgres")
    assert "postgresql://…: not a PostgreSQL URL" in refused(
        "postgresql://upskill:hunter2@host:port/postgres"
    )
    assert "postgresql://…: not a PostgreSQL URL" in refused(
        "postgresql://upskill:hun@ter2:hunter2@host/postgres"
    )
    assert "not a PostgreSQL URL" in refused("postgresql://host/postgres?colour=hunter2")
    assert "is not a valid schema name" in refused(
        f"postgresql://host/postgres?schema={quote('a; DROP')}"
    )


def test_a_database_that_does_not_fit_is_refused(postgres: PostgresServer) -> None:
    with database(postgres.place("x")) as db:
        db.execute("CREATE DATABASE latin ENCODING 'SQL_ASCII' TEMPLATE template0")
        db.execute("CREATE ROLE guest LOGIN PASSWORD 'hunter2'")
        db.execute("REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    latin = postgres.place("x").replace("/postgres?", "/latin?")
    assert "the database encoding is SQL_ASCII, not UTF8" in refused(latin)
    guest = postgres.new_place().replace(f"upskill:{QUOTED_PASSWORD}", "guest:hunter2")
    assert "CREATE SCHEMA" in refused(guest)
    assert find_store(guest) is None
    # Who may only read can look.
    place = postgres.new_place()
    with open_store(place) as store:
        run = begin(store)
    schema = place.partition("schema=")[2]
    with database(place) as db:
        db.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest"
        )
    with find_store(place.replace(f"upskill:{QUOTED_PASSWORD}", "guest:hunter2")) or pytest.fail(
        "none"
    ) as store:
        assert store.run("last") == run
        with pytest.raises(StoreError, match="cannot be written: permission denied"):
            begin(store, new=True)


def test_without_the_driver_the_extra_is_named(home: Path) -> None:
    program = "import sys; sys.modules['psycopg'] = None; sys.argv[0] = 'upskill'; from upskill.cli import main; main()"
    argv = [sys.executable, "-c", program, "runs", "--store", "postgresql://me:hunter2@host/runs"]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a postgresql:// store needs psycopg, which is not installed" in done.stderr
    assert re.search(r"install.*postgres", done.stderr)
    assert "hunter2" not in done.stderr


# Commands.

READING = (
    ("runs",),
    ("runs", "--json"),
    ("runs", "--csv", "-"),
    ("show", "last"),
    ("show", "last", "--failed"),
    ("show", "last", "--json"),
    ("compare", "last~1", "last"),
    ("compare", "last~1", "last", "--json"),
    ("versions", "greeter"),
    ("export", "last", "--replies", "replies.jsonl"),
    ("eval", "greeter", "-m", "scripted:student.yaml", "--plan", "--json"),
    ("report", "last", "-o", "report.html"),
    ("export", "last", "--format", "svg", "-o", "-"),
    ("export", "last", "--format", "csv", "-o", "-"),
)


def test_every_command_prints_the_same_from_either_kind_of_store(
    upskill: Upskill, home: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = postgres.new_place()
    skill, model = write_skill(home / "greeter"), write_script(home / "student.yaml")
    first = upskill("eval", skill, "-m", model, "--repeats", 2, "--json").json
    there = upskill("eval", skill, "-m", model, "--repeats", 2, "--json", "--store", place).json
    assert _timeless(there) == _timeless(first)
    write_skill(home / "greeter", body="Say hello.")
    upskill("eval", skill, "-m", model)
    place = postgres.new_place()
    _copy("runs", place)
    monkeypatch.setenv("UPSKILL_STORE", place)  # which goes before the settings
    for command in READING:
        monkeypatch.delenv("UPSKILL_STORE")
        ours = upskill(*command)
        written = _written(home)
        monkeypatch.setenv("UPSKILL_STORE", place)
        theirs = upskill(*command)
        assert (ours.code, theirs.code) == (0, 0), (command, ours.err, theirs.err)
        assert theirs == ours, command
        assert _written(home) == written, command
        _holds_no_password(theirs)
    assert (
        "8 of 8 trials are stored, nothing left to run" in upskill("eval", skill, "-m", model).err
    )
    for command in (
        ("doctor",),
        ("doctor", "--json"),
        ("runs", "-vv"),
        ("show", "nobody"),
        ("eval", skill, "-m", model),
    ):
        _holds_no_password(upskill(*command))
    named = upskill("eval", skill, "-m", model, "--store", place)
    _holds_no_password(named)
    assert "--store 'postgresql://upskill@/postgres?host=" in " ".join(named.out.split())


def _copy(source: str, target: str) -> None:
    """All runs into a new store, which counts their numbers up in the same way."""
    with open_store(source) as here, open_store(target) as there:
        for table in (RUNS, RESULTS, REPLIES):
            query = f"{table.select()} ORDER BY {', '.join(table.key)}"
            rows = table.decode(here.database.rows(query))
            there.database.executemany(table.insert(), [table.encode(row) for row in rows])


def _timeless(document: Any) -> Any:
    """Without what two runs of the same plan may differ in."""
    if isinstance(document, dict):
        skipped = ("created", "seconds", "started", "finished", "asked", "duration")
        return {key: _timeless(value) for key, value in document.items() if key not in skipped}  # pyright: ignore
    return [_timeless(each) for each in document] if isinstance(document, list) else document  # pyright: ignore


def _written(home: Path) -> list[bytes]:
    return [
        path.read_bytes()
        for path in (home / "replies.jsonl", home / "report.html")
        if path.exists()
    ]


def _holds_no_password(done: Done) -> None:
    for secret in (PASSWORD, QUOTED_PASSWORD):
        assert secret not in done.out + done.err
