"""A trial as one row of a table: the columns that `csv`, `jsonl` and `parquet` have in common."""

from __future__ import annotations

import json
from typing import Any, Literal

from upskill.reports.exports import StoredRun
from upskill.reports.groups import author_of
from upskill.reports.trials import OUTCOMES
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase

Kind = Literal["text", "whole", "number", "boolean"]
COLUMNS: dict[str, Kind] = {
    "run": "text",
    "skill": "text",
    "model": "text",
    "case": "text",
    "tags": "text",  # separated by commas
    "held_out": "boolean",
    "author": "text",  # of the case
    "arm": "text",
    "seed": "whole",
    "outcome": "text",  # passed, failed, errored
    "cause": "text",  # of a failure: why there was no answer that could pass
    "error": "text",
    "checks_passed": "whole",
    "checks": "whole",
    "input_tokens": "whole",
    "output_tokens": "whole",
    "cached_tokens": "whole",
    "reasoning_tokens": "whole",
    "cost_usd": "number",  # empty: the price is not known
    "judge_tokens": "whole",
    "judge_cost_usd": "number",
    "seconds": "number",
    "turns": "whole",
    "tool_calls": "whole",
    "tool_errors": "whole",
    "activated": "boolean",  # empty: no skill was on offer that an agent could open
    "leak": "text",
    "answered_by": "text",  # the name that the provider answered under
    "prompt": "text",
    "answer": "text",
    "findings": "text",  # JSON
}


def trial_row(source: StoredRun, result: Result) -> dict[str, Any]:
    trial, usage, trace = result.trial, result.usage, result.trace
    case = source.cases.get(trial.case) or StoredCase(id=trial.case, prompt="")
    passed, checks = result.checks_passed
    findings = [
        {"check": one.check, "passed": one.passed, "reason": one.reason, "decides": one.decides}
        for one in result.judgements
    ]
    return {
        "run": source.run.id,
        "skill": source.run.skill,
        "model": trial.model,
        "case": trial.case,
        "tags": ", ".join(case.tags),
        "held_out": case.held_out,
        "author": author_of(case, source.run.plan.suite.source),
        "arm": trial.arm,
        "seed": trial.seed,
        "outcome": OUTCOMES[result.passed],
        "cause": result.cause,
        "error": result.error,
        "checks_passed": passed,
        "checks": checks,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": usage.cost_usd,
        "judge_tokens": result.judging.total_tokens,
        "judge_cost_usd": result.judging.cost_usd,
        "seconds": result.seconds,
        "turns": trace.turns if trace else 0,
        "tool_calls": len(trace.calls) if trace else 0,
        "tool_errors": result.tool_errors,
        "activated": result.activated,
        "leak": result.leak,
        "answered_by": trace.model if trace else "",
        "prompt": case.prompt,
        "answer": trace.answer if trace else "",
        "findings": json.dumps(findings, ensure_ascii=False),
    }
