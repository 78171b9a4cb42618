from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from upskill.authoring.lesson.teach import LessonFailed, teach
from upskill.authoring.options import TeachOptions
from upskill.cli.commands.generate import showing_progress
from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.options import CommandOptions, click_options
from upskill.reports import generated as report


@dataclass(kw_only=True)
class _Options(TeachOptions, CommandOptions):
    pass


@click.command("teach", cls=Command)
@click.argument("task")
@click_options(_Options)
def command(**values: Any) -> None:
    """Have a teacher do TASK with tools in a sandbox, and turn its work into a skill.

    Everything it does is recorded under lessons/ in the runs folder, and passed to generate. It gets at most 60 turns
    and half an hour. If --check fails or the teacher does not finish, the recording is kept, no skill is written, and
    the exit code is 1.

    \b
    upskill teach "pack the release" -m opus --files ./src --check "tern verify"
    upskill teach "…" -m sonnet --teacher-agent claude-code --no-eval
    """
    options = _Options(**values)
    tokens = f" or {options.bounds.tokens:,} tokens" if options.bounds.tokens else ""
    own_work = f", plus the teacher's own work, at most {options.bounds.turns} turns{tokens}"
    try:
        with showing_progress(options, own_work) as events:
            taught = asyncio.run(teach(options, events=events))
    except LessonFailed as error:
        if options.as_json:
            lesson = report.lesson_to_json(error.recording, options.teacher_agent)
            show_json({"lesson": lesson, "failed": error.message})
        note(f"upskill: no skill was written: {error.message}")
        note(f"  {error.hint}")
        raise click.exceptions.Exit(1) from error
    lesson = {"lesson": report.lesson_to_json(taught.recording, options.teacher_agent)}
    if taught.generated is None:
        if options.as_json:
            show_json(lesson)
        else:
            click.echo(taught.recording.path)
        return
    options.show(report.report_generated(taught.generated, lesson))
    if taught.generated.has_failed:
        raise click.exceptions.Exit(3)
