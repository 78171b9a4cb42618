"""`--handoff`: prompts are files, and whoever answers them is told at once what is wrong with an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill
from teaching import NUMBERS, TRAIN, case, draft, fact, insert, student_rules, write_rules

TASK = "know the words of this house"
FIRST = TRAIN[:2]
GOOD = insert("\n".join(fact(number) for number in NUMBERS if number not in FIRST))
CASES = {"cases": [case(number) for number in NUMBERS]}


@pytest.fixture
def desk(home: Path) -> Path:
    write_rules(home / "student.json", student_rules())
    return home / "desk"


def go(upskill: Upskill, *more: object, task: str = TASK) -> Done:
    given = ("--handoff", "desk", "--eval-model", "scripted:student.json", "--tokens", 1000, "--attempts", 1)
    return upskill("generate", task, *given, *more)


def prompts(desk: Path) -> list[str]:
    return sorted(path.name.removesuffix(".prompt.md") for path in desk.glob("*.prompt.md"))


def write_answer(desk: Path, stem: str, answer: Any) -> None:
    (desk / f"{stem}.answer.json").write_text(answer if isinstance(answer, str) else json.dumps(answer))


def test_each_prompt_pauses_the_command_until_it_is_answered(upskill: Upskill, desk: Path) -> None:
    for number, answer in enumerate([f"```json\n{json.dumps(draft(FIRST))}\n```", CASES, GOOD], start=1):
        done = go(upskill, "--json")
        assert done.code == 0, done.err
        stem = prompts(desk)[-1]
        assert stem.startswith(f"{number:02d}-")
        assert f"waiting for 1 answer: desk/{stem}.prompt.md" in done.err
        assert done.json == {"waiting_for": [f"desk/{stem}.prompt.md"]}
        assert "Write the answer" in (desk / f"{stem}.prompt.md").read_text()
        write_answer(desk, stem, answer)
    done = go(upskill, "--max-cost", 1)  # which costs nothing here
    assert done.code == 0, done.err
    assert "held-out: 0% -> 100%" in done.out
    assert "price unknown" not in done.out + done.err


def test_a_wrong_answer_is_refused_by_its_file_until_it_is_mended(upskill: Upskill, desk: Path) -> None:
    assert go(upskill).code == 0
    (stem,) = prompts(desk)
    unknown = draft(FIRST, ["d9"])
    for answer, why in (
        ("I would rather not.", "it is not JSON"),
        ({**draft(FIRST), "blocks": "none"}, "$.blocks: 'none' is not of type 'array'"),
        (unknown, ".evidence[0]: 'd9' is not one of"),
        ({**draft(FIRST), "description": ""}, "description"),
    ):
        write_answer(desk, stem, answer)
        done = go(upskill)
        assert done.code == 2, done.err
        assert f"desk/{stem}.answer.json: this answer cannot be used: " in done.err
        assert why in done.err
        assert prompts(desk) == [stem]  # no further prompt asks for the same
    write_answer(desk, stem, draft(FIRST))
    assert "waiting for 1 answer" in go(upskill).err


def test_prompts_that_are_no_longer_asked_disappear_and_answers_stay(upskill: Upskill, desk: Path) -> None:
    assert go(upskill).code == 0
    (first,) = prompts(desk)
    write_answer(desk, first, draft(FIRST))
    assert go(upskill).code == 0
    _, second = prompts(desk)
    # With another skill the cases are asked for anew.
    write_answer(desk, first, draft(FIRST[:1]))
    assert go(upskill).code == 0
    assert prompts(desk)[0] == first
    assert (len(prompts(desk)), second in prompts(desk)) == (2, False)
    assert go(upskill, task="something else").code == 0
    assert (len(prompts(desk)), (desk / f"{first}.answer.json").exists()) == (2, True)


def call(tool: str, **arguments: str) -> dict[str, Any]:
    return {"call": {"tool": tool, **arguments}}


def test_a_lesson_by_hand_goes_on_after_each_answer_and_runs_no_command_twice(upskill: Upskill, desk: Path) -> None:
    """The output of every command is another one each time, and still the place is not lost."""
    count = "echo ran >> log; chmod 700 log; date +%N; echo $RANDOM"
    turns = [call("bash", command=count), call("bash", command=f"{count}; cat log"), call("answer", text="Done.")]
    command = ("teach", "count", "--handoff", "desk", "--only-record", "--check", "grep -c ran log; test -x log")
    for number, answer in enumerate(turns, start=1):
        done = upskill(*command)
        assert done.code == 0, done.err
        assert f"waiting for 1 answer: desk/{number:02d}-" in done.err, done.err
        assert len(prompts(desk)) == number
        write_answer(desk, prompts(desk)[-1], answer)
    done = upskill(*command, "--json")
    assert (done.code, done.json["lesson"]["check"], done.json["lesson"]["calls"]) == (0, True, 3), done.err
    recorded = Path(done.json["lesson"]["trace"]).read_text()
    assert "ran\\nran" in recorded
    assert sorted(path.suffix for path in desk.iterdir()) == [".json"] * 3 + [".md"] * 3  # the journal is gone


def test_an_earlier_answer_that_was_changed_starts_the_lesson_over(upskill: Upskill, desk: Path) -> None:
    command = ("teach", "count", "--handoff", "desk", "--only-record", "--check", "ls")
    assert upskill(*command).code == 0
    first = prompts(desk)[0]
    write_answer(desk, first, call("bash"))
    wrong = upskill(*command)
    assert (wrong.code, "$.call: 'command' is a required property" in wrong.err) == (2, True), wrong.err
    write_answer(desk, first, call("bash", command="touch stale"))
    assert upskill(*command).code == 0
    write_answer(desk, first, call("bash", command="touch two"))
    assert upskill(*command).code == 0
    assert len(prompts(desk)) == 2
    write_answer(desk, prompts(desk)[-1], call("answer", text="Done."))
    done = upskill(*command, "--json")
    assert done.code == 0, done.err
    steps = json.loads(Path(done.json["lesson"]["trace"]).read_text())
    assert "stale" not in json.dumps(steps)


def test_a_journal_that_cannot_be_read_is_named(upskill: Upskill, desk: Path) -> None:
    command = ("teach", "count", "--handoff", "desk", "--only-record")
    assert upskill(*command).code == 0
    write_answer(desk, prompts(desk)[0], call("bash", command="true"))
    assert upskill(*command).code == 0
    (journal,) = desk.glob("*.journal.json")
    journal.write_text("[{}")
    done = upskill(*command)
    assert (done.code, f"desk/{journal.name}: cannot be read" in done.err) == (2, True)
