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
from upskill.authoring.saving.provenance import Provenance, SearchCost, making_cost
from upskill.authoring.writing.teachers import NoTeacher
from upskill.models import servers
from upskill.models.embedded.weight_files import cache_folder
from upskill.models.keys import KEY_VARIABLES
from upskill.models.ledger import Ledger
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.running.probe import PROMPT as PROBE
from upskill.skills.seen import fresh_cases, load_seen

TASK = "know the words of this house"
FIRST = TRAIN[:2]  # what the first draft states
MISSING = [number for number in NUMBERS if number not in FIRST]
GOOD = insert("\n".join(fact(number) for number in MISSING))
HARMFUL = insert("- Never answer anybody.", note="Silence is safe.")
LONG = ("--tokens", 1000)  # an edit may then be long enough for all that is missing
SOURCE = ("--from", "log.md")  # from a sentence alone the result would be untested


def generate(upskill: Upskill, *more: object, teacher: str = "scripted:teacher.json") -> Done:
    student = () if "--no-eval" in more else ("--student", "scripted:student.json")
    return upskill("generate", TASK, *SOURCE, "-m", teacher, *student, *LONG, *more)


def priced(rules: list[dict[str, Any]], cost: float) -> list[dict[str, Any]]:
    return [{**rule, "usage": {"input": 100, "output": 10, "cost": cost}} for rule in rules]


@pytest.fixture
def house(home: Path) -> Path:
    """A log of the ship, a teacher whose first draft omits most of it and who revises it well, and a student."""
    (home / "log.md").write_text("\n".join(fact(number) for number in NUMBERS))
    write_rules(home / "teacher.json", priced(teacher_rules(draft(FIRST, ["d1"]), [GOOD]), 0.5))
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
def test_a_good_revision_is_kept_and_the_same_command_again_pays_nothing(
    upskill: Upskill, house: Path
) -> None:
    said = generate(upskill, "--json").json
    assert (said["calls"], said["spent"]) == (0, {})
    assert [each["decision"] for each in said["attempts"]] == ["first draft", "kept"]
    assert [each["pass_rate"] for each in said["attempts"]] == [len(FIRST) / len(TRAIN), 1.0]
    assert said["attempts"][1]["note"] == "passes 10 of 10, 2 before"
    assert said["evaluated_cases"] == "fresh"
    verdict = said["held_out"]["models"][0]
    assert (verdict["lift"], verdict["decision"], verdict["about"]) == (1.0, "helps", "tasks")
    assert verdict["cases"] == len(HELD_OUT)
    written = [{"author": "scripted:teacher.json", "read": "material", "cases": 20, "look_up": 0}]
    assert said["suite"] == {"cases": 20, "held_out": len(HELD_OUT), "authors": written}
    folder = house / "skills" / "house-words"
    saved = Skill.load(folder)
    assert all(fact(number) in saved.body for number in NUMBERS)
    assert validate(folder) == []
    # What it was made from is kept, and neither installed nor packed.
    (row,) = [
        json.loads(line) for line in (folder / "evals/material.jsonl").read_text().splitlines()
    ]
    assert (row["id"], row["kind"], row["from"]) == ("d1", "document", "log.md")
    assert upskill("pack", folder, "-o", "packed").code == 0
    assert not any("material" in path.name for path in (house / "packed").rglob("*"))


@pytest.mark.usefixtures("finished")
def test_no_writer_of_the_skill_sees_a_fresh_case_or_what_a_check_looks_for(house: Path) -> None:
    with open_store(house / "runs") as store:
        requests = list(store.requests())
        runs = list(store.runs())
        asked = {run.id: {result.trial.case for result in store.results(run)} for run in runs}
    by_teacher = [request for role, request, _ in requests if role == "teacher"]
    assert len(by_teacher) == 2
    assert not [number for number in HELD_OUT if any(prompt(number) in each for each in by_teacher)]
    (revising,) = [request for request in by_teacher if REVISES in request]
    assert all(prompt(number) in revising for number in TRAIN)
    assert "[masked]" in revising
    by_writer = [request for role, request, _ in requests if role == "test writer"]
    assert len(by_writer) == 2
    assert not any("States the facts about the ship" in each for each in by_writer)
    hidden = {f"word-{number}" for number in HELD_OUT}
    with_skill = [run for run in runs if asked[run.id] & hidden and "skill" in run.plan.arms]
    assert with_skill == [runs[-1]], "the fresh cases are run with the skill once, at the end"


