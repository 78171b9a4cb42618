"""Looks: the store keeps every report of what a skill does, and says how often and at what somebody has looked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, greetings, write_script, write_skill
from upskill import Address, Evaluation, Plan, Skill, Store, Suite, open_store
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.looks import looks_before
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.stores.rows import Look

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")


def look(**changed: Any) -> Look:
    usual: dict[str, Any] = {
        "run": "greeter-1",
        "model": "tiny",
        "skill": "greeter",
        "skill_hash": "s1",
        "suite": "suite.yaml",
        "suite_fingerprint": "f1",
        "cases": {"one": "1", "two": "2", "three": "3"},
        "runs": 1,
        "seed": 0,
        "margin": 0.05,
        "scope": "",
        "trials": 6,
        "pairs": 3,
        "decision": "undecided",
        "asked": "2026-11-15T12:00:00+00:00",
        "asked_by": "ann",
    }
    return Look(**usual | changed)


def test_a_look_is_kept_once_and_comes_back_whole(tmp_path: Path) -> None:
    first, again = look(), look(decision="helps", asked_by="bob")
    others = [look(margin=0.1), look(scope="cases"), look(trials=8), look(model="other"), look(run="greeter-2")]
    with open_store(tmp_path) as store:
        assert store.add_look(first) == replace(first, number=1)
        assert store.add_look(again) == replace(first, number=1)  # the same results, shown in the same way
        for other in others:
            store.add_look(other)
        store.add_look(look(skill="sailor", run="sailor-1"))
    with open_store(tmp_path) as store:
        kept = list(store.looks("greeter"))
        assert [replace(each, number=0) for each in kept] == [first, *others]
        assert [each.number for each in kept] == sorted({each.number for each in kept})
        assert list(store.looks("greeter", Suite.parse(greetings(3)))) == []
        written = {"cases": [{"id": "two", "prompt": "Greet.", "checks": [{"contains": "ahoy"}]}]}
        assert list(store.looks("greeter", Suite.parse(written))) == kept


def test_only_looks_of_the_same_model_at_the_same_skill_on_the_same_cases_count() -> None:
    known = [
        look(number=1),
        look(number=2, model="other"),
        look(number=3, skill_hash="s0"),
        look(number=4, cases={"four": "4"}),
        look(number=5, margin=0.1),
    ]
    looks = looks_before(known, look(run="greeter-2", cases={"one": "1", "two": "x", "four": "4", "five": "5"}))
    assert [each.number for each in looks.earlier] == [1, 4, 5]
    assert (looks.number, looks.edited, looks.added, looks.removed, looks.revisions) == (4, 1, 2, 1, 1)
    # One that is stored comes after those before it, and before those after it.
    assert looks_before(known, known[0]).number == 1
    assert looks_before(known, known[4]).number == 2


async def evaluated(store: Store, model: Address, cases: int = 4, *, options: RunOptions, **changed: Any) -> Evaluation:
    plan = replace(Plan(SKILL, Suite.parse(greetings(cases)), (model,)), **changed)
    return await evaluate(plan, store=store, options=options)


async def test_every_report_is_a_look_and_the_same_one_again_is_none(home: Path) -> None:
    model = Address("student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:"))
    usual, wide = RunOptions(), RunOptions(margin=0.2)
    with open_store(home / "runs") as store:
        numbers: list[int] = []
        for cases, options, changed in (
            (4, usual, {}),
            (4, usual, {}),  # nothing new
            (4, wide, {}),
            (6, usual, {}),
            (4, RunOptions(fresh=True), {}),
            (4, usual, {"seed": 7}),
            (4, usual, {"arms": ("skill",)}),  # no lift to look at
            (4, RunOptions(keep_look=False), {"seed": 8}),  # nobody is told
        ):
            found = await evaluated(store, model, cases, options=options, **changed)
            numbers.append(found.looks["student"].number)
            assert [each.run for each in found.looks["student"].earlier] == [
                each.run for each in store.looks("greeter")
            ][: numbers[-1] - 1]
        assert numbers == [1, 1, 2, 3, 4, 5, 6, 6]
        kept = list(store.looks("greeter"))
    assert [(each.margin, each.pairs, each.trials, each.seed, each.decision) for each in kept] == [
        (0.05, 4, 8, 0, kept[0].decision),
        (0.2, 4, 8, 0, kept[1].decision),
        (0.05, 6, 12, 0, kept[2].decision),
        (0.05, 4, 8, 0, kept[0].decision),
        (0.05, 4, 8, 7, kept[0].decision),
    ]
    assert kept[0].run == kept[1].run != kept[3].run
    assert kept[0].cases == {case.id: case.fingerprint for case in Suite.parse(greetings(4)).cases}
    assert (kept[0].skill_hash, kept[0].suite) == (SKILL.visible_hash, "suite")


async def test_verdicts_are_told_how_often_somebody_has_looked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from upskill.runs.results import evaluation as module  # noqa: PLC0415
    from upskill.verdicts.compute import compute_verdict  # noqa: PLC0415
    from upskill.verdicts.verdict import Verdict, VerdictOptions  # noqa: PLC0415

    told: list[int] = []

    def listen(rows: Any, options: VerdictOptions) -> Verdict:
        told.append(options.earlier_looks)
        return compute_verdict(rows, options)

    monkeypatch.setattr(module, "compute_verdict", listen)
    model = Address("student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:"))
    with open_store(None) as store:
        for margin in (0.05, 0.1, 0.15):
            found = await evaluated(store, model, options=RunOptions(margin=margin, until_decided="cases"))
        assert set(told) == {0, 1, 2}
        assert told == sorted(told)
        assert evaluation_of(store, found.run).verdicts[0].look == 3


def test_a_run_that_is_not_kept_still_counts_the_looks_that_were(upskill: Upskill, home: Path) -> None:
    skill, student = write_skill(home / "greeter"), write_script(home / "student.yaml")
    argv = ("eval", str(skill), "-m", student, "--json")
    for seed in ("1", "2"):
        assert upskill(*argv, "--seed", seed).code == 0
    told = json.loads(upskill(*argv, "--seed", "3", "--no-log-runs").out)
    assert told["models"][0]["look"] == 3
    elsewhere = json.loads(upskill(*argv, "--seed", "3", "--no-log-runs", "-d", "nowhere").out)
    assert (elsewhere["models"][0]["look"], Path("nowhere").exists()) == (1, False)


def test_edited_cases_are_told_from_the_others(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter")
    command = ("eval", folder, "-m", write_script(home / "student.yaml"), "--json")
    upskill(*command)
    suite = greetings(5)
    suite["cases"][0]["prompt"] = "Please greet the first guest."
    suite["cases"][1]["prompt"] = "Please greet the second guest."
    (folder / "evals" / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    upskill(*command)
    with open_store(home / "runs") as store:
        first, second = store.looks("greeter")
        looks = looks_before([first, second], second)
    assert (looks.number, looks.edited, looks.added, looks.removed) == (2, 2, 1, 0)
    assert first.skill_hash == second.skill_hash  # the suite lies in the skill's folder, where no student sees it
