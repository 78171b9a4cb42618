"""`upskill generate`: from a task to a proven skill, with a gate that only what helps gets through."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from skills_ref import validate

from conftest import Done, Upskill, serving, start
from loopback import Call, Loopback, Trouble
from teaching import (
    ANSWERS,
    HELD_OUT,
    NUMBERS,
    REVISES,
    TESTS,
    TRAIN,
    WORDS,
    WRITES,
    case,
    draft,
    fact,
    fresh,
    insert,
    number_in,
    prompt,
    student_rules,
    teacher_rules,
    write_rules,
)
from test_redact import PLANTED
from upskill import (
    AuthoringEvents,
    GenerateOptions,
    Models,
    Result,
    Skill,
    Suite,
    UpskillError,
    UsageError,
    generate_now,
    generate_skill,
    generate_tests,
    open_store,
    refine_skill,
)
from upskill.authoring.generate import Generated
from upskill.authoring.saving.provenance import Provenance, SearchCost, SourceFile, making_cost
from upskill.authoring.search import comparison
from upskill.authoring.writing.teachers import NoTeacher
from upskill.models import servers
from upskill.models.addresses import resolve
from upskill.models.embedded.weight_files import cache_folder
from upskill.models.keys import KEY_VARIABLES
from upskill.models.ledger import Ledger
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.running.probe import PROMPT as PROBE
from upskill.skills.seen import fresh_cases, load_seen
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.outcome import Outcome

TASK = "know the words of this house"
FIRST = TRAIN[:2]  # what the first draft states
MISSING = [number for number in NUMBERS if number not in FIRST]
GOOD = insert("\n".join(fact(number) for number in MISSING))
HARMFUL = insert("- Never answer anybody.", note="Silence is safe.")
SMALL = "local:smollm2-135m"  # quick, and here in any case
LONG = ("--tokens", 1000)  # an edit may then be long enough for all that is missing
SOURCE = (
    "-e",
    "Who goes there? -> A friend.",
)  # from a sentence alone the result would be untested
ONCE = (*LONG, "--attempts", 1)
NOTHING = insert("- Words are nice.", note="A friendly tone helps.")


def generate(upskill: Upskill, *more: object, teacher: str = "scripted:teacher.json") -> Done:
    student = () if "--no-eval" in more else ("--student", "scripted:student.json")
    return upskill("generate", TASK, *SOURCE, "-m", teacher, *student, *LONG, *more)


def priced(rules: list[dict[str, Any]], cost: float) -> list[dict[str, Any]]:
    return [{**rule, "usage": {"input": 100, "output": 10, "cost": cost}} for rule in rules]


@pytest.fixture
def house(home: Path) -> Path:
    """A teacher whose first draft omits facts, then harms, then does nothing, then adds what was missing."""
    write_rules(
        home / "teacher.json", priced(teacher_rules(draft(FIRST), [HARMFUL, NOTHING, GOOD]), 0.5)
    )
    write_rules(home / "student.json", priced(student_rules(), 0.01))
    return home


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def finished(upskill: Upskill, house: Path, template: Path) -> Done:
    """A finished run in the house, made once: each test gets a copy."""
    if not (template / "done.json").exists():
        made = generate(upskill)
        assert made.code == 0, made.err
        shutil.copytree(house, template / "house")
        (template / "done.json").write_text(json.dumps([made.code, made.out, made.err]))
    shutil.copytree(template / "house", house, dirs_exist_ok=True)
    return Done(*json.loads((template / "done.json").read_text()))


@pytest.mark.usefixtures("finished")
def test_the_whole_loop_keeps_the_good_edit_and_the_same_command_again_pays_nothing(
    upskill: Upskill, house: Path
) -> None:
    said = generate(upskill, "--json").json
    assert (said["calls"], said["spent"]) == (0, {})
    assert len(upskill("versions", "house-words", "--json").json) == 4
    assert [attempt["accepted"] for attempt in said["attempts"]] == [True, False, False, True]
    rates = [attempt["pass_rate"] for attempt in said["attempts"]]
    # The second and third on six failing cases alone.
    assert rates == pytest.approx([len(FIRST) / len(TRAIN), 0.0, 0.0, 1.0])
    assert said["fit"]["models"][0]["skill"]["pass_rate"] == 1.0
    assert said["held_out"]["models"][0]["lift"] == 1.0
    assert said["held_out"]["models"][0]["decision"] == "helps"
    written = [{"author": "scripted:teacher.json", "read": "material", "cases": 20, "look_up": 0}]
    assert said["suite"] == {"cases": 20, "held_out": len(HELD_OUT), "authors": written}
    saved = Skill.load(house / "skills" / "house-words")
    assert all(fact(number) in saved.body for number in NUMBERS)
    assert "Never answer" not in saved.body
    assert "nice" not in saved.body
    assert validate(house / "skills" / "house-words") == []


@pytest.mark.usefixtures("finished")
def test_prompts_hold_no_held_out_case_and_nothing_that_a_check_looks_for(house: Path) -> None:
    with open_store(house / "runs") as store:
        requests = list(store.requests())
        runs = list(store.runs())
        asked = {run.id: {result.trial.case for result in store.results(run)} for run in runs}
    assert {role for role, _, _ in requests} == {"teacher", "test writer"}
    (answering,) = [request for _, request, _ in requests if ANSWERS in request]
    assert all(
        prompt(number) in answering for number in NUMBERS
    )  # whoever answers the cases writes no skill
    everything = "\n".join(request for _, request, _ in requests if request != answering)
    assert all(
        prompt(number) in everything for number in TRAIN[2:]
    )  # the reviser is shown train failures
    assert not [number for number in HELD_OUT if prompt(number) in everything]
    hidden = {f"word-{number}" for number in HELD_OUT}
    assert [asked[run.id] for run in runs[-2:]] == [hidden, hidden]
    assert all(not asked[run.id] & hidden for run in runs[:-2])
    # The first draft, three candidates on six cases, one of them on all, one look of the confirmation, and the
    # held-out cases: without the skill, and with the first draft.
    assert len(runs) == 8
    revising = [request for _, request, _ in requests if REVISES in request]
    assert len(revising) == 3
    for request in revising:
        assert "[masked]" in request
        assert not [number for number in MISSING if WORDS[number - 1] in request]


def test_a_run_says_what_upstream_says_and_names_fit_and_held_out(
    upskill: Upskill, finished: Done
) -> None:
    done, notes = finished, finished.err.splitlines()
    assert "Generating skill with scripted:teacher.json..." in notes
    assert "Generating test cases..." in notes
    assert "Evaluating on scripted:student.json... (version 1, 12 train cases)" in notes
    assert any(
        line.startswith("  0% → 17% (+17 points)") and "train cases" in line for line in notes
    ), done.err
    better = f"better on {len(TRAIN) - len(FIRST)} of these {len(TRAIN)} train cases, worse on none"
    assert any(f"(+100 points) kept provisionally: {better}" in line for line in notes)
    # A scripted student says nothing new when it is asked again.
    guess = (
        f"best guess, better than the first draft on these train cases but not confirmed: {better}"
    )
    assert guess not in done.err, "the result says it once"
    shown = " ".join(done.out.split())
    assert guess in shown
    assert (
        "first draft → result on held-out cases: 0% → 100% (+100 points): the search improved"
        in shown
    )
    assert "✓ held-out cases: helps on tasks like these: +100 points" in shown
    assert "train cases, which chose the skill: 0% → 100% (+100 points)" in shown
    following = done.out[done.out.index("Saved to skills/house-words: about ") :].splitlines()
    typed = [line.partition(": ")[2] for line in following if ": upskill " in line]
    assert typed[:2] == ["upskill show last:held-out", "upskill show last:train"]
    assert typed[-1] == "upskill install skills/house-words --to claude-code"
    for command in typed[:2]:
        assert upskill(*command.split()[1:]).code == 0
    # The search has said what it found: its runs are not listed for people, and JSON says what they are.
    searching = "Run by a search, which compares candidates and reports its own result."
    rows = [row["verdict"] for row in upskill("runs", "--json").json]
    reported = [row for row in rows if searching not in row["caveats"]]
    assert 0 < len(reported) < len(rows)
    assert {row["decision"] for row in reported} == {"helps"}
    listed = upskill("runs").out
    assert len(re.findall(r"✓ helps .* \+100\n", listed)) == len(reported)


def test_show_last_reaches_the_train_and_the_held_out_run_of_the_skill_that_was_kept(
    upskill: Upskill, house: Path
) -> None:
    # The best is the first draft: the run of a candidate that was rejected comes between.
    write_rules(house / "teacher.json", teacher_rules(draft(FIRST), [HARMFUL]))
    assert generate(upskill, "--attempts", 1).code == 0
    held_out, fit = (
        upskill("show", f"last:{split}", "--json").json for split in ("held-out", "train")
    )
    assert {one["case"] for one in held_out["trials"]} == {f"word-{number}" for number in HELD_OUT}
    assert {one["case"] for one in fit["trials"]} == {f"word-{number}" for number in TRAIN}
    assert "Never answer" not in fit["plan"]["skill"]["body"]
    assert upskill("show", "last:trains").code == 2


@pytest.mark.usefixtures("finished")
def test_generated_tests_and_the_evidence_of_every_line_are_kept(
    upskill: Upskill, house: Path
) -> None:
    folder = house / "skills" / "house-words"
    meta = json.loads((folder / "skill_meta.json").read_text())
    assert set(meta) == {"metadata", "sources", "evidence", "making", "seen"}
    assert "state" not in meta["metadata"]
    assert meta["metadata"]["generated_by"] == "scripted:teacher.json"
    assert meta["metadata"]["source_task"] == TASK
    assert meta["metadata"]["test_pass_rate"] == 1.0
    assert meta["metadata"]["evaluated_cases"] == "held-out"
    from_evals = Suite.load(folder / "evals" / "evals.json")
    assert len(from_evals.cases) == 20
    skill = Skill.load(folder)
    fresh = fresh_cases(load_seen(skill, from_evals, None), skill.text_hash, from_evals.by_id)
    assert fresh == {f"word-{number}" for number in HELD_OUT}, "the others chose the text"
    sources = Provenance.of(skill).sources
    facts = [line for line in skill.body.splitlines() if line.startswith("- ")]
    assert {sources[line] for line in facts} == {("own",)}
    assert f"{fact(1)}  [own]" in upskill("show", folder, "--sources").out


def test_no_skill_is_paid_for_when_the_test_writer_fails(upskill: Upskill, house: Path) -> None:
    rules: list[dict[str, Any]] = teacher_rules(draft(FIRST))[:1]
    write_rules(house / "teacher.json", [*rules, {"answer": '{"cases": []}'}])
    done = generate(upskill)
    assert done.code == 3
    assert "only 0 of 20 generated test cases are usable" in done.err
    with open_store(house / "runs") as store:  # what was of no use is asked for again
        assert list(store.requests()) == []


def test_the_test_writer_has_not_read_the_skill_nor_its_writer_the_cases(
    upskill: Upskill, house: Path
) -> None:
    """Each is asked before the other's answer could be in a prompt, and `show` and reports say what was read."""
    done = generate(upskill, "--attempts", 0)
    assert done.code == 0, done.err
    with open_store(house / "runs") as store:
        asked = {role: request for role, request, _ in store.requests()}
    assert fact(FIRST[1]) not in asked["test writer"]
    assert "States the facts about the ship" not in asked["test writer"]
    assert prompt(2) not in asked["teacher"]
    line = "Written: 20 cases by scripted:teacher.json from the task and its material, without the skill."
    assert line in " ".join(done.out.split())
    assert " ".join(upskill("show", "last").out.split()).count(line) == 1
    evaluated = ("eval", "skills/house-words", "-m", "scripted:student.json")
    assert line in " ".join(upskill(*evaluated).out.split())
    assert line in upskill(*evaluated, "--report", "markdown").out
    assert upskill(*evaluated, "--json").json["suite"]["authors"] == [
        {"author": "scripted:teacher.json", "read": "material", "cases": 20, "look_up": 0}
    ]
    # Without its sources the skill is all there is, and that is said.
    (house / "skills" / "house-words" / "skill_meta.json").unlink()
    anew = upskill("tests", "skills/house-words", "-m", "scripted:teacher.json")
    assert "Written: 20 cases by scripted:teacher.json after reading the skill." in anew.out


