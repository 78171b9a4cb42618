from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from upskill.authoring.trigger.description import improve_description
from upskill.authoring.trigger.trigger import TriggerOptions, TriggerResult, trigger
from upskill.cli.console import note
from upskill.cli.help import Command
from upskill.cli.options import CommandOptions, click_options, confirm_cost, first_given
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.options import option
from upskill.reports.trigger import report_improvement, report_triggered
from upskill.runs.running.events import Events


@dataclass(kw_only=True)
class TriggerCommandOptions(TriggerOptions, CommandOptions):
    improve: bool = option(
        "--improve", default=False, help="Search for a better description, and measure the gain."
    )

    def check(self) -> None:
        needs_improve = {"--teacher": self.teacher, "--write": self.write, "--output": self.output}
        if not self.improve and (flag := first_given(needs_improve)):
            raise UsageError(
                f"{flag} needs --improve", "--improve searches for a better description."
            )


@click.command("trigger", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(TriggerCommandOptions)
def command(**values: Any) -> None:
    """Measure whether SKILL activates when it should, and only then.

    Each query goes to an agent with the skill in its catalog, alongside the skills from --with-skills. A run ends
    when the agent opens the skill, or after three turns (the max_turns setting). After Ctrl-C, run the same command
    again to continue.

    With --improve, a teacher rewrites the description using the train queries. The description that does best on
    the validation queries is tested once on the test queries; --write saves it only if it is better there.

    \b
    upskill trigger ./skills/my-skill -m haiku --with-skills ./skills
    upskill trigger ./skills/my-skill -m haiku --test-writer sonnet
    upskill trigger ./skills/my-skill -m haiku --improve --teacher sonnet --write
    """
    options = TriggerCommandOptions(**values)
    options.check()
    without = " without --redraw" if options.redraw else ""
    interrupted = f"interrupted. Every finished run is stored. Run the same command again{without} to continue."
    with RunProgress(
        quiet=options.silent, interrupted=interrupted if options.keeps_runs else ""
    ) as progress:
        events = Events(
            started=progress.started,
            result=progress.result,
            message=options.tell,
            reading=progress.reading,
            estimate=lambda expected: confirm_cost(options, expected, f"up to {expected.words}"),
        )
        verb = improve_description if options.improve else trigger
        result = asyncio.run(verb(options, events=events))
    if isinstance(result, TriggerResult):
        if result.evaluation.leaked:  # also if standard output is redirected
            note("INVALID: a run saw a skill that should have been hidden, so no number is valid.")
        run = f"{result.evaluation.run.id}{options.show_flags}"
        options.show(report_triggered(result, f"upskill show {run}" if options.keeps_runs else ""))
    else:
        options.show(report_improvement(result))
    if result.has_failed:
        raise click.exceptions.Exit(3)
    if isinstance(result, TriggerResult) and not all(ruling.held for _, ruling in result.rulings):
        raise click.exceptions.Exit(1)
