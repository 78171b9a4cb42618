"""`upskill store prune`: runs and replies go only when they may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Upskill
from test_store import PLAN, SAILOR, TRIALS, begin, result_of
from upskill import open_store
from upskill.models import RequestHash
from upskill.runs.stores import find_store


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_prune_deletes_what_was_chosen_and_nothing_that_is_in_use(
    upskill: Upskill, home: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    place = "runs" if kind == "sqlite" else request.getfixturevalue("postgres").new_place()
    with open_store(place) as store:
        runs = [begin(store), begin(store, new=True), begin(store, new=True)]
        sailor = begin(store, replace(PLAN, skill=SAILOR))
        for number, run in enumerate([*runs, sailor]):
            asked = (RequestHash(f"key-{number}", "request"),)
            await store.add_result(run, replace(result_of(TRIALS[0]), asked=asked))
            await store.add_reply(f"key-{number}", "one", "{}")
        await store.add_reply("nobody's", "one", "{}")
        await store.add_reply("of a teacher", "one", "{}", "teacher", "may I?")
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
