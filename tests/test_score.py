"""`upskill tests SKILL --score`: would the suite notice if a rule of the skill were lost or wrong?"""

from __future__ import annotations

import asyncio
import json
import re
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY, Upskill
from upskill import Skill, Suite, open_store, score
from upskill.experiments.mutation import Score, rules_of
from upskill.reports.runs import skill_verdicts

CODES = {
    "alfa": "11-afla",
    "bravo": "12-ovarb",
    "carol": "13-lorac",
    "delta": "14-atled",
    "echo": "15-ohce",
}
UNTESTED = "delta"
KNOWN = "echo"  # without the skill


def case_of(code: str, **more: Any) -> dict[str, Any]:
    fact = CODES[code]
    return {
        "id": code,
        "prompt": f"Which code has the drawer {code}?",
        "checks": [{"contains": fact}],
        **more,
    }


def write_skill(
    folder: Path, cases: Sequence[dict[str, Any]] | None = None, file: str = "evals/evals.json"
) -> None:
    (folder / "evals").mkdir(parents=True)
    rules = "\n".join(f"- The code of {code} is `{fact}`." for code, fact in CODES.items())
    body = f"# Codes\n\nA clerk made them.\n\n{rules}\n"
    (folder / "SKILL.md").write_text(
        f"---\nname: {folder.name}\ndescription: Codes of drawers.\n---\n\n{body}"
    )
    written = [case_of(code) for code in CODES if code != UNTESTED] if cases is None else cases
    shape = (
        {"skill_name": folder.name, "evals": written}
        if file.endswith("evals.json")
        else {"cases": written}
    )
    (folder / file).write_text(json.dumps(shape))
    answers = [{"when": code, "system": fact, "answer": fact} for code, fact in CODES.items()]
    knows = {"when": KNOWN, "not_system": f"code of {KNOWN}", "answer": CODES[KNOWN]}
    (folder.parent / "student.yaml").write_text(yaml.dump([*answers, knows, {"answer": "no idea"}]))


def test_planted_untested_rules_are_found_and_a_gutted_skill_is_noticed() -> None:
    world_of = runpy.run_path(str(REPOSITORY / "bench" / "score.py"), run_name="bench_score")[
        "World"
    ].make
    for seed in range(1000, 1004):
        world = world_of(seed)
        found = asyncio.run(world.score())
        assert found.gutted_noticed
        uncovered = {
            name
            for rule in found.uncovered
            for name in world.untested
            if f" {name} " in rule.block.text
        }
        assert uncovered == world.untested
        assert len(found.uncovered) == len(world.untested)


