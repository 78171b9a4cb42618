from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from upskill.authoring.trigger.description import DescriptionAttempt, Improvement
from upskill.authoring.trigger.metrics import QUANTITIES, TriggerMetrics
from upskill.authoring.trigger.trigger import TriggerResult
from upskill.reports import json
from upskill.reports.layout import indented
from upskill.reports.numbers import UNKNOWN, percent
from upskill.reports.terminal import bug_panel
from upskill.reports.view import problems
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites.queries import PARTS, Queries
from upskill.verdicts.interval import rounded

TITLES = {
    "precision": "precision",
    "recall": "recall",
    "accuracy": "accuracy",
    "false_triggers": "false triggers",
}


def render_triggered(result: TriggerResult, show_command: str = "") -> Iterator[RenderableType]:
    """`show_command` shows every run; empty if the runs are not stored."""
    evaluation = result.evaluation
    if evaluation.bugs:
        yield bug_panel(evaluation, show_command)
    yield _heading(evaluation.plan, result.queries)
    for metrics in result.metrics:
        if len(result.metrics) > 1:
            yield Text(f"  {metrics.model}", style="bold")
        yield indented(_rate_table(metrics))
        yield Text("")
        yield from (indented(Text(line)) for line in _metric_lines(metrics))
        yield Text("")
    notes = [f"Note: {warning}" for warning in evaluation.warnings]
    notes += problems(evaluation)
    if show_command:
        notes.append(f"Every run: {show_command}")
    yield from (indented(Text(line, style="dim")) for line in notes)


def render_improvement(improvement: Improvement) -> Iterator[RenderableType]:
    yield from (bug_panel(evaluation) for evaluation in improvement.evaluations if evaluation.bugs)
    yield Text(f"\n  {improvement.skill.name}", style="bold")
    yield Text("")
    yield indented(_part_table(improvement))
    yield Text("")
    tried = len(improvement.attempts) - 1
    descriptions = "1 description was" if tried == 1 else f"{tried} descriptions were"
    yield indented(Text(f"{descriptions} tried; the search ended: {improvement.ended}."))
    if not improvement.best.number:
        yield indented(
            Text("None was better on validation queries. The test queries were not used.")
        )
    else:
        yield indented(
            Text(
                "It was written from train queries and chosen by validation queries, so both overrate it."
            )
        )
        yield indented(Text("On the test queries, which were run once:"))
        yield indented(Text(_test_line(improvement)))
        label = "The new description" if improvement.improved else "The rejected description"
        yield indented(Text(f"\n{label}:\n{improvement.best.skill.description}"))
    if improvement.spent:
        spent = [f"{role} {tokens:,} tokens" for role, (tokens, _) in improvement.spent.items()]
        yield indented(Text(f"\nSpent: {' · '.join(spent)}", style="dim"))
    if improvement.saved_to is not None:
        yield Text(f"\nSaved to {improvement.saved_to}")
    elif improvement.improved:
        yield Text("\nNothing was written: --write saves it in the skill, -o DIR in a copy.")
    elif improvement.best.number:
        yield Text("\nNothing was written: the description is unchanged.")


def _heading(plan: Plan, queries: Queries) -> RenderableType:
    runs = "one run each" if plan.runs == 1 else f"{plan.runs} runs each"
    kinds = f"{len(queries.should_trigger)} should trigger, {len(queries.should_not_trigger)} should not"
    distractors = ", ".join(other.name for other in plan.distractors) or "nothing"
    lines = [
        "",
        f"[bold]{escape(plan.skill.name)}[/bold]",
        escape(" ".join(plan.skill.description.split())),
        "",
        f"queries    {kinds}, {runs}",
        f"agent      {plan.agent}; also installed: {escape(distractors)}",
        "",
    ]
    return indented(Text.from_markup("\n".join(lines)))


def _rate_table(metrics: TriggerMetrics) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Query", max_width=64)  # the only column that may shrink
    for column in ("Should", "Fired", "Rate", "95% interval", ""):
        table.add_column(
            column, no_wrap=True, justify="right" if column in ("Fired", "Rate") else "left"
        )
    marks = {
        True: Text("ok", style="green"),
        False: Text("wrong", style="red"),
        None: Text("no run", style="yellow"),
    }
    for rate in metrics.rates:
        table.add_row(
            Text(" ".join(rate.query.text.split()), no_wrap=True, overflow="ellipsis"),
            "yes" if rate.query.should_trigger else "no",
            f"{rate.triggered}/{rate.scored}"
            + (f" ({rate.errored} errored)" if rate.errored else ""),
            percent(rate.value),
            " to ".join(map(percent, rate.interval)),
            marks[rate.as_expected],
        )
    return table


def _metric_lines(metrics: TriggerMetrics) -> Iterator[str]:
    for quantity in QUANTITIES:
        value, share = UNKNOWN, metrics.estimate(quantity)
        if share is not None:
            value = f"{percent(share.value):>4}  (95% interval {percent(share.low)} to {percent(share.high)})"
        yield f"{TITLES[quantity]:<16}{value}"
    scored = sum(rate.as_expected is not None for rate in metrics.rates)
    yield f"{'right':<16}{metrics.as_expected} of {scored} queries are on the right side of 50%"
    if metrics.errored:
        yield f"{'errored':<16}{metrics.errored} of {metrics.errored + metrics.scored} runs, not counted"


def _part_table(improvement: Improvement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "Queries", "Recall", "False triggers", "Precision", "Score"):
        table.add_column(column, no_wrap=True, justify="left" if not column else "right")
    first, best, test = improvement.attempts[0], improvement.best, improvement.test
    parts = [("train", first.train, best.train), ("validation", first.validation, best.validation)]
    if test:
        parts.append(("test", test.before, test.after))
    for part, before, after in parts:
        for word, metrics in (("before", before), ("after", after if best.number else None)):
            if metrics is not None:
                estimates = (metrics.recall, metrics.false_triggers, metrics.precision)
                shares = [percent(estimate.value if estimate else None) for estimate in estimates]
                table.add_row(
                    f"{part}, {word}", str(len(metrics.rates)), *shares, percent(metrics.score)
                )
    return table


def _test_line(improvement: Improvement) -> str:
    test = improvement.test
    if test is None or test.change is None:
        return "unknown, because not all of them ran."
    change, estimate = test.change, test.change.estimate
    interval = f"{100 * estimate.level:.3g}% interval {100 * estimate.low:+.0f} to {100 * estimate.high:+.0f}"
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
    tests = (
        f" This is test {test.number} on these queries; the interval corrects for that."
        if test.number > 1
        else ""
    )
    return f"{100 * estimate.value:+.0f} points ({interval}, p = {change.p_value:.3f}): {conclusion}.{tests}"


# As JSON. The keys are stable; new ones may be added.


def triggered_to_json(result: TriggerResult) -> dict[str, Any]:
    evaluation = result.evaluation
    return _to_json(evaluation.plan, result.queries, [evaluation], result.spent) | {
        "run": evaluation.run.id,
        "models": [metrics.to_dict() for metrics in result.metrics],
        "requirements": json.requirements(result.rulings),
        "stopped": [
            {"model": model, "message": message} for model, message in evaluation.stopped.items()
        ],
        "halted": evaluation.halted,
    }


def improvement_to_json(improvement: Improvement) -> dict[str, Any]:
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
        "errors": json.errors(evaluations),
        "bugs": json.bugs(evaluations),
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
