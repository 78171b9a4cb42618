"""`upskill plan`: how many cases and runs it takes to see a lift, what that costs and how long it takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from upskill.cli.console import show, show_json
from upskill.cli.options import choose_students, concurrency_option, json_option
from upskill.models import Address
from upskill.models.keys import find_keys
from upskill.runs.estimate import estimate
from upskill.runs.plan import Plan, PlanOptions, make_plan
from upskill.runs.stores import find_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import VarianceComponents, cases_needed, power

RUNS = (1, 3, 5, 10)
# Seconds for a call where no stored run tells; a guess, and said to be one. An agent that acts makes several.
REMOTE_CALL = (2.0, 20.0)
EMBEDDED_CALL = (1.0, 10.0)  # on two cores a second for 40 tokens, and more for long answers or larger models


@click.command("plan")
@click.argument("skill", type=click.Path())
@click.option("--detect", type=click.FloatRange(0.1, 100), default=10.0, show_default=True, metavar="POINTS",
              help="The lift that should be seen if it is there.")  # fmt: skip
@click.option("--chance", type=click.FloatRange(1, 99), default=80.0, show_default=True, metavar="PERCENT",
              help="How likely it should then be seen.")  # fmt: skip
@click.option("--baseline", type=click.FloatRange(0, 100), default=20.0, show_default=True, metavar="PERCENT",
              help="The pass rate without the skill, where no stored run tells.")  # fmt: skip
@click.option("-m", "--model", "models", multiple=True, metavar="MODEL", help="A student; repeatable. Default: local.")
@click.option("-t", "--tests", metavar="FILE", help="The suite (default: the one in the skill's folder).")
@concurrency_option
@click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs).")
@json_option
def command(
    skill: str,
    detect: float,
    chance: float,
    baseline: float,
    models: tuple[str, ...],
    tests: str | None,
    concurrency: int | None,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Say how many cases and runs it takes to see a lift on SKILL, what that costs and how long it takes.

    Uses what stored runs of the skill show about how much cases differ and how long a trial takes; without one, stated
    assumptions. Trials of one model run --concurrency at a time, those of the embedded model one by one.

    \b
    upskill plan ./skills/my-skill --detect 10            a lift of ten points
    upskill plan ./skills/my-skill -m haiku --detect 5
    """
    settings = Settings.load()
    loaded = Skill.load(skill)
    plan = make_plan(
        loaded,
        Suite.load(tests) if tests else None,
        choose_students(models, settings, quiet=as_json),
        options=PlanOptions(keys=find_keys()),
    )
    place = runs_dir or settings.runs_dir
    prices = {name: price.model_dump(exclude_none=True) for name, price in settings.prices.items()}
    found: list[dict[str, Any]] = []
    for address in plan.models:
        rows = _stored(place, plan, address.name)
        alone = replace(plan, models=(address,))
        lanes = 1 if address.provider == "local" else concurrency or settings.concurrency
        found.append(_needs(alone, rows, detect / 100, chance / 100, baseline / 100, prices, lanes))
    if as_json:
        show_json({"skill": loaded.name, "detect": detect / 100, "chance": chance / 100, "models": found})
        return
    for model in found:
        show(*_words(model, detect, chance))


def _stored(place: str, plan: Plan, model: str) -> list[Outcome]:
    """What the latest stored run of this skill with this model came to, that had a baseline without any skill."""
    found = find_store(place)
    if found is None:
        return []
    with found as store:
        for run in store.runs(plan.skill.name, newest_first=True):
            if model not in run.models or run.plan.get("reference_skill"):
                continue
            rows = [outcome for outcome in store.outcomes(run) if outcome.model == model]
            if {"baseline", "skill"} <= {row.arm for row in rows}:
                return rows
    return []