def test_the_line_of_an_attempt_says_what_was_decided(upskill: Upskill, house: Path) -> None:
    write_rules(house / "teacher.json", teacher_rules(draft(NUMBERS)))
    done = generate(upskill, "--attempts", 0)
    assert "  0% → 100% (+100 points), helps  [20 cases]" in done.err.splitlines()


def test_where_a_skill_helps_on_too_few_cases_more_of_them_come_before_its_use(
    upskill: Upskill, house: Path
) -> None:
    write_rules(house / "teacher.json", teacher_rules(draft(NUMBERS[:4])))
    own = [
        {"id": f"own-{n}", "prompt": prompt(n), "checks": [{"contains": WORDS[n - 1]}]}
        for n in NUMBERS[:8]
    ]
    (house / "own.json").write_text(json.dumps(own))
    done = generate(upskill, "--attempts", 0, "--tests", "own.json")
    shown = " ".join(done.out.split())
    assert "tasks like these: undecided from 8 fresh cases, add about " in shown, done
    assert "upskill tests skills/house-words --add " in shown.partition("add about ")[2]
    assert done.out.splitlines()[-1].startswith("  Use it: upskill install skills/house-words")


def test_without_a_search_nothing_is_held_out_and_all_cases_count(
    upskill: Upskill, house: Path
) -> None:
    done = generate(upskill, "--attempts", 0)
    assert done.code == 0, done.err
    said = generate(upskill, "--attempts", 0, "--json").json
    assert (said["evaluated_cases"], said["held_out"], said["fit"]["models"][0]["pairs"]) == (
        "all",
        None,
        20,
    )
    assert (
        Provenance.of(Skill.load(house / "skills" / "house-words")).metadata["evaluated_cases"]
        == "all"
    )
    assert "all cases: undecided on these 20 cases: +10 points" in done.out
    assert "No search was run, so no case influenced the skill and none is held out." in " ".join(
        done.out.split()
    )
    assert "the search ended" not in done.out
    assert "[20 cases]" in done.err
    # It is the run of `eval` on the saved suite, whose cases are fresh until the text is edited.
    again = upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--json").json
    assert again["run"] == said["fit"]["run"]
    other = again["models"][0]["other"]
    assert (other["about"], other["cases"]) == ("tasks", 20)
    for shown in (
        upskill("show", "last"),
        upskill("eval", "skills/house-words", "-m", "scripted:student.json", "-v"),
    ):
        assert shown.code == 0, shown.err
        assert "used by the search" not in shown.out
    with (house / "skills" / "house-words" / "SKILL.md").open("a", encoding="utf-8") as file:
        file.write("\nAnother line.\n")
    edited = upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--json").json
    assert not (edited["models"][0]["other"] or {"cases": 0})["cases"]


