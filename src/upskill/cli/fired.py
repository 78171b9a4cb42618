"""What trigger shows of how a skill fired: a table of queries, precision and recall, and what a search came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upskill.authoring.trigger import Improvement, Tried
from upskill.models.ledger import Ledger
from upskill.runs.evaluation import Evaluation
from upskill.runs.plan import Plan
from upskill.skills import Skill
from upskill.suites.queries import Queries
from upskill.verdicts.firing import QUANTITIES, Firing, Rate
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.statistics import Estimate as Measured

WORDS = {"precision": "precision", "recall": "recall", "accuracy": "accuracy", "false_triggers": "fires wrongly"}


def plain_troubles(evaluation: Evaluation, rulings: list[tuple[str, Ruling]]) -> dict[str, Any]:
    return {
        "requirements": [
            {"model": model, "requirement": ruling.requirement.text, "held": ruling.held, "reason": ruling.reason}
            for model, ruling in rulings
        ],
        "errors": [
            {"model": model, "message": message, "trials": trials} for model, message, trials in evaluation.errors
        ],
        "stopped": [{"model": model, "message": message} for model, message in evaluation.stopped.items()],
        "halted": evaluation.halted,
        "warnings": evaluation.warnings,
    }


def plain_spent(ledger: Ledger) -> dict[str, Any]:
    return {role: {"tokens": usage.total_tokens, "cost_usd": usage.cost_usd} for role, usage in ledger.spent.items()}


def plain_tried(one: Tried) -> dict[str, Any]:
    return {
        "attempt": one.attempt,
        "description": one.skill.description,
        "accepted": one.accepted,
        "note": one.note,
        "run": one.run or None,
        "train": one.train.plain() if one.train else None,
        "validation": one.validation.plain() if one.validation else None,
    }


def heading(skill: Skill, plan: Plan, queries: Queries) -> RenderableType:
    runs = "one run each" if plan.runs == 1 else f"{plan.runs} runs each"
    distractors = ", ".join(other.name for other in plan.distractors) or "nothing"
    lines = [
        "",
        f"[bold]{escape(skill.name)}[/bold]",
        escape(" ".join(skill.description.split())),
        "",
        f"queries    {len(queries.should_trigger)} should trigger, {len(queries.should_not)} should not, {runs}",
        f"agent      {plan.agent}; beside it: {escape(distractors)}",
        "",
    ]
    return indented(Text.from_markup("\n".join(lines)))


def rate_table(firing: Firing) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Query", max_width=64)  # the only column that may become narrower
    for column in ("Should", "Fired", "Rate", "95% interval", ""):
        table.add_column(column, no_wrap=True, justify="right" if column in ("Fired", "Rate") else "left")
    for rate in firing.rates:
        table.add_row(*_row(rate))
    return table


def _row(rate: Rate) -> tuple[RenderableType, ...]:
    low, high = rate.interval
    mark = {True: Text("ok", style="green"), False: Text("wrong", style="red"), None: Text("no run", style="yellow")}
    errored = f" ({rate.errored} errored)" if rate.errored else ""
    return (
        Text(" ".join(rate.query.text.split()), no_wrap=True, overflow="ellipsis"),
        "yes" if rate.query.should_trigger else "no",
        f"{rate.triggered}/{rate.scored}{errored}",
        percent(rate.value),
        f"{percent(low)} to {percent(high)}",
        mark[rate.right],
    )


def summary_lines(firing: Firing) -> Iterator[str]:
    for quantity in QUANTITIES:
        yield f"{WORDS[quantity]:<14}{_measured(firing.measured(quantity))}"
    scored = sum(rate.right is not None for rate in firing.rates)
    yield f"{'right':<14}{firing.right} of {scored} queries are on the right side of a half"
    if firing.errored:
        yield f"{'errored':<14}{firing.errored} of {firing.errored + firing.scored} runs, which count for nothing"


def _measured(estimate: Measured | None) -> str:
    if estimate is None:
        return "–"
    return f"{percent(estimate.value):>4}  (95% interval {percent(estimate.low)} to {percent(estimate.high)})"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{round(100 * share)}%"


def indented(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 2))


def shown_improvement(found: Improvement, ledger: Ledger) -> Iterator[RenderableType]:
    first, chosen, tested = found.tried[0], found.chosen, found.tested
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "Queries", "Recall", "Fires wrongly", "Precision", "Score"):
        table.add_column(column, no_wrap=True, justify="left" if not column else "right")
    parts = [("train", first.train, chosen.train), ("validation", first.validation, chosen.validation)]
    if tested:
        parts.append(("test", tested.before, tested.after))
    for name, before, after in parts:
        for word, firing in (("before", before), ("after", after if found.improved else None)):
            if firing is not None:
                values = [percent(value.value if value else None) for value in _three(firing)]
                table.add_row(f"{name}, {word}", str(len(firing.rates)), *values, percent(firing.score))
    yield Text(f"\n  {found.skill.name}", style="bold")
    yield Text("")
    yield indented(table)
    yield Text("")
    tries = len(found.tried) - 1
    descriptions = "1 description was" if tries == 1 else f"{tries} descriptions were"
    yield indented(Text(f"{descriptions} tried; the search ended: {found.ended}."))
    if not found.improved:
        yield indented(Text("None was better on validation queries. The test queries are unused."))
    else:
        yield indented(
            Text("Train taught it and validation chose it, so both flatter it. The test queries were run once:")
        )
        yield indented(Text(_said_of_test(found)))
        yield indented(Text(f"\n{found.skill.description}"))
    if ledger.spent:
        spent = [f"{role} {usage.total_tokens:,} tokens" for role, usage in ledger.spent.items()]
        yield indented(Text(f"\nSpent: {' · '.join(spent)}", style="dim"))


def _three(firing: Firing) -> tuple[Measured | None, ...]:
    return firing.recall, firing.false_triggers, firing.precision


def _said_of_test(found: Improvement) -> str:
    tested = found.tested
    if tested is None or tested.change is None or tested.p_value is None:
        return "they say nothing: they were not run to the end."
    change = tested.change
    said = f"{100 * change.value:+.0f} points (95% interval {100 * change.low:+.0f} to {100 * change.high:+.0f}"
    word = "they do not bear it out" if change.value <= 0 else "they are too few to be sure"
    return f"{said}, p = {tested.p_value:.3f}): {'they bear it out' if change.low > 0 else word}."
