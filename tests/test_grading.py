"""What becomes of a check that breaks, of an answer that could not be graded, and what it has cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conftest import evaluate, write_script
from upskill import Models, Skill, Suite, make_plan, open_store
from upskill.checks import Check, Evidence, Finding, SuiteCheck
from upskill.errors import JudgeError, MissingTool, TrialError
from upskill.runs.planning.plan import PlanOptions, Result
from upskill.runs.stores import Store
from upskill.suites import Case
from upskill.traces import Usage

SKILL = Skill.new("greeter", "Greets people.", "Say ahoy.\n")
READS_JSON = (
    "import json\ndef check(answer, workspace, trace):\n    return json.loads(answer)['a'] == 1\n"
)
BROKEN = "def check(answer, workspace, trace):\n    raise RuntimeError('as always')\n"


def case_with(*checks: dict[str, Any], **more: Any) -> Suite:
    return Suite.parse([{"id": "one", "prompt": "Do it.", "checks": list(checks), **more}])


async def run(
    folder: Path, suite: Suite, rules: list[dict[str, Any]], store: Store, **options: Any
) -> list[Result]:
    model = write_script(folder / "model.yaml", rules)
    plan = make_plan(SKILL, suite, [model], PlanOptions(baseline=False, **options))
    evaluation = await evaluate(plan, store=store, models=Models(replies=store))
    return list(store.results(evaluation.run))


def python(source: str) -> dict[str, Any]:
    return {"python": {"file": "check.py", "source": source}}


@pytest.mark.parametrize("source", [READS_JSON, BROKEN])
async def test_a_check_that_breaks_has_failed(source: str, home: Path) -> None:
    with open_store(None) as store:
        (result,) = await run(home, case_with(python(source)), [{"answer": "not JSON"}], store)
    assert (result.passed, result.cause) == (False, "unreadable")
    assert result.findings[0].reason.startswith("the check broke: check.py: check raised an error")


@pytest.mark.parametrize(
    "broken",
    [
        {"answer": "Roses are red."},
        {"stop": "refusal"},
        {"stop": "context"},
        {"error": "the network is gone"},
    ],
)
async def test_a_judge_that_breaks_down_on_some_answers_is_an_error_and_not_the_students_failure(
    home: Path, broken: dict[str, Any]
) -> None:
    fine = {"evidence": "", "reason": "it is not", "passed": False}
    rules = [
        {"when": "BOMB", **broken},
        {"when": "This reply cannot be used", **broken},
        {"system": "statement", "answer": json.dumps(fine)},
        {"answer": "BOMB"},
    ]
    with open_store(None) as store:
        (result,) = await run(
            home, case_with({"judge": "It is polite."}), rules, store, judge="scripted:model.yaml"
        )
    assert (result.passed, result.cause) == (None, "judge")
    assert result.error.startswith("checking judge of one: ")


class Waiting(Check):
    """Breaks until something is there, as one does that needs a compiler."""

    there: ClassVar[bool] = False
    lacks: ClassVar[type[TrialError]] = MissingTool
    text: str

    async def run(self, evidence: Evidence) -> Finding:
        if not Waiting.there:
            raise Waiting.lacks("no compiler")
        return Finding(evidence.answer == self.text, "looked")


WAITS = Suite(
    (Case("one", "Do it.", (SuiteCheck("waiting", "first", Waiting(text="first")),)),), "given"
)


async def test_an_answer_that_could_not_be_graded_is_graded_again_and_not_asked_for_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_script(
        home / "model.yaml", [{"answer": "first", "usage": {"input": 10, "output": 5, "cost": 0.5}}]
    )
    plan = make_plan(SKILL, WAITS, [model], PlanOptions(baseline=False))
    with open_store(home / "runs") as store:
        evaluation = await evaluate(plan, store=store)  # without a cache of replies
        (before,) = store.results(evaluation.run)
        assert (before.passed, "no compiler" in before.error) == (None, True)
        monkeypatch.setattr(Waiting, "there", True)
        evaluation = await evaluate(plan, store=store, models=Silent())
        (after,) = store.results(evaluation.run)
        assert (after.passed, after.trace) == (True, before.trace)
        assert evaluation.spent["student"] == (15, 0.5)  # paid for once


class Silent(Models):
    """Models that must not be asked."""

    async def get(self, *_: Any, **__: Any) -> Any:
        class Nobody:
            async def reply(self, _: object) -> None:
                raise AssertionError("the student was asked again")

            async def close(self) -> None: ...

        return Nobody()


async def test_a_student_that_was_asked_is_missing_for_good_and_its_cost_counts(home: Path) -> None:
    working = [{"answer": "ahoy", "usage": {"input": 10, "output": 5, "cost": 0.5}}]
    suite = case_with({"contains": "ahoy"})
    with open_store(None) as store:
        model = write_script(home / "model.yaml", working)
        plan = make_plan(SKILL, suite, [model], PlanOptions(baseline=False))
        run, _ = store.start_run(plan, "1")
        (trial,) = plan.trials()
        lost = Usage(7, 0, cost_usd=0.25)
        await store.add_result(run, Result(trial, plan.key(trial), None, "overloaded", usage=lost))
        evaluation = await evaluate(plan, store=store)
        assert evaluation.spent["student"] == (7, 0.25)
        (result,) = store.results(evaluation.run)
        assert (result.passed, result.usage.total_tokens) == (None, 7)


async def test_an_acting_student_that_had_answered_is_not_asked_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waiting, "lacks", JudgeError)
    act = {"calls": [{"name": "bash", "arguments": {"command": "echo hello > a.txt"}}]}
    turns = [{"turns": [act, "first"], "usage": {"input": 10, "output": 5, "cost": 0.5}}]
    model = write_script(home / "model.yaml", turns)
    plan = make_plan(SKILL, WAITS, [model], PlanOptions(baseline=False, agent="tools", runs=1))
    with open_store(home / "runs") as store:
        evaluation = await evaluate(plan, store=store, models=Models(replies=store))
        assert next(store.results(evaluation.run)).passed is None
        monkeypatch.setattr(Waiting, "there", True)
        models = Models(replies=store)
        evaluation = await evaluate(plan, store=store, models=models)
        (result,) = store.results(evaluation.run)
        assert (result.passed, models.hits) == (None, 0)  # its workspace is gone
        assert evaluation.spent["student"] == (30, 1.0)
