"""What a trigger test says: for how many queries each model opened the skill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten

from upskill.authoring.trigger.metrics import QUANTITIES, TriggerMetrics, compute_trigger_metrics
from upskill.plain import counted
from upskill.reports.report import Cell, Column, Headline, Measure, Rate, Table
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites.queries import FIRES, Queries, Query

MAX_QUERY = 64  # characters of a query in the table
RIGHT = {
    True: Headline("ok", "good"),
    False: Headline("wrong", "bad"),
    None: Headline("no run", "open"),
}
QUERIES = (Column("Query"), Column("Should"), Column("Opened", "share"), Column(""))


def trigger_metrics(evaluation: Evaluation) -> tuple[TriggerMetrics, ...]:
    """For each model, if the run is a trigger test."""
    cases = evaluation.run.plan.suite.cases
    if not cases or any(case.check_names != (FIRES,) for case in cases):
        return ()
    queries = Queries(tuple(Query(case.prompt, bool(case.checks[0][FIRES])) for case in cases))
    return tuple(
        compute_trigger_metrics(model, queries, evaluation.outcomes)
        for model in evaluation.run.models
    )


def describe_metrics(metrics: TriggerMetrics, *, several: bool) -> Headline:
    scored = sum(rate.as_expected is not None for rate in metrics.rates)
    words = f"{metrics.as_expected} of {scored} queries are on the right side of 50%"
    if metrics.errored:
        words += f"; {metrics.errored} of {metrics.errored + metrics.scored} runs errored and are not counted"
    if several:
        words = f"{metrics.model}: {words}"
    is_right = metrics.as_expected == scored and not metrics.errored
    return Headline(f"{words}.", "good" if is_right else "open")


def trigger_tables(every: Sequence[TriggerMetrics], plan: Plan) -> Iterator[Table]:
    columns = [Column("95% interval"), *(Column(each.model, "share") for each in every)]
    rows: list[tuple[Cell, ...]] = []
    for quantity in QUANTITIES:
        name = quantity.replace("_", " ")
        rows.append((name, *(Measure.of(metrics.estimate(quantity)) for metrics in every)))
    yield Table(columns=tuple(columns), rows=tuple(rows), note=_describe_plan(every[0], plan))
    for metrics in every:
        rows = []
        for rate in metrics.rates:
            query = shorten(rate.query.text, MAX_QUERY, placeholder="…")
            opened = Rate(rate.triggered, rate.scored)
            rows.append((query, rate.query.should_trigger, opened, RIGHT[rate.as_expected]))
        title = metrics.model if len(every) > 1 else ""
        yield Table(columns=QUERIES, rows=tuple(rows), title=title)


def _describe_plan(metrics: TriggerMetrics, plan: Plan) -> str:
    should = sum(rate.query.should_trigger for rate in metrics.rates)
    beside = ", ".join(other.name for other in plan.distractors) or "nothing"
    return (
        f"{should} queries should trigger, {len(metrics.rates) - should} should not;"
        f" {counted(plan.runs, 'run')} each. Agent: {plan.agent}; also installed: {beside}."
    )
