"""A trial as one row, for exports, the HTML report, the live page and `upskill show --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from upskill.reports.fields import pick, read
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.stores import Run

OUTCOMES = {True: "passed", False: "failed", None: "missing"}
COLUMNS: Mapping[str, str] = {
    "run": "run.id",
    "skill": "run.skill",
    "model": "result.trial.model",
    "case": "case.id",
    "tags": "tags",  # separated by commas
    "held_out": "case.held_out",  # by the suite's split
    "seen": "seen",  # with another text of the skill, or none: such a case says nothing about tasks like these
    "author": "author",  # of the case
    "arm": "result.trial.arm",
    "seed": "result.trial.seed",
    "outcome": "word",  # passed, failed, missing
    "cause": "outcome.cause",  # of a failure: why no answer could pass
    "error": "result.error",
    "checks_passed": "outcome.checks_passed",
    "checks": "outcome.checks",
    "input_tokens": "outcome.input_tokens",
    "output_tokens": "outcome.output_tokens",
    "cached_tokens": "outcome.cached_tokens",
    "reasoning_tokens": "result.usage.reasoning_tokens",
    "cost_usd": "outcome.cost_usd",  # empty: the price is not known
    "judge_tokens": "result.judging.total_tokens",
    "judge_cost_usd": "result.judging.cost_usd",
    "seconds": "outcome.seconds",
    "turns": "outcome.turns",
    "tool_calls": "outcome.calls",
    "tool_errors": "outcome.tool_errors",
    "activated": "outcome.activated",  # empty: the agent had no skill to open
    "leak": "result.leak",
    "answered_by": "outcome.snapshot",  # the model name in the provider's reply
    "replayed": "run.plan.replayed",  # the replies file; empty: the model was called
    "prompt": "case.prompt",
    "answer": "result.trace.answer",
    "findings": "findings",  # JSON
}


def trial_row(run: Run, result: Result) -> dict[str, Any]:
    name = result.trial.case
    case = run.plan.suite.by_id.get(name) or StoredCase(id=name, prompt="")
    found = {
        "run": run,
        "case": case,
        "result": result,
        "outcome": result.outcome,
        "word": OUTCOMES[result.passed],
        "tags": ", ".join(case.tags),
        "seen": name not in run.plan.fresh,
        "author": author_of(case, run.plan.suite.source),
        "findings": json.dumps(list(map(asdict, result.findings)), ensure_ascii=False),
    }
    return pick(found, COLUMNS)


def result_to_json(result: Result) -> dict[str, Any]:
    fields = asdict(result)
    trial = fields.pop("trial")
    for name in ("fatal", "asked", "is_final", *(() if result.traceback else ("traceback",))):
        fields.pop(name)
    answer = read(result, "trace.answer")
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
    if len(texts) == 1:
        return "".join(texts.values())
    return "\n".join(f"{name}: {text}" for name, text in texts.items())
