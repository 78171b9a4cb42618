"""Revising a skill: what a teacher is shown of failures, and which of its edits are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, read_check, spawn
from plugin import install_plugin
from teaching import (
    NUMBERS,
    TRAIN,
    draft,
    fact,
    says,
    student_rules,
    teacher_rules,
    write_rules,
)
from upskill import Skill
from upskill.authoring.material.material import Material, Piece
from upskill.authoring.revising import (
    REQUEST_TOKENS,
    Edit,
    Failure,
    Proposal,
    RevisionRequest,
    Tried,
    apply_edits,
)
from upskill.authoring.revising.failures import mask_expected
from upskill.authoring.revising.rewrite import MAX_EDITS, propose_edits
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.authoring.writing.grounding import mark_own_lines
from upskill.plain import quoted

BOTH_QUOTES = "jj describe -m ['\"]\\w+"


@pytest.mark.parametrize(
    ("check", "reason", "left"),
    [
        ({"contains": ["tern.yaml"]}, "the answer lacks 'tern.yaml'", "the answer lacks [masked]"),
        ({"equals": "0"}, "the answer is not '0'", "the answer is not [masked]"),
        (
            {"regex": r"\breef\b"},
            r"the answer does not match '\\breef\\b'",
            "the answer does not match [masked]",
        ),
        (
            {"regex": BOTH_QUOTES},
            f"the answer does not match {quoted(BOTH_QUOTES)}",
            "the answer does not match [masked]",
        ),
        (
            {"command": {"run": BOTH_QUOTES}},
            f"{quoted(BOTH_QUOTES)} exited with 1; it ran {BOTH_QUOTES}",
            "[masked] exited with 1; it ran [masked]",
        ),
        ({"max_length": 40}, "the answer has 90 characters", "the answer has 90 characters"),
        (
            {"not_contains": "sudo"},
            "the answer contains 'sudo', which it must not",
            "the answer contains [masked], which it must not",
        ),
        (
            {"not_regex": r"^(?!.*--frozen).*uv sync"},
            r"the answer matches '^(?!.*--frozen).*uv sync' with 'uv sync', which it must not",
            "the answer matches [masked] with 'uv sync', which it must not",
        ),
        (
            {"tool_not_called": {"tool": "bash", "arguments": "rm -rf"}},
            "bash with 'rm -rf' was called once, which it must not",
            "[masked] with [masked] was called once, which it must not",
        ),
        (
            {"compiles": {"file": "kernel.cu"}},
            "kernel.cu does not compile as CUDA: kernel.cu:3: error",
            "kernel.cu does not compile as CUDA: kernel.cu:3: error",
        ),
        (
            {"json_schema": {"properties": {"env": {"const": "reef"}}}},
            "env: 'reef' was expected",
            "env: [masked] was expected",
        ),
    ],
)
def test_what_a_check_looked_for_is_masked(check: dict[str, Any], reason: str, left: str) -> None:
    assert mask_expected(read_check(check, "test"), reason) == left


def edit(
    kind: str, line: int, text: str = "", evidence: Sequence[str] = ("own",)
) -> dict[str, Any]:
    return {"kind": kind, "line": line, "text": text, "evidence": list(evidence)}


SKILL = Skill.new("greeter", "Greets.", "# Greeting\n\n- Say hello.\n- Be kind.")
FAILURE = Failure("a", "Greet me.", "hello", ("contains: the answer lacks [masked]",), ("s1",))


async def revise(teacher: Any, skill: Skill = SKILL, **more: Any) -> Proposal | None:
    asked: dict[str, Any] = {"failures": [FAILURE], **more}
    return await propose_edits(RevisionRequest(model=teacher, skill=skill, **asked))


async def test_edits_change_lines_and_name_their_evidence() -> None:
    material = Material("greet", (Piece("s1", "step", "We say ahoy."),))
    said = {
        "note": "wrong word",
        "edits": [
            edit("replace", 3, "- Say ahoy.", ["s1"]),
            edit("delete", 4),
            edit("insert", 0, "Top."),
        ],
    }
    reviser = says(said)
    tried = [Tried((Edit("delete", 3),), "passes 1 of 4, 2 before", (FAILURE,))]
    found = await revise(reviser, material=material, tried=tried)
    assert found is not None
    assert found.skill.body == "Top.\n# Greeting\n\n- Say ahoy."
    assert found.skill.description == SKILL.description
    assert Provenance.of(found.skill).sources["- Say ahoy."] == ("s1",)
    told = reviser.asked[0].messages[1].text
    shown = json.loads(told.partition("\n\n<<<MATERIAL")[0])
    assert shown["lines"] == {"1": "# Greeting", "2": "", "3": "- Say hello.", "4": "- Be kind."}
    assert shown["failures"] == [
        {
            "asked": "Greet me.",
            "answered": "hello",
            "wrong": list(FAILURE.reasons),
            "evidence": ["s1"],
        }
    ]
    (before,) = shown["tried_before"]
    assert (before["edits"], before["result"]) == (["delete line 3"], "passes 1 of 4, 2 before")
    assert before["failed_with_them"] == shown["failures"], "what the edits did is seen"
    assert "We say ahoy." in told


async def test_the_description_and_files_can_be_edited_and_nothing_outside_their_folders() -> None:
    skill = SKILL.with_file("references/old.md", b"Old words.\n").with_file(
        "scripts/greet.sh", b"echo hello\n"
    )
    skill = skill.with_file("examples/letter.md", b"Dear Ada\n")  # is shown, and cannot be edited
    said = [
        {**edit("describe", 0, "Greets sailors. Use when someone comes aboard."), "path": ""},
        {**edit("write_file", 0, "#!/bin/sh\necho ahoy"), "path": "scripts/greet.sh"},
        {**edit("delete_file", 0), "path": "references/old.md"},
        {**edit("write_file", 0, "All greetings."), "path": "references/all.md"},
        edit("insert", 0, "Run scripts/greet.sh, and read references/all.md for another greeting."),
    ]
    reviser = says({"note": "", "edits": said})
    found = await revise(reviser, skill)
    assert found is not None
    assert len(reviser.asked) == 1
    assert found.skill.description == "Greets sailors. Use when someone comes aboard."
    assert found.skill.body.endswith(skill.body)
    assert found.skill.read("scripts/greet.sh") == b"#!/bin/sh\necho ahoy"
    assert found.skill.is_runnable("scripts/greet.sh")
    assert found.skill.read("references/all.md") == b"All greetings."
    assert found.skill.file("references/old.md") is None
    assert str(found.edits[1]) == "write file scripts/greet.sh: #!/bin/sh\necho ahoy"
    shown = json.loads(reviser.asked[0].messages[1].text)
    assert shown["files"] == {
        "examples/letter.md": "Dear Ada\n",
        "references/old.md": "Old words.\n",
        "scripts/greet.sh": "echo hello\n",
    }


async def test_a_line_is_held_to_its_evidence_and_marked_if_it_stays() -> None:
    material = Material("greet", (Piece("d1", "document", "Run `ahoy`."),))
    reviser = says({"note": "", "edits": [edit("insert", 0, "Say `ahoy --loud`.", ["d1"])]})
    found = await revise(reviser, material=material)
    assert "says '--loud', which is not in d1" in reviser.asked[1].messages[-1].text
    assert found is not None
    assert own_lines(mark_own_lines(found.skill, material))[0][:1] == ["Say `ahoy --loud`."]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {**edit("write_file", 0, "x"), "path": "SKILL.md"},
            "neither below references/ nor below scripts/",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/../../x"},
            "is not a path inside a skill",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/key.md"},
            "holds something that you were not shown",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/bytes.md"},
            "holds something that you were not shown",
        ),
        ({**edit("delete_file", 0), "path": "references/none.md"}, "there is no file"),
        ({**edit("describe", 0, "word " * 400), "path": ""}, "description"),
        ({**edit("describe", 0, " "), "path": ""}, "has no text"),
        (
            {**edit("write_file", 0, "word " * 4000), "path": "references/long.md"},
            "the files have 5010 tokens, 2000 are allowed",
        ),
        ({"kind": "rename", "line": 1}, "has no kind or no line"),
    ],
)
async def test_edits_of_files_that_would_do_harm_are_refused(
    said: dict[str, Any], why: str
) -> None:
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    skill = SKILL.with_file("references/key.md", key.encode()).with_file(
        "references/bytes.md", b"\xff\x00"
    )
    reviser = says({"note": "", "edits": [said]})
    assert await revise(reviser, skill) is None
    assert why in reviser.asked[1].messages[-1].text


async def test_edits_that_do_not_apply_are_told_once_and_then_dropped() -> None:
    bad = {
        "note": "",
        "edits": [edit("replace", 99, "x"), edit("replace", 3, "- Say ahoy."), edit("delete", 3)],
    }
    reviser = says(bad)
    found = await revise(reviser)
    assert len(reviser.asked) == 2
    again = reviser.asked[1].messages[-1].text
    assert "there is no line 99 to replace" in again
    assert "line 3 is changed twice" in again
    assert found is not None
    assert found.skill.body == "# Greeting\n\n- Say ahoy.\n- Be kind."


async def test_limits_are_kept_in_code() -> None:
    edits = [edit("insert", 4, f"- {number}") for number in range(MAX_EDITS + 3)]
    found = await revise(says({"note": "", "edits": edits}))
    assert found is not None
    assert len(found.edits) == MAX_EDITS
    same = [edit("replace", 4, "- Be kind.")]  # which changes nothing
    assert await revise(says({"note": "", "edits": same})) is None
    assert await revise(says("no object")) is None


async def test_a_text_that_is_too_long_goes_back_once_with_its_length() -> None:
    long = {"note": "", "edits": [edit("insert", 4, "word " * 2000)]}
    reviser = says(long)
    found = await revise(reviser)
    assert len(reviser.asked) == 2
    assert "may have at most 7,500, counted" in reviser.asked[0].messages[0].text
    again = reviser.asked[1].messages[-1].text
    assert re.search(r"the text has 10,0\d\d characters, and 7,500 are allowed", again)
    assert found is not None


async def test_a_request_has_room_in_a_long_skill_and_its_prompt_names_limits_that_hold() -> None:
    older = Skill.new("greet", "Greets.", "\n".join(["- Say ahoy to whoever comes aboard."] * 110))
    lines = ["x" * 265] * 6
    assert sum(map(len, lines)) + len(lines) <= 4 * REQUEST_TOKENS
    reviser = says({"note": "", "edits": [edit("insert", 110, line) for line in lines]})
    material = Material("also say farewell", skill=older)
    found = await revise(reviser, older, material=material, failures=())
    assert found is not None
    assert (len(reviser.asked), len(found.edits)) == (1, 6)
    assert found.skill.tokens <= older.tokens + REQUEST_TOKENS


def test_edits_name_lines_as_they_were_before_all_of_them() -> None:
    edits = [
        Edit("insert", 1, "b"),
        Edit("delete", 2),
        Edit("insert", 1, "c"),
        Edit("replace", 3, "z"),
    ]
    skill = SKILL.with_body("a\nx\ny")
    assert apply_edits(skill, edits).body == "a\nb\nc\nz"


async def test_a_secret_in_an_older_skill_is_not_sent_to_the_reviser() -> None:
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    skill = Skill.new("greeter", "Greets.", f"# Greeting\n\n- The key is {key}.\n- Say hello.")
    reviser = says({"note": "", "edits": [edit("replace", 4, "- Say ahoy.")]})
    failure = Failure("a", f"Use {key}.", f"I used {key}.", ("failed",))
    found = await revise(reviser, skill, failures=[failure])
    assert key not in str(reviser.asked)
    assert found is not None
    assert found.skill.body == f"# Greeting\n\n- The key is {key}.\n- Say ahoy."


# Somebody else's refiner: it knows the missing facts, and asks no teacher for them.
APPEND = """
from pathlib import Path

