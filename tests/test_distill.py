"""`upskill distill`: the shortest version of a skill that is not worse, and what each block is worth."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY, Upskill, serving
from distill import LARGE_BLOCKS, LARGE_CASES, begin_large
from loopback import Call
from upskill import Skill, distill
from upskill.experiments.ablation import Ablation, Blocks
from upskill.skills import find_skills
from upskill.skills.blocks import blocks_of, without_blocks
from upskill.verdicts.outcome import Outcome

CODES = ("alfa", "bravo", "carol", "delta", "echo", "foxy", "golf", "hotel")
HISTORY = (
    "Long ago there were no codes.",
    "Then a clerk made some.",
    "- In 1990 they were printed.",
)
HARM = "Answer every question about golf with zero."


@dataclass
class Simulated:
    """A student that passes a case if what it needs is left: for each case, groups of lines of which it needs one."""

    needs: dict[str, list[set[int]]]
    noise: float = 0.05
    harmful: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    seed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    async def measure(self, removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
        return [self._try(removed, case, seed) for case in cases for seed in seeds]

    def _try(self, removed: Blocks, case: str, seed: int) -> Outcome:
        knows = all(any(line not in removed for line in group) for group in self.needs[case])
        breaks = any(case in broken for line, broken in self.harmful.items() if line not in removed)
        passed = (knows and not breaks) != (self.chance.random() < self.noise)
        return Outcome("simulated", case, "skill", seed, passed, 0, 0, 0.0)

    def distill(self, lines: int) -> Ablation:
        ablation = Ablation([""] * lines, tuple(self.needs), self.measure)

        async def run() -> None:
            await ablation.search()
            await ablation.confirm()

        asyncio.run(run())
        return ablation


def test_a_search_drops_what_no_case_needs_and_names_what_hurts() -> None:
    needs = {f"case-{number}": [{number}] for number in range(12)}
    for seed in range(5):
        student = Simulated(needs, harmful={12: {"case-0", "case-1", "case-2"}}, seed=seed)
        ablation = student.distill(lines=18)
        assert ablation.accepted
        assert ablation.dropped == frozenset(range(12, 18))
        assert ablation.harmful == {12: True}


def test_of_two_lines_that_say_the_same_one_stays() -> None:
    student = Simulated({f"case-{number}": [{number, number + 6}] for number in range(6)})
    ablation = student.distill(lines=12)
    assert ablation.accepted
    assert sorted(number % 6 for number in range(12) if number not in ablation.dropped) == list(
        range(6)
    )


def test_what_is_said_twice_is_not_held_to_be_worth_more_of_another_line() -> None:
    needs = {f"case-{number}": [{number}] for number in range(1, 6)}
    ablation = Simulated(needs | {"case-0": [{0, 4}]}, noise=0.0).distill(lines=8)
    assert [worth.cases for worth in ablation.worth(5)] == [("case-5",)]
    assert ablation.dropped == frozenset({0, 6, 7})


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_each_of_several_harmful_lines_is_named(noise: float) -> None:
    needs = {f"case-{number}": [{number}] for number in range(12)}
    # The first breaks a case that needs the line beside it.
    student = Simulated(needs, noise, harmful={12: {"case-0", "case-11"}, 13: {"case-1", "case-2"}})
    ablation = student.distill(lines=18)
    assert ablation.harmful == {12: True, 13: True}
    assert ablation.dropped == frozenset(range(12, 18))


@pytest.mark.parametrize("noise", [0.0, 0.07])
def test_two_lines_that_break_the_same_cases_are_both_named(noise: float) -> None:
    needs = {f"case-{number}": [{number}] for number in range(12)}
    broken = {"case-0", "case-1", "case-7"}
    ablation = Simulated(needs, noise, harmful={12: broken, 14: broken}).distill(lines=18)
    assert ablation.harmful == {12: True, 14: True}
    assert ablation.dropped == frozenset(range(12, 18))
    (worth,) = ablation.worth(12)
    assert worth.points.high < 0


def test_no_line_is_to_blame_if_any_change_of_the_text_lets_a_case_pass() -> None:
    ablation = search(
        lambda _, case, removed: float(case != "case-0" or bool(removed)),
        cases=8,
        lines=16,
        rounds=1,
    )
    assert not ablation.harmful
    assert ablation.accepted


@pytest.mark.parametrize("lines", [1, 2, 3, 5])
def test_a_harmful_line_is_named_in_a_short_skill(lines: int) -> None:
    for rounds in (0, 1):
        ablation = search(
            lambda _, case, removed: float(case != "case-0" or 0 in removed),
            cases=8,
            lines=lines,
            rounds=rounds,
        )
        assert ablation.harmful == {0: True}


def test_an_error_in_both_versions_counts_for_neither() -> None:
    async def measure(removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
        passed = {
            case: None if case == "case-3" else case != "case-0" or 1 not in removed
            for case in cases
        }
        return [
            Outcome("simulated", case, "skill", seed, passed[case], 0, 0, 0.0)
            for case in cases
            for seed in seeds
        ]

    ablation = Ablation([""] * 6, tuple(f"case-{number}" for number in range(6)), measure)

    async def run() -> None:
        await ablation.search()
        await ablation.confirm()

    asyncio.run(run())
    assert ablation.accepted
    assert ablation.dropped == frozenset({0, 2, 3, 4, 5})


def test_a_line_that_breaks_one_of_many_cases_is_named() -> None:
    needs = {f"case-{number}": [{number}] for number in range(30)}
    for seed in range(3):
        student = Simulated(needs, 0.07, harmful={30: {"case-0"}}, seed=seed)
        assert student.distill(lines=36).harmful == {30: True}


def test_a_harmful_line_is_named_wherever_the_line_is_that_its_case_needs() -> None:
    for harmful in range(1, 40):
        needs = {f"case-{number}": [{number}] for number in range(40) if number != harmful}
        ablation = Simulated(needs, noise=0.0, harmful={harmful: {"case-0"}}).distill(lines=40)
        assert ablation.harmful == {harmful: True}


def test_a_student_that_seldom_varies_keeps_every_line_it_needs() -> None:
    needs = {f"case-{number}": [{number}] for number in range(6)}
    found = [Simulated(needs, 0.02, seed=seed).distill(lines=9) for seed in range(20)]
    assert sum(ablation.dropped == frozenset(range(6, 9)) for ablation in found) >= 19


def test_lines_that_a_case_needs_together_both_stay() -> None:
    student = Simulated({f"case-{number}": [{number}, {number + 6}] for number in range(6)})
    ablation = student.distill(lines=16)
    assert ablation.accepted
    assert ablation.dropped == frozenset(range(12, 16))


def test_a_skill_of_many_blocks_takes_far_fewer_trials_than_one_block_at_a_time() -> None:
    ablation = begin_large(0)
    asyncio.run(ablation.search())
    assert len(ablation.dropped) > LARGE_BLOCKS / 2
    assert ablation.trials < 0.15 * LARGE_BLOCKS * LARGE_CASES * 8


def test_nothing_is_dropped_if_no_case_passes_with_the_skill() -> None:
    ablation = Simulated({f"case-{number}": [set[int]()] for number in range(6)}).distill(lines=12)
    assert not ablation.dropped
    assert not ablation.accepted


def test_a_skill_that_is_worse_than_tolerated_is_hardly_ever_accepted() -> None:
    accepted = sum(asyncio.run(confirm_a_worse_skill(seed)) for seed in range(40))
    assert accepted <= 3


def search(
    rate: Callable[[str, str, Blocks], float],
    *,
    cases: int,
    lines: int,
    models: Sequence[str] = ("simulated",),
    seed: int = 0,
    **settings: Any,
) -> Ablation:
    """Students that pass at this rate."""
    chance = random.Random(seed)

    async def measure(removed: Blocks, asked: Sequence[str], seeds: range) -> list[Outcome]:
        trials = [(model, case, each) for model in models for case in asked for each in seeds]
        passed = [chance.random() < rate(model, case, removed) for model, case, _ in trials]
        return [
            Outcome(*trial[:2], "skill", trial[2], each, 0, 0, 0.0)
            for trial, each in zip(trials, passed, strict=True)
        ]

    ablation = Ablation(
        [""] * lines, tuple(f"case-{number}" for number in range(cases)), measure, **settings
    )

    async def run() -> None:
        await ablation.search()
        await ablation.confirm()

    asyncio.run(run())
    return ablation


def test_a_line_that_a_case_misses_now_and_then_stays() -> None:
    def rate(_: str, case: str, removed: Blocks) -> float:
        return 0.75 if removed and case == "case-0" else 1.0

    assert sum(search(rate, cases=4, lines=1, seed=seed).accepted for seed in range(20)) <= 1


def test_few_repeats_show_nothing_even_if_all_of_them_are_the_same() -> None:
    found = [
        search(lambda _, __, ___: 0.99, cases=5, lines=2, rounds=2, seed=seed) for seed in range(5)
    ]
    assert not any(ablation.accepted for ablation in found)


def test_a_line_that_hurts_one_student_stays_if_another_needs_it() -> None:
    def rate(model: str, case: str, removed: Blocks) -> float:
        if model == "hurt":
            return 0.05 if 0 not in removed and case in ("case-0", "case-1") else 0.95
        return 0.05 if 0 in removed and case == "case-5" else 0.95

    for seed in range(3):
        ablation = search(rate, cases=8, lines=5, models=("hurt", "helped"), seed=seed)
        assert ablation.accepted
        assert ablation.dropped
        assert 0 not in ablation.dropped


def test_of_two_lines_that_hurt_each_other_one_stays_if_cases_need_either() -> None:
    def rate(_: str, case: str, removed: Blocks) -> float:
        broken_by = {"case-0": 0, "case-1": 0, "case-2": 1, "case-3": 1}
        is_right = broken_by[case] in removed if case in broken_by else not removed >= {0, 1}
        return 0.95 if is_right else 0.05

    for seed in range(3):
        ablation = search(rate, cases=10, lines=6, seed=seed)
        assert ablation.accepted
        assert len(ablation.dropped & {0, 1}) == 1


def test_a_best_guess_is_not_seen_to_lose_anything() -> None:
    for seed in range(20):
        ablation = search(
            lambda _, __, removed: 0.95 - 0.02 * len(removed),
            cases=12,
            lines=4,
            rounds=12,
            tolerance=0.2,
            seed=seed,
        )
        if ablation.dropped and not ablation.accepted:
            assert ablation.change(ablation.dropped, ablation.reference, "simulated").high >= 0


async def confirm_a_worse_skill(seed: int) -> bool:
    chance = random.Random(seed)

    async def measure(removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
        rate = 0.84 if removed else 0.9
        trials = [(case, each, chance.random() < rate) for case in cases for each in seeds]
        return [
            Outcome("simulated", case, "skill", each, passed, 0, 0, 0.0)
            for case, each, passed in trials
        ]

    ablation = Ablation([""], tuple(f"case-{number}" for number in range(10)), measure, rounds=40)
    await ablation.search()
    ablation.dropped = frozenset({0})  # whatever the search thinks of it
    await ablation.confirm()
    return ablation.accepted


def test_small_losses_that_add_up_are_put_back() -> None:
    """No case misses a line clearly, but without all of them every third trial fails."""
    for seed in range(5):
        ablation = asyncio.run(distill_a_little_of_everything(seed))
        assert len(ablation.dropped) <= 4 or not ablation.accepted


def test_if_the_loss_is_too_close_to_the_tolerance_a_part_is_put_back_until_the_rest_can_be_shown() -> (
    None
):
    """Without all lines it loses 4.8 points of the 5 that it may."""
    for seed in range(6):
        ablation = asyncio.run(distill_a_little_of_everything(seed, loss=0.004))
        assert ablation.accepted
        assert 1 <= len(ablation.dropped) <= 6


async def distill_a_little_of_everything(seed: int, loss: float = 0.025) -> Ablation:
    chance = random.Random(seed)

    async def measure(removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
        trials = [
            (case, each, chance.random() < 0.95 - loss * len(removed))
            for case in cases
            for each in seeds
        ]
        return [
            Outcome("simulated", case, "skill", each, passed, 0, 0, 0.0)
            for case, each, passed in trials
        ]

    ablation = Ablation([""] * 12, tuple(f"case-{number}" for number in range(12)), measure)
    await ablation.search()
    await ablation.confirm()
    return ablation


# Blocks.


def test_without_its_blocks_nothing_is_left_of_a_body() -> None:
    folders = [*find_skills(REPOSITORY / "examples"), *find_skills(REPOSITORY / "skills")]
    assert folders
    for folder in folders:
        skill = Skill.load(folder)
        blocks = blocks_of(skill)
        assert without_blocks(skill, blocks).body.strip() == ""
        assert without_blocks(skill, []).visible_hash == skill.visible_hash
        for block in blocks:
            left = [each.text for each in blocks_of(without_blocks(skill, [block]))]
            assert left == [each.text for each in blocks if each is not block]


def test_a_heading_or_a_table_head_goes_with_the_last_thing_below_it() -> None:
    table = "| x | y |\n|---|---|\n| 1 | 2 |"
    body = f"# A\n\n## B\n\n{table}\n\n## C\n\n- one\n  - nested\n- two\n\n```\n# no heading\n```"
    skill = Skill.new("tables", "Tables.", body)
    blocks = blocks_of(skill)
    assert [each.kind for each in blocks] == ["row", "item", "item", "item", "code"]
    assert [each.section for each in blocks] == ["B", "C", "C", "C", "C"]
    assert (
        without_blocks(skill, blocks[:1]).body.strip()
        == "# A\n\n## C\n\n- one\n  - nested\n- two\n\n```\n# no heading\n```"
    )


def test_items_of_a_nested_list_are_blocks_by_themselves() -> None:
    skill = Skill.new(
        "nested",
        "Nested.",
        "1. First:\n   - one\n\n     more of it\n   - two\n\n   Then.\n2. Last.\n",
    )
    blocks = blocks_of(skill)
    assert [(each.kind, each.text.strip()) for each in blocks] == [
        ("item", "1. First:"),
        ("item", "- one\n\n     more of it"),
        ("item", "- two"),
        ("paragraph", "Then."),
        ("item", "2. Last."),
    ]
    assert without_blocks(skill, blocks[1:3]).body.split() == [
        "1.",
        "First:",
        "Then.",
        "2.",
        "Last.",
    ]


def test_underlined_headings_and_link_definitions_are_what_markdown_says() -> None:
    skill = Skill.new(
        "links", "Links.", "Rules\n=====\n\nRead [it].\n\n[it]: https://example.com\n"
    )
    blocks = blocks_of(skill)
    assert [(each.text, each.section) for each in blocks] == [
        ("Read [it].", "Rules"),
        ("[it]: https://example.com", "Rules"),
    ]
    assert without_blocks(skill, blocks).body.strip() == ""


# The command.


def write_skill(folder: Path, *, held_out: Sequence[str] = ()) -> None:
    (folder / "evals").mkdir(parents=True)
    facts = {code: f"{number}-{code[::-1]}" for number, code in enumerate(CODES, start=11)}
    rules = "\n".join(f"- The code for {code} is {fact}." for code, fact in facts.items())
    history = "\n\n".join(HISTORY)
    body = f"# Codes\n\n## Rules\n\n{rules}\n\n## History\n\n{history}\n\n## Notes\n\n{HARM}\n"
    (folder / "SKILL.md").write_text(
        f"---\nname: {folder.name}\ndescription: Codes of drawers.\n---\n\n{body}"
    )
    cases = [
        {
            "id": code,
            "prompt": f"What is the code for {code}?",
            "checks": [{"contains": fact}],
            "held_out": code in held_out,
        }
        for code, fact in facts.items()
    ]
    (folder / "evals" / "suite.yaml").write_text(json.dumps({"cases": cases}))
    answers = [{"when": code, "system": fact, "answer": fact} for code, fact in facts.items()]
    script = [{"when": "golf", "system": HARM, "answer": "zero"}, *answers, {"answer": "no idea"}]
    (folder.parent / "student.yaml").write_text(yaml.dump(script))


def test_a_distilled_skill_replaces_the_whole_one_and_is_a_version(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    done = upskill(
        "distill",
        "codes",
        "-m",
        "scripted:student.yaml",
        "--write",
        "--json",
        "--report",
        "worth.html",
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["decision"] == "distilled"
    fates = {row["text"]: row["fate"] for row in found["blocks"]}
    assert {text for text, fate in fates.items() if fate == "dropped"} == set(HISTORY)
    assert {text for text, fate in fates.items() if fate == "harmful"} == {HARM}
    body = Skill.load("codes").body
    assert "History" not in body
    assert all(code in body for code in CODES)
    assert HARM in (home / "worth.html").read_text()
    (previous,) = (home / ".previous" / "codes").iterdir()
    assert HARM in Skill.load(previous).body
    versions = json.loads(upskill("versions", "codes", "--json").out)
    assert [each["decision"] for each in versions] == ["whole", "distilled"]
    assert versions[1]["parent"] == "v1"
    assert "No stored run" in upskill("runs").err  # parts of the search are not listed
    assert "codes-" in upskill("runs", "--all").out


def test_a_distilled_skill_keeps_its_verdict_and_its_place(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    student = ("-m", "scripted:student.yaml")
    written = (home / "codes" / "SKILL.md").read_text()
    for text in (written + "\nBe brief.\n", written):
        (home / "codes" / "SKILL.md").write_text(text)
        assert upskill("eval", "codes", *student).code == 0
    with closing(sqlite3.connect(home / "runs" / "upskill.db", isolation_level=None)) as database:
        database.execute("UPDATE runs SET created = '2026-01-0' || number || 'T00:00:00+00:00'")
    first, second = upskill("versions", "codes", "--json").json
    assert upskill("distill", "codes", *student).code == 0
    versions = upskill("versions", "codes", "--json").json
    assert versions[:2] == [first, {**second, "accepted": True}]
    assert [each["parent"] for each in versions] == [None, "v1", "v2"]
    assert (
        upskill("compare", "--json").err == ""
    )  # the last part of the search is no run to compare
    listed = upskill("runs").out
    everything = {row["run"] for row in upskill("runs", "--all", "--json").json}
    assert {run for run in everything if run in listed} < everything


def test_the_worth_of_each_block_is_shown_from_stored_trials(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    missing = upskill("show", "codes", "--worth")
    assert missing.code == 2
    assert "upskill distill codes" in missing.err
    assert upskill("distill", "codes", "-m", "scripted:student.yaml").code == 0
    rows = json.loads(upskill("show", "codes", "--worth", "--json").out)["blocks"]
    worth = {row["text"]: row["worth"][0] for row in rows}
    assert worth["- The code for echo is 15-ohce."]["value"] == pytest.approx(1 / 8)
    assert worth["- The code for echo is 15-ohce."]["cases"] == ["echo"]
    assert worth[HARM]["value"] == pytest.approx(-1 / 8)
    assert worth[HISTORY[0]]["value"] == 0
    assert "hurts" in upskill("show", "codes", "--worth").out


def test_of_two_lines_that_say_the_same_the_one_that_stays_is_worth_what_the_case_is(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    skill = home / "codes" / "SKILL.md"
    skill.write_text(
        skill.read_text().replace("## Notes", "## Notes\n\n- Again: the code for echo is 15-ohce.")
    )
    rows = json.loads(upskill("distill", "codes", "-m", "scripted:student.yaml", "--json").out)[
        "blocks"
    ]
    (kept,) = (row for row in rows if "15-ohce" in row["text"] and row["fate"] == "kept")
    assert kept["worth"][0]["cases"] == ["echo"]


def test_the_same_command_asks_no_model_again(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    first = upskill("distill", "codes", "-m", "scripted:student.yaml", "--json")
    again = upskill(
        "distill", "codes", "-m", "scripted:student.yaml", "--set", "max_calls=1", "--json"
    )
    assert json.loads(again.out)["blocks"] == json.loads(first.out)["blocks"]


def test_a_search_that_reached_its_ceiling_goes_on_where_it_ended(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    halted = upskill(
        "distill",
        "codes",
        "-m",
        "scripted:student.yaml",
        "--set",
        "max_calls=30",
        "--write",
        "--json",
    )
    assert json.loads(halted.out)["decision"] == "not decided"
    assert HARM in Skill.load("codes").body
    done = upskill("distill", "codes", "-m", "scripted:student.yaml", "--json")
    assert json.loads(done.out)["decision"] == "distilled"


def test_a_shorter_skill_is_not_written_before_its_held_out_cases_have_run(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes", held_out=("alfa",))
    line = ("distill", "codes", "-m", "scripted:student.yaml", "--json")
    calls = json.loads(upskill(*line, "--store", "whole").out)["trials"]
    halted = json.loads(upskill(*line, "--write", "--set", f"max_calls={calls}").out)
    assert halted["front"][-1]["version"] == "shorter"
    assert halted["decision"] == "not decided"
    assert HARM in Skill.load("codes").body


def test_a_student_that_always_fails_shows_nothing(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    (home / "student.yaml").write_text(yaml.dump([{"answer": "no idea"}]))
    assert (
        "hardly any train case passes"
        in upskill("distill", "codes", "-m", "scripted:student.yaml").out
    )


def test_a_skill_that_no_case_needs_is_not_replaced_by_an_empty_one(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    facts = [
        {"when": code, "answer": f"{number}-{code[::-1]}"}
        for number, code in enumerate(CODES, start=11)
    ]
    (home / "student.yaml").write_text(yaml.dump(facts))
    done = upskill("distill", home / "codes", "-m", "scripted:student.yaml", "--write")
    assert "The train cases need no line of it" in done.out
    assert "no line would be left" in done.err
    assert HARM in Skill.load("codes").body


def test_a_shorter_skill_that_is_only_shown_is_said_not_to_be_written(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    shown = upskill("distill", "codes", "-m", "scripted:student.yaml")
    assert "-" + HARM in shown.out
    assert "Nothing was written: --write saves it in the skill, -o DIR in a copy." in shown.err
    assert HARM in Skill.load("codes").body
    saved = upskill("distill", "codes", "-m", "scripted:student.yaml", "--write")
    assert "Nothing was written" not in saved.err
    assert HARM not in Skill.load("codes").body


def test_what_only_held_out_cases_need_is_not_dropped_unnoticed(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes", held_out=("foxy", "hotel"))
    done = upskill("distill", "codes", "-m", "scripted:student.yaml", "--write")
    assert "worse on the held-out cases" in " ".join(done.out.split())
    assert (
        "Nothing was written: upskill saves a shorter version only if it is shown to be as good."
        in done.err
    )
    assert HARM in Skill.load("codes").body
    assert "no runs yet" in upskill("show", "last").err
    assert "codes" not in upskill("runs").out
    shown = upskill("distill", "codes", "-m", "scripted:student.yaml")
    assert (
        "Nothing was written: upskill saves a shorter version only if it is shown to be as good."
        in shown.err
    )
    found = json.loads(
        upskill("distill", "codes", "-m", "scripted:student.yaml", "--all-cases", "--json").out
    )
    assert found["decision"] == "distilled"
    assert found["held_out"] is None


def test_a_budget_drops_what_is_worth_least_and_says_what_it_costs(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    done = upskill(
        "distill", "codes", "-m", "scripted:student.yaml", "--budget", "50", "-o", "short", "--json"
    )
    found = json.loads(done.out)
    assert found["decision"] == "over the tolerance"
    assert found["tokens"]["after"] <= 50
    (within,) = (each for each in found["front"] if each["version"] == "within the budget")
    assert within["change"]["value"] < -0.05
    assert Skill.load("short").tokens <= 50


def test_a_skill_within_a_budget_is_not_called_as_good_on_train_cases_because_held_out_cases_fail(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes", held_out=("foxy", "hotel"))
    found = upskill(
        "distill", "codes", "-m", "scripted:student.yaml", "--budget", "30", "--json"
    ).json
    assert found["held_out"]["models"][0]["lift"] < 0
    assert found["decision"] == "over the tolerance"


def test_a_budget_that_files_exceed_is_refused_before_anything_runs(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    (home / "codes" / "references").mkdir()
    (home / "codes" / "references" / "long.md").write_text("A long story. " * 50)
    done = upskill("distill", "codes", "-m", "scripted:student.yaml", "--budget", "50")
    assert done.code == 2
    assert "with a single block, the skill has at least" in done.err
    (home / "codes" / "references" / "long.md").unlink()
    assert (
        "with a single block"
        in upskill("distill", "codes", "-m", "scripted:student.yaml", "--budget", "1").err
    )
    assert "No stored run" in upskill("runs", "--all").err


def test_a_short_line_that_fits_the_budget_comes_back_when_a_long_one_went(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    skill = home / "codes" / "SKILL.md"
    head, _, rest = skill.read_text().partition("- The code for alfa")
    long = " ".join(
        f"{code} is {number}-{code[::-1]}," for number, code in enumerate(CODES[:6], start=11)
    )
    skill.write_text(
        f"{head}{long}\n\n- The code for golf{rest.partition('- The code for golf')[2]}"
    )
    flags = ("-m", "scripted:student.yaml", "--budget", 20, "--json")
    body = upskill("distill", "codes", *flags).json["body"]
    assert "hotel" in body or "golf" in body
    assert "alfa" not in body


def test_a_block_stays_if_any_student_needs_it(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    rules = yaml.safe_load((home / "student.yaml").read_text())
    facts = {
        rule["when"]: rule["answer"]
        for rule in rules
        if "system" in rule and rule["answer"] != "zero"
    }
    (home / "knowing.yaml").write_text(
        yaml.dump([{"when": code, "answer": fact} for code, fact in facts.items()])
    )
    alone = json.loads(upskill("distill", "codes", "-m", "scripted:knowing.yaml", "--json").out)
    assert alone["tokens"]["after"] == 0
    both = ("-m", "scripted:knowing.yaml", "-m", "scripted:student.yaml")
    found = json.loads(upskill("distill", "codes", *both, "--json").out)
    assert all(code in found["body"] for code in CODES)
    assert {each["model"] for each in found["blocks"][0]["worth"]} == {
        "scripted:knowing.yaml",
        "scripted:student.yaml",
    }


def test_a_skill_is_distilled_from_python(home: Path) -> None:
    write_skill(home / "codes")
    found = asyncio.run(distill(Skill.load("codes"), students=["scripted:student.yaml"]))
    assert found.decision == "distilled"
    assert HARM not in found.skill.body
    assert found.tokens[1] < found.tokens[0]


def test_a_teacher_says_what_is_left_in_fewer_words(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    shorter: dict[str, Any] = {
        "kind": "replace",
        "line": 5,
        "path": "",
        "text": "- alfa 11-afla",
        "evidence": [],
        "why": "shorter",
    }
    useless = {**shorter, "line": 6, "text": "- bravo has one, too"}
    for name, edit in (("teacher", shorter), ("careless", useless)):
        answer = json.dumps({"note": "shorter", "edits": [edit]})
        (home / f"{name}.yaml").write_text(yaml.dump([{"answer": answer}]))
    student = ("-m", "scripted:student.yaml", "--json")
    rewritten = upskill("distill", "codes", *student, "--rewrite", "scripted:teacher.yaml")
    assert "- alfa 11-afla" in json.loads(rewritten.out)["body"]
    assert json.loads(rewritten.out)["decision"] == "distilled"
    careless = upskill("distill", "codes", *student, "--rewrite", "scripted:careless.yaml")
    assert "12-ovarb" in json.loads(careless.out)["body"]
    assert json.loads(careless.out)["decision"] == "distilled"


def test_a_rewrite_changes_the_body_alone(upskill: Upskill, home: Path) -> None:
    """A student that chats sees nothing else, so nothing else could be tested."""
    write_skill(home / "codes")
    (home / "codes" / "references").mkdir()
    (home / "codes" / "references" / "more.md").write_text("More.")
    (home / "codes" / "references" / "picture.png").write_bytes(b"\x89PNG\0\xff")
    fields: dict[str, Any] = {"line": 0, "path": "", "evidence": [], "why": "shorter"}
    edits = [
        {**fields, "kind": "replace", "line": 5, "text": "- alfa 11-afla"},
        {**fields, "kind": "describe", "text": "Anything at all."},
        {**fields, "kind": "delete_file", "path": "references/more.md", "text": ""},
    ]
    (home / "teacher.yaml").write_text(
        yaml.dump([{"answer": json.dumps({"note": "shorter", "edits": edits})}])
    )
    done = upskill(
        "distill",
        "codes",
        "-m",
        "scripted:student.yaml",
        "--rewrite",
        "scripted:teacher.yaml",
        "--write",
    )
    assert done.code == 0, done.err
    skill = Skill.load("codes")
    assert "- alfa 11-afla" in skill.body
    assert skill.description == "Codes of drawers."
    assert skill.read("references/more.md") == b"More."


def test_a_skill_that_is_edited_while_it_is_distilled_stays(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    file = home / "codes" / "SKILL.md"

    def answer(call: Call) -> str:
        file.write_text(file.read_text().partition("# Edited")[0] + "# Edited\n\nMeanwhile.\n")
        facts = {code: f"{number}-{code[::-1]}" for number, code in enumerate(CODES, start=11)}
        known = (
            fact for code, fact in facts.items() if code in call.prompt and fact in call.system
        )
        return next(known, "no idea")

    with serving(answer) as server:
        done = upskill(
            "distill",
            "codes",
            "-m",
            "student",
            "--base-url",
            server.url,
            "--repeats",
            "1",
            "--write",
        )
    assert "Nothing was written: the skill was edited in the meantime." in done.err
    assert Skill.load("codes").body.endswith("Meanwhile.")


def test_some_trials_that_error_do_not_end_a_search(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    rules = yaml.safe_load((home / "student.yaml").read_text())
    broken = {"when": "alfa", "not_system": "Then a clerk", "error": "the server is broken"}
    (home / "student.yaml").write_text(yaml.dump([broken, *rules]))
    done = upskill("distill", "codes", "-m", "scripted:student.yaml", "--repeats", "1", "--json")
    assert done.code == 0, done.err
    assert HARM not in done.json["body"]
    (home / "student.yaml").write_text(yaml.dump([{"error": "the server is broken"}]))
    done = upskill("distill", "codes", "-m", "scripted:student.yaml", "--repeats", "1")
    assert done.code == 3
    assert "codes cannot be run: 8 of 8 trials errored" in done.err


def test_the_worth_of_each_block_is_shown_after_the_skill_is_replaced(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    assert upskill("distill", "codes", "-m", "scripted:student.yaml", "--write").code == 0
    shown = upskill("show", "codes", "--worth")
    assert shown.code == 0, shown.err
    assert HARM[:30] in shown.out


def test_a_search_that_measured_nothing_hides_no_worth(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    line = ("distill", "codes", "-m", "scripted:student.yaml")
    none = upskill(*line, "--set", "max_calls=1")
    assert "--worth" not in none.out
    assert upskill("show", "codes", "--worth").code == 2
    assert "--worth" in upskill(*line).out
    assert "not decided" in upskill(*line, "--set", "max_calls=1", "--seed", 7, "--json").out
    assert "hurts" in upskill("show", "codes", "--worth").out


def test_the_worth_to_a_student_that_was_not_measured_is_an_error(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    assert upskill("distill", "codes", "-m", "scripted:student.yaml").code == 0
    assert "hurts" in upskill("show", "codes", "--worth", "-m", "scripted:student.yaml").out
    other = upskill("show", "codes", "--worth", "-m", "haiku")
    assert (other.code, "upskill distill codes -m haiku" in other.err) == (2, True)


def test_what_distill_leaves_of_a_file_is_written_as_it_was(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    file = home / "codes" / "SKILL.md"
    file.write_bytes(file.read_text().replace("---\n\n#", "---\n#").replace("\n", "\r\n").encode())
    before = file.read_bytes().splitlines(keepends=True)
    assert upskill("distill", "codes", "-m", "scripted:student.yaml", "--write").code == 0
    after = file.read_bytes().splitlines(keepends=True)
    assert after == before[: len(after)]


def test_lines_of_a_block_are_counted_in_its_file(home: Path) -> None:
    write_skill(home / "codes")
    lines = (home / "codes" / "SKILL.md").read_text().split("\n")
    for block in blocks_of(Skill.load("codes")):
        first, last = block.lines
        assert "\n".join(lines[first - 1 : last]) == block.text
