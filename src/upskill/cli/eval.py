"""`upskill eval`: run a student with and without a skill and say what the skill did."""

from __future__ import annotations

from typing import Any

import click

from upskill.cli.evaluating import run_eval
from upskill.cli.order import EvalOptions, models_option, options


@click.command("eval")
@click.argument("skill", type=click.Path())
@click.option("--runs", type=click.IntRange(1), metavar="N", help="How often each case is run (default 1).")
@models_option("Default: local.")
@options
def command(**given: Any) -> None:
    """Run a student on a suite with and without SKILL and say what the skill did.

    Both arms get the same prompts, seeds and limits; only the skill differs. Results are kept as they arrive: after
    Ctrl-C or a crash the same command goes on where it stopped.

    \b
    upskill eval ./skills/my-skill                       the embedded model, no key needed
    upskill eval ./skills/my-skill -m haiku -m local     two students
    upskill eval ./skills/my-skill --runs 5 --json       repeats, machine-readable
    upskill eval ./skills/my-skill -m qwen3 --base-url http://localhost:8080/v1
    """
    run_eval(EvalOptions(**given))
