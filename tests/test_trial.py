"""Plans, trials and results: what a trial's key depends on, the order of trials, and that all of it is plain."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import greetings, write_skill
from upskill import Address, Plan, Result, Skill, Suite, Trial
from upskill.agents import Bounds, Task
from upskill.agents.chat import chat_request
from upskill.models import ModelContext
from upskill.models.pool import Models
from upskill.plain import digest
from upskill.runs.planning.plan import GENERATION, CheckFinding, PlanOptions, make_plan
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.running.trial import run_trial
from upskill.traces import Usage

ONE = Address("one", "openai", "one", "generic", "http://127.0.0.1:1/v1")
TWO = Address("two", "openai", "two", "generic", "http://127.0.0.1:1/v1")
JUDGE = Address("judge", "openai", "judge")


GREETER = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")


def plan_of(**changed: Any) -> Plan:
    plan = Plan(GREETER, Suite.parse(greetings(3)), (ONE, TWO), runs=2)
    return replace(plan, **changed)


def keys(plan: Plan, arm: str) -> set[str]:
    return {plan.key(trial) for trial in plan.trials() if trial.arm == arm}


def test_an_embedded_model_reads_the_skill_first_and_is_then_run_arm_by_arm() -> None:
    plan = plan_of(models=(Address("local", "local", ""),), temperature=0.7)
    trials = list(plan.trials())
    assert len(trials) == len(plan) == len(set(trials))
    assert trials[0] == Trial("local", "greet-1", "skill", 0)
    assert [trial.arm for trial in trials[1:]] == ["baseline"] * 6 + ["skill"] * 5
    assert [(trial.case, trial.seed) for trial in trials[1:5]] == [
        ("greet-1", 0),
        ("greet-2", 0),
        ("greet-3", 0),
        ("greet-1", 1),
    ]


def test_elsewhere_a_round_has_all_arms_and_cases_and_ends_before_the_next() -> None:
    plan = plan_of()
    trials = list(plan.trials())
    assert len(trials) == len(plan) == len(set(trials)) == 2 * 2 * 2 * 3
    assert [trial.model for trial in trials] == ["one"] * 12 + ["two"] * 12
    assert [trial.seed for trial in trials] == ([0] * 6 + [1] * 6) * 2


def test_an_equal_plan_has_equal_keys_and_the_same_fingerprint() -> None:
    assert keys(plan_of(), "skill") == keys(plan_of(), "skill")
    assert plan_of().fingerprint == plan_of().fingerprint


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.0},
        {"max_output_tokens": 100},
        {"limit_is_stated": True},
        {"agent": "tools"},
        {"judge": JUDGE},
        {"seed": 100},
        {"models": (replace(ONE, base_url="http://127.0.0.1:2/v1"), replace(TWO, effort="low"))},
        {"models": (replace(ONE, model="other"), replace(TWO, endpoint="openai"))},
        {"models": (replace(ONE, provider="anthropic"), replace(TWO, name="three"))},
    ],
    ids=str,
)
def test_whatever_decides_a_trial_is_in_both_arms_keys(changed: dict[str, Any]) -> None:
    before, after = plan_of(), plan_of(**changed)
    assert not keys(before, "baseline") & keys(after, "baseline")
    assert not keys(before, "skill") & keys(after, "skill")
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("field", ["prompt", "files", "checks"])
def test_an_edited_case_changes_its_own_keys_and_no_others(field: str) -> None:
    written = greetings(3)
    edited = {"prompt": "Greet.", "files": {"guests.txt": "Ann"}, "checks": [{"contains": "guest"}]}
    written["cases"][0][field] = edited[field]
    before, after = plan_of(), plan_of(suite=Suite.parse(written))
    for trial in before.trials():
        assert (before.key(trial) == after.key(trial)) is (trial.case != "greet-1")


@pytest.mark.parametrize(
    "words",
    [{"tags": ["easy"]}, {"held_out": True}, {"reference": "ahoy"}, {"expected_output": "ahoy"}],
    ids=str,
)
def test_words_that_decide_no_outcome_change_no_key(words: dict[str, Any]) -> None:
    written = greetings(3)
    written["cases"][0] |= words
    after = plan_of(suite=Suite.parse(written, "elsewhere.json"))
    assert after.fingerprint == plan_of().fingerprint


@pytest.mark.parametrize("samples", [True, False])
def test_the_key_of_the_baseline_depends_on_the_skill_only_where_students_sample(
    samples: bool,
) -> None:
    models = (ONE, TWO) if samples else (Address("local", "local", ""),)
    other = Skill.new("greeter", "Greets.", "Say good day.")
    before, after = plan_of(models=models), plan_of(models=models, skill=other)
    assert (keys(before, "baseline") == keys(after, "baseline")) is not samples
    assert not keys(before, "skill") & keys(after, "skill")
    assert before.fingerprint != after.fingerprint


def test_editing_the_evals_of_a_skill_does_not_change_what_it_teaches(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greeter")
    before = plan_of(skill=Skill.load(folder))
    (folder / "evals" / "notes.md").write_text("nobody is taught this", encoding="utf-8")
    (folder / "skill_meta.json").write_text("{}", encoding="utf-8")
    after = plan_of(skill=Skill.load(folder))
    assert before.skill.fingerprint != after.skill.fingerprint
    assert before.fingerprint == after.fingerprint
    (folder / "reference.md").write_text("an agent may open this", encoding="utf-8")
    assert plan_of(skill=Skill.load(folder)).fingerprint != before.fingerprint


def test_further_models_runs_and_cases_leave_the_keys_of_the_others_alone() -> None:
    small = plan_of(models=(ONE,), runs=1, suite=Suite.parse(greetings(2)))
    large = plan_of()
    assert {small.key(trial) for trial in small.trials()} < {
        large.key(trial) for trial in large.trials()
    }


def test_the_order_of_cases_and_models_is_not_part_of_the_fingerprint() -> None:
    written = greetings(3)
    written["cases"].reverse()
    assert (
        plan_of(suite=Suite.parse(written), models=(TWO, ONE)).fingerprint == plan_of().fingerprint
    )


def test_what_the_chat_agent_sends_belongs_to_the_generation_in_the_key() -> None:
    """Fails when the wording changes: then raise GENERATION in runs/plan.py, and write both new numbers here."""
    sent = chat_request(
        Task("Greet.", {"a.txt": "Ann\n"}, Skill.new("greeter", "Greets.", "Say ahoy."), 1, 0.0, 64)
    )
    told = digest([[message.role, message.text] for message in sent.messages])
    assert (GENERATION, told) == (2, "422ce279127f12ff")


def test_what_the_store_keeps_of_a_plan_is_plain_json() -> None:
    stored = StoredPlan.of(plan_of(judge=JUDGE))
    plain = stored.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert StoredPlan.from_dict(plain) == stored
    assert plain["skill"]["body"] == "Say ahoy to the guest."
    assert [case["id"] for case in plain["suite"]["cases"]] == ["greet-1", "greet-2", "greet-3"]
    assert [model["name"] for model in plain["models"]] == ["one", "two"]


def test_the_suite_of_a_stored_plan_can_be_read_again() -> None:
    plan = plan_of()
    again = StoredPlan.of(plan).to_plan()
    assert again.suite.fingerprint == plan.suite.fingerprint
    assert again.skill.visible_hash == plan.skill.visible_hash


def test_an_outcome_has_the_numbers_of_its_result() -> None:
    findings = (CheckFinding("contains", True, ""), CheckFinding("max_length", False, ""))
    result = Result(
        Trial("one", "greet-1", "skill", 3),
        "key",
        False,
        findings=findings,
        usage=Usage(10, 5, 4, 2, 0.25),
        seconds=1.5,
    )
    outcome = result.outcome
    assert (outcome.model, outcome.case, outcome.arm, outcome.seed) == (
        "one",
        "greet-1",
        "skill",
        3,
    )
    assert (outcome.input_tokens, outcome.output_tokens, outcome.cached_tokens) == (10, 5, 4)
    assert (outcome.cost_usd, outcome.seconds) == (0.25, 1.5)
    assert (outcome.checks_passed, outcome.checks, outcome.passed) == (1, 2, False)


@pytest.mark.parametrize("busy", [0.0, 2.5])
async def test_time_that_upskill_lost_itself_fails_no_trial(tmp_path: Path, busy: float) -> None:
    script = tmp_path / "slow.yaml"
    script.write_text("- {answer: ahoy, seconds: 600}\n", encoding="utf-8")
    options = PlanOptions(agent="tools", sandbox="none", bounds=Bounds(seconds=0.5))
    plan = make_plan(GREETER, Suite.parse(greetings(1)), [f"scripted:{script}"], options)
    asyncio.get_running_loop().call_later(0.1, time.sleep, busy)
    async with Models(ModelContext()) as models:
        result = await run_trial(plan, next(plan.trials()), models)
    assert result.passed is (None if busy else False)
    assert ("upskill itself was busy for 2" in result.error) is bool(busy)
