"""What `eval --plan` prints: what a run would take, and what its suite can decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from upskill.plain import counted
from upskill.reports.layout import plain_table
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.forecast import Forecast
from upskill.runs.planning.plan import Plan


def forecast_to_dict(
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


def render_forecast(
    plan: Plan, forecasts: Sequence[Forecast], costs: tuple[CostEstimate, CostEstimate]
) -> Iterator[RenderableType]:
    cost, once = costs
    yield Text(f"{counted(len(plan), 'trial')}: {cost.words}.")
    if once.calls != cost.calls:
        yield Text(f"With --repeats 1: {once.words}.")
    for each in forecasts:
        draws = plan.draws[each.model].describe(each.draws)
        source = "as in its last run" if each.is_measured else "assumed"
        yield Text(
            f"\n{each.model}: {draws}. {counted(each.cases, 'case')}, {each.units} of them fresh;"
            f" pass rate without the skill {each.baseline:.0%} ({source}).\n"
        )
        columns = ["True lift", "Tasks like these", "These cases", "Either"]
        table = plain_table(*columns, right=columns[1:])
        for lift, chances in each.chances.items():
            shares = (chances.tasks, chances.these, chances.either)
            table.add_row(f"+{100 * lift:.0f} points", *(f"{share:.0%}" for share in shares))
        yield Text("Chance that the verdict says `helps`:")
        yield table
        best = ", ".join(
            f"{rate:.2f} on {'tasks like these' if about == 'tasks' else 'these cases'}"
            for about, rate in each.best_pass_rate.items()
        )
        yield Text(f"Highest pass rate that can be shown: {best}.")