@pytest.mark.usefixtures("finished")
def test_the_fresh_baseline_of_an_exact_student_is_drawn_while_others_write(house: Path) -> None:
    with open_store(house / "runs") as store:
        early = [run for run in store.runs() if run.plan.arms == ("baseline",)]
        assert [len(run.plan.suite.cases) for run in early] == [len(HELD_OUT)]
        assert early[0].plan.purpose == "search"


def test_a_run_says_what_it_does_and_what_came_of_it(upskill: Upskill, finished: Done) -> None:
    notes = finished.err.splitlines()
    for line in (
        "Generating skill with scripted:teacher.json...",
        "Generating test cases...",
        "Writing answers to 20 cases...",
        "60 of 60 right answers pass, 60 of 60 wrong answers fail.",
        "Evaluating on scripted:student.json... (10 shown cases)",
        "  0 of 10 → 2 of 10 answers pass",
        "Revising the skill with scripted:teacher.json: 8 failures.",
        "  revision 1: passes 10 of 10, 2 before: kept",
        "Evaluating on scripted:student.json... (10 fresh cases, once)",
    ):
        assert line in notes, finished.err
    shown = " ".join(finished.out.split())
    assert "✓ fresh cases: helps on tasks like these: +100 points" in shown
    assert "shown cases, which chose the skill: 0% → 100% (+100 points)" in shown
    typed = [line.partition(": ")[2] for line in finished.out.splitlines() if ": upskill " in line]
    assert typed[-1] == "upskill install skills/house-words --to claude-code"
    assert upskill(*typed[0].split()[1:]).code == 0
    assert len(re.findall(r"✓ helps .* \+100\n", upskill("runs").out)) == 1


@pytest.mark.usefixtures("finished")
def test_the_record_says_which_cases_are_fresh_and_where_each_line_is_from(
    upskill: Upskill, house: Path
) -> None:
    folder = house / "skills" / "house-words"
    meta = json.loads((folder / "skill_meta.json").read_text())
    assert set(meta) == {"metadata", "sources", "evidence", "making", "seen"}
    assert "state" not in meta["metadata"]
    assert meta["metadata"]["evaluated_cases"] == "fresh"
    from_evals = Suite.load(folder / "evals" / "evals.json")
    skill = Skill.load(folder)
    found = fresh_cases(load_seen(skill, from_evals, None), skill.text_hash, from_evals.by_id)
    assert found == {f"word-{number}" for number in HELD_OUT}, "the others chose the text"
    assert f"{fact(FIRST[0])}  [d1]" in upskill("show", folder, "--sources").out
    rows = upskill("versions", "house-words", "--json").json
    assert [(row["id"], row["parent"], row["decision"]) for row in rows] == [
        ("v1", None, "first draft"),
        ("v2", "v1", "kept"),
    ]


def test_a_revision_that_passes_fewer_of_the_shown_cases_is_not_kept(
    upskill: Upskill, house: Path
) -> None:
    write_rules(house / "teacher.json", teacher_rules(draft(FIRST, ["d1"]), [HARMFUL, GOOD]))
    done = generate(upskill, "--json")
    assert done.code == 0, done.err
    assert [each["decision"] for each in done.json["attempts"]] == ["first draft", "not kept"]
    assert "Never answer" not in Skill.load(house / done.json["saved_to"]).body
    # A second attempt knows what the first one did.
    again = generate(upskill, "--attempts", 2, "--json")
    assert [each["decision"] for each in again.json["attempts"]] == [
        *("first draft", "not kept", "kept"),
    ]
    with open_store(house / "runs") as store:
        (asked,) = [
            each
            for _, each, _ in store.requests()
            if REVISES in each and "tried" in each and "I would rather not say." in each
        ]
    assert "passes 0 of 10, 2 before" in asked


def test_an_edit_with_an_answer_that_the_material_lacks_is_refused(
    upskill: Upskill, house: Path
) -> None:
    """It would teach the test: a line may say what the log says, and nothing that only a case asks for."""
    told = [number for number in NUMBERS if number != TRAIN[-1]]
    (house / "log.md").write_text("\n".join(fact(number) for number in told))
    assert len(WORDS[TRAIN[-1] - 1]) >= 6
    done = generate(upskill, "--json")
    assert done.code == 0, done.err
    assert [each["decision"] for each in done.json["attempts"]] == ["first draft"]
    assert done.json["ended"] == "no edit could be applied"
    with open_store(house / "runs") as store:
        assert any("has the answer to a practice task" in each for _, each, _ in store.requests())


