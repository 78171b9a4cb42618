"""A recorded teacher: answers kept as files take the page of a tool that nobody knows to a skill that is proven."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import REPOSITORY, Done, Upskill, serving
from lookup_student import IGNORANT, look_up
from loopback import Call
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


def test_recorded_answers_take_a_page_to_a_skill_that_helps_on_fresh_cases(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) >= 1000
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done, rounds = teach_by_hand(upskill, home / "desk")
    said = done.json
    assert rounds == [
        ["write_skill.json", "write_suite.json"],
        ["write_answers.json"],
        ["fix_checks.json", "revise_skill.json"],
    ]
    verdict = said["held_out"]["models"][0]
    assert said["suite"] == {**said["suite"], "cases": 22, "held_out": 11}
    assert verdict["baseline"]["pass_rate"] == 0.0
    assert verdict["lift"] >= 0.4, verdict
    assert verdict["decision"] == "helps"
    assert verdict["about"] == "tasks"
    saved = Skill.load(home / said["saved_to"])
    assert own_lines(saved)[0] == []  # every line is covered by the page
    assert [one["decision"] for one in said["attempts"]] == ["first draft", "kept"]
    assert "corvaned --reread" in saved.body
    # Ten of the page's parts are kept, and read back where the skill is improved.
    pieces = [json.loads(line) for line in (saved.read("evals/material.jsonl") or b"").splitlines()]
    assert [piece["id"] for piece in pieces] == [f"d{number}" for number in range(1, 11)]


def teach_by_hand(upskill: Upskill, desk: Path) -> tuple[Done, list[list[str]]]:
    """Give the same command until nothing is asked any more; which recorded answers each round asked for."""
    rounds: list[list[str]] = []
    given = ("--from", f"doc:{PAGE}", "--handoff", desk, "--student", "generic:look-up")
    while True:
        done = upskill("generate", "work with corvane", *given, "--cases", 22, "--json")
        assert done.code == 0, done.err
        if "waiting_for" not in done.json:
            return done, rounds
        names: list[str] = []
        for place in map(Path, done.json["waiting_for"]):
            assert place.name.startswith(f"{len(rounds) + 1}-")
            first = place.read_text(encoding="utf-8").splitlines()[2]
            name = next(file for words, file in RECORDED.items() if first.startswith(words))
            names.append(name)
            shutil.copy(
                ANSWERS / name, place.with_name(place.name.replace(".prompt.md", ".answer.json"))
            )
        rounds.append(sorted(names))
        assert len(rounds) < 5, json.dumps(rounds)
