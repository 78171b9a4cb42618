"""`upskill plan`: how many cases and runs it takes to see a lift, what that costs and how long it takes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from upskill.cli.console import show, show_json
from upskill.cli.eval_options import EvalOptions
from upskill.cli.help import Command
from upskill.cli.options import FiniteRange, OutputOptions, click_options
from upskill.models import ModelContext
from upskill.runs.options import choose_students
from upskill.runs.plan import make_plan
from upskill.runs.sample_size import LiftToDetect, SampleSizes, sample_sizes
from upskill.runs.stores import find_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Suite


@click.command("plan", cls=Command)
@click.argument("skill", type=click.Path())
@click.option("--detect", type=FiniteRange(0.1, 100), default=10.0, show_default=True, metavar="POINTS",
              help="The lift that should be seen if it is there.")  # fmt: skip
@click.option("--chance", type=FiniteRange(1, 99), default=80.0, show_default=True, metavar="PERCENT",
              help="How likely it should then be seen.")  # fmt: skip
@click.option("--baseline", type=FiniteRange(0, 100), default=20.0, show_default=True, metavar="PERCENT",
              help="The pass rate without the skill, where no stored run tells.")  # fmt: skip
@click_options(EvalOptions, "models", "tests", "concurrency", "runs_dir", "as_json")
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
    """Work out how many cases and runs it takes to see a lift on SKILL, what that costs and how long it takes.

    Uses what stored runs of the skill show about how much cases differ and how long a trial takes; without one, stated
    assumptions. Trials of one model run --concurrency at a time, those of an embedded model one for each core.

    \b
    upskill plan ./skills/my-skill --detect 10            a lift of ten points
    upskill plan ./skills/my-skill -m haiku --detect 5
    """
    settings, loaded = Settings.load(), Skill.load(skill)
    suite = Suite.load(tests) if tests else None
    plan = make_plan(loaded, suite, choose_students(models, settings, OutputOptions(as_json=as_json).tell))
    wanted = LiftToDetect(lift=detect / 100, chance=chance / 100, baseline=baseline / 100)
    prices = ModelContext.load(settings).prices
    with find_store(runs_dir or settings.runs_dir) or nullcontext() as store:
        found = list(sample_sizes(plan, wanted, store, prices, concurrency or settings.concurrency))
    if as_json:
        sizes = [_to_json(sizes) for sizes in found]
        show_json({"skill": loaded.name, "detect": wanted.lift, "chance": wanted.chance, "models": sizes})
        return
    for sizes in found:
        show(*_render(sizes, f"a lift of {detect:g} points with a chance of {chance:g}%"))


def _to_json(found: SampleSizes) -> dict[str, Any]:
    return {
        "model": found.model,
        "source": "stored run" if found.is_measured else "assumption",
        "cases": found.cases,
        "between_cases_sd": round(found.variance.between**0.5, 4),
        "within_case_sd": round(found.variance.within**0.5, 4),
        "at_a_time": found.concurrency,
        "seconds_a_trial": [round(bound, 2) for bound in found.seconds_per_trial],
        "seconds_source": "stored run" if found.is_timed else "assumption",
        "options": [
            {
                "runs": size.runs,
                "cases": size.cases,
                "trials": size.trials,
                "cost_usd": size.cost_usd and [round(bound, 4) for bound in size.cost_usd],
                "seconds": [round(bound) for bound in size.seconds],
                "chance_with_your_cases": round(size.chance_with_suite, 3),
            }
            for size in found.sizes
        ],
    }


def _render(found: SampleSizes, wanted: str) -> list[RenderableType]:
    source = "what a stored run shows" if found.is_measured else "assumptions (no stored run yet)"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Runs a case", "Cases needed", "Trials", "Cost", "Time", "Chance with your cases"):
        table.add_column(column, justify="right")
    for size in found.sizes:
        cost = "unknown" if size.cost_usd is None else "${:.2f} to ${:.2f}".format(*size.cost_usd)
        time = " to ".join(dict.fromkeys(_time(bound) for bound in size.seconds))
        chance = f"{size.chance_with_suite:.0%}"
        table.add_row(str(size.runs), f"{size.cases:,}", f"{size.trials:,}", cost, time, chance)
    return [
        Text(f"{found.model}: to see {wanted}, from {source}:\n"),
        table,
        Text(f"\n{_pace(found)}"),
        Text(f"Your suite has {found.cases} cases. Runs average out chance within a case; only cases add tasks.\n"),
    ]


def _pace(found: SampleSizes) -> str:
    """What the time is computed from."""
    shortest, longest = (round(bound, 2) for bound in found.seconds_per_trial)
    at_once = f"{found.concurrency} trials at a time" if found.concurrency > 1 else "one trial at a time"
    if found.is_timed:
        return f"Time: {at_once}, {shortest:g} s each in the stored run."
    return f"Time: {at_once}, and the assumption that each takes {shortest:g} to {longest:g} s; no stored run tells."


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
