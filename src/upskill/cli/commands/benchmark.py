"""`upskill benchmark`: eval with several models and three runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from upskill.cli.commands.eval import run_eval
from upskill.cli.eval_options import EvalOptions
from upskill.cli.help import Command
from upskill.cli.options import click_options
from upskill.errors import UsageError
from upskill.options import MAX_REPEATS, option


@dataclass(kw_only=True)
class BenchmarkOptions(EvalOptions):
    runs: int | None = option(
        "--runs",
        default=3,
        help="How many times each case is run.",
        metavar="N",
        minimum=1,
        maximum=MAX_REPEATS,
        show_default=True,
    )
    output: str | None = option("-o", "--output", default=None, help="The same as --store.", metavar="DIR", hidden=True)
    models: tuple[str, ...] = option(
        "-m", "--model", default=(), help="A student; repeatable. At least one.", metavar="MODEL"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runs_dir = self.output or self.runs_dir


@click.command("benchmark", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(BenchmarkOptions)
def command(**given: Any) -> None:
    """Compare models on one SKILL: every case three times, with and without it.

    \b
    upskill benchmark ./skills/my-skill -m haiku -m sonnet
    """
    options = BenchmarkOptions(**given)
    if not options.models:
        raise UsageError("no model was named", "Name the models to compare: -m haiku -m sonnet.")
    run_eval(options)