def test_a_skill_and_tests_from_one_sentence_carry_a_caveat_whatever_the_numbers(
    upskill: Upskill, house: Path
) -> None:
    write_rules(house / "teacher.json", teacher_rules(draft(NUMBERS)))
    given = (
        "-m",
        "scripted:teacher.json",
        "--student",
        "scripted:student.json",
        *LONG,
        "--attempts",
        0,
    )
    done = upskill("generate", TASK, *given)
    assert done.code == 0, done.err
    assert "so they could not show that either is right" in " ".join(done.err.split())
    caveat = "The skill and its cases both come from a model's memory"
    assert caveat in " ".join(done.out.split())
    evaluated = ("eval", "skills/house-words", "-m", "scripted:student.json")
    ruled = upskill(*evaluated, "--require", "decision=helps")
    assert (ruled.code, caveat in " ".join(ruled.out.split())) == (0, True), ruled.err
    verdict = upskill(*evaluated, "--json").json["models"][0]
    assert (verdict["lift"], verdict["decision"]) == (1.0, "helps")
    assert any(each.startswith(caveat) for each in verdict["caveats"])
    # New cases by a model that reads this skill have nothing else behind them, either.
    assert upskill("tests", "skills/house-words", "-m", "scripted:teacher.json", "--json").json[
        "authors"
    ] == [{"author": "scripted:teacher.json", "read": "memory", "cases": 20, "look_up": 0}]
    assert caveat in upskill(*evaluated, "--report", "markdown").out
    # Cases of one's own show whether it is right.
    own = [
        {"id": f"own-{n}", "prompt": prompt(n), "checks": [{"contains": WORDS[n - 1]}]}
        for n in NUMBERS
    ]
    (house / "own.json").write_text(json.dumps(own))
    assert upskill(*evaluated, "--tests", "own.json", "--json").json["models"][0]["caveats"] == []


def is_kept_as_draft(folder: Path) -> bool:
    kept = Skill.load(folder)
    return (
        fact(FIRST[0]) in kept.body and Provenance.of(kept).metadata["state"] == "draft, unproven"
    )