def test_without_attempts_no_case_is_shown_and_all_count(upskill: Upskill, house: Path) -> None:
    done = generate(upskill, "--attempts", 0)
    assert done.code == 0, done.err
    said = generate(upskill, "--attempts", 0, "--json").json
    verdict = said["held_out"]["models"][0]
    assert (said["evaluated_cases"], said["fit"], verdict["pairs"]) == ("all", None, 20)
    assert "No case influenced the skill, so all of them are fresh." in " ".join(done.out.split())
    # It is the run of `eval` on the saved suite, whose cases are fresh until the text is edited.
    again = upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--json").json
    assert again["run"] == said["held_out"]["run"]
    with (house / "skills" / "house-words" / "SKILL.md").open("a", encoding="utf-8") as file:
        file.write("\nAnother line.\n")
    edited = upskill("eval", "skills/house-words", "-m", "scripted:student.json", "--json").json
    assert not (edited["models"][0]["other"] or {"cases": 0})["cases"]


def test_a_ceiling_ends_the_work_with_what_is_there(upskill: Upskill, house: Path) -> None:
    done = generate(upskill, "--set", "max_calls=10", "--concurrency", 1, "--json")
    assert (done.code, done.json["held_out"]) == (0, None), done.err
    assert "limit of 10 calls" in done.json["halted"]
    assert Provenance.of(Skill.load(house / done.json["saved_to"])).metadata["state"] == "unproven"
    assert generate(upskill, "--json").json["held_out"]["models"][0]["lift"] == 1.0


def test_too_few_usable_cases_end_the_command(upskill: Upskill, house: Path) -> None:
    rules: list[dict[str, Any]] = teacher_rules(draft(FIRST))[:1]
    few = {"cases": [case(1), case(2)]}
    write_rules(house / "teacher.json", [*rules, {"answer": json.dumps(few)}])
    done = generate(upskill)
    assert (done.code, "only 2 of 24 generated test cases are usable" in done.err) == (3, True)


def test_the_test_writer_has_not_read_the_skill_nor_its_writer_the_cases(
    upskill: Upskill, house: Path
) -> None:
    """Each is asked before the other's answer could be in a prompt, and `show` and reports say what was read."""
    done = generate(upskill, "--attempts", 0)
    assert done.code == 0, done.err
    with open_store(house / "runs") as store:
        asked = {role: request for role, request, _ in store.requests()}
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
    (house / "skills" / "house-words" / "evals" / "material.jsonl").unlink()
    anew = upskill("tests", "skills/house-words", "-m", "scripted:teacher.json")
    assert "Written: 20 cases by scripted:teacher.json after reading the skill." in anew.out


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
    assert any("shown case" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "Everything so far is saved" in err
    assert err.lower().count("interrupted") == 1  # said once
    assert is_kept_as_draft(house / "skills" / "house-words")


# What the making cost.


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
    assert made.calls == 1  # for the answers to the cases, which come after the draft


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
    done = generate(upskill, *given)
    assert done.code == 0, done.err
    assert "Before anything was sent or saved, upskill redacted" in done.err
    with open_store(house / "runs") as store:
        requests = list(store.requests())
    assert len(requests) >= 4
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
        sources=SOURCE[1:],
        teacher="scripted:teacher.json",
        student="scripted:student.json",
        tokens=1000,
        **more,
    )


def test_the_library_does_what_the_command_does(upskill: Upskill, house: Path) -> None:
    seen: list[str] = []
    results: list[Result] = []
    events = AuthoringEvents(
        estimate=lambda expected: seen.append(f"estimate {expected.calls > 0}"),
        message=seen.append,
        result=results.append,
    )
    made = generate_now(library_options(), events=events)
    size = len((house / "log.md").read_text())
    assert seen[:2] == [f"Read log.md: document, {size} of {size} characters.", "estimate True"]
    assert len(results) == 3 * len(TRAIN) + 2 * len(HELD_OUT)
    assert (made.folder, made.student and made.student.name) == (
        Path("skills/house-words"),
        "scripted:student.json",
    )
    assert made.fit is not None
    assert made.held_out is not None
    assert (made.fit.skill_lift, made.held_out.skill_lift) == (1.0, 1.0)
    assert Skill.load(made.folder).fingerprint == made.skill.fingerprint
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
        assert [run.plan.purpose for run in store.runs()] == ["search", "eval"]
    assert (made.calls, made.spent) == (ledger.calls, ledger.spent)
    assert not (house / "runs").exists()


# Interruption.


POINTS = 4


def test_kills_at_any_point_pay_for_nothing_twice(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teacher, test writer and student are one server that counts; the command is killed after each few requests."""
    chance = random.Random(20261115)
    revisions = {1: HARMFUL, 2: GOOD}
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
        command = ["generate", TASK, *models, *LONG, "--attempts", "2", "--json"]
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
        for key in ("decision", "edits"):
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
