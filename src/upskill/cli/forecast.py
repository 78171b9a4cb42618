"""What `eval --plan` prints: what a run would take, and what its suite can decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from upskill.plain import counted
from upskill.reports.report import Column, Headline, Report, Table
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.forecast import Forecast
from upskill.runs.planning.plan import Plan

COLUMNS = (
    Column("True lift", "points"),
    Column("Tasks like these", "share"),
    Column("These cases", "share"),
    Column("Either", "share"),
)


def report_forecast(
    plan: Plan, forecasts: Sequence[Forecast], costs: tuple[CostEstimate, CostEstimate]
) -> Report:
    cost, once = costs
    headlines = [Headline(f"{counted(len(plan), 'trial')}: {cost.words}.")]
    if once.calls != cost.calls:
        headlines.append(Headline(f"With --repeats 1: {once.words}."))
    return Report(
        title=f"What a run of {plan.skill.name} would take",
        name=plan.skill.name,
        data=_to_json(plan, forecasts, costs),
        headlines=tuple(headlines),
        tables=tuple(_table(each, plan) for each in forecasts),
    )


def _table(forecast: Forecast, plan: Plan) -> Table:
    draws = plan.draws[forecast.model].describe(forecast.draws)
    source = "as in its last run" if forecast.is_measured else "assumed"
    rows = [
        (lift, chances.tasks, chances.these, chances.either)
        for lift, chances in forecast.chances.items()
    ]
    best = ", ".join(
        f"{rate:.2f} on {'tasks like these' if about == 'tasks' else 'these cases'}"
        for about, rate in forecast.best_pass_rate.items()
    )
    return Table(
        title=f"{forecast.model}: the chance that the verdict says `helps`",
        columns=COLUMNS,
        rows=tuple(rows),
        note=f"{counted(forecast.cases, 'case')}, {forecast.units} of them fresh; {draws}; pass rate without the"
        f" skill {forecast.baseline:.0%} ({source}). Highest pass rate that can be shown: {best}.",
    )


def _to_json(
    plan: Plan, forecasts: Sequence[Forecast], costs: tuple[CostEstimate, CostEstimate]
) -> dict[str, Any]:
    cost, once = costs
    return {
        "skill": plan.skill.name,
        "suite": plan.suite.source,
        "trials": len(plan),
        "calls": cost.calls,
        "tokens": list(cost.tokens),
        "cost_usd": None if cost.unknown else [round(bound, 4) for bound in cost.cost_usd],
        "cost_usd_at_one_repeat": None
        if once.unknown
        else [round(bound, 4) for bound in once.cost_usd],
        "models": [each.to_dict() for each in forecasts],
    }
