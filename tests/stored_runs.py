"""Runs put into a store as if they had been carried out: whatever a student may answer, in no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from upskill import Plan, Result, Skill, Suite, Trial, make_plan, open_store
from upskill.runs.planning.plan import CheckFinding, PlanOptions
from upskill.traces import Step, Trace, Usage

Answered = Callable[[Trial], Result]
BODY = "# Greeting\n\nSay ahoy, a comma, and the name.\nNever say hello.\n"
META = """{
  "sources": [
    {"line": "Say ahoy, a comma, and the name.", "evidence": ["c1"]},
    {"line": "Never say hello.", "evidence": ["own"]}
  ],
  "evidence": {"c1": {"kind": "correction", "from": "session.jsonl", "text": "we say ahoy here"}}
}"""


def suite_of(cases: int) -> Suite:
    """Half of the cases held out, three tags, two authors."""
    written: list[dict[str, Any]] = [
        {
            "id": f"greet-{number}",
            "prompt": f"Please greet guest {number} in the way of this house.",
            "held_out": number % 2 == 0,
            "tags": [("short", "formal", "sea")[number % 3]],
            "metadata": {"author": ("Ada", "Grace")[number % 2]},
            "checks": [{"contains": "ahoy"}, {"max_length": 60}],
        }
        for number in range(1, cases + 1)
    ]
    return Suite.parse({"cases": written}, "evals/suite.yaml")


def plan_of_models(
    models: Sequence[str], cases: int = 12, folder: Path | None = None, **options: Any
) -> Plan:
    """A plan of scripted models by these names, which nobody is going to ask."""
    skill = Skill.new("greeter", "Greets people the way this house does.", BODY)
    skill = skill.with_file("skill_meta.json", META.encode())
    folder = folder or Path()
    for model in models:
        (folder / model).write_text("- answer: hello\n", encoding="utf-8")
    names = [f"scripted:{folder / model}" for model in models]
    return make_plan(skill, suite_of(cases), names, PlanOptions(keys={}, **options))


def store_run(place: Path, plan: Plan, answered: Answered) -> str:
    """The id of a run of this plan in the store at this place, with these results."""

    async def add() -> str:
        with open_store(place) as store:
            run, _ = store.start_run(plan, "test")
            waiting: list[Any] = []
            for trial in plan.trials():
                waiting.append(store.add_result(run, answered(trial)))
                if len(waiting) >= 500:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
            return run.id

    return asyncio.run(add())


def result_of(
    plan: Plan, trial: Trial, answer: str, *, passed: bool | None = True, **fields: Any
) -> Result:
    """A result with this answer; `steps` come before it."""
    steps: tuple[Step, ...] = fields.pop("steps", ())
    cost: float | None = fields.pop("cost", 0.0004 if trial.arm == "skill" else 0.0003)
    findings = (
        CheckFinding(
            "contains",
            bool(passed),
            "the answer contains 'ahoy'" if passed else "the answer lacks 'ahoy'",
        ),
        CheckFinding(
            "max_length", True, f"the answer has {len(answer)} characters; it may have at most 60"
        ),
    )
    usage = Usage(220 if trial.arm == "skill" else 60, 12, cost_usd=cost)
    return Result(
        trial,
        plan.key(trial),
        passed,
        trace=Trace(
            (*steps, Step("assistant", answer)), usage, "end", "scripted", turns=1 + len(steps)
        ),
        findings=findings if passed is not None else (),
        usage=usage,
        seconds=1.25,
        **fields,
    )
