"""A plan that was written down beforehand: a run that follows it says so, and one that does not is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Upskill, greetings, write_script, write_skill
from upskill import Address, Models, Plan, Skill, Suite, UsageError, open_store
from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.planning.preregistration import register
from upskill.runs.running.evaluate import RunOptions, evaluate

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")


def make_plan(home: Path, cases: int = 4) -> Plan:
    model = Address(
        "student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:")
    )
    return Plan(SKILL, Suite.parse(greetings(cases)), (model,))


async def test_a_plan_is_written_before_the_first_trial_and_followed_later(home: Path) -> None:
    plan, file = make_plan(home), home / "plans" / "plan.json"
    with open_store(home / "runs") as store:
        first = await evaluate(plan, store=store, options=RunOptions(preregister=file))
        written = json.loads(file.read_text())
        assert written["results_before"] == 0
        assert written["plan"]["cases"] == 4
        assert written["plan"]["trials"] == 8
        assert written["plan"]["margin"] == 0.05
        assert "interval of the lift lies above 0" in written["plan"]["decision_rule"]
        assert first.registration is not None
        again = await evaluate(plan, store=store, options=RunOptions(preregister=file, fresh=True))
        assert again.registration == first.registration
        assert json.loads(file.read_text()) == written


async def test_a_planned_look_has_the_whole_error_and_an_unplanned_one_has_not(home: Path) -> None:
    plan, file = make_plan(home), home / "plan.json"
    with open_store(home / "runs") as store:
        planned = await evaluate(plan, store=store, options=RunOptions(preregister=file))
        assert planned.verdicts[0].look == 1
        unplanned = await evaluate(plan, store=store, options=RunOptions(margin=0.2))
        assert unplanned.verdicts[0].look == 2
        # What was looked at after the plan was written takes nothing from it, but earlier looks at a run of it do.
        followed = await evaluate(
            plan, store=store, options=RunOptions(preregister=file, fresh=True)
        )
        assert followed.verdicts[0].look == 3
        # A date that was changed, or of a clock that was set back, is not when the store met the plan.
        earlier = json.loads(file.read_text()) | {"registered": "2000-01-01T00:00:00+00:00"}
        file.write_text(json.dumps(earlier))
        forged = await evaluate(plan, store=store, options=RunOptions(preregister=file, fresh=True))
        assert forged.verdicts[0].look == 4


async def test_of_many_plans_and_of_many_runs_of_one_only_the_first_is_a_first_look(
    home: Path,
) -> None:
    """Whoever registers often, or draws a registered run again, has looked as often."""
    plan = make_plan(home)
    first, second = home / "first.json", home / "second.json"
    with open_store(home / "runs") as store:
        await evaluate(plan, store=store, options=RunOptions(preregister=first))
        again = await evaluate(plan, store=store, options=RunOptions(preregister=first, fresh=True))
        assert again.verdicts[0].look == 2
        other = replace(plan, seed=5)
        # Both were written down before either was run.
        registered = json.loads(first.read_text())["registered"]
        register(second, other, 0.05, None, 0)
        second.write_text(json.dumps(json.loads(second.read_text()) | {"registered": registered}))
        late = await evaluate(other, store=store, options=RunOptions(preregister=second))
        assert late.verdicts[0].look == 3


async def test_a_part_of_a_planned_run_is_no_planned_look(home: Path) -> None:
    plan, file = make_plan(home), home / "plan.json"
    register(file, plan, 0.05, None, 0)
    with open_store(home / "runs") as store:
        few_calls = Models(ledger=Ledger(Ceilings(calls=3)))
        part = await evaluate(
            plan, store=store, models=few_calls, options=RunOptions(preregister=file)
        )
        assert (part.looks, str(part.unfinished["student"])) == ({}, "unfinished: 3 of 8 trials")
        await evaluate(replace(plan, seed=9), store=store)
        complete = await evaluate(plan, store=store, options=RunOptions(preregister=file))
        assert complete.looks["student"].number == 1


async def test_a_plan_that_comes_after_results_says_so(home: Path) -> None:
    plan, file = make_plan(home), home / "plan.json"
    with open_store(home / "runs") as store:
        await evaluate(plan, store=store)
        late = await evaluate(plan, store=store, options=RunOptions(preregister=file))
    assert late.registration is not None
    assert late.registration.results_before == 8


@pytest.mark.parametrize("change", ["runs", "margin", "cases"])
async def test_a_run_that_does_not_follow_its_plan_is_refused(home: Path, change: str) -> None:
    plan, file = make_plan(home), home / "plan.json"
    other = {"runs": replace(plan, runs=2), "margin": plan, "cases": make_plan(home, cases=5)}[
        change
    ]
    with open_store(home / "runs") as store:
        await evaluate(plan, store=store, options=RunOptions(preregister=file))
        before = len(list(store.looks("greeter")))
        margin = 0.1 if change == "margin" else 0.05
        with pytest.raises(UsageError, match="not the registered run") as refused:
            await evaluate(other, store=store, options=RunOptions(preregister=file, margin=margin))
        assert change in str(refused.value)
        assert len(list(store.looks("greeter"))) == before


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"registered": 1}', "not json", "folder", "[" * 5000]
)
async def test_a_file_that_is_no_registration_is_left_alone(home: Path, content: str) -> None:
    file = home / "plan.json"
    if content == "folder":
        file.mkdir()
    else:
        file.write_text(content)
    with (
        open_store(home / "runs") as store,
        pytest.raises(UsageError, match="not a preregistration file"),
    ):
        await evaluate(make_plan(home), store=store, options=RunOptions(preregister=file))
    assert file.is_dir() or file.read_text() == content


def test_the_report_names_the_plan_and_counts_looks(home: Path, upskill: Upskill) -> None:
    skill = write_skill(home / "greeter")
    suite = home / "suite.json"
    suite.write_text(json.dumps(greetings(4)))
    model = write_script(home / "student.yaml")
    given = ("eval", str(skill), "-t", str(suite), "-m", model, "-v")
    said = upskill(*given, "--preregister", str(home / "plan.json")).out
    assert "Follows the plan in" in said
    assert "which says it was registered 20" in " ".join(said.split())
    assert "at these cases" not in said
    said = upskill(*given, "--set", "margin=20").out
    assert "This is look 2 at these cases" in said
    changed = greetings(4)
    changed["cases"][0]["prompt"] += " Be brief."
    suite.write_text(json.dumps(changed))
    said = " ".join(upskill(*given).out.split())
    assert "This is look 3 at these cases; 1 edited since the first" in said