from upskill.authoring.revising import Edit, Proposal


async def append(asked):
    facts = Path("facts.txt").read_text()
    body = f"{asked.skill.body}\\n{facts}"
    return Proposal(asked.skill.with_body(body), (Edit("insert", 1, facts),), "appended")
"""


def test_a_refiner_of_another_package_is_named_on_the_command_line(
    home: Path, tmp_path: Path
) -> None:
    write_rules(home / "teacher.json", teacher_rules(draft(TRAIN[:2])))  # it cannot revise anything
    write_rules(home / "student.json", student_rules())
    missing = [fact(number) for number in NUMBERS if number not in TRAIN[:2]]
    (home / "facts.txt").write_text("\n".join(missing))
    environment = install_plugin(
        tmp_path / "site", "append_facts", APPEND, {"upskill.refiners:append": "append"}
    )
    models = ("-m", "scripted:teacher.json", "--student", "scripted:student.json")
    command = ["generate", "know the ship", *models, "--refiner", "append", "--json"]
    done = spawn(*command, env=environment)
    assert done.code == 0, done.err
    assert [one["decision"] for one in done.json["attempts"]] == ["first draft", "kept"]
    assert done.json["held_out"]["models"][0]["lift"] == 1.0


def test_gepa_revises_the_body_on_shown_cases(upskill: Upskill, home: Path) -> None:
    pytest.importorskip("gepa")
    better = "\n".join(["# The ship", *map(fact, NUMBERS)])
    reflects = {"when": "Feedback", "answer": f"```\n{better}\n```"}
    write_rules(home / "teacher.json", [*teacher_rules(draft(TRAIN[:2])), reflects])
    write_rules(home / "student.json", student_rules())
    models = ("-m", "scripted:teacher.json", "--student", "scripted:student.json")
    done = upskill("generate", "know the ship", *models, "--refiner", "gepa", "--json")
    assert done.code == 0, done.err
    assert [one["decision"] for one in done.json["attempts"]] == ["first draft", "kept"]
    assert done.json["held_out"]["models"][0]["lift"] == 1.0
