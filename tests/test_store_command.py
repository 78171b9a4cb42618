"""`upskill store`: runs get from one place to another whole, are checked, and go only when they may."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import Upskill, write_script, write_skill
from postgres_server import PASSWORD, QUOTED_PASSWORD
from postgres_server import Server as PostgresServer
from test_store import PLAN, SAILOR, SKILL, TRIALS, add_all, begin, result_of
from upskill import Address, Store, UsageError, open_store
from upskill.models import RequestHash
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Look, Review, Run, find_store
from upskill.runs.stores.maintenance import copy_store

CHUNK = 500  # rows that are copied at a time
ODD = "a zero \0 and an escape \x1a0, half a pair \ud83d"


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite"])
def places(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> tuple[str, str]:
    """Where to copy from, and where to."""
    one, two = str(tmp_path / "runs"), postgres.new_place()
    return (one, two) if request.param.startswith("sqlite") else (two, one)


async def fill(place: str) -> None:
    """Of everything a little, and more results than are copied at a time."""
    large = replace(PLAN, runs=CHUNK // 5)
    with open_store(place) as store:
        run, again, long = begin(store), begin(store, fresh=True), begin(store, large)
        await add_all(store, run, [result_of(TRIALS[0], answer=ODD), result_of(TRIALS[1], None)])
        await add_all(
            store, again, [replace(result_of(TRIALS[0], False), activated=True, leak="seen")]
        )
        await add_all(store, long, [result_of(trial, plan=large) for trial in large.trials()])
        for key in map(str, range(CHUNK + 10)):
            await store.add_reply(key, "one", f'"{ODD}"' if key == "7" else "{}", wait=False)
        await store.add_reply("teacher", "two", "{}", "teacher", "may I?")
        first = store.add_candidate("search", SKILL, None, True, ODD, {"lift": 0.1})
        store.add_candidate("search", SAILOR, first.number, None, "", {})
        batch = store.begin_batch(run.id, "one", "https://here", ["a", "b"])
        store.settle_batch(store.confirm_batch(batch, "id-1"), ["a"])
        store.add_review(run, Review(TRIALS[0], "wrong", "no greeting"))
        store.add_look(look_at(run))


def look_at(run: Run) -> Look:
    return Look(
        run=run.id,
        model="one",
        skill=run.skill,
        skill_hash="h",
        suite="s",
        suite_fingerprint="f",
        **cast(
            "Any",
            {
                "cases": {"greet-1": "x"},
                "runs": 1,
                "seed": 0,
                "margin": 0.1,
                "scope": "",
                "trials": 2,
            },
        ),
    )


def everything(store: Store) -> dict[str, Any]:
    """All that a store hands out, but for numbers that a store gives itself."""
    runs = list(store.runs())
    candidates = [
        replace(each, number=0, parent=bool(each.parent)) for each in store.candidates("greeter")
    ]
    return {
        "runs": [replace(run, number=0) for run in runs],
        "results": [list(store.results(run)) for run in runs],
        "outcomes": [list(store.outcomes(run)) for run in runs],
        "progress": [store.progress(run) for run in runs],
        "spent": [store.spent(run) for run in runs],
        "replies": [store.reply(str(key)) for key in range(CHUNK + 11)],
        "requests": list(store.requests()),
        "candidates": candidates,
        "children": [
            replace(each, number=0, parent=bool(each.parent)) for each in store.candidates("sailor")
        ],
        "batches": store.pending_batches("https://here"),
        "reviews": [store.reviews(run) for run in runs],
        "looks": [replace(look, number=0) for look in store.looks("greeter")],
    }


async def test_a_copy_has_everything_and_copying_again_brings_only_what_is_new(
    places: tuple[str, str],
) -> None:
    one, two = places
    await fill(one)
    with open_store(one) as source, open_store(two) as target:
        wanted = everything(source)
        told: list[float] = []
        copied = await asyncio.to_thread(
            copy_store, source, target, lambda _, share: told.append(share)
        )
        assert everything(target) == wanted
        assert (
            (copied.new_runs, copied.new_results)
            == (copied.runs, copied.results)
            == (3, len(PLAN) * 100 + 3)
        )
        assert copied.new_replies == copied.replies == CHUNK + 11
        assert told == sorted(told)
        assert told[-1] == 1
        again = await asyncio.to_thread(copy_store, source, target)
        assert (again.runs, again.new_runs, again.new_results, again.new_replies) == (3, 0, 0, 0)
        assert everything(target) == wanted
        run = source.run("last")
        await source.add_result(next(source.runs()), result_of(TRIALS[1]))  # the errored one
        assert (await asyncio.to_thread(copy_store, source, target)).new_results == 1
        assert everything(target) == everything(source)
        assert evaluation_of(target, target.run(run.id)).looks == evaluation_of(source, run).looks


async def test_an_interrupted_copy_goes_on_where_it_was(places: tuple[str, str]) -> None:
    one, two = places
    await fill(one)

    def stop(what: str, share: float) -> None:
        if what == "replies" or share > 0.5:
            raise KeyboardInterrupt

    with open_store(one) as source, open_store(two) as target:
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(_raising, lambda: copy_store(source, target, stop))
        half = target.run("last").passed
        assert half
        copied = await asyncio.to_thread(copy_store, source, target)
        assert copied.new_runs == 0
        assert copied.new_replies > 0
        assert everything(target) == everything(source)


def _raising(work: Callable[[], object]) -> None:
    work()


async def test_a_copy_overwrites_nothing_and_takes_no_id_of_another_run(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    shared = postgres.new_place()
    for name, created in (
        ("mine", "2026-01-01T00:00:00+00:00"),
        ("yours", "2026-01-02T00:00:00+00:00"),
    ):
        with open_store(tmp_path / name) as store:
            run = begin(store)
            await store.add_result(run, result_of(TRIALS[0], name == "mine", answer=name))
            await store.add_reply("key", "one", f'"{name}"')
            store.add_look(look_at(run))
        with closing(sqlite3.connect(tmp_path / name / "upskill.db")) as db:
            db.execute("UPDATE runs SET created = ?", (created,))
            db.commit()
    with open_store(shared) as target:
        for _ in range(2):
            for name in ("mine", "yours"):
                with open_store(tmp_path / name) as source:
                    await asyncio.to_thread(copy_store, source, target)
            ids = [run.id for run in target.runs()]
            assert ids == [run.id, f"{run.id}-2"]
            assert [next(target.results(each)).passed for each in target.runs()] == [True, False]
            assert target.reply("key") == '"mine"'
            assert [look.run for look in target.looks("greeter")] == ids
        await target.add_result(target.run("last"), result_of(TRIALS[1]))
        with open_store(tmp_path / "yours") as source:
            await asyncio.to_thread(copy_store, source, target)
        assert target.run("last").passed == 1  # what the copy has on top stays


def test_a_store_is_not_copied_into_itself(postgres: PostgresServer) -> None:
    place = postgres.new_place()
    with (
        open_store(place) as one,
        open_store(place) as two,
        pytest.raises(UsageError, match="into itself"),
    ):
        copy_store(one, two)


# The command line.


@pytest.fixture
def evaluated(upskill: Upskill, home: Path) -> Path:
    """A skill with one run in ./runs."""
    skill = write_skill(home / "greeter")
    assert upskill("eval", skill, "-m", write_script(home / "student.yaml"), "--json").code == 0
    return skill


def test_store_copy_says_what_it_did_and_never_the_password(
    upskill: Upskill, evaluated: Path, postgres: PostgresServer
) -> None:
    place = postgres.new_place()
    done = upskill("store", "copy", "runs", place)
    assert (done.code, done.out) == (0, "")
    assert "1 run (1 new), 8 results (8 new), 8 replies (8 new)." in done.err
    again = upskill("store", "copy", "runs", place, "--json").json
    assert (again["runs"], again["new_runs"], again["results"], again["new_results"]) == (
        1,
        0,
        8,
        0,
    )
    there = upskill("runs", "--store", place, "--json").json
    assert there == upskill("runs", "--json").json
    for said in (done.err, json.dumps(again)):
        assert PASSWORD not in said
        assert QUOTED_PASSWORD not in said
    nothing = upskill("store", "copy", "nowhere", place)
    assert nothing.code == 2
    assert "nowhere: no such folder" in nothing.err


def test_store_check_finds_damage_and_orphans(
    upskill: Upskill, evaluated: Path, postgres: PostgresServer
) -> None:
    place = postgres.new_place()
    assert upskill("store", "copy", "runs", place).code == 0
    for where in ("runs", place):
        whole = upskill("store", "check", "--store", where)
        assert (whole.code, whole.out) == (0, "")
        assert "1 run, no problems found" in whole.err
    with closing(sqlite3.connect("runs/upskill.db")) as db:
        db.execute("UPDATE results SET detail = '{' WHERE arm = 'skill' AND case_id = 'greet-1'")
        db.execute(
            "INSERT INTO results SELECT 99, key, "
            + _columns(db, "results")[2:]
            + " FROM results LIMIT 2"
        )
        db.execute("UPDATE progress SET passed = passed + 1 WHERE arm = 'skill'")
        db.execute(
            "INSERT INTO batches VALUES ('t', 'gone', 'one', 'https://here', '', '', 'open', '[]')"
        )
        db.commit()
    found = upskill("store", "check", "--json")
    assert found.code == 1
    problems = "\n".join(found.json["problems"])
    assert "results for a run that does not exist: 2" in problems
    assert "batches at a provider for a run that does not exist: 1" in problems
    assert "the counts do not match the results" in problems
    assert "cannot be read: JSONDecodeError" in problems
    listed = upskill("store", "check")
    assert listed.code == 1
    assert listed.out.count("\n") >= 4
    psycopg = pytest.importorskip("psycopg")
    plain = place.replace("&schema", "&options=-csearch_path%3D").replace("%3D=", "%3D")
    with psycopg.connect(plain, autocommit=True) as db:
        db.execute("UPDATE results SET detail = '{}' WHERE arm = 'skill' AND case_id = 'greet-1'")
        db.execute("DELETE FROM progress_of_writers")
    problems = "\n".join(upskill("store", "check", "--store", place, "--json").json["problems"])
    assert "cannot be read: KeyError: 'usage'" in problems
    assert (
        "the counts do not match the results: 0 passed, 0 failed, 0 errored and 4 passed, 4 failed"
        in problems
    )


def _columns(db: sqlite3.Connection, table: str) -> str:
    return ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({table})")).replace(
        "run, key", ""
    )


def test_a_damaged_file_is_a_problem_and_not_a_crash(upskill: Upskill, evaluated: Path) -> None:
    file = Path("runs/upskill.db")
    data = bytearray(file.read_bytes())
    data[8192 : len(data) - 4096] = b"\xff" * (len(data) - 4096 - 8192)
    file.write_bytes(data)
    done = upskill("store", "check")
    assert done.code in (1, 3)
    assert "upskill.db" in done.out + done.err or "Tree" in done.out


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_prune_deletes_what_was_chosen_and_nothing_that_is_in_use(
    upskill: Upskill, home: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    place = "runs" if kind == "sqlite" else request.getfixturevalue("postgres").new_place()
    with open_store(place) as store:
        runs = [begin(store), begin(store, fresh=True), begin(store, fresh=True)]
        sailor = begin(store, replace(PLAN, skill=SAILOR))
        for number, run in enumerate([*runs, sailor]):
            asked = (RequestHash(f"key-{number}", "request"),)
            await store.add_result(run, replace(result_of(TRIALS[0]), asked=asked))
            await store.add_reply(f"key-{number}", "one", "{}")
        await store.add_reply("nobody's", "one", "{}")
        await store.add_reply("of a teacher", "one", "{}", "teacher", "may I?")
        store.add_look(look_at(runs[0]))
    where = ("--store", place)
    assert upskill("store", "prune", *where).code == 2
    assert upskill("store", "prune", "--older-than", "soon", *where).code == 2
    assert upskill("store", "prune", "--older-than", "1h", *where, "--json").json["runs"] == []
    would = upskill("store", "prune", "--keep", 1, "--replies", "--dry-run", *where)
    assert would.out.count("1 result\n") == 2
    assert "2 runs to delete, 3 replies that no run uses" in would.err
    asked = upskill("store", "prune", "--keep", 1, *where)  # and nobody is there to answer
    assert (asked.code, "--yes" in asked.err) == (2, True)
    with find_store(place) or pytest.fail("there is none") as store:
        assert store.count_runs() == 4
        with store.claim(runs[1]):
            busy = upskill("store", "prune", "--keep", 1, "--yes", *where)
            assert f"{runs[1].id} is in progress and was kept" in busy.err
            assert [run.id for run in store.runs()] == [runs[1].id, runs[2].id, sailor.id]
            assert upskill("store", "prune", "--replies", "--yes", *where).code == 2
    done = upskill(
        "store", "prune", "--keep", 1, "--skill", "greeter", "--replies", "--yes", "--json", *where
    ).json
    assert (done["runs"], done["results"], done["replies"], done["busy"]) == (
        [runs[1].id],
        1,
        3,
        [],
    )
    with open_store(place) as store:
        assert [run.id for run in store.runs()] == [runs[2].id, sailor.id]
        kept = [
            key
            for key in ("key-0", "key-1", "key-2", "key-3", "nobody's", "of a teacher")
            if store.reply(key)
        ]
        assert kept == ["key-2", "key-3", "of a teacher"]
        assert [look.run for look in store.looks("greeter")] == [runs[0].id]
    assert upskill("store", "check", *where).code == 0


async def test_answers_that_an_older_run_may_have_used_are_kept(
    upskill: Upskill, home: Path
) -> None:
    two = replace(PLAN, models=(*PLAN.models, Address("two", "scripted", "two")))
    with open_store("runs") as store:
        await store.add_result(
            begin(store, two), result_of(TRIALS[0], plan=two)
        )  # which does not say what it asked
        await store.add_reply("of one", "one", "{}")
        await store.add_reply("of two", "two", "{}")
    assert upskill("store", "prune", "--replies", "--yes", "--json").json["replies"] == 1
    with open_store("runs") as store:
        assert (store.reply("of one"), store.reply("of two")) == ("{}", None)
