"""How a skill triggers, and whether a better description was found (`upskill trigger`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from upskill.authoring.trigger.description import Improvement
from upskill.authoring.trigger.trigger import TriggerResult
from upskill.reports import figures
from upskill.reports.evaluated import describe_missed, find_alarms, report_evaluation
from upskill.reports.fields import named, pick, to_plain
from upskill.reports.numbers import points
from upskill.reports.report import Change, Headline, Note, Report, Row, Table, Tone
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites.queries import PARTS, Queries
from upskill.verdicts.interval import rounded
from upskill.verdicts.line import signed_points

SHARES = {
    "Recall": "recall.value",
    "False triggers": "false_triggers.value",
    "Precision": "precision.value",
    "Score": "score",
}
TOLD_BY_TRAIN = (
    "It was written from train queries and chosen by validation queries, so both overrate it."
)


def report_triggered(result: TriggerResult, show_command: str = "") -> Report:
    """`show_command` shows every run; empty if the runs are not stored."""
    report = report_evaluation(result.evaluation, show_command=show_command)
    headlines = [*report.headlines, *describe_missed(result.rulings)]
    return replace(report, data=_triggered_to_json(result), headlines=headlines)


def report_improvement(improvement: Improvement) -> Report:
    name = improvement.skill.name
    spent = [f"{role} {tokens:,} tokens" for role, (tokens, _) in improvement.spent.items()]
    note = f"Spent: {' · '.join(spent)}." if spent else ""
    return Report(
        title=f"A better description for {name}",
        subject=name,
        name=name,
        data=_improvement_to_json(improvement),
        headlines=[_improvement_headline(improvement)],
        tables=[Table.of(_part_rows(improvement), note=note)],
        notes=[*_notes(improvement)],
        saved=_saved(improvement),
    )


def _notes(improvement: Improvement) -> Iterator[Note]:
    for evaluation in improvement.evaluations:
        yield from find_alarms(evaluation, "")
    tried = len(improvement.attempts) - 1
    yield Note(f"Descriptions tried: {tried}; the search ended: {improvement.ended}.")
    if improvement.best.number:
        label = "The new description" if improvement.improved else "The rejected description"
        yield Note(f"{label}:", "caveat", [improvement.best.skill.description])
        yield Note(TOLD_BY_TRAIN, "caveat")


def _improvement_headline(improvement: Improvement) -> Headline:
    if not improvement.best.number:
        words = "None was better on validation queries. The test queries were not used."
        return Headline(words, "open")
    test = improvement.test
    if test is None or test.change is None:
        return Headline("On the test queries: unknown, because not all of them ran.", "open")
    change, estimate = test.change, test.change.estimate
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
    low, high = signed_points(estimate.low), signed_points(estimate.high)
    interval = f"{low} to {high}; {100 * estimate.level:.3g}% interval, p = {change.p_value:.3f}"
    words = f"{points(estimate.value)} ({interval}): {conclusion}."
    if test.number > 1:
        words += f" This is test {test.number} on these queries; the interval corrects for that."
    tone: Tone = "good" if improvement.improved else "open"
    return Headline(f"On the test queries, which were run once: {words}", tone)


def _saved(improvement: Improvement) -> str:
    if improvement.saved_to is not None:
        return f"Saved to {improvement.saved_to}"
    if improvement.improved:
        return "Nothing was written: --write saves it in the skill, -o DIR in a copy."
    if improvement.best.number:
        return "Nothing was written: the description is unchanged."
    return ""


def _part_rows(improvement: Improvement) -> Iterator[Row]:
    first, best, test = improvement.attempts[0], improvement.best, improvement.test
    parts = [("train", first.train, best.train), ("validation", first.validation, best.validation)]
    if test:
        parts.append(("test", test.before, test.after))
    for part, before, after in parts:
        if before is None:
            continue
        # Without a better description there is nothing to compare with.
        compared = after if best.number else None
        was, now = pick(before, SHARES), pick(compared or before, SHARES)
        shares = {name: Change(was[name] if compared else None, now[name]) for name in SHARES}
        yield {"Part": part, "Queries": len(before.rates), **shares}


# As JSON. The keys are stable; new ones may be added.


def _triggered_to_json(result: TriggerResult) -> dict[str, Any]:
    evaluation = result.evaluation
    return _to_json(evaluation.plan, result.queries, [evaluation], result.spent) | {
        "run": evaluation.run.id,
        "models": to_plain(result.metrics),
        "requirements": figures.requirements(result.rulings),
        "stopped": named(evaluation.stopped.items(), "model", "message"),
        "halted": evaluation.halted,
    }


def _improvement_to_json(improvement: Improvement) -> dict[str, Any]:
    test = improvement.test
    tested: dict[str, Any] | None = None
    if test:
        change = test.change
        tested = pick(
            test, "before", "after", "number", {"further_queries": "change.further_queries"}
        ) | {
            "change": change and change.estimate.to_dict() | {"level": change.estimate.level},
            "p_value": change and rounded(change.p_value),
        }
    names = {"attempt": "number", "description": "skill.description"}
    attempts = [
        pick(each, names, "accepted", "note", "train", "validation") | {"run": each.run or None}
        for each in improvement.attempts
    ]
    return _to_json(
        improvement.plan, improvement.queries, improvement.evaluations, improvement.spent
    ) | {
        "run": improvement.best.run,
        "halted": improvement.halted,
        "improvement": {
            **pick(improvement, "improved", "ended", "saved_to"),
            "description": improvement.skill.description,
            "attempts": attempts,
            "test": tested,
        },
    }


def _to_json(
    plan: Plan,
    queries: Queries,
    evaluations: Sequence[Evaluation],
    spent: Mapping[str, tuple[int, float | None]],
) -> dict[str, Any]:
    warnings = [line for evaluation in evaluations for line in evaluation.warnings]
    return {
        "skill": pick(plan.skill, "name", "description", "fingerprint"),
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
        "warnings": list(dict.fromkeys(warnings)),
        "spent": figures.spent(spent),
    }
