"""A store that version 0.1 wrote: what it finished is not run again, and what it left undone is all that is run.

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
TRIGGER = (
    *("trigger", GREETING, "--queries", "queries/greeting.json"),
    *("-m", "scripted:models/host.yaml", "--with-skills", "others"),
)
# The run that was stopped: 12 of its trials have a score, 2 are errors, 18 were never begun.
CONTROLS = ("eval", GREETING, "-t", "suites/greetings.yaml", *STUDENT, "--controls", "--runs", 2)
STOPPED, SCORED, ERRORED, ALL = "house-greeting-441bae8d", 12, 2, 32
LEFT = ALL - SCORED
FINISHED: dict[str, tuple[object, ...]] = {
    "judged": (
        *("eval", GREETING, "-t", "suites/courtesy.yaml", *STUDENT),
        *("--judge-model", "scripted:models/judge.yaml", "--against", "older/house-greeting", "--margin", 100),
    ),
    "acting": (
        *("eval", "skills/tide-table", "-t", "suites/tides.yaml", "-m", "scripted:models/sailor.yaml"),
        *("--agent", "tools", "--with-skills", "others", "--max-turns", 4, "--runs", 1, "--until-decided"),
    ),
    "trigger": (*TRIGGER, "--runs", 2),
    "improve": (
        *(*TRIGGER, "--runs", 1),
        *("--improve", "--teacher", "scripted:models/describer.yaml", "--attempts", 1),
    ),
    "generate": (
        *("generate", "know the ship", "-m", "scripted:models/teacher.yaml"),
        *("--eval-model", "scripted:models/cadet.yaml", "--cases", 9, "--attempts", 2, "-o", "made/ship-facts"),
    ),
    "revise": (
        *("generate", "--from", GREETING, "-m", "scripted:models/reviser.yaml", "-t", "suites/farewells.yaml"),
        *("--eval-model", "scripted:models/guest.yaml", "--attempts", 1, "-o", "made/house-greeting"),
    ),
}
MEASURED = {"judged": "8 of 8 trials are", "acting": "6 of 6 trials are", "trigger": "18 of 18 runs are"}  # no search
SHOWN = {"show-controls": STOPPED, "show-judged": "house-greeting-cf06abf6", "show-acting": "tide-table-3b115412"}
# Words that may have got another name since.
NEWER = {"beside": "distractors", "against": "reference_skill", "taught": "visible_hash"}
NO_BUGS: dict[str, Any] = {"trials": 0, "messages": []}  # newer versions count them
NEWER_ARMS = {"again": "baseline_repeat"}


@pytest.fixture
def project(home: Path) -> Path:
    """The project, in which no model answers."""
    shutil.copytree(PROJECT, home, dirs_exist_ok=True)
    for script in (home / "models").iterdir():
        script.write_text("- error: nobody is to be asked\n", encoding="utf-8")
    return home


def normal(value: Any) -> Any:
    """What is said, under newer names, as far as it depends neither on the machine nor on the order of arms."""
    if isinstance(value, dict):
        said = {NEWER.get(name, name): normal(item) for name, item in cast("dict[str, Any]", value).items()}
        assert said.pop("bugs", NO_BUGS) == NO_BUGS
        if isinstance(said.get("trials"), list):
            said["trials"].sort(key=_place)
        if isinstance(said.get("warnings"), list):
            said["warnings"] = [line for line in said["warnings"] if not line.startswith("the sandbox ")]
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


def report(done: Done) -> Any:
    """What was printed, without the fingerprint of a skill whose folder says when it was written."""
    said = normal(carried_out(done).json)
    if "saved_to" in said:
        del said["skill"]["fingerprint"]
    return said


def run_ids(upskill: Upskill) -> list[str]:
    return [row["run"] for row in upskill("runs", "--json").json]


def candidates(upskill: Upskill) -> list[Any]:
    return [upskill("history", skill, "--json").json for skill in ("house-greeting", "ship-facts")]


def trials_of(upskill: Upskill, run: str) -> dict[str, Any]:
    """What is stored of a run, by the keys of its trials."""
    return {trial["key"]: trial for trial in normal(upskill("show", run, "--json").json)["trials"]}


# What is finished.


@pytest.mark.parametrize("name", FINISHED)
def test_what_the_old_version_finished_is_not_run_again(upskill: Upskill, project: Path, name: str) -> None:
    runs, tried = run_ids(upskill), candidates(upskill)
    # A teacher's part of a search is answered by its stored replies; trials need not even those.
    said = report(upskill(*FINISHED[name], "--max-calls", 0, "--json", *(["--no-cache"] if name in MEASURED else [])))
    assert said == expected(name)
    assert run_ids(upskill) == runs
    assert candidates(upskill) == tried


@pytest.mark.parametrize("name", MEASURED)
def test_a_person_is_told_that_everything_is_stored(upskill: Upskill, project: Path, name: str) -> None:
    done = carried_out(upskill(*FINISHED[name], "--max-calls", 0, "--no-cache"))
    assert f"Continuing run {expected(name)['run']}: {MEASURED[name]} stored" in done.err
    assert "Stopped" not in done.err


@pytest.mark.parametrize("name", ["generate", "revise"])
def test_a_search_of_the_old_version_ends_with_the_same_skill(upskill: Upskill, project: Path, name: str) -> None:
    folder = Path(str(FINISHED[name][-1]))
    places = [place for place in (PROJECT / folder).rglob("*") if place.is_file() and place.name != "skill_meta.json"]
    shutil.rmtree(project / folder)
    carried_out(upskill(*FINISHED[name], "--max-calls", 0))
    assert {place.name for place in places} == {"SKILL.md", "evals.json"}
    for place in places:
        assert (project / place.relative_to(PROJECT)).read_bytes() == place.read_bytes()
    meta, made = (json.loads((root / folder / "skill_meta.json").read_text("utf-8")) for root in (PROJECT, project))
    for said in (meta, made):
        del said["metadata"]["generated_at"]
    assert made == meta


@pytest.mark.parametrize("name", MEASURED)
def test_every_stored_reply_still_answers_its_request(upskill: Upskill, project: Path, name: str) -> None:
    # What a tool gives back names places in the sandbox, and is part of the next request: it has to be the same one.
    same_place = () if name == "judged" else ("--sandbox", "bubblewrap")
    done = upskill(*FINISHED[name], "--fresh", "--replay", *same_place, "--json")
    if done.code == 2 and "bubblewrap: " in done.err:
        pytest.skip("bubblewrap does not work here")
    said, before = report(done), expected(name)
    assert said.pop("run") == f"{before.pop('run')}-2"
    assert said == before


def test_every_stored_reply_of_an_unfinished_run_still_answers_its_request(upskill: Upskill, project: Path) -> None:
    assert upskill(*CONTROLS, "--fresh", "--replay", "--json").code == 3  # those that were never asked have no reply
    before, after = trials_of(upskill, STOPPED), trials_of(upskill, f"{STOPPED}-2")
    answered = {key: trial["answer"] for key, trial in after.items() if trial["outcome"] != "errored"}
    assert answered == {key: trial["answer"] for key, trial in before.items() if trial["outcome"] != "errored"}
    assert len(answered) == SCORED
    assert {trial["arm"] for key, trial in after.items() if key in answered} == {
        *("baseline", "skill", "placebo", "baseline_repeat"),
    }


# What is not.


def test_an_unfinished_run_goes_on_with_what_is_missing_or_errored(upskill: Upskill, project: Path) -> None:
    before, runs = trials_of(upskill, STOPPED), run_ids(upskill)
    assert len(before) == SCORED + ERRORED
    kept = {key: trial for key, trial in before.items() if trial["outcome"] != "errored"}
    assert len(kept) == SCORED
    shutil.copy(project / "mended" / "guest.yaml", project / "models" / "guest.yaml")
    done = carried_out(upskill(*CONTROLS, "--max-calls", LEFT))
    assert f"Continuing run {STOPPED}: {SCORED} of {ALL} trials are stored, running the other {LEFT}." in done.err
    assert "Stopped" not in done.err
    after = trials_of(upskill, STOPPED)
    assert len(after) == ALL
    assert not [trial for trial in after.values() if trial["outcome"] == "errored"]
    assert {key: after[key] for key in kept} == kept
    assert set(before) <= set(after)
    assert run_ids(upskill) == runs
    assert report(upskill(*CONTROLS, "--max-calls", 0, "--json")) == expected("controls")


def test_going_on_asks_once_for_each_trial_that_is_left(upskill: Upskill, project: Path) -> None:
    shutil.copy(project / "mended" / "guest.yaml", project / "models" / "guest.yaml")
    done = upskill(*CONTROLS, "--max-calls", LEFT - 1, "--concurrency", 1, "--json")
    assert done.json["halted"] == f"the ceiling of {LEFT - 1} calls is reached"
    assert len(trials_of(upskill, STOPPED)) == ALL - 1
    assert report(upskill(*CONTROLS, "--max-calls", 1, "--json")) == expected("controls")


def test_an_errored_trial_that_errors_again_is_still_no_failure(upskill: Upskill, project: Path) -> None:
    done = upskill(*CONTROLS, "--json")  # nobody answers
    assert done.code == 3
    outcomes = [trial["outcome"] for trial in trials_of(upskill, STOPPED).values()]
    assert (len(outcomes), outcomes.count("errored")) == (ALL, LEFT)


# Looking.


@pytest.mark.parametrize("name", SHOWN)
def test_a_run_of_the_old_version_is_shown(upskill: Upskill, project: Path, name: str) -> None:
    assert normal(upskill("show", SHOWN[name], "--json").json) == expected(name)
    done = carried_out(upskill("show", SHOWN[name]))
    assert SHOWN[name] in done.out
    assert all(trial["case"] in done.out for trial in expected(name)["trials"])


def test_the_last_run_of_the_old_version_is_shown(upskill: Upskill, project: Path) -> None:
    said = upskill("show", "last", "--json").json
    assert said["run"] == run_ids(upskill)[-1] == expected("revise")["held_out"]["run"]
    assert {trial["outcome"] for trial in said["trials"]} == {"passed", "failed"}
    assert said["run"] in carried_out(upskill("show", "last")).out


def test_the_runs_of_the_old_version_are_listed(upskill: Upskill, project: Path) -> None:
    assert normal(upskill("runs", "--json").json) == expected("runs")
    table = carried_out(upskill("runs")).out
    assert all(skill in table for skill in ("house-greeting", "tide-table", "ship-facts"))
    bars = carried_out(upskill("runs", "-s", "house-greeting")).out
    assert f"{STOPPED}  scripted:models/guest.yaml" in bars
    assert bars.count("(unfinished)") == 1


def test_a_comparison_with_an_older_skill_is_still_called_one(upskill: Upskill, project: Path) -> None:
    for argv in (("show", SHOWN["show-judged"]), ("runs", "-s", "house-greeting")):
        assert "older skill" in carried_out(upskill(*argv)).out
    assert "older skill" not in carried_out(upskill("show", SHOWN["show-acting"])).out
    (judged,) = [row for row in upskill("runs", "--json").json if row["run"] == SHOWN["show-judged"]]
    assert judged["verdict"]["recommendation"].startswith("Keep the older one: it changes nothing by more than 100 ")


def test_the_skills_that_were_on_offer_beside_are_still_named(upskill: Upskill, project: Path) -> None:
    assert "agent tools, among 1 other skill (knot-tying)" in carried_out(upskill("show", SHOWN["show-acting"])).out


@pytest.mark.parametrize(
    ("skill", "name"),
    [("made/ship-facts", "history-ship"), ("ship-facts", "history-ship"), (GREETING, "history-greeting")],
)
def test_the_candidates_of_the_old_version_are_listed(upskill: Upskill, project: Path, skill: str, name: str) -> None:
    rows = expected(name)
    assert normal(upskill("history", skill, "--json").json) == rows
    table = carried_out(upskill("history", skill)).out
    assert table.count("kept") == sum(row["accepted"] for row in rows)
    assert all(row["note"].split()[0] in table for row in rows)


def test_the_candidates_of_the_old_version_are_compared(upskill: Upskill, project: Path) -> None:
    lines = carried_out(upskill("diff", "ship-facts", "c1", "c3")).out.splitlines()
    assert "+- The port of the ship is Lisbon." in lines
    assert not [line for line in lines if line.startswith("-- ")]
