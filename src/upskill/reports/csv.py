from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from upskill.reports import ReportContext
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Run
from upskill.verdicts.verdict import Verdict

COLUMNS = (
    *("run", "created", "skill", "model", "pairs", "baseline_pass_rate", "skill_pass_rate"),
    *(
        "lift",
        "interval_low",
        "interval_high",
        "decision",
        "baseline_tokens",
        "skill_tokens",
        "token_savings",
    ),
    *(
        "cost_usd",
        "errored",
        "activated",
        "baseline_turns",
        "skill_turns",
        "baseline_calls",
        "skill_calls",
    ),
    *("baseline_tool_errors", "skill_tool_errors", "reason", "bugs", "replayed"),
    *("these_interval_low", "these_interval_high", "these_decision"),  # on exactly these cases
)


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    return render_rows((evaluation.run, verdict) for verdict in evaluation.verdicts)


def render_rows(rows: Iterable[tuple[Run, Verdict]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run, verdict in rows:
        row: dict[str, Any] = {name: getattr(run, name) for name in ("created", "skill")}
        row |= {
            name: getattr(verdict, name)
            for name in (
                "model",
                "pairs",
                "lift",
                "decision",
                "token_savings",
                "reason",
                "replayed",
            )
        }
        for arm in (verdict.baseline, verdict.skill):
            row |= {
                f"{arm.arm}_pass_rate": arm.pass_rate,
                f"{arm.arm}_tokens": arm.total_tokens,
                f"{arm.arm}_turns": arm.turns,
                f"{arm.arm}_calls": arm.tool_calls,
                f"{arm.arm}_tool_errors": arm.tool_errors,
            }
        low, high = verdict.interval or (None, None)
        these = verdict.these_cases
        these_low, these_high = these.lift.interval if these else (None, None)
        costs = (verdict.baseline.cost_usd, verdict.skill.cost_usd)
        writer.writerow(
            row
            | {
                "run": run.id,
                "interval_low": low,
                "interval_high": high,
                "cost_usd": None if None in costs else sum(cost or 0.0 for cost in costs),
                "errored": verdict.baseline.errored + verdict.skill.errored,
                "activated": verdict.activation.rate if verdict.activation else None,
                "bugs": verdict.baseline.bugs + verdict.skill.bugs,
                "these_interval_low": these_low,
                "these_interval_high": these_high,
                "these_decision": these.decision if these else None,
            }
        )
    return text.getvalue()
