"""A store that version 0.1 wrote: it opens, everything in it is shown, and new runs go beside the old ones.

`fixtures/store-0.1` is a small project with the runs of that version; its `expected` is what that version printed of
them. Only the command line is used here, so that these tests outlive whatever the package is made of.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import Done, Upskill

PROJECT = Path(__file__).parent / "fixtures" / "store-0.1"
STUDENT = ("-m", "scripted:models/guest.yaml")
GREETING = "skills/house-greeting"
# The run that was stopped: 12 of its trials have a score, 2 are errors, 18 were never begun.
CONTROLS = ("eval", GREETING, "-t", "suites/greetings.yaml", *STUDENT, "--controls", "--repeats", 2)
STOPPED, SCORED, ERRORED, ALL = "house-greeting-441bae8d", 12, 2, 32
SHOWN = {
    "show-controls": STOPPED,
    "show-judged": "house-greeting-cf06abf6",
    "show-acting": "tide-table-3b115412",
}
# Words that may have got another name since.
NEWER = {"beside": "distractors", "against": "reference_skill", "taught": "visible_hash"}
NO_BUGS: dict[str, Any] = {"trials": 0, "messages": []}  # newer versions count them
NEWER_ARMS = {"again": "baseline_repeat"}


@pytest.fixture
def project(home: Path) -> Path:
    """The project, in which everybody answers."""
    shutil.copytree(PROJECT, home, dirs_exist_ok=True)
    shutil.copy(home / "fixed" / "guest.yaml", home / "models" / "guest.yaml")
    return home


def normal(value: Any) -> Any:
    """What is said, under newer names, as far as it depends neither on the machine nor on the order of arms."""
    if isinstance(value, dict):
        said = {
            NEWER.get(name, name): normal(item)
            for name, item in cast("dict[str, Any]", value).items()
        }
        assert said.pop("bugs", NO_BUGS) == NO_BUGS
        none_had = ("causes", "cause", "stop_details", "replayed", "redraws", "redrawn", "skipped")
        assert not any(said.pop(name, None) for name in none_had)
        assert said.pop("decides", True)  # every check did
        earlier = cast("dict[str, float]", said.pop("earlier", None) or {})
        assert not any(earlier.values())  # no try before cost anything
        if "decision" in said:  # what is computed anew, by the arithmetic of today
            for name in (
                "missing",
                "look",
                "interval",
                "further_pairs",
                "recommendation",
                "unfinished",
                "these_cases",
                *("models", "alone", "cases", "trigger"),
            ):
                said.pop(name, None)
        if isinstance(said.get("trials"), list):
            said["trials"].sort(key=_place)
        if isinstance(said.get("warnings"), list):
            said["warnings"] = [
                line for line in said["warnings"] if not line.startswith("the sandbox ")
            ]
        return said
    if isinstance(value, list):
        return [normal(item) for item in cast("list[Any]", value)]
    if isinstance(value, float):
        return round(value, 6)
    return NEWER_ARMS.get(value, value) if isinstance(value, str) else value


def _place(trial: dict[str, Any]) -> tuple[Any, ...]:
    return trial["case"], trial["model"], trial["seed"], trial["arm"]


def expected(name: str) -> Any:
    return normal(json.loads((PROJECT / "expected" / f"{name}.json").read_text(encoding="utf-8")))


def carried_out(done: Done) -> Done:
    if done.code == 2 and "no sandbox works here" in done.err:
        pytest.skip("no sandbox works here")
    assert done.code == 0, done.err
    return done


def run_ids(upskill: Upskill) -> list[str]:
    return [row["run"] for row in upskill("runs", "--json").json]


def trials_of(upskill: Upskill, run: str) -> dict[str, Any]:
    """What is stored of a run, by the keys of its trials."""
    return {trial["key"]: trial for trial in normal(upskill("show", run, "--json").json)["trials"]}


# Asking again.


def test_what_the_old_version_ran_is_asked_again_beside_what_it_stored(
    upskill: Upskill, project: Path
) -> None:
    """Its keys did not say what answered, so none of its results stands for a trial of today."""
    before, runs = trials_of(upskill, STOPPED), run_ids(upskill)
    assert len(before) == SCORED + ERRORED
    done = carried_out(upskill(*CONTROLS, "--set", f"max_calls={ALL}"))
    assert "Continuing run" not in done.err
    assert "Stopped" not in done.err
    (new,) = [run for run in run_ids(upskill) if run not in runs]
    assert {trial["outcome"] for trial in trials_of(upskill, new).values()} == {"passed", "failed"}
    assert trials_of(upskill, STOPPED) == before
    assert not set(before) & set(trials_of(upskill, new))
    assert (
        f"Continuing run {new}: {ALL} of {ALL} trials are stored"
        in upskill(*CONTROLS, "--set", "max_calls=0").err
    )


# Looking.


@pytest.mark.parametrize("name", SHOWN)
def test_a_run_of_the_old_version_is_shown(upskill: Upskill, project: Path, name: str) -> None:
    assert normal(upskill("show", SHOWN[name], "--json").json) == expected(name)
    done = carried_out(upskill("show", SHOWN[name]))
    assert SHOWN[name] in done.out
    assert all(trial["case"] in done.out for trial in expected(name)["trials"])


def test_the_runs_of_the_old_version_are_listed(upskill: Upskill, project: Path) -> None:
    listed, known = normal(upskill("runs", "--json").json), expected("runs")
    assert "suites/greetings.yaml" in {
        row.pop("other_suite") for row in listed
    }  # which the old version did not name
    for rows in (listed, known):  # of one that is not finished nothing is shown any more
        rows[:] = [row if row["run"] != STOPPED else row | {"verdict": ""} for row in rows]
    assert listed == known
    table = carried_out(upskill("runs")).out
    assert all(skill in table for skill in ("house-greeting", "tide-table", "ship-facts"))
    bars = carried_out(upskill("runs", "-s", "house-greeting")).out
    assert f"{STOPPED}  scripted:models/guest.yaml" in bars
    assert bars.count("(unfinished: ") == 1


def test_a_comparison_with_a_reference_skill_is_still_called_one(
    upskill: Upskill, project: Path
) -> None:
    for argv in (("show", SHOWN["show-judged"]), ("runs", "-s", "house-greeting")):
        assert "reference skill" in carried_out(upskill(*argv)).out
    acting = carried_out(upskill("show", SHOWN["show-acting"])).out
    assert "reference skill" not in acting
    assert "agent tools, among 1 other skill (knot-tying)" in acting
    (judged,) = [
        row for row in upskill("runs", "--json").json if row["run"] == SHOWN["show-judged"]
    ]
    assert judged["verdict"]["recommendation"].startswith(
        "It is no better or worse than the reference skill with this model: any "
    )


@pytest.mark.parametrize(
    ("skill", "name"),
    [
        ("made/ship-facts", "history-ship"),
        ("ship-facts", "history-ship"),
        (GREETING, "history-greeting"),
    ],
)
def test_the_candidates_of_the_old_version_are_listed(
    upskill: Upskill, project: Path, skill: str, name: str
) -> None:
    rows = expected(name)
    for row in rows:  # c1 is v1 by now
        row |= {key: row[key] and row[key].replace("c", "v") for key in ("id", "parent")}
    listed = normal(upskill("versions", skill, "--json").json)
    words = [row.pop("decision") for row in listed]  # newer searches store their own
    assert (listed, words) == (rows, ["kept" if row["accepted"] else "rejected" for row in rows])
    table = carried_out(upskill("versions", skill)).out
    assert table.count("kept") == sum(row["accepted"] for row in rows)
    assert all(row["note"].split()[0] in table for row in rows)
    assert upskill("versions", skill, "c1", "c2").out.startswith(
        "--- c1/SKILL.md"
    )  # by their old names
