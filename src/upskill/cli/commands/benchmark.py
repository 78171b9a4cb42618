from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import click

from upskill.cli.commands.eval import run_eval
from upskill.cli.eval_options import EvalOptions
from upskill.cli.help import Command
from upskill.cli.options import click_options
from upskill.errors import UsageError
from upskill.options import option


@dataclass(kw_only=True)
class BenchmarkOptions(EvalOptions):
    default_repeats: ClassVar[int] = 3

    output: str | None = option(
        "-o", "--output", default=None, help="The same as --store.", metavar="DIR", hidden=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store = self.output or self.store


@click.command("benchmark", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(BenchmarkOptions)
def command(**values: Any) -> None:
    """Compare models on one SKILL: every case three times with it and three times without.

    \b
    upskill benchmark ./skills/my-skill -m haiku -m sonnet
    """
    options = BenchmarkOptions(**values)
    if not options.students:
        raise UsageError("no model given", "Choose the models to compare: -m haiku -m sonnet.")
    run_eval(options)
