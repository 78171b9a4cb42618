"""`csv`: one row for each model of a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from upskill.reports import ReportContext
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Run
from upskill.verdicts.verdict import Verdict

COLUMNS = (
    "run",
    "created",
    "skill",
    "model",
    "pairs",
    "baseline_pass_rate",
    "skill_pass_rate",
    "lift",
    "interval_low",
    "interval_high",
    "decision",
    "baseline_tokens",
    "skill_tokens",
    "token_savings",
    "cost_usd",
    "errored",
    "activated",
    "baseline_turns",
    "skill_turns",
    "baseline_calls",
    "skill_calls",
    "baseline_tool_errors",
    "skill_tool_errors",
    "reason",
    "bugs",
)


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    return render_rows((evaluation.run, verdict) for verdict in evaluation.verdicts)


def render_rows(rows: Iterable[tuple[Run, Verdict]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run, verdict in rows:
        low, high = verdict.interval or (None, None)
        costs = (verdict.baseline.cost_usd, verdict.skill.cost_usd)
        writer.writerow(
            [
                run.id,
                run.created,
                run.skill,
                verdict.model,
                verdict.pairs,
                verdict.baseline.pass_rate,
                verdict.skill.pass_rate,
                verdict.lift,
                low,
                high,
                verdict.decision,
                verdict.baseline.total_tokens,
                verdict.skill.total_tokens,
                verdict.token_savings,
                None if None in costs else sum(cost or 0.0 for cost in costs),
                verdict.baseline.errored + verdict.skill.errored,
                verdict.activation.rate if verdict.activation else None,
                verdict.baseline.turns,
                verdict.skill.turns,
                verdict.baseline.tool_calls,
                verdict.skill.tool_calls,
                verdict.baseline.tool_errors,
                verdict.skill.tool_errors,
                verdict.reason,
                verdict.baseline.bugs + verdict.skill.bugs,
            ]
        )
    return text.getvalue()