def _needs(
    plan: Plan, rows: list[Outcome], lift: float, chance: float, baseline: float, prices: dict[str, Any], lanes: int
) -> dict[str, Any]:
    differences, labels = _differences(rows)
    measured = len(set(labels)) > 1
    spread = (
        VarianceComponents.measured(differences, labels) if measured else VarianceComponents.assumed(baseline, lift)
    )
    have = len(plan.suite.cases)
    one_round = estimate(plan, plan.trials(), prices)
    seconds = _seconds(plan.models[0], rows)
    options: list[dict[str, Any]] = []
    for runs in RUNS:
        needed = cases_needed(lift, runs, spread, chance=chance)
        if needed is None:
            continue
        share = needed * runs / have
        trials = 2 * needed * runs
        options.append(
            {
                "runs": runs,
                "cases": needed,
                "trials": trials,
                "cost_usd": None if one_round.unknown else [round(cost * share, 4) for cost in one_round.cost_usd],
                "seconds": [round(each * math.ceil(trials / lanes)) for each in seconds],
                "chance_with_your_cases": round(power(lift, have, runs, spread), 3),
            }
        )
    return {
        "model": plan.models[0].name,
        "source": "stored run" if measured else "assumption",
        "cases": have,
        "between_cases_sd": round(spread.between**0.5, 4),
        "within_case_sd": round(spread.within**0.5, 4),
        "at_a_time": lanes,
        "seconds_a_trial": [round(each, 2) for each in seconds],
        "seconds_source": "stored run" if rows else "assumption",
        "options": options,
    }


def _seconds(address: Address, rows: list[Outcome]) -> tuple[float, float]:
    """How long a trial takes, from and to: the mean of a stored run, or a guess."""
    if not rows:
        return EMBEDDED_CALL if address.provider == "local" else REMOTE_CALL
    mean = sum(row.seconds for row in rows) / len(rows)
    return mean, mean


def _differences(rows: list[Outcome]) -> tuple[list[float], list[str]]:
    before = {(row.case, row.seed): row for row in rows if row.arm == "baseline" and row.passed is not None}
    pairs = [
        (float(bool(row.passed)) - float(bool(before[row.case, row.seed].passed)), row.case)
        for row in rows
        if row.arm == "skill" and row.passed is not None and (row.case, row.seed) in before
    ]
    return [difference for difference, _ in pairs], [case for _, case in pairs]


def _words(model: dict[str, Any], detect: float, chance: float) -> list[Any]:
    source = "what a stored run shows" if model["source"] == "stored run" else "assumptions (no stored run yet)"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Runs a case", "Cases needed", "Trials", "Cost", "Time", "Chance with your cases"):
        table.add_column(column, justify="right")
    for option in model["options"]:
        cost = "unknown" if option["cost_usd"] is None else "${:.2f} to ${:.2f}".format(*option["cost_usd"])
        shortest, longest = (_time(seconds) for seconds in option["seconds"])
        time = shortest if shortest == longest else f"{shortest} to {longest}"
        share = f"{option['chance_with_your_cases']:.0%}"
        table.add_row(str(option["runs"]), f"{option['cases']:,}", f"{option['trials']:,}", cost, time, share)
    return [
        Text(f"{model['model']}: to see a lift of {detect:g} points with a chance of {chance:g}%, from {source}:\n"),
        table,
        Text(f"\n{_pace(model)}"),
        Text(f"Your suite has {model['cases']} cases. Runs average out chance within a case; only cases add tasks.\n"),
    ]


def _pace(model: dict[str, Any]) -> str:
    """What the time is computed from."""
    shortest, longest = model["seconds_a_trial"]
    lanes = f"{model['at_a_time']} trials at a time" if model["at_a_time"] > 1 else "one trial at a time"
    if model["seconds_source"] == "stored run":
        return f"Time: {lanes}, {shortest:g} s each in the stored run."
    return f"Time: {lanes}, and the assumption that each takes {shortest:g} to {longest:g} s; no stored run tells."


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