def test_what_is_written_stays_after_ctrl_c(house: Path) -> None:
    write_rules(house / "student.json", [{"seconds": 120, "answer": "Hm."}])
    student = ("--student", "scripted:student.json")
    process = start("generate", TASK, "-m", "scripted:teacher.json", *student)
    assert process.stderr is not None
    assert any("(version 1, " in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "Everything so far is saved" in err
    assert err.lower().count("interrupted") == 1  # said once
    assert is_kept_as_draft(house / "skills" / "house-words")


@pytest.mark.usefixtures("finished")
def test_a_draft_with_its_tests_is_never_saved_over_a_finished_skill(
    upskill: Upskill, house: Path
) -> None:
    before = (house / "skills" / "house-words" / "SKILL.md").read_bytes()
    write_rules(house / "student.json", [{"error": "out of order"}])
    broken = generate(upskill)
    assert (broken.code, "the skill cannot be evaluated" in broken.err) == (3, True)
    assert (house / "skills" / "house-words" / "SKILL.md").read_bytes() == before
    assert is_kept_as_draft(house / "skills" / "house-words-2")
    versions = upskill("versions", "house-words-2", "--json")
    assert versions.json == upskill("versions", "house-words", "--json").json
    assert "These are the versions of 'house-words'" in versions.err
    suite = Suite.of(Skill.load(house / "skills" / "house-words-2"))
    assert suite is not None
    assert len(suite.cases) == 20
    # Finished at last, it takes the place of the older one, and the draft is gone.
    write_rules(house / "student.json", student_rules())
    assert generate(upskill, "--json").json["saved_to"] == "skills/house-words"
    assert [path.name for path in (house / "skills").iterdir()] == ["house-words"]


@pytest.mark.usefixtures("finished")
def test_versions_lists_every_version_with_its_parent_and_compares_two(
    upskill: Upskill, house: Path
) -> None:
    rows = upskill("versions", "house-words", "--json").json
    assert [(row["id"], row["parent"], row["accepted"]) for row in rows] == [
        ("v1", None, True),
        ("v2", "v1", False),
        ("v3", "v1", False),
        ("v4", "v1", True),
    ]
    assert rows[1]["edits"] == ["insert after line 1: - Never answer anybody."]
    shown = upskill("versions", house / "skills" / "house-words")
    first = next(line for line in shown.out.splitlines() if line.startswith("  v1 "))
    assert first.endswith("first draft")
    assert "best guess" in shown.out
    assert "better on 0 of these 8" in shown.out
    assert [row["decision"] for row in rows] == [
        *("first draft", "not enough evidence", "not enough evidence"),
        "best guess",
    ]
    changed = upskill("versions", "house-words", "v1", "v2").out.splitlines()
    assert changed[:2] == ["--- v1/SKILL.md", "+++ v2/SKILL.md"]
    assert [line for line in changed[2:] if line.startswith(("+", "-"))] == [
        "+- Never answer anybody."
    ]
    wrong = upskill("versions", "house-words", "v1", "v9")
    assert (wrong.code, "Versions are v1 to v4." in wrong.err) == (2, True)
    assert upskill("versions", "nobody").code == 2


@pytest.mark.usefixtures("finished")
def test_runs_of_train_and_held_out_cases_are_not_compared(upskill: Upskill) -> None:
    done = upskill("compare")
    assert (done.code, "nothing to compare" in done.err) == (2, True)
    assert upskill("eval", "skills/house-words", "-m", "scripted:student.json").code == 0
    assert (
        upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--seed", 1).code == 0
    )
    assert "20 cases" in upskill("compare").out


# What the making cost.


# The baseline and the first draft, two edits on eight cases, one on all, two arms on a new draw to confirm it,
# and the held-out cases in both and with the first draft.
TRIALS = len(TRAIN) * (2 + 1 + 2) + 2 * 8 + 3 * len(HELD_OUT)
MADE_FOR = {
    "teacher": {"tokens": 4 * 110, "cost_usd": 2.0},
    "test writer": {"tokens": 2 * 110, "cost_usd": 1.0},
    "student": {"tokens": TRIALS * 110, "cost_usd": round(TRIALS * 0.01, 8)},
}


def test_what_an_interrupted_command_has_paid_for_is_part_of_the_making(
    upskill: Upskill, house: Path
) -> None:
    for _ in ("cases", "answers to them"):  # which come first
        done = generate(upskill, "--set", "max_calls=1")
        assert (done.code, "limit of 1 calls" in done.err) == (3, True)
        assert not (house / "skills" / "house-words").exists()
    for calls in (1, 15, 20):  # between the writing, and twice in the search
        done = generate(upskill, "--set", f"max_calls={calls}", "--concurrency", 1, "--json")
        assert (done.code, "limit" in done.json["halted"], done.json["held_out"]) == (0, True, None)
    last = generate(upskill, "--json")
    assert 0 < last.json["calls"] < 6 + TRIALS
    assert last.json["making"]["spent"] == MADE_FOR


@pytest.mark.usefixtures("finished")
def test_the_making_cost_is_kept_with_the_skill_and_eval_takes_it_unless_it_is_told(
    upskill: Upskill, house: Path
) -> None:
    folder = house / "skills" / "house-words"
    (making,) = json.loads((folder / "skill_meta.json").read_text(encoding="utf-8"))["making"]
    made = making["cost_usd"]
    assert making["spent"] == MADE_FOR
    assert made == pytest.approx(sum(role["cost_usd"] for role in MADE_FOR.values()))
    # Nobody is taught what it cost.
    skill = Skill.load(folder)
    assert skill.visible_hash == skill.with_file("skill_meta.json", b"{}").visible_hash
    # Of a student that passes with the skill alone at a tenth of the price of its other answers.
    known, rest = student_rules()[:-1], student_rules()[-1:]
    lucky = {"when": prompt(HELD_OUT[0]), "answer": WORDS[HELD_OUT[0] - 1]}
    write_rules(house / "student.json", [*priced(known, 0.01), *priced([lucky, *rest], 0.1)])
    said = upskill("eval", folder, "-m", "scripted:student.json", "--json").json
    assert said["making"] == {"cost_usd": pytest.approx(made), "source": "skill_meta.json"}
    saved = 0.1 * 20 - 0.01  # for a passed task: the baseline passes one of twenty
    assert said["models"][0]["break_even"] == pytest.approx(made / saved, abs=0.01)
    shown = upskill("eval", folder, "-m", "scripted:student.json", "-v").out
    paid = f"Made for ${made:.2f} (skill_meta.json), the skill pays off after 3 passed tasks."
    assert paid in " ".join(shown.split())
    typed = upskill("eval", folder, "-m", "scripted:student.json", "--set", "making_cost=19", "-v")
    assert "Made for $19.00 (making_cost), the skill pays off after 10 passed tasks." in " ".join(
        typed.out.split()
    )
    # What came on top of an older one is what the older one has to be weighed against.
    older = folder.rename(house / "older-words")
    assert generate(upskill, "--from", older, "--json").code == 0
    against = upskill(
        "eval", folder, "--against", older, "-m", "scripted:student.json", "--json"
    ).json
    both = json.loads((folder / "skill_meta.json").read_text(encoding="utf-8"))["making"]
    assert (len(both), against["making"]["cost_usd"]) == (2, pytest.approx(both[1]["cost_usd"]))
    (folder / "skill_meta.json").write_text("{", encoding="utf-8")
    assert (
        upskill("eval", folder, "-m", "scripted:student.json", "--json").json["making"]["cost_usd"]
        is None
    )


@pytest.mark.parametrize(
    "said",
    [7, {}, {"spent": {"teacher": {"cost_usd": "much"}}}, {"spent": {"teacher": {"cost_usd": -1}}}],
)
def test_a_making_that_someone_else_wrote_costs_nobody_knows_what(said: object) -> None:
    skill = Skill.new("house-words", "Words.", "Words.").with_file(
        "skill_meta.json", json.dumps({"making": [said]}).encode()
    )
    assert making_cost(skill) is None


def test_a_price_that_is_not_known_makes_the_making_cost_unknown() -> None:
    assert SearchCost("search", {"teacher": (10, 0.5), "student": (20, 0.25)}).cost_usd == 0.75
    assert SearchCost("search", {"teacher": (10, 0.5), "student": (20, None)}).cost_usd is None


# Options.


def test_without_a_teacher_nothing_runs_and_what_works_here_is_listed(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (home / "bin").mkdir()
    (home / "session.md").write_text("User: greet\n\n$ greet\nhello\n\nAssistant: Done.\n")
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setattr(servers, "SECONDS", 60.0)
    bare = upskill("generate", TASK, "--from", "session.md")
    assert (bare.code, bare.out) == (2, "")
    assert "no teacher was chosen, so nothing was run" in bare.err
    assert "--handoff DIR " in bare.err
    assert "an agent on the PATH (claude, codex, opencode)" in bare.err
    assert "embedded" not in bare.err
    assert sorted(path.name for path in home.iterdir()) == [
        "bin",
        "session.md",
    ]  # no store, no skill
    (home / "bin" / "claude").write_text("#!/bin/sh\n")
    (home / "bin" / "claude").chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-4711")
    with serving("hello") as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        told = [upskill("generate", TASK), upskill("teach", TASK)]
        assert not server.requests
    for done in told:
        assert done.code == 2
        for typed, why in (
            ("-m claude-code", "`claude` is installed"),
            ("-m gpt", "OPENAI_API_KEY is set"),
            ("-m ollama:loopback", f"answers at {server.url}"),
        ):
            line = next(line for line in done.err.splitlines() if typed in line)
            assert line.endswith(why)
        assert "sk-4711" not in done.err
    Skill.new("greeter", "Greets. Use when greeting.", "- Say hello.").save("greeter")
    # Nobody writes tests or edits by default, either.
    tests = upskill("tests", "greeter")
    assert (tests.code, "no test writer was chosen, so nothing was run" in tests.err) == (2, True)
    assert "-m handoff:DIR " in tests.err
    assert "-m claude-code " in tests.err
    assert not (home / "runs").exists()
    for call in (
        generate_skill(TASK),
        generate_tests(TASK),
        refine_skill(Skill.load("greeter"), ["said hi"]),
    ):
        with pytest.raises(NoTeacher):
            asyncio.run(call)


def test_against_the_embedded_student_nothing_is_refined_and_nothing_proves_little(
    upskill: Upskill, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSKILL_CACHE", str(CACHE))
    cases = [
        {
            "id": f"word-{number}",
            "prompt": f"{number}",
            "checks": [{"contains": "no model says this"}],
        }
        for number in NUMBERS[:3]
    ]
    (house / "mine.json").write_text(json.dumps(cases))
    done = upskill(
        "generate", TASK, "-m", "scripted:teacher.json", "--student", SMALL, "--tests", "mine.json"
    )
    assert done.code == 0, done.err
    assert "so the skill is not refined on it. Use --attempts N to refine it anyway." in done.err
    assert (
        "The student passed no case, so this says nothing about the skill. The student may be too small."
        in done.out
    )
    assert "Try a larger student: --student local:" in done.out


def test_closing_notes_are_about_every_case_of_this_run() -> None:
    def measured(before: str, after: str) -> Any:
        rows = [
            Outcome("local", f"case-{number}", arm, 0, each == "1", 10, 5, 0.0)
            for arm, passed in (("baseline", before), ("skill", after))
            for number, each in enumerate(passed)
        ]
        return SimpleNamespace(verdicts=[compute_verdict(rows)])

    def notes(fit: Any, held_out: Any) -> list[str]:
        generated: Any = SimpleNamespace(
            fit=fit, held_out=held_out, student=resolve("local:smollm2-135m")
        )
        return Generated.student_notes.fget(generated)  # type: ignore[misc]

    nothing, five_of_seven = measured("0000", "0000"), measured("0000000", "1111100")
    too_small, larger = notes(nothing, nothing)
    assert "passed no case" in too_small
    assert larger.startswith("Try a larger student: --student local:")
    assert not any("passed nothing" in line for line in notes(five_of_seven, nothing))
    assert notes(five_of_seven, measured("0" * 12, "1" * 12)) == []


def test_own_tests_are_used_and_none_are_written(upskill: Upskill, house: Path) -> None:
    cases = [
        {
            "id": f"word-{number}",
            "prompt": prompt(number),
            "checks": [{"regex": WORDS[number - 1]}, {"max_length": 60}],
        }
        for number in NUMBERS
    ]
    (house / "mine.json").write_text(json.dumps(cases))
    done = generate(upskill, "--tests", "mine.json", "--attempts", 0, "--json")
    assert done.code == 0, done.err
    assert done.json["suite"]["cases"] == 20
    with open_store(house / "runs") as store:
        assert {role for role, _, _ in store.requests()} == {"teacher"}


def test_long_material_is_noted_once_for_the_skill_and_its_tests(
    upskill: Upskill, house: Path
) -> None:
    (house / "long.md").write_text(
        "".join(f"# Part {n}\n\n{'The ship sails. ' * 400}\n\n" for n in range(60))
    )
    noted = {"notes": [{"text": "The ship sails.", "evidence": ["d1"]}]}
    notes = {"system": "note what is worth teaching", "answer": json.dumps(noted)}
    write_rules(house / "teacher.json", [notes, *teacher_rules(draft(FIRST))])
    done = generate(upskill, "--no-eval", "--from", "long.md")
    assert done.code == 0, done.err
    assert done.err.count("reading it in") == 1
    assert done.err.count("the teacher made no note of them") == 1


def test_a_receipt_of_all_cases_is_written_with_the_skill(upskill: Upskill, house: Path) -> None:
    done = generate(upskill, "--attempts", 0, "--receipt")
    assert done.code == 0, done.err
    (folder,) = (house / "skills").iterdir()
    receipt = json.loads((folder / "evals/receipt.json").read_text())
    assert len(receipt["suite"]["cases"]) == len(NUMBERS)
    assert upskill("verify", folder).code == 0
    refused = generate(upskill, "--no-eval", "--receipt")
    assert (refused.code, "--receipt needs an evaluation" in refused.err) == (2, True)


def test_no_eval_asks_no_student_and_saves_the_tests(upskill: Upskill, house: Path) -> None:
    (house / "student.json").unlink()
    done = generate(upskill, "--no-eval", "-o", "out/my-words", "--json")
    assert done.code == 0, done.err
    assert (done.json["student"], done.json["held_out"], done.json["saved_to"]) == (
        None,
        None,
        "out/my-words",
    )
    saved = Skill.load(house / "out" / "my-words")
    assert saved.name == "my-words"
    suite = Suite.of(saved)
    assert suite is not None
    assert len(suite.cases) == 20


def test_a_version_that_was_only_saved_gets_the_verdict_of_a_later_run(
    upskill: Upskill, house: Path
) -> None:
    assert generate(upskill, "--no-eval").code == 0
    (version,) = upskill("versions", "house-words", "--json").json
    assert (version["decision"], version["pass_rate"]) == ("unproven", None)
    done = upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--json").json
    (version,) = upskill("versions", "house-words", "--json").json
    assert (version["decision"], version["run"]) == (done["models"][0]["decision"], done["run"])


def test_a_place_that_cannot_be_written_is_told_before_anyone_is_asked(
    upskill: Upskill, house: Path
) -> None:
    (house / "skills").write_text("a file")
    done = upskill("generate", TASK, "-m", "scripted:teacher.json", "--no-eval")
    assert (done.code, "skills/NAME cannot be written: Not a directory" in done.err) == (2, True), (
        done.err
    )
    assert "--output" in done.err
    assert not (house / "runs").exists()


def test_what_cannot_be_saved_is_not_called_saved_and_is_not_lost(house: Path) -> None:
    """The folder disappears under the work: what was answered is stored, and nobody is asked again."""
    told: list[str] = []

    def tell(message: str) -> None:
        told.append(message)
        if message.startswith("Generating skill"):
            (house / "skills").write_text("a file")

    options = GenerateOptions(task=TASK, teacher="scripted:teacher.json", no_eval=True, tokens=1000)
    with pytest.raises(UsageError, match="cannot be written") as error:
        generate_now(options, events=AuthoringEvents(message=tell))
    assert "the models' answers are stored" in error.value.hint
    assert not any("Saved" in message for message in told)
    made = generate_now(replace(options, output="elsewhere/house-words"))
    assert made.skill.body.strip()
    assert made.calls == 0


def test_an_output_folder_of_someone_else_is_not_replaced(upskill: Upskill, house: Path) -> None:
    (house / "out").mkdir()
    (house / "out" / "file.txt").write_text("mine")
    done = generate(upskill, "-o", "out")
    assert (done.code, "out: already exists" in done.err) == (2, True)
    assert "Generating" not in done.err  # said before anything was paid for
    assert generate(upskill, "-o", "Not A Name").code == 2
    Skill.new("house-words", "Someone else's.", "Mine.").save(house / "skills" / "house-words")
    assert generate(upskill, "--json").json["saved_to"] == "skills/house-words-2"
    assert Skill.load(house / "skills" / "house-words-2").name == "house-words-2"
    assert Skill.load(house / "skills" / "house-words").body == "Mine."


def test_everything_wrong_is_said_before_the_first_call(upskill: Upskill, house: Path) -> None:
    nothing = upskill("generate", "-m", "scripted:teacher.json")
    assert (nothing.code, "no task was given" in nothing.err) == (2, True)
    for given in (
        ("-e", "no arrow"),
        ("--tool", "missing.json"),
        ("--from", "missing.md"),
        ("--tests", "missing.yaml"),
        ("--test-writer", "sonet"),
        ("--handoff", "folder"),
        ("--test-writer", "sonnet"),  # no key
        ("--from", "https://example.org/page"),
        ("--no-eval", "--student", "scripted:student.json"),
    ):
        done = generate(upskill, *given)
        assert (done.code, done.out) == (2, ""), given
        assert "Generating" not in done.err
    assert not (house / "skills").exists()


def test_candidates_are_drafted_and_the_best_is_kept_by_the_same_gate(
    upskill: Upskill, house: Path
) -> None:
    rules = teacher_rules(draft(FIRST), [])
    better = {"system": "You write an Agent Skill", "seed": 2, "answer": json.dumps(draft(NUMBERS))}
    write_rules(house / "teacher.json", [better, *rules])
    said = generate(upskill, "--candidates", 3, "--attempts", 0, "--json").json
    # The second draft is the first again, word for word: there is nothing to evaluate.
    assert [attempt["accepted"] for attempt in said["attempts"]] == [True, False, True]
    assert said["attempts"][1]["note"] == "the same as one that was tried before"
    assert said["confirmation"]["decision"] == "best guess"  # as a scripted student never varies
    assert said["held_out"]["models"][0]["lift"] == 1.0


def test_what_a_ceiling_kept_from_being_confirmed_is_not_the_result_until_it_is(
    upskill: Upskill, house: Path
) -> None:
    # All candidates are evaluated after 58 calls; then 48 confirm what was kept.
    done = generate(upskill, "--set", "max_calls=70", "--json")
    assert [one["decision"] for one in done.json["attempts"]][-1] == "kept provisionally"
    assert (done.json["confirmation"], done.json["held_out"]) == (None, None)
    assert (
        "not tested on new draws, so the first draft is saved"
        in generate(upskill, "--set", "max_calls=1").err
    )
    assert Skill.load(house / "skills" / "house-words").body.count("- ") == len(FIRST)
    more = generate(upskill, "--json").json
    assert more["confirmation"]["decision"] == "best guess"
    assert more["held_out"]["models"][0]["lift"] == 1.0
    assert more["calls"] == 58 + 24 + 3 * len(HELD_OUT) - 71


def test_an_older_skill_is_improved_and_keeps_all_it_has(upskill: Upskill, house: Path) -> None:
    """Its files, its licence and its run bits stay; only the lines of the edits change."""
    older = Skill.new(
        "house-words",
        "Words: of this house. Use when asked.",
        "\n".join(["# Words", *map(fact, FIRST)]),
        license="MIT",
    )
    older = older.with_file("scripts/a.sh", b"echo a\n", executable=True).with_file(
        "assets/deep/x.bin", b"\0\xff"
    )
    older.save(house / "old" / "house-words")
    done = generate(upskill, "--from", "old/house-words", "--json")
    assert done.code == 0, done.err
    assert [attempt["accepted"] for attempt in done.json["attempts"]] == [True, False, False, True]
    saved = Skill.load(house / "skills" / "house-words")
    assert saved.description == "Words: of this house. Use when asked."
    assert saved.frontmatter["license"] == "MIT"
    script, binary = saved.file("scripts/a.sh"), saved.file("assets/deep/x.bin")
    assert script is not None
    assert script.executable
    assert binary is not None
    assert binary.data == b"\0\xff"
    assert all(fact(number) in saved.body for number in NUMBERS)


def test_tests_are_regenerated_edited_added_to_and_never_replace_ones_own(
    upskill: Upskill, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rules(house / "few.json", teacher_rules(draft(FIRST), numbers=range(1, 11)))
    Skill.new(
        "house-words", "States the words of this house.", f"# Words\n\n{fact(19)}\n{fact(20)}"
    ).save(house / "house-words")
    done = upskill("tests", "house-words", "-m", "scripted:few.json", "--cases", 10, "--json")
    assert (done.code, done.json["cases"]) == (0, 10), done.err
    file = house / "house-words" / "evals" / "evals.json"
    monkeypatch.setenv("VISUAL", "sed -i s/the.port/the.harbour/")
    assert upskill("tests", "house-words", "--edit").code == 0
    assert "What is the.harbour of" in Suite.load(file).by_id["word-3"].prompt
    monkeypatch.setenv("VISUAL", "sed -i s/regex/rogex/")
    assert upskill("tests", "house-words", "--edit").code == 2
    assert len(Suite.load(file).cases) == 10  # it is edited in a copy that has to hold up
    write_rules(house / "more.json", teacher_rules(draft(FIRST), numbers=NUMBERS))
    added = upskill("tests", "house-words", "-m", "scripted:more.json", "--add", 10, "--json")
    assert (added.code, added.json["cases"]) == (0, 20), added.err
    (house / "house-words" / "evals" / "suite.yaml").write_text("cases: []\n")
    refused = upskill("tests", "house-words", "-m", "scripted:few.json")
    assert (refused.code, "your own suite" in refused.err) == (2, True)


def test_tests_are_written_from_what_the_skill_was_made_from(upskill: Upskill, house: Path) -> None:
    (house / "guide.md").write_text("The flag of the ship is yellow.\n")
    skill = Skill.new("house-words", "States the words of this house.", f"# Words\n\n{fact(19)}")
    guide = SourceFile.of("doc", "guide.md")
    assert guide is not None
    Provenance().with_source_files([guide]).add_to(skill).save(house / "house-words")
    done = upskill("tests", "house-words", "-m", "handoff:desk", "--add", 3)
    assert done.code == 0, done.err
    (prompt,) = (house / "desk").glob("*.prompt.md")
    assert "The flag of the ship is yellow." in prompt.read_text()
    (house / "guide.md").unlink()
    again = upskill("tests", "house-words", "-m", "handoff:other", "--add", 3)
    assert "guide.md (it no longer exists)" in again.err


def test_a_tool_and_the_students_base_url_are_used(upskill: Upskill, house: Path) -> None:
    """Defect 16."""
    (house / "tools.json").write_text(
        json.dumps({"tools": [{"name": "sail", "description": "Sails to a port."}]})
    )
    with serving("I do not know.") as server:
        done = generate(
            *(upskill, "--tool", "tools.json#sail", "--student", "any/name:Q4_0"),
            *("--base-url", server.url, "--attempts", 0, "--json"),
        )
        assert done.code == 0, done.err
        assert {logged.model for logged in server.requests} == {"any/name:Q4_0"}
        assert len(server.requests) == 2 + 3 * 40  # a probe for a cache comes first
    with open_store(house / "runs") as store:
        assert all("Sails to a port." in request for _, request, _ in store.requests())


def test_planted_secrets_are_nowhere_in_the_store_the_prompts_or_the_output(
    upskill: Upskill, house: Path
) -> None:
    """In what was asked, said, run and printed, as a command sees it from end to end."""
    planted = [(line.format(secret), secret) for _, line, secret in PLANTED.values()]
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "set it up. " + " ; ".join(line for line, _ in planted)}
    ]
    for number, (line, _) in enumerate(planted):
        function = {"name": "bash", "arguments": json.dumps({"command": line})}
        rows += [
            {
                "role": "assistant",
                "content": line,
                "tool_calls": [{"id": str(number), "function": function}],
            },
            {"role": "tool", "tool_call_id": str(number), "content": f"{line}\n"},
        ]
    (house / "session.json").write_text(json.dumps(rows))
    (house / "notes.md").write_text("# Notes\n\n" + "\n\n".join(line for line, _ in planted))
    given = ("--from", "session.json", "--from", "notes.md", "-e", f"in -> {planted[0][0]}")
    done = generate(upskill, *given, "--candidates", 2)
    assert done.code == 0, done.err
    assert "Before anything was sent or saved, upskill redacted" in done.err
    with open_store(house / "runs") as store:
        requests = list(store.requests())
    assert len(requests) >= 5
    kept = [
        path.read_bytes()
        for folder in ("runs", "skills")
        for path in (house / folder).rglob("*")
        if path.is_file()
    ]
    everything = "\n".join(
        [
            done.out,
            done.err,
            repr(requests),
            *(data.decode("latin-1") for data in kept),
        ]
    )
    leaked = [
        name
        for name, (_, _, secret) in PLANTED.items()
        if any(part in everything for part in (secret, json.dumps(secret)[1:-1]))
    ]
    assert leaked == []


# From Python.


def library_options(**more: Any) -> GenerateOptions:
    return GenerateOptions(
        task=TASK,
        examples=SOURCE[1:],
        teacher="scripted:teacher.json",
        student="scripted:student.json",
        tokens=1000,
        **more,
    )


def test_the_library_does_what_the_command_does_and_reports_each_event(
    upskill: Upskill, house: Path
) -> None:
    seen: list[str] = []
    results: list[Result] = []
    made = generate_now(
        library_options(),
        events=AuthoringEvents(
            estimate=lambda expected: seen.append(f"estimate {expected.calls > 0}"),
            attempt_started=lambda number, plan: seen.append(
                f"attempt {number} {len(plan.suite.cases)}"
            ),
            started=lambda plan, run, missing: seen.append(f"run of {len(plan)}"),
            attempt_ended=lambda attempt: seen.append(f"{attempt.accepted}"),
            held_out_started=lambda plan: seen.append(f"held out {len(plan.suite.cases)}"),
            result=results.append,
        ),
    )
    first = ["estimate True", f"attempt 1 {len(TRAIN)}", f"run of {2 * len(TRAIN)}", "True"]
    assert seen[:4] == first
    held_out = f"run of {2 * len(HELD_OUT)}"  # without the skill, then with the first draft instead
    assert seen[-3:] == [f"held out {len(HELD_OUT)}", held_out, held_out]
    assert [line for line in seen if line in ("True", "False")] == [
        "True",
        "False",
        "False",
        "True",
    ]
    # Both arms of the first, eight failing cases for each of two that fix none, and all for the last, with two seeds.
    assert len(results) == (2 + 1 + 2) * len(TRAIN) + 2 * 8 + 3 * len(HELD_OUT)
    assert (made.folder, made.student and made.student.name) == (
        Path("skills/house-words"),
        "scripted:student.json",
    )
    assert made.fit is not None
    assert made.held_out is not None
    assert (made.fit.skill_lift, made.held_out.skill_lift) == (1.0, 1.0)
    assert Skill.load(made.folder).fingerprint == made.skill.fingerprint
    assert Suite.of(made.skill) is not None
    # The command finds everything done.
    again = generate(upskill, "--json").json
    assert (again["calls"], again["saved_to"], made.calls > 0) == (0, "skills/house-words", True)


def test_an_estimate_that_is_refused_stops_before_anything_is_paid_for(house: Path) -> None:
    def refuse(expected: CostEstimate) -> None:
        raise UpskillError(f"too much: {expected.words}")

    with pytest.raises(UpskillError, match="too much: "):
        generate_now(library_options(), events=AuthoringEvents(estimate=refuse))
    with open_store("runs") as store:
        assert list(store.requests()) == []
    assert not (house / "skills").exists()


def test_the_library_is_given_models_and_a_store(house: Path) -> None:
    ledger = Ledger()
    with open_store(None) as store:
        models = Models(replies=store, ledger=ledger)
        made = generate_now(library_options(attempts=0, log_runs=False), store=store, models=models)
        assert len(list(store.runs())) == 1
    assert (made.calls, made.spent) == (ledger.calls, ledger.spent)
    assert not (house / "runs").exists()


# Interruption.


POINTS = 4


def test_kills_at_any_point_pay_for_nothing_twice(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teacher, test writer and student are one server that counts; the command is killed after each few requests."""
    chance = random.Random(20261115)
    revisions = {1: HARMFUL, 2: NOTHING, 3: GOOD}
    limit = (
        math.inf
    )  # of requests that are answered, so that no process ends before it can be killed

    def answer(call: Call) -> str | Trouble:
        if len(server.requests) > limit:
            return Trouble("silence", seconds=600)
        if call.system.startswith(WRITES):
            return json.dumps(draft(FIRST))
        if call.system.startswith(TESTS):
            return json.dumps({"cases": [case(number) for number in NUMBERS]})
        if call.system.startswith(ANSWERS):
            return json.dumps(fresh(map(case, NUMBERS)))
        if call.system.startswith(REVISES):
            return json.dumps(revisions[call.seed or 1])
        if "Never answer" in call.system:
            return "I would rather not say."
        if call.prompt == PROBE:
            return f"Another of {call.seed} stories."
        number = number_in(call.prompt)
        return WORDS[number - 1] if fact(number) in call.system else "I do not know."

    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        models = ("-m", "generic:teacher", "--student", "generic:student", "--concurrency", 1)
        command = ["generate", TASK, *models, *LONG, "--json"]
        whole = upskill(*command, "--store", "whole", "-o", "one/house-words")
        assert whole.code == 0, whole.err
        once = asked(server)
        assert len(once) == len(set(once)), "something was asked twice in one go"

        server.requests.clear()
        broken = [*command, "--store", "broken", "-o", "two/house-words"]
        for _ in range(POINTS):
            limit = len(server.requests) + chance.randint(0, len(once) // (POINTS + 1))
            process = start(*broken)
            while len(server.requests) < limit:
                assert process.poll() is None, "it ended by itself"
                time.sleep(0.002)
            process.kill()
            process.communicate()
            # What was written before the kill is a draft.
            assert not (home / "two").exists() or is_kept_as_draft(home / "two" / "house-words")
        limit = math.inf
        last = upskill(*broken)
        assert last.code == 0, last.err
        # Only what was in flight at a kill may be asked for once more.
        again = Counter(asked(server))
        assert set(again) == set(once)
        assert sum(count - 1 for count in again.values()) <= POINTS
        # A trial that a kill cut off is a draw, so it may show less; what was tried and kept is the same.
        for key in ("attempt", "accepted", "edits"):
            assert [attempt[key] for attempt in last.json["attempts"]] == [
                attempt[key] for attempt in whole.json["attempts"]
            ]
        assert last.json["ended"] == whole.json["ended"]
        held_out, expected = (result.json["held_out"]["models"][0] for result in (last, whole))
        assert [held_out[key] for key in ("pairs", "lift")] == [
            expected[key] for key in ("pairs", "lift")
        ]
        assert Skill.load("two/house-words").body == Skill.load("one/house-words").body


def asked(server: Loopback) -> list[str]:
    """Without the probes for a cache, which each run of the search makes."""
    return [
        json.dumps([logged.model, logged.body["messages"], logged.body.get("seed")])
        for logged in server.requests
        if PROBE not in json.dumps(logged.body["messages"])
    ]


# Traces, and the real student.

CACHE = cache_folder()  # of whoever runs the tests: the weights lie there


def test_what_was_evaluated_is_not_replaced_by_the_same_skill_unproven(
    upskill: Upskill, house: Path
) -> None:
    first = generate(upskill, "--attempts", 0, "--json")
    folder = house / first.json["saved_to"]
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert Provenance.of(Skill.load(folder)).metadata["test_pass_rate"] is not None
    again = generate(upskill, "--no-eval")
    assert again.code == 0, again.err
    assert {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()} == files
    place = folder.relative_to(house)
    assert f"{place} already contains this skill with its results. It is unchanged." in again.err
    assert f"{place}-2" not in again.err  # nobody needs to hear of the draft
    assert "unproven: nothing was run" not in again.out
    suite = json.loads((folder / "evals" / "evals.json").read_text())
    (house / "fewer.json").write_text(json.dumps(suite | {"evals": suite["evals"][:9]}))
    other = generate(upskill, "--no-eval", "--tests", "fewer.json", "--json").json
    assert other["saved_to"] == str(place)
    (kept,) = (folder.parent / ".previous" / folder.name).iterdir()
    assert {kept / path.relative_to(folder): data for path, data in files.items()} == {
        path: path.read_bytes() for path in kept.rglob("*") if path.is_file()
    }


def test_an_edit_that_helps_the_real_student_is_kept(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace, a scripted teacher, the embedded student, and cases that only whoever reads the skill can pass."""
    monkeypatch.setenv("UPSKILL_CACHE", str(CACHE))
    monkeypatch.setattr(
        comparison, "CONFIRMING_PAIRS", 12
    )  # of 96: a real model takes a second for each trial
    numbers = NUMBERS[:12]
    told = "\n\n".join(f"$ ship --show {number}\n{fact(number)}" for number in numbers)
    (home / "session.md").write_text(
        f"User: learn all about the ship\n\n{told}\n\nAssistant: Done.\n"
    )
    good = insert("\n".join(fact(number) for number in numbers if number not in FIRST), after=4)
    write_rules(home / "teacher.json", teacher_rules(draft(FIRST, ["s2"]), [good], numbers))
    done = upskill(
        *(
            "generate",
            "--from",
            "session.md",
            "-m",
            "scripted:teacher.json",
            "--student",
            SMALL,
            *LONG,
        ),
        *("--cases", len(numbers), "--attempts", 1, "--json"),
    )
    assert done.code == 0, done.err
    attempts = done.json["attempts"]
    assert [attempt["decision"] for attempt in attempts] in (
        ["first draft", each] for each in ("confirmed", "best guess")
    )
    assert attempts[1]["pass_rate"] >= attempts[0]["pass_rate"] + 0.3
    verdict = done.json["held_out"]["models"][0]
    assert verdict["skill"]["pass_rate"] > verdict["baseline"]["pass_rate"]
