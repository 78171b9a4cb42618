"""Several sessions of one kind of work make one skill: the later one holds, in whatever order they are given."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill
from teaching import Teacher, says
from upskill.authoring.evidence.sessions import Sessions
from upskill.authoring.material.material import Material, gather
from upskill.authoring.saving.provenance import Provenance
from upskill.authoring.search.improve import add_stored_evidence
from upskill.authoring.search.refiners.rewrite import Rewrite
from upskill.authoring.writing.grounding import overruled_answer
from upskill.authoring.writing.skill_writer import write_skill
from upskill.authoring.writing.structured import NoUsableAnswer
from upskill.models import Request
from upskill.skills import Skill
from upskill.traces import Step, Trace

NEVER = "Stop: never to stage-a any more."
DAYS = {"march": "2026-03-02", "april": "2026-04-02", "may": "2026-05-02"}
BUILD = ("run", "press build docs")
WORK: dict[str, list[tuple[str, str]]] = {
    "march": [
        ("user", "Release the docs to stage-a."),
        ("run", "press build docs"),
        ("run", "press release --to stage-a"),
    ],
    "april": [
        ("user", "Once more."),
        ("run", "press build docs"),
        ("run", "cd site && press release --to stage-a --dry"),
    ],
    "may": [
        *(("user", "Release the docs."), BUILD, ("user", NEVER)),
        *(("run", "sed -i s/stage-a/stage-b/ press.yml"), ("run", "press release --to stage-b")),
    ],
}


def session(work: Sequence[tuple[str, str]], day: str = "", source: str = "") -> Trace:
    steps = [
        Step("user", text)
        if who == "user"
        else Step(
            "tool",
            tool="Edit",
            arguments={"file_path": "press.yml", "new_string": text},
            status="ok",
        )
        if who == "edit"
        else Step("tool", tool="Bash", arguments={"command": text}, output="done", status="ok")
        for who, text in work
    ]
    started = f"{day}T10:00:00Z" if day else ""
    return Trace(tuple(steps), goal=steps[0].text, started=started, source=source)


def press() -> list[Trace]:
    return [session(WORK[month], day, f"{month}.jsonl") for month, day in DAYS.items()]


def shown(material: Material) -> dict[str, Any]:
    return {piece.id: json.loads(piece.text) for piece in material.pieces}


def write_codex_session(path: Path, month: str) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {"id": month, "timestamp": f"{DAYS[month]}T10:00:00Z"}}
    ]
    for number, (who, text) in enumerate(WORK[month]):
        if who == "user":
            items = [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": text}],
                }
            ]
        else:
            arguments = json.dumps({"command": ["bash", "-lc", text]})
            call = {"call_id": f"c{number}"}
            items = [
                {"type": "function_call", "name": "shell", "arguments": arguments, **call},
                {"type": "function_call_output", "output": "done", **call},
            ]
        rows += [{"type": "response_item", "payload": item} for item in items]
    path.write_text("\n".join(map(json.dumps, rows)))


def test_a_teacher_is_asked_the_same_whatever_the_order_of_arguments(
    upskill: Upskill, home: Path
) -> None:
    for name, month in zip("cab", WORK, strict=True):  # nor do names or times of files count
        write_codex_session(home / f"{name}.jsonl", month)
    asked: set[str] = set()
    for order in (("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")):
        sources = [argument for name in order for argument in ("--from", f"{name}.jsonl")]
        upskill("generate", *sources, "--handoff", f"desk-{order[0]}", "--no-eval")
        prompts = sorted((home / f"desk-{order[0]}").glob("*.md"))
        assert prompts
        asked.add(
            "\n".join(path.read_text().replace(f"desk-{order[0]}", "desk") for path in prompts)
        )
    (prompt,) = asked
    assert '"Release the docs."' in prompt  # the task is that of the latest session
    assert (
        len({gather("task", sources=order).quoted() for order in itertools.permutations(press())})
        == 1
    )


def test_what_sessions_share_is_shown_once_with_how_many_support_it() -> None:
    material = gather("task", sources=press())
    pieces = shown(material)
    built = {
        name: piece for name, piece in pieces.items() if "press build docs" in json.dumps(piece)
    }
    assert list(built) == ["r3-q1", "r3-s2"]  # in the list of what worked, and as a step
    assert built["r3-q1"]["worked, in this order"][0] == {
        "command": "press build docs",
        "sessions": 3,
    }
    assert built["r3-s2"]["also in sessions"] == ["2026-03-02 10:00", "2026-04-02 10:00"]
    assert material.sources[0].endswith("; left out: 1 step shown with a later session")


def test_steps_that_a_later_session_shows_are_counted_in_plain_english() -> None:
    work = [("user", "Build it."), ("run", "press build docs"), ("run", "press check docs")]
    material = gather("task", sources=[session(work, "2026-03-02"), session(work, "2026-04-02")])
    assert re.search(r"[2-9] steps shown with a later session$", material.sources[0])


def test_what_varies_and_what_was_corrected_is_shown_with_its_dates() -> None:
    history = shown(gather("task", sources=press()))["h1"]
    assert history["command"] == "press release"
    assert [
        (row.pop("session")[:10], *row.values()) for row in history["over time, the latest last"]
    ] == [
        ("2026-03-02", "Release the docs to stage-a."),
        ("2026-03-02", "press release --to stage-a"),
        ("2026-04-02", "press release --to stage-a --dry"),
        ("2026-05-02", NEVER),
        ("2026-05-02", "press release --to stage-b"),
    ]
    assert history["varies, with the sessions that have it"] == {
        "stage-a": ["2026-03-02 10:00", "2026-04-02 10:00"],
        "--dry": ["2026-04-02 10:00"],
        "stage-b": ["2026-05-02 10:00"],
    }


Work = list[tuple[str, str]]
USED: Work = [("user", "Release it."), ("run", "press release --to stage-a")]


@pytest.mark.parametrize(
    ("earlier", "later", "overruled"),
    [
        (USED, [("user", NEVER)], ["stage-a"]),
        (USED, [("user", NEVER), ("run", "press release --to stage-a")], []),  # it was used again
        (
            USED,
            [("user", NEVER), ("run", "grep -rn stage-a ."), ("run", "rm stage-a.log")],
            ["stage-a"],
        ),
        ([("run", "press release --to=stage-a")], [("user", NEVER)], ["stage-a"]),
        # What only a text, a script or a part of a path has is no argument, and a pasted log names everything.
        ([("edit", "target: stage-a")], [("user", NEVER), ("edit", "target: stage-b")], []),
        ([("user", "Release it to stage-a.")], [("user", NEVER)], []),
        ([("run", "git commit -m 'Leave stage-a out'")], [("user", NEVER)], []),
        ([("run", "press <<END\nrelease stage-a\nEND")], [("user", NEVER)], []),
        ([("run", "press lint sites/stage-a/index.md")], [("user", NEVER)], []),
        (USED, [("user", NEVER + "\n" + "stage-a: up\n" * 30)], []),
        # A plain word, or the name of a program, is overruled where another word of the message takes its place.
        ([("run", "press release --to staging")], [("user", "not to staging")], []),
        (
            [("run", "press release --to staging")],
            [("user", "not to staging but to prod"), ("run", "press release --to prod")],
            ["staging"],
        ),
        (
            [("run", "press go the whole way")],
            [("user", "Look at the page."), ("run", "press go at the whole way")],
            [],
        ),
        ([("run", "docker-compose up")], [("user", "docker-compose is slow"), ("run", "date")], []),
        (
            [("run", "npm install")],
            [("user", "we use pnpm, not npm"), ("run", "pnpm install")],
            ["npm"],
        ),
        ([("run", "npm install")], [("user", "run npm on Fridays only"), ("run", "date")], []),
        (
            [("user", "Use stage-a."), *USED],
            [("user", "Use stage-a."), ("run", "press build")],
            [],
        ),  # asked alike
    ],
)
def test_what_the_person_named_later_and_nothing_used_since_is_overruled(
    earlier: Work, later: Work, overruled: list[str]
) -> None:
    sessions = Sessions([session(later, "2026-05-02"), session(earlier, "2026-03-02")])
    assert [each.word for each in sessions.overruled] == overruled
    assert (
        Sessions([session([*earlier, *later])]).overruled == []
    )  # one session tells its own story


def test_without_dates_a_message_overrules_what_is_not_known_to_be_later() -> None:
    used, forbidden = (
        session(USED),
        session([("user", NEVER), ("run", "press release --to stage-b")]),
    )
    for order in itertools.permutations([used, forbidden]):
        assert [each.word for each in Sessions(order).overruled] == ["stage-a"]
    dated = replace(used, started="2026-03-02T10:00:00Z")
    assert [each.word for each in Sessions([forbidden, dated]).overruled] == ["stage-a"]
    assert Sessions([forbidden, dated]).label(1) == "undated 1"


def draft(
    *blocks: tuple[str, str], description: str = "Releases with press. Use when releasing."
) -> dict[str, Any]:
    written = [{"text": text, "evidence": [source]} for text, source in blocks]
    return {
        "name": "press",
        "description": description,
        "blocks": written,
        "files": [],
        "missing": [],
    }


OLD, NEW = (
    ("- Run `press release --to stage-a`.", "s3"),
    ("- Run `press release --to stage-b`.", "r3-s5"),
)


async def test_a_draft_that_says_what_was_overruled_goes_back_with_the_later_message() -> None:
    answers = [
        draft(OLD),
        draft(("- Release to stage-a.", "h1")),
        draft(NEW, ("- Never to `stage-a`.", "r3-s3")),
    ]
    teacher = says(*answers)
    skill = (await write_skill(gather("task", sources=press()), teacher)).skill
    assert skill.body == "- Run `press release --to stage-b`.\n- Never to `stage-a`."
    for request in teacher.asked[1:]:
        assert NEVER in request.messages[-1].text


async def test_no_skill_says_what_was_overruled_however_often_the_teacher_does() -> None:
    told: list[str] = []
    script = {"path": "scripts/go.sh", "text": "#!/bin/sh\necho press release --to stage-a\n"}
    stubborn = draft(NEW, OLD, ("- Run `scripts/go.sh`.", "own")) | {"files": [script]}
    material = gather("task", sources=press())
    skill = (await write_skill(material, says(stubborn), tell=told.append)).skill
    assert (skill.body, skill.resources) == (NEW[0], ())
    assert any(NEVER in line for line in told)
    described = draft(NEW, description="Releases to stage-a. Use when releasing.")
    with pytest.raises(NoUsableAnswer, match="never to stage-a"):
        await write_skill(material, says(described))


async def test_no_edit_brings_back_what_was_overruled() -> None:
    def edit(_: Request, __: int) -> object:
        row = {
            "kind": "insert",
            "line": 1,
            "path": "",
            "text": OLD[0],
            "evidence": ["s3"],
            "why": "",
        }
        return {"note": "", "edits": [row]}

    teacher = Teacher(edit)
    refiner = Rewrite(teacher, gather("task", sources=press()))
    assert await refiner.propose(Skill.new("press", "Releases.", NEW[0]), (), (), 1) is None
    assert NEVER in teacher.asked[1].messages[-1].text


async def test_a_new_session_overrules_what_an_older_skill_was_made_from(home: Path) -> None:
    for month in ("march", "may"):
        write_codex_session(home / f"{month}.jsonl", month)
    made = gather("Release.", sources=["march.jsonl"])
    provenance = (
        Provenance().with_source_files(made.files).with_sources({OLD[0]: [OLD[1]]}, made.excerpts())
    )
    provenance.add_to(Skill.new("press", "Releases.", OLD[0])).save(home / "press")
    material = add_stored_evidence(gather("Say how to build.", sources=["press", "may.jsonl"]))
    assert [each.word for each in material.overruled] == ["stage-a"]
    assert set(material.overruled[0].message_ids) <= material.by_id.keys()
    pieces = shown(material)
    assert (pieces["s3"]["session"], "stage-a" in str(pieces["s3"])) == (
        "2026-03-02 10:00",
        True,
    )  # the id it had
    assert [row["session"][:10] for row in pieces["h1"]["over time, the latest last"]] == [
        *("2026-03-02", "2026-03-02"),
        *("2026-05-02", "2026-05-02"),
    ]

    def edit(request: Request, _: int) -> object:
        row = {
            "kind": "insert",
            "line": 1,
            "path": "",
            "text": "- Run `press build docs`.",
            "evidence": ["own"],
        }
        delete = {**row, "kind": "delete", "text": "", "why": ""}
        return {
            "note": "",
            "edits": [
                {**row, "why": ""},
                *([delete] if "The later holds" in request.messages[-1].text else []),
            ],
        }

    assert material.skill is not None
    teacher = Teacher(edit)
    proposal = await Rewrite(teacher, material).propose(material.skill, (), (), 1)
    assert proposal is not None
    assert (proposal.skill.body, len(teacher.asked)) == ("- Run `press build docs`.", 2)


def test_no_test_case_takes_for_right_what_was_overruled() -> None:
    material = gather("task", sources=press())
    assert NEVER in overruled_answer("press release --to stage-a", ["s3"], material)
    assert overruled_answer("stage-a", ["r3-s3"], material) == ""  # "Which stage is never used?"
    assert overruled_answer("press release --to stage-b", ["h1"], material) == ""
