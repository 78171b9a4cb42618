"""`upskill generate "REQUEST" --from SKILL`: what was asked for is done, and nothing of before is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill
from teaching import (
    NUMBERS,
    REVISES,
    case,
    fact,
    insert,
    prompt,
    student_rules,
    suite_rules,
    write_rules,
)
from upskill import AuthoringEvents, GenerateOptions, Skill, Suite, generate_now, open_store
from upskill.authoring.saving.output import edited_by_hand, record_version, replace_manifest
from upskill.authoring.saving.provenance import Provenance, add_suite

REQUEST = "it should know the rest of the ship too"
OLD, NEW = NUMBERS[:10], NUMBERS[10:]
FOLDER = Path("skills") / "house-words"
WIDER = insert("\n".join(map(fact, NEW)), after=11)
# It states the new facts and drops half of the old ones.
TRADE: dict[str, Any] = {
    "note": "",
    "edits": [
        *WIDER["edits"],
        *(
            {"kind": "delete", "line": line, "path": "", "text": "", "evidence": list[str]()}
            for line in range(2, 7)
        ),
    ],
}


def written_case(number: int) -> dict[str, Any]:
    """A case as a suite file says it."""
    said = case(number)
    del said["words"]
    checks = [
        {check["kind"]: check["texts"][0] if check["texts"] else check["number"]}
        for check in said["checks"]
    ]
    return {**said, "checks": checks}


def teacher(cases: Sequence[int], revision: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *suite_rules(cases),
        {"system": REVISES, "answer": json.dumps(revision)},
    ]


@pytest.fixture
def house(home: Path) -> Path:
    """A skill that upskill wrote, that states half of the facts, and passes all of its cases."""
    body = "\n".join(["# The ship", *map(fact, OLD)])
    skill = Skill.new("house-words", "States facts about the ship. Use when asked about it.", body)
    stored = {
        "d1": {
            "kind": "document",
            "from": "log.md",
            "text": "From the log: the name of the ship is Aurora.",
        }
    }
    provenance = (
        Provenance()
        .with_author("somebody", "know the ship")
        .with_sources({fact(1): ["d1"]}, stored)
    )
    suite = Suite.parse([written_case(number) for number in OLD], "old")
    record_version(add_suite(provenance.add_to(skill), suite)).save(home / FOLDER)
    write_rules(home / "teacher.json", teacher(NEW, WIDER))
    write_rules(home / "student.json", student_rules())
    return home


def improve(upskill: Upskill, *more: object, request: str = REQUEST) -> Done:
    evaluated = () if "--no-eval" in more else ("--student", "scripted:student.json")
    student = (*evaluated, "--tokens", 1000, "--attempts", 1, "--cases", len(NEW))
    return upskill(
        "generate", request, "--from", FOLDER, "-m", "scripted:teacher.json", *student, *more
    )


def test_a_request_is_carried_out_and_measured_on_new_cases(upskill: Upskill, house: Path) -> None:
    said = improve(upskill, "--no-log-runs", "-o", "other/house-words")
    assert "  the skill's own 10 cases: 0 cases lost, 0 gained of 10" in said.err.splitlines()
    done = improve(upskill, "--json")
    assert done.code == 0, done.err
    assert [each["decision"] for each in done.json["attempts"]] == ["requested change"]
    assert done.json["ended"] == "every shown case passes"
    assert done.json["held_out"]["models"][0]["lift"] == 1.0
    assert done.json["suite"]["cases"] == 20
    saved = Skill.load(house / FOLDER)
    assert all(fact(number) in saved.body for number in NUMBERS)
    metadata = Provenance.of(saved).metadata
    assert (metadata["version"], metadata["request"]) == ("1.1.0", REQUEST)
    assert (Path(done.json["previous"]) / "SKILL.md").is_file()
    versions = upskill("versions", FOLDER, "--json").json
    assert [row["decision"] for row in versions] == ["older version", "requested change"]
    assert f"+{fact(NEW[0])}" in upskill("versions", FOLDER, "--diff").out
    with open_store(house / "runs") as store:
        (asked,) = [each for _, each, _ in store.requests() if REVISES in each]
        tests = next(each for _, each, _ in store.requests() if "You write test cases" in each)
    assert not any(prompt(number) in asked for number in NUMBERS), (
        "who changes the skill sees no case"
    )
    assert fact(OLD[0]) not in tests, "who writes the tests does not see the skill"


def test_a_change_that_is_worse_on_the_skills_own_cases_is_not_made(
    upskill: Upskill, house: Path
) -> None:
    write_rules(house / "teacher.json", teacher(NEW, TRADE))
    before = Skill.load(house / FOLDER)
    done = improve(upskill)
    assert done.code == 0, done.err
    why = "5 cases lost, 0 gained of 10"
    assert f"✖ requested change: {why}. The older text is kept." in done.err.splitlines()
    assert f"The requested change was not made: {why}. The skill is unchanged." in done.err
    saved = Skill.load(house / FOLDER)
    assert saved.body == before.body
    assert len(Suite.required(saved).cases) == len(OLD), "cases for it would only fail"
    assert Provenance.of(saved).metadata["version"] == "1.0.0"


def test_without_a_request_the_failures_are_what_is_mended(upskill: Upskill, house: Path) -> None:
    """The cases that are not held out show what fails; the held-out part decides."""
    skill = Skill.load(house / FOLDER).with_body("\n".join(["# The ship", *map(fact, OLD[:2])]))
    record_version(skill).save(house / FOLDER, overwrite=True)
    good = insert("\n".join(fact(number) for number in OLD[2:]), after=1)
    stored = (
        (house / FOLDER / "skill_meta.json").read_text().replace("Aurora", " ".join(map(fact, OLD)))
    )
    (house / FOLDER / "skill_meta.json").write_text(stored)
    write_rules(house / "teacher.json", teacher(NEW, good))
    done = improve(upskill, "--force", "--json", request="")
    assert done.code == 0, done.err
    assert [each["decision"] for each in done.json["attempts"]] == ["older version", "kept"]
    assert done.json["evaluated_cases"] == "fresh"
    assert done.json["suite"]["cases"] == len(OLD), "no case is written"
    verdict = done.json["held_out"]["models"][0]
    assert verdict["cases"] == len(Suite.required(skill).held_out)
    assert all(fact(number) in Skill.load(house / FOLDER).body for number in OLD)


def test_a_test_writer_knows_which_skill_a_request_is_about_and_not_what_it_says(
    upskill: Upskill, house: Path
) -> None:
    (house / "page.md").write_text("\n".join(map(fact, NEW)))
    assert improve(upskill, "--from", "page.md", "--no-eval").code == 0
    with open_store(house / "runs") as store:
        asked = next(
            request for _, request, _ in store.requests() if "You write test cases" in request
        )
    text = json.loads(asked)["messages"][1]["text"].partition("\n\n")[0]
    about = {
        "name": "house-words",
        "description": "States facts about the ship. Use when asked about it.",
    }
    assert json.loads(text) == {"task": REQUEST, **about}


def test_a_skill_without_tests_is_improved_with_a_word_that_nothing_tests_what_it_could_do(
    upskill: Upskill, house: Path
) -> None:
    shutil.rmtree(house / FOLDER / "evals")
    done = improve(upskill, "--no-eval", "--force")
    assert (
        "house-words has no tests of its own, so upskill cannot check that what worked before still works."
        in done.err
    )
    assert f"Read {FOLDER}: skill to improve, about " in done.err


# What a person has edited.


def edit_by_hand(house: Path) -> str:
    manifest = house / FOLDER / "SKILL.md"
    manifest.write_text(manifest.read_text() + "- My own line.\n")
    return manifest.read_text()


def test_a_skill_that_was_edited_by_hand_is_not_replaced_unless_someone_says_so(
    upskill: Upskill, house: Path
) -> None:
    text = edit_by_hand(house)
    for more in ((), ("--output", FOLDER)):
        refused = improve(upskill, *more)
        assert refused.code == 2
        assert f"{FOLDER}: written or edited by hand" in refused.err
        assert "--force" in refused.err
        assert (house / FOLDER / "SKILL.md").read_text() == text
    assert not (house / "runs").exists()  # nothing was asked or paid for
    elsewhere = improve(upskill, "--output", "other/house-words", "--json")
    assert (elsewhere.code, elsewhere.json["saved_to"]) == (0, "other/house-words")
    assert (house / FOLDER / "SKILL.md").read_text() == text
    forced = improve(upskill, "--force", "--json")
    assert forced.code == 0, forced.err
    assert (Path(forced.json["previous"]) / "SKILL.md").read_text() == text
    saved = Skill.load(house / FOLDER)
    assert "- My own line." in saved.body
    assert fact(NEW[0]) in saved.body
    assert not edited_by_hand(saved)


@pytest.mark.parametrize("answer", [True, False])
def test_whoever_can_answer_is_shown_the_change_and_asked(house: Path, answer: bool) -> None:
    text = edit_by_hand(house)
    asked: list[tuple[Path, str]] = []

    def ask(folder: Path, diff: str) -> bool:
        asked.append((folder, diff))
        return answer

    options = GenerateOptions(
        task=REQUEST,
        sources=(str(FOLDER),),
        teacher="scripted:teacher.json",
        student="scripted:student.json",
        tokens=1000,
        attempts=1,
        cases=len(NEW),
    )
    made = generate_now(options, events=AuthoringEvents(replace_edited=ask))
    ((folder, diff),) = asked
    assert (folder, f"+{fact(NEW[0])}" in diff, "- My own line." in diff) == (FOLDER, True, True)
    assert made.folder == (FOLDER if answer else FOLDER.with_name("house-words-2"))
    assert fact(NEW[0]) in Skill.load(made.folder).body
    left = made.previous if answer else house / FOLDER
    assert left is not None
    assert (left / "SKILL.md").read_text() == text


def test_a_skill_that_a_person_wrote_counts_as_edited_and_the_record_follows_what_upskill_does(
    house: Path,
) -> None:
    skill = Skill.load(house / FOLDER)
    assert not edited_by_hand(skill)
    assert edited_by_hand(Skill.new("mine", "Mine.", "My words."))
    assert edited_by_hand(skill.with_file("skill_meta.json", b"{"))
    replace_manifest(skill.with_description("Another description of the ship."), house / FOLDER)
    assert not edited_by_hand(Skill.load(house / FOLDER))
    edit_by_hand(house)
    replace_manifest(Skill.load(house / FOLDER).with_description("A third one."), house / FOLDER)
    assert edited_by_hand(Skill.load(house / FOLDER))
