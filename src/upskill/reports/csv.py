from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from upskill.reports import ReportContext
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Run
from upskill.verdicts.verdict import Verdict

COLUMNS: tuple[str, ...] = (
    "run",
    "created",
    "skill",
    "model",
    "decision",
    "about",  # tasks like these, or these cases
    "lift",
    "low",
    "high",
    "level",
    "reason",  # of undecided
    "cases",
    "pairs",
    "other_decision",  # the answer to the other question; empty: there is none
    "other_lift",
    "other_low",
    "other_high",
    "baseline_pass_rate",
    "skill_pass_rate",
    "baseline_tokens",
    "skill_tokens",
    "token_savings",
    "cost_usd",
    "missing",
    "activated",
    "baseline_turns",
    "skill_turns",
    "baseline_calls",
    "skill_calls",
    "baseline_tool_errors",
    "skill_tool_errors",
    "bugs",
    "caveats",
)
OF_VERDICT = (
    "model",
    "decision",
    "about",
    "lift",
    "level",
    "reason",
    "cases",
    "pairs",
    "token_savings",
)


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    return render_rows((evaluation.run, verdict) for verdict in evaluation.verdicts)


def render_rows(rows: Iterable[tuple[Run, Verdict]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run, verdict in rows:
        row: dict[str, Any] = {name: getattr(run, name) for name in ("created", "skill")}
        row |= {name: getattr(verdict, name) for name in OF_VERDICT}
        for arm in (verdict.baseline, verdict.skill):
            row |= {
                f"{arm.arm}_pass_rate": arm.pass_rate,
                f"{arm.arm}_tokens": arm.total_tokens,
                f"{arm.arm}_turns": arm.turns,
                f"{arm.arm}_calls": arm.tool_calls,
                f"{arm.arm}_tool_errors": arm.tool_errors,
            }
        low, high = verdict.interval or (None, None)
        row |= {"run": run.id, "low": low, "high": high}
        if other := verdict.other:
            low, high = other.interval or (None, None)
            row |= {"other_decision": other.decision, "other_lift": other.lift}
            row |= {"other_low": low, "other_high": high}
        costs = (verdict.baseline.cost_usd, verdict.skill.cost_usd)
        row |= {
            "cost_usd": None if None in costs else sum(cost or 0.0 for cost in costs),
            "missing": verdict.baseline.missing + verdict.skill.missing,
            "activated": verdict.activation.rate if verdict.activation else None,
            "bugs": verdict.baseline.bugs + verdict.skill.bugs,
            "caveats": " ".join(verdict.caveats),
        }
        writer.writerow(row)
    return text.getvalue()