def test_without_a_model_it_names_the_rules_that_no_case_names(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    done = upskill("tests", "codes", "--score", "--json")
    assert done.code == 0, done.err
    untestable = [row["text"] for row in done.json["rules"] if row["untestable"]]
    assert untestable == [f"- The code of {UNTESTED} is `{CODES[UNTESTED]}`."]
    assert [row["text"] for row in done.json["rules"] if not row["counts"]] == [
        "A clerk made them."
    ]
    assert "The cases mention 4 of 5 rules." in upskill("tests", "codes", "--score").out


def test_a_student_shows_which_rules_are_missed_and_which_cases_test_nothing(
    upskill: Upskill, home: Path
) -> None:
    idle = case_of(
        "alfa", id="idle", prompt="Is the drawer open?", checks=[{"contains": "no idea"}]
    )
    write_skill(home / "codes", [*(case_of(code) for code in CODES if code != UNTESTED), idle])
    done = upskill("tests", "codes", "--score", "-m", "scripted:student.yaml", "--json")
    assert done.code == 0, done.err
    found = done.json
    by_rule = {
        row["specific"][0]: (row["status"], row["noticed_by"], row["cases"])
        for row in found["rules"][1:]
    }
    assert by_rule[CODES["alfa"]] == ("noticed", "loss", ["alfa"])
    assert by_rule[CODES[UNTESTED]][0] == "unnoticed"
    assert by_rule[CODES[KNOWN]] == ("noticed", "opposite", [KNOWN])
    assert found["idle_cases"] == [
        "idle"
    ]  # the case of what the student knows notices the opposite
    assert found["gutted_noticed"] is True
    assert found["share"] == {"value": 0.8, "interval": [0.8, 0.8]}
    text = upskill("tests", "codes", "--score", "-m", "scripted:student.yaml").out
    assert "The suite would notice a change to 4 of 5 rules (80%)." in text
    assert re.search(r"idle +passes without the skill, so tests nothing of it", text)
    assert re.search(r"unnoticed, not counted +A clerk made them\.", text)


def test_the_runs_of_a_score_are_neither_listed_nor_versions(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    assert upskill("tests", "codes", "--score", "-m", "scripted:student.yaml").code == 0
    assert "No stored run" in upskill("runs").err
    assert "codes-" in upskill("runs", "--all").out
    assert upskill("versions", "codes", "--json").json == []
    assert "no runs yet" in upskill("show", "last").err


def test_last_and_the_last_verdicts_leave_out_the_runs_of_a_score(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    evaluated = upskill("eval", "codes", "-m", "scripted:student.yaml", "--json").json["run"]
    assert upskill("tests", "codes", "--score", "-m", "scripted:student.yaml").code == 0
    for name in ("last", "last~0"):
        assert upskill("show", name, "--json").json["run"] == evaluated
    assert "there is no run last~1: the store has 1 run\n" in upskill("show", "last~1").err
    with open_store(home / "runs") as store:
        assert store.count_runs() > 1
        assert [row["run"] for row in skill_verdicts(store, "codes")] == [evaluated]


def test_the_share_is_no_range_if_every_rule_is_decided() -> None:
    skill, suite = (
        Skill.new("three", "Three.", "- It is 1.\n- It is 2.\n- It is 3.\n"),
        Suite.parse({"cases": [case_of("alfa")]}),
    )
    rules = rules_of(skill, suite)
    decided = [
        replace(rules[0], status="unnoticed"),
        *(replace(rule, status="noticed") for rule in rules[1:]),
    ]
    share = Score(skill, suite, decided, models=["student"]).share
    assert share
    assert share.low == share.high


def test_a_skill_that_changes_nothing_is_said_to_be_unnoticed(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    (home / "student.yaml").write_text(
        yaml.dump([{"when": code, "answer": CODES[code]} for code in CODES])
    )
    text = " ".join(upskill("tests", "codes", "--score", "-m", "scripted:student.yaml").out.split())
    assert "would not notice if the whole skill were gone" in text


def test_a_rule_that_only_failing_cases_name_says_so(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes", [case_of("alfa"), case_of("bravo")])
    (home / "student.yaml").write_text(
        yaml.dump(
            [
                {"when": "alfa", "system": CODES["alfa"], "answer": CODES["alfa"]},
                {"answer": "no idea"},
            ]
        )
    )
    text = " ".join(upskill("tests", "codes", "--score", "-m", "scripted:student.yaml").out.split())
    assert "only cases that fail anyway: bravo" in text
    assert "bravo fails too often with the skill to notice anything" in text


def test_an_opposite_shows_nothing_if_it_only_spoils_another_rule(
    upskill: Upskill, home: Path
) -> None:
    """Renamed, the untested rule about alpha contradicts the one about brook, and the case of brook fails."""
    prompt = {"id": "brook", "prompt": "Where is `brook` kept?", "checks": [{"contains": "cellar"}]}
    write_skill(home / "hours", [prompt])
    body = "---\nname: hours\ndescription: Hours.\n---\n\n- Keep it like `alpha`.\n- The cellar is where `brook` is.\n"
    (home / "hours" / "SKILL.md").write_text(body)
    knows = {"system": "Keep it like `brook`", "answer": "no idea"}
    (home / "student.yaml").write_text(
        yaml.dump([knows, {"system": "cellar", "answer": "cellar"}, {"answer": "no"}])
    )
    rows = upskill("tests", "hours", "--score", "-m", "scripted:student.yaml", "--json").json[
        "rules"
    ]
    assert [row["status"] for row in rows] == ["unnoticed", "noticed"]


def test_a_suite_that_tests_nothing_is_not_said_to_notice_by_chance() -> None:
    """A student that passes seven of ten, whatever the skill says."""
    world_of = runpy.run_path(str(REPOSITORY / "bench" / "score.py"), run_name="bench_score")[
        "World"
    ].make
    for seed in range(5):
        world = world_of(seed)
        world.known, world.noise = set(world.codes), 0.3
        world.skill = Skill.new("drawers", "Codes.", "- Drawers have codes.\n- Codes are short.\n")
        assert asyncio.run(world.score()).gutted_noticed is False


def test_rules_in_prose_count_whether_or_not_a_case_notices(upskill: Upskill, home: Path) -> None:
    write_skill(
        home / "polite", [{"id": "hello", "prompt": "Hello!", "checks": [{"contains": "sir"}]}]
    )
    body = "---\nname: polite\ndescription: Manners.\n---\n\n- Say sir.\n- Never shout.\n"
    (home / "polite" / "SKILL.md").write_text(body)
    (home / "student.yaml").write_text(
        yaml.dump([{"system": "Say sir", "answer": "sir"}, {"answer": "hey"}])
    )
    text = upskill("tests", "polite", "--score", "-m", "scripted:student.yaml").out
    assert "The suite would notice a change to 1 of 2 rules (50%)." in text
    assert re.search(r"unnoticed +- Never shout\.", text)
    assert "Nothing in the skill counts as a rule" in upskill("tests", "polite", "--score").out


def test_a_ceiling_leaves_rules_undecided(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    flags = ("-m", "scripted:student.yaml", "--set", "max_calls=10", "--json")
    found = upskill("tests", "codes", "--score", *flags).json
    assert found["halted"]
    assert found["share"]["interval"][1] == 1.0
    assert {row["status"] for row in found["rules"]} >= {"undecided"}


def writer_of(*codes: str) -> list[dict[str, Any]]:
    cases = [
        {
            "id": f"{code}-drawer",
            "prompt": f"Somebody stands before the drawer {code} and asks for its code. What do you say?",
            "words": 0,
            "checks": [{"kind": "contains", "texts": [CODES[code]], "number": 0, "exact": False}],
            "reference": CODES[code],
            "tags": ["codes"],
            "evidence": [],
        }
        for code in codes
    ]
    answers = [
        {
            "case": f"{code}-drawer",
            "right": [
                f"It is {CODES[code]}.",
                f"`{CODES[code]}`",
                CODES[code],
                f"{CODES[code]}!",
                f"Say {CODES[code]}.",
            ],
            "wrong": ["11", "I do not know that.", "none", "the fleet's own", "alfa"],
        }
        for code in codes
    ]
    return [
        {"system": "You write test cases", "answer": json.dumps({"cases": cases})},
        {"system": "You answer test questions", "answer": json.dumps({"answers": answers})},
    ]


def test_a_test_writer_covers_the_rules_that_no_case_notices(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    (home / "writer.json").write_text(json.dumps(writer_of(UNTESTED)))
    student = ("-m", "scripted:student.yaml")
    done = upskill("tests", "codes", "--score", *student, "--fix", "scripted:writer.json")
    assert done.code == 0, done.err
    suite = Suite.of(Skill.load("codes"))
    assert suite
    assert [case.id for case in suite.cases][-1] == f"{UNTESTED}-drawer"
    assert suite.cases[-1].metadata["read"] == "skill"
    again = upskill("tests", "codes", "--score", *student, "--json").json
    assert again["share"]["value"] == 1.0
    unchanged = upskill("tests", "codes", "--score", *student, "--fix", "scripted:missing.json")
    assert "The suite would notice a change to 5 of 5 rules" in unchanged.out


def test_whoever_fixes_by_hand_is_asked_about_these_rules_alone(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    done = upskill("tests", "codes", "--score", "--fix", "handoff:desk")
    assert done.code == 0, done.err
    (prompt,) = [
        path
        for path in (home / "desk").rglob("*")
        if path.is_file() and CODES[UNTESTED] in path.read_text()
    ]
    asked = prompt.read_text()
    assert CODES["alfa"] not in asked


def test_what_score_cannot_be_used_with(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes", file="evals/suite.json")
    assert upskill("tests", "codes", "--score").code == 0
    assert "--score cannot be used with" in upskill("tests", "codes", "--score", "--add", 3).err
    assert "--fix needs --score" in upskill("tests", "codes", "--fix", "scripted:missing.json").err


def test_it_is_a_library_verb(home: Path) -> None:
    write_skill(home / "codes")
    skill = Skill.load("codes")
    assert [rule.block.text for rule in asyncio.run(score(skill)).uncovered] == [
        "- The code of delta is `14-atled`."
    ]
    found = asyncio.run(score(skill, students=["scripted:student.yaml"]))
    assert found.share
    assert found.share.value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("rule", "others", "opposite"),
    [
        ("- Retry 4 times.", "", "- Retry 6 times."),
        ("- The capability of an H100 is `9.0`.", "", "- The capability of an H100 is `13.0`."),
        ("- Use `--frozen` in CI.", "- Use `--locked` at home.", "- Use `--locked` in CI."),
        (
            "- The file of `relu` is `relu.cu`.",
            "- `other` is one.",
            "- The file of `relu` is `other`.",
        ),
        (
            "- `alpha` closes after 70 hours.",
            "- `brook` is closed.",
            "- `alpha` closes after 105 hours.",
        ),
        ("- For H100, use 128 threads.", "", "- For H100, use 192 threads."),
        ("- Never push to `main`.", "- Push to `side`.", "- push to `main`."),
        ("- On Sundays, **never** push.", "", "- On Sundays, push."),
        ("- Step 3: run `make`.", "- `other` is one.", "- Step 4: run `other`."),
        ("- `--quiet` is on by default.", "- `--fast` is not.", "- `--quiet` is off by default."),
        ("| a | b |\n|---|---|\n| 14 | locked |", "| 15 | open |", "| 14 | open |"),
        ("| fern | FE286 |", "", "| fern | FE429 |"),
        ("***", "", ""),
        ("- Never answer in verse.", "", "- answer in verse."),
        ("- Answer in verse.", "", "- Never do this: Answer in verse."),
    ],
)
def test_a_rule_is_turned_into_its_opposite_by_its_values(
    rule: str, others: str, opposite: str
) -> None:
    skill = Skill.new("rules", "Rules.", f"{rule}\n{others}\n")
    suite = Suite.parse({"cases": [{"prompt": "What?", "checks": [{"contains": "x"}]}]})
    assert rules_of(skill, suite)[0].opposite == opposite
