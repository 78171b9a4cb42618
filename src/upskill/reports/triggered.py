"""What a trigger test says: for how many queries each model opened the skill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten

from upskill.authoring.trigger.metrics import QUANTITIES, TriggerMetrics, compute_trigger_metrics
from upskill.plain import counted
from upskill.reports.report import Headline, Rate, Table
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites.queries import FIRES, Queries, Query

MAX_QUERY = 64  # characters of a query in the table
RIGHT = {
    True: Headline("ok", "good"),
    False: Headline("wrong", "bad"),
    None: Headline("no run", "open"),
}


def trigger_metrics(evaluation: Evaluation) -> Sequence[TriggerMetrics]:
    """For each model, if the run is a trigger test."""
    cases = evaluation.run.plan.suite.cases
    if not cases or any(case.check_names != (FIRES,) for case in cases):
        return ()
    queries = Queries(tuple(Query(case.prompt, bool(case.checks[0][FIRES])) for case in cases))
    return [
        compute_trigger_metrics(model, queries, evaluation.outcomes)
        for model in evaluation.run.models
    ]


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
    rates = every[0].rates
    should = sum(rate.query.should_trigger for rate in rates)
    beside = ", ".join(other.name for other in plan.distractors) or "nothing"
    rows = (
        {"95% interval": quantity.replace("_", " ")}
        | {metrics.model: metrics.estimate(quantity) for metrics in every}
        for quantity in QUANTITIES
    )
    yield Table.of(
        rows,
        note=f"{should} queries should trigger, {len(rates) - should} should not;"
        f" {counted(plan.runs, 'run')} each. Agent: {plan.agent}; also installed: {beside}.",
        kind="share",
    )
    for metrics in every:
        queries = (
            {
                "Query": shorten(rate.query.text, MAX_QUERY, placeholder="…"),
                "Should": rate.query.should_trigger,
                "Opened": Rate(rate.triggered, rate.scored),
                "": RIGHT[rate.as_expected],
            }
            for rate in metrics.rates
        )
        yield Table.of(queries, metrics.model if len(every) > 1 else "")
