from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from upskill.cli.console import show, show_json
from upskill.cli.eval_options import EvalOptions
from upskill.cli.help import Command
from upskill.cli.last_verdicts import last_verdicts
from upskill.cli.options import FiniteRange, OutputOptions, click_options
from upskill.models import ModelContext
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.plain import counted
from upskill.reports.layout import plain_table
from upskill.reports.view import row_in_words
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import PlanOptions, make_plan
from upskill.runs.planning.sample_size import (
    LiftToDetect,
    SampleSizes,
    sample_sizes,
    sample_sizes_without_suite,
)
from upskill.runs.stores import find_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Suite


@click.command("plan", cls=Command)
@click.argument("skill", required=False, type=click.Path())
@click.option("--detect", type=FiniteRange(0.1, 100), default=10.0, show_default=True, metavar="POINTS",
              help="The lift to detect.")  # fmt: skip
@click.option("--chance", type=FiniteRange(1, 99), default=80.0, show_default=True, metavar="PERCENT",
              help="The chance of detecting a lift of that size.")  # fmt: skip
@click.option("--baseline", type=FiniteRange(0, 100), default=20.0, show_default=True, metavar="PERCENT",
              help="The pass rate without the skill, if no stored run shows it.")  # fmt: skip
@click_options(
    EvalOptions, "students", "base_url", "tests", "judge", "concurrency", "store", "as_json"
)
def command(
    skill: str | None,
    detect: float,
    chance: float,
    baseline: float,
    students: tuple[str, ...],
    base_url: str,
    tests: str | None,
    judge: str | None,
    concurrency: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Estimate how many cases and repeats it takes to detect a lift from SKILL, what that costs and how long it takes.

    The estimate uses stored runs of the skill if there are any; otherwise it states its assumptions. Up to
    --concurrency trials per model run at once; an embedded model runs one per core. Without SKILL, or if SKILL has
    no suite, `plan` says how many cases a suite needs. Nothing is stored.

    \b
    upskill plan                                    how many cases do I need?
    upskill plan ./skills/my-skill --detect 10      a lift of ten points
    upskill plan ./skills/my-skill -m haiku --detect 5
    """
    settings, loaded = Settings.load(), Skill.load(skill) if skill else None
    suite = Suite.load(tests) if tests else Suite.of(loaded) if loaded else None
    names = choose_students(students, settings, OutputOptions(as_json=as_json).tell)
    target = LiftToDetect(lift=detect / 100, chance=chance / 100, baseline=baseline / 100)
    lanes = concurrency or settings.concurrency
    judge = judge or settings.judge
    notes: list[str] = []
    with find_store(store or settings.store) or nullcontext() as opened:
        if suite is None:
            addresses = [resolve(name, base_url, find_keys()) for name in names]
            results = list(
                sample_sizes_without_suite(
                    addresses, target, opened, loaded.name if loaded else "", lanes
                )
            )
        else:
            judged = any(named.check.needs_judge for case in suite.cases for named in case.checks)
            if judged and not judge:
                notes.append("Cost: without the judge. Choose one with --judge.")
            # The embedded model costs nothing, so the estimate is that of the students alone.
            stand_in = Skill.new(
                "skill",
                "Does things. Use it when things are to be done.",
                "Words of a skill. " * 300,
            )
            plan = make_plan(
                loaded or stand_in,
                suite,
                names,
                PlanOptions(base_url=base_url, judge=judge or "local"),
            )
            results = list(
                sample_sizes(plan, target, opened, ModelContext.load(settings).prices, lanes)
            )
        seen = {row["model"]: row for row in (last_verdicts(opened, loaded) if loaded else ())}
    if as_json:
        sizes = [_to_json(sizes) | {"last_verdict": seen.get(sizes.model)} for sizes in results]
        name = loaded.name if loaded else None
        show_json(
            {
                "skill": name,
                "detect": target.lift,
                "chance": target.chance,
                "models": sizes,
                "notes": notes,
            }
        )
        return
    for sizes in results:
        if row := seen.get(sizes.model):
            show(Text(f"Last verdict: {row_in_words(row)}."))
        show(
            *_render(sizes, f"a lift of {detect:g} points {chance:g}% of the time"),
            *map(Text, notes),
        )


def _to_json(estimate: SampleSizes) -> dict[str, Any]:
    return {
        "model": estimate.model,
        "source": "stored run" if estimate.is_measured else "assumption",
        "cases": estimate.cases,
        "unused_cases": estimate.unused,
        "between_cases_sd": round(estimate.variance.between**0.5, 4),
        "within_case_sd": round(estimate.variance.within**0.5, 4),
        "at_a_time": estimate.concurrency,
        "seconds_a_trial": [round(bound, 2) for bound in estimate.seconds_per_trial],
        "seconds_source": "stored run" if estimate.is_timed else "assumption",
        "options": [
            {
                "runs": size.runs,
                "cases": size.cases,
                "trials": size.trials,
                "cost_usd": size.cost_usd and [round(bound, 4) for bound in size.cost_usd],
                "seconds": [round(bound) for bound in size.seconds],
                "chance_with_your_cases": size.chance_with_suite
                and round(size.chance_with_suite, 3),
            }
            for size in estimate.sizes
        ],
    }


def _render(estimate: SampleSizes, target: str) -> list[RenderableType]:
    source = "a stored run" if estimate.is_measured else "assumptions (no stored run yet)"
    columns = ["Repeats", "Cases needed", "Trials", "Time"]
    if estimate.cases is not None:
        columns[3:3], columns[5:] = ["Cost"], ["Chance with your cases"]
    table = plain_table(*columns, right=columns)
    for size in estimate.sizes:
        time = " to ".join(dict.fromkeys(_time(bound) for bound in size.seconds))
        cells = [str(size.runs), f"{size.cases:,}", f"{size.trials:,}", time]
        if size.chance_with_suite is not None:
            cells[3:3], cells[5:] = [_cost(size.cost_usd)], [f"{size.chance_with_suite:.0%}"]
        table.add_row(*cells)
    at_hand = "There is no suite yet, so no cost can be estimated"
    if estimate.cases is not None:
        at_hand = f"Your suite has {counted(estimate.cases, 'case')}"
        if estimate.unused != estimate.cases:
            at_hand += f"; {estimate.unused} of them count (near-duplicates count once; used cases cannot show a gain)"
    shortest, longest = (round(bound, 2) for bound in estimate.seconds_per_trial)
    at_once = (
        f"{estimate.concurrency} trials at a time"
        if estimate.concurrency > 1
        else "one trial at a time"
    )
    pace = f"{at_once}, assuming {shortest:g} to {longest:g} s each (no stored run yet)."
    if estimate.is_timed:
        pace = f"{at_once}, {shortest:g} s each in the stored run."
    return [
        Text(f"{estimate.model}: to detect {target}, based on {source}:\n"),
        table,
        Text(f"\nTime: {pace}"),
        Text(
            f"{at_hand}. Repeats average out chance within a case; beyond about five, only more cases help.\n"
        ),
    ]


def _cost(cost_usd: tuple[float, float] | None) -> str:
    if cost_usd is None:
        return "–"
    return "${:.2f} to ${:.2f}".format(*cost_usd) if cost_usd[1] else "free"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
