from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import click

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.generate import Generated, generate_now
from upskill.authoring.options import GenerateOptions
from upskill.authoring.writing.teachers import NoTeacher, describe_chats
from upskill.cli.console import show_json
from upskill.cli.help import Command
from upskill.cli.options import CommandOptions, click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import Paused, UsageError
from upskill.options import option
from upskill.runs.planning.options import StudentOptions
from upskill.runs.stores import without_password
from upskill.traces import Step


@dataclass(kw_only=True)
class _Options(GenerateOptions, CommandOptions):
    receipt: bool = option(
        "--receipt",
        default=False,
        help="When done, run all cases and save the proof in the skill's folder, as `eval --receipt` does.",
    )


@click.command("generate", cls=Command)
@click.argument("task", required=False, default="")
@click_options(_Options)
def command(**values: Any) -> None:
    """Write a skill for TASK, with tests, and revise it once.

    The skill and its tests are written at the same time, neither writer seeing the other's work. The student answers
    half of the cases, the teacher reads all failures and revises the skill, and the other half, kept fresh, gives the
    verdict. After Ctrl-C, run the same command again to continue.

    If --from is a skill's folder, TASK is the change to make. It is not made if the skill's own cases show that it is
    worse. upskill asks before it replaces a skill that you edited, and keeps the previous version in .previous/ beside
    it.

    \b
    upskill generate "deploy with tern" --from claude-code:last -m opus
    upskill generate "write a changelog" -e "fixed login -> Fixed: login" -m gpt
    upskill generate --from session.jsonl --handoff desk   by hand, or any chat
    upskill generate "make it shorter" --from ./skills/tern -m sonnet
    """
    options = _Options(**values)
    if options.receipt and options.no_eval:
        raise UsageError(
            "--receipt needs an evaluation", "Drop --receipt, or let upskill evaluate the skill."
        )
    nothing_given = not any(
        (options.sources, options.examples, options.tools, options.tests, options.handoff)
    )
    if nothing_given and options.task and can_ask(options):
        source = click.prompt(
            "A document, trace or folder to write it from (press Enter for none; the result will be untested)",
            default="",
            show_default=False,
            err=True,
        )
        options.sources = (source,) if source.strip() else ()
    with showing_progress(options) as events:
        generated = generate_now(options, events=events)
    from upskill.reports.generated import report_generated  # noqa: PLC0415 - not needed to wait for answers

    options.show(report_generated(generated))
    if generated.has_failed:
        raise click.exceptions.Exit(3)
    if options.receipt and generated.student:
        _prove(options, generated, generated.student.name)


def _prove(options: _Options, generated: Generated, student: str) -> None:
    """On all cases, of which the answers are stored."""
    from upskill.cli.commands.eval import prove  # noqa: PLC0415 - only where a receipt is asked for
    from upskill.cli.eval_options import EvalOptions  # noqa: PLC0415

    shared = {each.name for each in (*fields(StudentOptions), *fields(CommandOptions))} | {
        "judge",
        "tests",
    }
    values: dict[str, Any] = {
        name: getattr(options, name)
        for name in shared & {each.name for each in fields(EvalOptions)}
    }
    if options.max_cost is not None:
        values["max_cost"] = max(
            0.0, options.max_cost - sum(use.cost_usd or 0.0 for use in generated.spent.values())
        )
    values |= {"skill": str(generated.folder), "students": (student,)}
    prove(EvalOptions(**values))


def can_ask(options: CommandOptions) -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty() and not options.as_json


@contextmanager
def showing_progress(options: CommandOptions, further_cost: str = "") -> Generator[AuthoringEvents]:
    """Show events on standard error until the work is done. `further_cost` is what the estimate leaves out."""
    without = " without --fresh" if getattr(options, "fresh", False) else ""
    interrupted = (
        f"interrupted. Everything so far is saved. Run the same command again{without} to continue."
    )
    bar = RunProgress(quiet=options.silent, interrupted=interrupted if options.keeps_runs else "")
    steps, tell = count(1), options.tell

    def replace_edited(folder: Path, diff: str) -> bool:
        with bar.display.asking():
            click.echo(f"{diff}\n\n{folder} was written or edited by hand.", err=True)
            return click.confirm("Replace it? The current version is kept in .previous/", err=True)

    def ask(question: str) -> str:
        with bar.display.asking():
            click.echo(
                f"The teacher asks: {question}\nAnswer (press Enter to skip): ", nl=False, err=True
            )
            return sys.stdin.readline()  # empty at the end of a pipe

    def step(step: Step) -> None:
        from upskill.reports.generated import step_line  # noqa: PLC0415 - only for `teach`

        if step.kind == "tool":
            tell(step_line(next(steps), step))

    events = AuthoringEvents(
        started=bar.started,
        result=bar.result,
        message=tell,
        reading=bar.reading,
        estimate=lambda expected: confirm_cost(
            options, expected, f"up to {expected.words}{further_cost}"
        ),
        replace_edited=replace_edited if can_ask(options) else None,
        ask=ask if getattr(options, "ask", False) else None,
        step=step,
    )
    try:
        with bar:
            yield events
    except NoTeacher as error:
        typed = shlex.join(["upskill", *map(without_password, sys.argv[1:])])
        error.hint = f"Without a model: `{typed} --handoff handoff`\n  {error.hint}"
        raise
    except Paused as pause:
        pause.hint = "\n  ".join([*describe_chats(pause.files), pause.hint])
        if options.as_json:
            show_json({"waiting_for": list(pause.files)})
        raise
