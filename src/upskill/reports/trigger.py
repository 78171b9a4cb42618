"""How a skill triggers, and whether a better description was found (`upskill trigger`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from upskill.authoring.trigger.description import DescriptionAttempt, Improvement
from upskill.authoring.trigger.metrics import TriggerMetrics
from upskill.authoring.trigger.trigger import TriggerResult
from upskill.reports import figures
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.remarks import describe_missed, find_alarms
from upskill.reports.report import (
    Cell,
    Change,
    Column,
    Headline,
    Note,
    Report,
    Table,
    Tone,
)
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites.queries import PARTS, Queries
from upskill.verdicts.interval import rounded

PART_COLUMNS = (
    Column(""),
    Column("Queries", "count"),
    Column("Recall", "share"),
    Column("False triggers", "share"),
    Column("Precision", "share"),
    Column("Score", "share"),
)
TOLD_BY_TRAIN = (
    "It was written from train queries and chosen by validation queries, so both overrate it."
)


def report_triggered(result: TriggerResult, show_command: str = "") -> Report:
    """`show_command` shows every run; empty if the runs are not stored."""
    report = report_evaluation(result.evaluation, ReportContext(show_command=show_command))
    missed = describe_missed(result.rulings)
    headlines = (*report.headlines, *missed)
    return replace(report, data=_triggered_to_json(result), headlines=headlines)


def report_improvement(improvement: Improvement) -> Report:
    name = improvement.skill.name
    description = improvement.best.skill.description
    notes: list[Note] = []
    for evaluation in improvement.evaluations:
        notes += find_alarms(evaluation, "")
    notes.append(Note(_tried(improvement)))
    if improvement.best.number:
        label = "The new description" if improvement.improved else "The rejected description"
        notes.append(Note(f"{label}:", "caveat", (description,)))
        notes.append(Note(TOLD_BY_TRAIN, "caveat"))
    return Report(
        title=f"A better description for {name}",
        subject=name,
        name=name,
        data=_improvement_to_json(improvement),
        headlines=(_improvement_headline(improvement),),
        tables=(_part_table(improvement),),
        notes=tuple(notes),
        saved=_saved(improvement),
    )


def _improvement_headline(improvement: Improvement) -> Headline:
    if not improvement.best.number:
        return Headline(
            "None was better on validation queries. The test queries were not used.", "open"
        )
    test = improvement.test
    if test is None or test.change is None:
        return Headline("On the test queries: unknown, because not all of them ran.", "open")
    change, estimate = test.change, test.change.estimate
    low, high = f"{100 * estimate.low:+.0f}", f"{100 * estimate.high:+.0f}"
    interval = f"{100 * estimate.level:.3g}% interval {low} to {high}"
    conclusion = "no better"
    if improvement.has_failed:
        conclusion = "unknown, because of errors"
    elif change.is_better:
        conclusion = "better"
    elif change.further_queries:
        more = 2 * change.further_queries  # half of the queries are for the test
        conclusion = (
            f"not shown to be better; about {more} more queries would show a change of this size"
        )
    words = (
        f"{100 * estimate.value:+.0f} points ({interval}, p = {change.p_value:.3f}): {conclusion}."
    )
    if test.number > 1:
        words += f" This is test {test.number} on these queries; the interval corrects for that."
    tone: Tone = "good" if improvement.improved else "open"
    return Headline(f"On the test queries, which were run once: {words}", tone)


def _tried(improvement: Improvement) -> str:
    tried = len(improvement.attempts) - 1
    descriptions = "1 description was" if tried == 1 else f"{tried} descriptions were"
    return f"{descriptions} tried; the search ended: {improvement.ended}."


def _saved(improvement: Improvement) -> str:
    if improvement.saved_to is not None:
        return f"Saved to {improvement.saved_to}"
    if improvement.improved:
        return "Nothing was written: --write saves it in the skill, -o DIR in a copy."
    if improvement.best.number:
        return "Nothing was written: the description is unchanged."
    return ""


def _part_table(improvement: Improvement) -> Table:
    first, best, test = improvement.attempts[0], improvement.best, improvement.test
    parts = [("train", first.train, best.train), ("validation", first.validation, best.validation)]
    if test:
        parts.append(("test", test.before, test.after))
    rows: list[tuple[Cell, ...]] = []
    for part, before, after in parts:
        if before is None:
            continue
        was = _part_cells(before)
        # Without a better description there is nothing to compare with.
        cells = was
        if after is not None and best.number:
            changed = zip(was, _part_cells(after), strict=True)
            cells = [Change(old, new) for old, new in changed]
        rows.append((part, len(before.rates), *cells))
    spent = [f"{role} {tokens:,} tokens" for role, (tokens, _) in improvement.spent.items()]
    note = f"Spent: {' · '.join(spent)}." if spent else ""
    return Table(columns=PART_COLUMNS, rows=tuple(rows), note=note)


def _part_cells(metrics: TriggerMetrics) -> list[float | None]:
    estimates = (metrics.recall, metrics.false_triggers, metrics.precision)
    return [*(each.value if each else None for each in estimates), metrics.score]


# As JSON. The keys are stable; new ones may be added.


def _triggered_to_json(result: TriggerResult) -> dict[str, Any]:
    evaluation = result.evaluation
    return _to_json(evaluation.plan, result.queries, [evaluation], result.spent) | {
        "run": evaluation.run.id,
        "models": [metrics.to_dict() for metrics in result.metrics],
        "requirements": figures.requirements(result.rulings),
        "stopped": [
            {"model": model, "message": message} for model, message in evaluation.stopped.items()
        ],
        "halted": evaluation.halted,
    }


def _improvement_to_json(improvement: Improvement) -> dict[str, Any]:
    test = improvement.test
    return _to_json(
        improvement.plan, improvement.queries, improvement.evaluations, improvement.spent
    ) | {
        "run": improvement.best.run,
        "halted": improvement.halted,
        "improvement": {
            "improved": improvement.improved,
            "description": improvement.skill.description,
            "attempts": [_attempt_to_json(attempt) for attempt in improvement.attempts],
            "test": test
            and {
                "before": test.before.to_dict(),
                "after": test.after.to_dict(),
                "change": test.change.estimate.to_dict() | {"level": test.change.estimate.level}
                if test.change
                else None,
                "p_value": rounded(test.change.p_value) if test.change else None,
                "further_queries": test.change.further_queries if test.change else None,
                "number": test.number,
            },
            "ended": improvement.ended,
            "saved_to": str(improvement.saved_to) if improvement.saved_to else None,
        },
    }


def _to_json(
    plan: Plan,
    queries: Queries,
    evaluations: Sequence[Evaluation],
    spent: Mapping[str, tuple[int, float | None]],
) -> dict[str, Any]:
    return {
        "skill": {
            name: getattr(plan.skill, name) for name in ("name", "description", "fingerprint")
        },
        "agent": plan.agent,
        "with_skills": [other.name for other in plan.distractors],
        "queries": {
            "source": queries.source,
            "should_trigger": len(queries.should_trigger),
            "should_not_trigger": len(queries.should_not_trigger),
            **{part: len(queries.part(part)) for part in PARTS},
        },
        "runs": plan.runs,
        "models": [],
        "requirements": [],
        "stopped": [],
        "improvement": None,
        "errors": figures.errors(evaluations),
        "bugs": figures.bugs(evaluations),
        "warnings": list(
            dict.fromkeys(line for evaluation in evaluations for line in evaluation.warnings)
        ),
        "spent": {
            role: {"tokens": tokens, "cost_usd": cost} for role, (tokens, cost) in spent.items()
        },
    }


def _attempt_to_json(attempt: DescriptionAttempt) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "description": attempt.skill.description,
        "accepted": attempt.accepted,
        "note": attempt.note,
        "run": attempt.run or None,
        "train": attempt.train.to_dict() if attempt.train else None,
        "validation": attempt.validation.to_dict() if attempt.validation else None,
    }
