"""A recorded teacher: answers kept as files take the page of a tool that nobody knows to a skill that is proven."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import REPOSITORY, Done, Upskill, serving
from lookup_student import IGNORANT, look_up
from loopback import Call
from teaching import FIXES
from upskill import Skill
from upskill.authoring.saving.provenance import own_lines

ANSWERS = REPOSITORY / "tests" / "fixtures" / "handoff"
PAGE = ANSWERS / "corvane.md"
# What a prompt begins with, and the recorded answer to it.
RECORDED = {
    "You write an Agent Skill": "write_skill.json",
    "You write test cases": "write_suite.json",
    "You answer test questions": "write_answers.json",
    "You fix the checks": "fix_checks.json",
    "You improve an Agent Skill": "revise_skill.json",
}


def answer(call: Call) -> str:
    return look_up(call.system, call.prompt)


def test_the_student_knows_nothing_but_what_stands_in_its_prompt() -> None:
    skill = "# Ship\n- The captain of the ship is Krane.\n- The port of the ship is Lisbon."
    assert look_up(skill, "Who is the captain?") == "The captain of the ship is Krane."
    assert look_up(skill, "What about cinnamon?") == IGNORANT
    assert look_up("You are a helpful assistant.", "Who is the captain?") == IGNORANT


def test_recorded_answers_take_a_page_to_a_skill_that_helps_on_held_out_cases(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) >= 1000
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done, prompts = teach_by_hand(upskill, home / "desk")
    said = done.json
    assert list(prompts)[:4] == [
        "write_suite.json",
        "write_answers.json",
        "fix_checks.json",
        "write_skill.json",
    ]
    assert sum(prompts.values()) == len(prompts) == 5, prompts  # every answer was taken at once
    (fixing,) = [
        text for file in (home / "desk").glob("*.prompt.md") if FIXES in (text := file.read_text())
    ]
    assert fixing.count('"problems": {"') == 12  # of 22 cases, and in the example
    assert said["suite"]["cases"] == 22
    verdict = said["held_out"]["models"][0]
    assert verdict["baseline"]["pass_rate"] == 0.0
    assert verdict["lift"] >= 0.4, verdict
    assert verdict["decision"] == "helps"
    saved = Skill.load(home / said["saved_to"])
    assert own_lines(saved)[0] == []  # every line is covered by the page
    assert [one["accepted"] for one in said["attempts"]] == [True, True]
    assert "corvaned --reread" in saved.body


def teach_by_hand(upskill: Upskill, desk: Path) -> tuple[Done, dict[str, int]]:
    """Give the same command until nothing is asked any more; how often each recorded answer was asked for."""
    asked: dict[str, int] = {}
    given = (
        "--from",
        f"doc:{PAGE}",
        "--handoff",
        desk,
        "--student",
        "generic:look-up",
        "--cases",
        22,
        "--attempts",
        1,
    )
    while True:
        done = upskill("generate", "work with corvane", *given, "--json")
        assert done.code == 0, done.err
        if "waiting_for" not in done.json:
            return done, asked
        for place in map(Path, done.json["waiting_for"]):
            first = place.read_text(encoding="utf-8").splitlines()[2]
            name = next(file for words, file in RECORDED.items() if first.startswith(words))
            asked[name] = asked.get(name, 0) + 1
            shutil.copy(
                ANSWERS / name, place.with_name(place.name.replace(".prompt.md", ".answer.json"))
            )
        assert sum(asked.values()) < 10, json.dumps(asked)
