"""Grounding: a line of a skill says nothing exact that the evidence which it cites does not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill
from teaching import NUMBERS, WRITES, student_rules, suite_rules, write_rules
from upskill import Skill, open_store
from upskill.authoring.material.material import Material, Piece
from upskill.authoring.saving.provenance import Provenance, own_lines, sourced_lines
from upskill.authoring.writing.grounding import uncovered, uncovered_by

GUIDE = """# Tern

Run `tern push --ring gold`. It gives up after 1,500 ms; the settings are in /etc/tern/tern.toml.

Exit code 17 means that the ring is locked: run tern unlock.
"""


def test_code_flags_paths_and_numbers_have_to_stand_in_the_evidence() -> None:
    for line in (
        "- Push with `tern push --ring <ring>`, and read /etc/tern/tern.toml.",
        "1. It gives up after 1500 ms (see step 2).",
        "- `tern unlock` and/or `tern push --ring NAME`, well-known.",
        "```sh\nfor x in gold; do tern push --ring $x; done  # all 3 of them\n```",
        "- Exit code 17.",
    ):
        assert uncovered(line, GUIDE) == [], line
    for line, things in (
        ("- Use `tern push --force`.", ["--force"]),
        ("- Add --rin to it.", ["--rin"]),
        ("- Wait 15 ms, or 150.", ["15", "150"]),
        ("- It is in /etc/tern.toml or conf/tern.ini.", ["/etc/tern.toml", "conf/tern.ini"]),
        ("```\ntern pull\n```", ["pull"]),
        ("- The name is `plover`.", ["plover"]),
    ):
        assert uncovered(line, GUIDE) == things, line


def test_a_number_may_have_a_unit_or_a_v_in_the_evidence() -> None:
    shown = 'restart_sec = "5s", limit = 512MiB, task-master v0.37.1, commit 9f31, sha 17a4be, rev v8-rc'
    for line in ("- It waits 5 seconds.", "- At most 512 MiB.", "- Works with 0.37.1."):
        assert uncovered(line, shown) == [], line
    assert uncovered("- Wait 9 s, 17 s, 8 s, 51 s.", shown) == ["9", "17", "8", "51"]


def test_a_number_of_the_skills_own_section_needs_no_evidence() -> None:
    for line in (
        "## 4. Add tasks",
        "- Tags are there: go to 4.",
        "- Go back to 2 or 3, then see 5.",
        "See sections 2 and 3",
    ):
        assert uncovered(line, "nothing") == [], line
    assert uncovered("- Go to 4 km/h, see 17 rows, wait 3.", "nothing") == ["4", "17", "3"]


def test_what_stands_beside_a_placeholder_is_part_of_a_word_of_the_evidence() -> None:
    shown = "git show ba70e5fd~1:requests/FR/AGI.md > /srv/app-17/logs/out.txt; tern push-gold"
    for line in (
        "- `git show <commit>~1:requests/FR/AGI.md`",
        "```\ngit show $COMMIT~1:requests/FR/AGI.md > /srv/<app>/logs/out.txt\n```",
        "- Look into /srv/app-<number>/logs/out.txt.",
        "- `tern push-<ring>` and `<tool> push-gold`",
    ):
        assert uncovered(line, shown) == [], line
    assert uncovered("- `git show <commit>~2:requests/FR/AGI.md`", shown) == [
        "…~2:requests/FR/AGI.md"
    ]
    assert uncovered("- `tern pull-<ring>`", shown) == ["pull-…"]
    assert uncovered("- `tern push`", shown) == ["push"]


def test_evidence_is_what_pieces_say_and_the_pieces_behind_them() -> None:
    step = json.dumps(
        {"tool": "bash", "arguments": {"command": 'tern say "a\nb" --loud'}, "output": "took 12 s"}
    )
    material = Material(
        "use `tern`",
        (Piece("q1", "quotation", "it worked", based_on=("s1",)), Piece("s1", "step", step)),
    )
    assert uncovered_by("`tern say --loud` took 12 s", ["q1"], material) == []
    assert uncovered_by("`tern say`", ["task"], material) == ["say"]
    assert uncovered_by("`tern say`", ["own"], material) == []


def blocks(*pairs: tuple[str, str]) -> dict[str, Any]:
    written = [{"text": text, "evidence": [source]} for text, source in pairs]
    return {
        "name": "tern",
        "description": "Pushes with tern. Use when pushing.",
        "blocks": written,
        "files": [],
    }


INVENTED = blocks(
    ("- Push with `tern push --force`.", "d1"), ("- Exit code 17: `tern unlock`.", "d1")
)
MENDED = blocks(
    ("- Push with `tern push --ring gold`.", "d1"), ("- Exit code 17: `tern unlock`.", "d1")
)


@pytest.fixture
def tern(home: Path) -> Path:
    (home / "guide.md").write_text(GUIDE)
    write_rules(home / "student.json", student_rules())
    return home


def teacher(home: Path, first: dict[str, Any], again: dict[str, Any]) -> None:
    rules = [
        {"system": WRITES, "when": "This answer cannot be used", "answer": json.dumps(again)},
        {"system": WRITES, "answer": json.dumps(first)},
        *suite_rules(NUMBERS),
    ]
    write_rules(home / "teacher.json", rules)


def test_a_line_that_its_evidence_does_not_cover_goes_back_to_the_teacher(
    upskill: Upskill, tern: Path
) -> None:
    teacher(tern, INVENTED, MENDED)
    done = upskill(
        "generate",
        "push",
        "--from",
        "guide.md",
        "-m",
        "scripted:teacher.json",
        "--no-eval",
        "--json",
    )
    assert done.code == 0, done.err
    with open_store(tern / "runs") as store:
        asked = sorted(
            (request for role, request, _ in store.requests() if role == "teacher"), key=len
        )
    assert len(asked) == 2
    assert "says '--force', which is not in d1" in asked[1]
    saved = Skill.load(tern / done.json["saved_to"])
    assert "--force" not in saved.body
    assert (own_lines(saved), done.json["own_lines"], done.json["notes"]) == (([], 2), 0, [])


def test_a_line_of_an_older_skill_is_not_called_the_teachers_own(
    upskill: Upskill, tern: Path
) -> None:
    skill = Skill.new(
        "tern-old", "Pushes.", "- Push with `tern push`.\n- Log in with `tern login`."
    )
    Provenance().with_sources({"- Push with `tern push`.": ("own",)}, {}).add_to(skill).save(
        tern / "tern-old"
    )
    shown = upskill("show", "tern-old", "--sources").out
    assert "own 1 of 2 lines rests on the teacher's word alone." in shown
    assert "1 of 2 lines has no source: from an older skill, or edited by hand." in shown
    assert "- Log in with `tern login`.\n" in shown


def test_a_line_that_stays_uncovered_is_kept_marked_and_counted(
    upskill: Upskill, tern: Path
) -> None:
    teacher(tern, INVENTED, INVENTED)
    given = (
        "--from",
        "guide.md",
        "-m",
        "scripted:teacher.json",
        "--student",
        "scripted:student.json",
    )
    done = upskill("generate", "push", *given, "--attempts", 0)
    assert done.code == 0, done.err
    assert "1 of 2 lines rests on the teacher's word alone" in done.out
    saved = Skill.load(tern / "skills" / "tern")
    assert Provenance.of(saved).sources["- Push with `tern push --force`."] == ("d1", "own")
    shown = upskill("show", "skills/tern", "--sources")
    assert "- Push with `tern push --force`.  [d1, own]" in shown.out
    assert "own 1 of 2 lines rests on the teacher's word alone." in shown.out
    rows = upskill("show", "skills/tern", "--sources", "--json").json["lines"]
    assert [row["own"] for row in rows] == [True, False]


def test_a_line_that_stands_twice_has_its_own_evidence_at_each_place(
    upskill: Upskill, tern: Path
) -> None:
    (tern / "more.md").write_text(GUIDE)
    line = "- Exit code 17: `tern unlock`."
    twice = blocks((line, "d1"), ("- Push with `tern push --ring gold`.", "d1"), (line, "d2"))
    teacher(tern, twice, twice)
    given = ("--from", "guide.md", "--from", "more.md", "-m", "scripted:teacher.json", "--no-eval")
    assert upskill("generate", "push", *given).code == 0
    rows = upskill("show", "skills/tern", "--sources", "--json").json["lines"]
    assert [row["evidence"] for row in rows] == [["d1"], ["d1"], ["d2"]]
    skill = Skill.load(tern / "skills" / "tern")
    assert Provenance.of(skill).add_to(skill).fingerprint == skill.fingerprint
    # After an edit before it, nobody can tell which of the two a line was.
    edited = skill.with_body(skill.body.replace("gold", "red"))
    assert [each.ids for each in sourced_lines(edited)] == [("d1",), (), ("d1", "d2")]


def test_a_line_that_is_evident_in_one_place_is_not_the_teachers_own_there(
    upskill: Upskill, tern: Path
) -> None:
    line = "tern push --ring gold"
    twice = blocks(
        (f"Push:\n\n```\n{line}\n```", "d1"), (f"After tea:\n\n```\ncd\n{line}\n```", "own")
    )
    teacher(tern, twice, twice)
    assert (
        upskill(
            "generate", "push", "--from", "guide.md", "-m", "scripted:teacher.json", "--no-eval"
        ).code
        == 0
    )
    own, _ = own_lines(Skill.load(tern / "skills" / "tern"))
    assert own == ["After tea:", "cd", line]


def test_a_skill_from_a_sentence_alone_says_that_only_memory_stands_behind_it(
    upskill: Upskill, tern: Path
) -> None:
    memory = blocks(("- Push with `tern push`.", "own"))
    teacher(tern, memory, memory)
    done = upskill("generate", "push with tern", "-m", "scripted:teacher.json", "--no-eval")
    assert done.code == 0, done.err
    for said in (done.out, done.err):
        assert "This skill comes ONLY FROM THE MODEL'S MEMORY" in " ".join(said.split())
        assert "--from" in said
    assert "upskill eval skills/tern -m MODEL" in done.out
    given = upskill(
        "generate", "push", "--from", "guide.md", "-m", "scripted:teacher.json", "--no-eval"
    )
    assert "MEMORY" not in given.out + given.err
