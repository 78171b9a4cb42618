"""A trial as one row, for exports, the HTML report, the live page and `upskill show --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from upskill.plain import fields_of
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.stores import Run

OUTCOMES = {True: "passed", False: "failed", None: "missing"}
COLUMNS = (
    "run",
    "skill",
    "model",
    "case",
    "tags",  # separated by commas
    "held_out",  # by the suite's split
    "seen",  # with another text of the skill, or none: such a case says nothing about tasks like these
    "author",  # of the case
    "arm",
    "seed",
    "outcome",  # passed, failed, missing
    "cause",  # of a failure: why no answer could pass
    "error",
    "checks_passed",
    "checks",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost_usd",  # empty: the price is not known
    "judge_tokens",
    "judge_cost_usd",
    "seconds",
    "turns",
    "tool_calls",
    "tool_errors",
    "activated",  # empty: the agent had no skill to open
    "leak",
    "answered_by",  # the model name in the provider's reply
    "replayed",  # the replies file; empty: the model was called
    "prompt",
    "answer",
    "findings",  # JSON
)


def trial_row(run: Run, result: Result) -> dict[str, Any]:
    case = run.plan.suite.by_id.get(result.trial.case) or StoredCase(
        id=result.trial.case, prompt=""
    )
    outcome = result.outcome
    row = fields_of(outcome) | {
        "outcome": OUTCOMES[outcome.passed],
        "tool_calls": outcome.calls,
        "answered_by": outcome.snapshot,
        "run": run.id,
        "skill": run.skill,
        "tags": ", ".join(case.tags),
        "held_out": case.held_out,
        "seen": case.id not in run.plan.fresh,
        "author": author_of(case, run.plan.suite.source),
        "error": result.error,
        "reasoning_tokens": result.usage.reasoning_tokens,
        "judge_tokens": result.judging.total_tokens,
        "judge_cost_usd": result.judging.cost_usd,
        "leak": result.leak,
        "replayed": run.plan.replayed,
        "prompt": case.prompt,
        "answer": result.trace.answer if result.trace else "",
        "findings": json.dumps(list(map(asdict, result.findings)), ensure_ascii=False),
    }
    return {name: row[name] for name in COLUMNS}


def result_to_json(result: Result) -> dict[str, Any]:
    fields = asdict(result)
    trial = fields.pop("trial")
    for name in ("fatal", "asked", "is_final", *(() if result.traceback else ("traceback",))):
        fields.pop(name)
    answer = result.trace.answer if result.trace else None
    return {**trial, "outcome": OUTCOMES[result.passed], "answer": answer, **fields}


def author_of(case: StoredCase, source: str = "") -> str:
    """Who wrote a case of a stored plan, if the case says so."""
    author = case.metadata.get("author")
    if isinstance(author, str) and author.strip():
        return author.strip()
    if case.evidence:
        return "a model, from evidence"
    return "a model" if source == "generated" else "people"


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """A single text unchanged, several under their names."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    return (
        "".join(texts.values())
        if len(texts) == 1
        else "\n".join(f"{name}: {text}" for name, text in texts.items())
    )
