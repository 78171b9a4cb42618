"""`upskill benchmark`: eval with several models and three runs."""

from __future__ import annotations

from typing import Any

import click

from upskill.cli.evaluating import run_eval
from upskill.cli.order import EvalOptions, models_option, options
from upskill.errors import UsageError


@click.command("benchmark")
@click.argument("skill", type=click.Path())
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="How often each case is run.")
@click.option("-o", "--output", metavar="DIR", help="Where runs are kept; the same as --runs-dir.")
@models_option("At least one.")
@options
def command(output: str | None, **given: Any) -> None:
    """Compare models on one SKILL: every case three times, with and without it.

    \b
    upskill benchmark ./skills/my-skill -m haiku -m sonnet
    """
    if not given["models"]:
        raise UsageError("no model was named", "Name the models to compare: -m haiku -m sonnet.")
    given["runs_dir"] = output or given["runs_dir"]
    run_eval(EvalOptions(**given))
