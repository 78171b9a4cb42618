"""Scripts and references that a teacher writes are tried before they are kept, and agents that act can use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill
from teaching import HELD_OUT, TRAIN, WORDS, WRITES, draft, fact, prompt, suite_rules, write_rules
from upskill import Skill, UsageError, open_store
from upskill.sandboxes import choose_sandbox

GUIDE = "# Tern\n\nPush with `tern push`, or scripts/all.sh of the project. Exit code 17 means locked, 18 means lost.\n"
HELPFUL = "#!/bin/sh\nif [ \"$1\" = --help ]; then echo 'usage: push.sh [--dry-run]'; exit 0; fi\ntern push\n"
BROKEN = '#!/bin/sh\n# --dry-run\necho "no option is called $1" >&2\nexit 3\n'
CODES = "# Exit codes\n\n- 17: locked\n- 18: lost\n"


def written(script: str, codes: str = CODES, **more: Any) -> dict[str, Any]:
    texts = [
        "- Push with `tern push`, or with scripts/all.sh of the project.",
        "- To push everything, run `scripts/push.sh --dry-run` first.",
        "- What an exit code means: references/codes.md.",
    ]
    files = [
        {"path": "scripts/push.sh", "text": script},
        {"path": "references/codes.md", "text": codes},
    ]
    return {
        "name": "tern",
        "description": "Pushes with tern. Use when pushing.",
        "blocks": [{"text": text, "evidence": ["d1"]} for text in texts],
        "files": files,
    } | more


@pytest.fixture
async def tern(home: Path) -> Path:
    try:
        await choose_sandbox()
    except UsageError as error:
        pytest.skip(error.message)
    (home / "guide.md").write_text(GUIDE)
    return home


def make(
    upskill: Upskill, home: Path, first: dict[str, Any], again: dict[str, Any], *more: object
) -> list[str]:
    """What the teacher was asked, after a skill was made."""
    rules = [
        {"system": WRITES, "when": "This answer cannot be used", "answer": json.dumps(again)},
        {"system": WRITES, "answer": json.dumps(first)},
        *suite_rules(TRAIN[:3]),
    ]
    write_rules(home / "teacher.json", rules)
    given = ("--from", "guide.md", "-m", "scripted:teacher.json", "--no-eval", "--cases", 3)
    done = upskill("generate", "push", *given, "-o", "out/tern", "--force", *more)
    assert done.code == 0, done.err
    with open_store(home / "runs") as store:
        asked = [request for role, request, _ in store.requests() if role == "teacher"]
    return [*sorted(asked, key=len), done.err]  # each repeats the one before


def test_a_script_is_run_before_it_is_kept_and_goes_back_where_it_fails(
    upskill: Upskill, tern: Path
) -> None:
    asked = make(upskill, tern, written(BROKEN), written(HELPFUL))
    assert len(asked) == 3
    assert "Write a script when" in asked[0]
    assert "Write a reference for" in asked[0]
    assert (
        "scripts/push.sh: `scripts/push.sh --help` fails in a sandbox (exit code 3): no option is called"
        in asked[1]
    )
    saved = Skill.load(tern / "out" / "tern")
    assert saved.is_runnable("scripts/push.sh")
    assert saved.resources == ("references/codes.md", "scripts/push.sh")
    assert "scripts/all.sh" in saved.body  # a file of the user's, which the material names
    # The line names the skill's own file and its flag: that needs no evidence.
    assert "dry-run" not in asked[1].partition("cannot be used")[2]


def test_without_a_budget_for_files_the_teacher_is_asked_for_none(
    upskill: Upskill, tern: Path
) -> None:
    plain = {name: value for name, value in written(HELPFUL).items() if name != "files"}
    plain["blocks"] = [{"text": "- Push with `tern push`.", "evidence": ["d1"]}]
    *asked, _ = make(upskill, tern, plain, plain, "--file-tokens", 0)
    assert [words for words in ("- files: ", "Write a script") if words in asked[0]] == []


def test_a_script_that_never_works_is_left_out_with_the_line_that_names_it(
    upskill: Upskill, tern: Path
) -> None:
    *asked, notes = make(upskill, tern, written(BROKEN), written("print('no interpreter')"))
    assert len(asked) == 2
    assert (
        "Left out these files and the lines that mention them: scripts/push.sh (its first line is not #!"
        in notes
    )
    saved = Skill.load(tern / "out" / "tern")
    assert saved.resources == ("references/codes.md",)
    assert "push.sh" not in saved.body
    assert "tern push" in saved.body


def test_references_say_what_the_material_says_and_files_have_a_budget(
    upskill: Upskill, tern: Path
) -> None:
    asked = make(upskill, tern, written(HELPFUL, "- 17: locked\n- 99: burnt\n"), written(HELPFUL))
    assert "references/codes.md: it says '99', which is not in the material" in asked[1]
    asked = make(
        upskill,
        tern,
        written(HELPFUL, "locked or lost\n" * 200),
        written(HELPFUL),
        "--file-tokens",
        100,
    )
    assert any("the files have " in one and ", 100 are allowed" in one for one in asked)
    unnamed = written(HELPFUL)
    unnamed["blocks"] = [{"text": "- See references/other.md.", "evidence": ["d1"]}]
    asked = make(upskill, tern, unnamed, written(HELPFUL), "--tokens", 700)
    (told,) = (
        one
        for one in asked
        if "references/other.md: a block names it, but the file does not exist" in one
    )
    assert "scripts/push.sh: no block says when to read or run it" in told


def test_a_student_that_acts_is_evaluated_with_the_skill_in_its_catalog(
    upskill: Upskill, tern: Path
) -> None:
    numbers = [*TRAIN[:2], *HELD_OUT[:2]]
    write_rules(
        tern / "teacher.json",
        [
            {"system": WRITES, "answer": json.dumps(draft(numbers))},
            *suite_rules(numbers),
        ],
    )
    opening = {
        "text": "",
        "calls": [{"name": "activate_skill", "arguments": {"name": "house-words"}}],
    }
    knowing = [
        {"when": prompt(number), "system": "house-words", "turns": [opening, WORDS[number - 1]]}
        for number in numbers
    ]
    write_rules(tern / "student.json", [*knowing, {"answer": "I do not know."}])
    given = (
        "-m",
        "scripted:teacher.json",
        "--student",
        "scripted:student.json",
        "--cases",
        4,
        "--attempts",
        0,
    )
    done = upskill("generate", "know the ship", *given, "--agent", "tools", "--json")
    assert done.code == 0, done.err
    verdict = done.json["held_out"]["models"][0]  # without attempts, all cases are fresh
    assert (verdict["baseline"]["pass_rate"], verdict["skill"]["pass_rate"]) == (0.0, 1.0)
    shown = upskill("show", "last", "--json").json
    assert shown["plan"]["agent"] == "tools"
    steps = json.dumps([one for one in shown["trials"] if one["arm"] == "skill"])
    assert fact(numbers[-1]) in steps.encode().decode(
        "unicode_escape"
    )  # it read the body by opening the skill
    wrong = upskill("generate", "know the ship", *given, "--agent", "toolz")
    assert (wrong.code, "Did you mean 'tools'" in wrong.err) == (2, True)
