"""`upskill feedback`: what people say of the answers of a run, and how well its checks agree with them."""

from __future__ import annotations

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import note, show_json, to_json_text, write_file
from upskill.cli.help import Command
from upskill.cli.options import json_option, store_option
from upskill.cli.run_names import open_run
from upskill.plain import counted
from upskill.runs.results.feedback import MAX_NOTE, agreement_with_people, export_feedback, import_feedback
from upskill.runs.stores import Run, Store
from upskill.sandboxes import printable

MOST_NAMED = 5


@click.command("feedback", cls=Command)
@click.argument("run", shell_complete=complete_runs)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-o", "--output", metavar="FILE", help="Write all feedback on the run as feedback.json (- prints it).")
@click.option(
    *("-m", "--student", "model"),
    default="",
    metavar="MODEL",
    help="Whose answers FILE is about where it does not say (skill-creator's).",
)
@store_option
@json_option
def command(run: str, files: tuple[str, ...], output: str | None, model: str, store: str | None, as_json: bool) -> None:
    """Show how well the checks of RUN agree with what people say of its answers (Cohen's kappa).

    FILE is a feedback.json that a report exported, or skill-creator's: it is stored with the run first. What is marked
    in `upskill view` is stored already.

    \b
    upskill feedback last                      agreement of checks and people
    upskill feedback last feedback.json        the same, with what the file says
    upskill feedback last -o feedback.json     for generate --feedback
    """
    with open_run(store, run) as (opened, found):
        for file in files:
            _import(opened, found, file, model)
        if output:
            _write(to_json_text(export_feedback(opened, found)) + "\n", output)
            return
        agreement = agreement_with_people(opened, found)
    if as_json:
        show_json({"run": found.id, "feedback": agreement.to_dict() if agreement else None})
    elif agreement:
        click.echo("\n".join(agreement.lines()))
    else:
        note(
            f"Nobody has said anything about {found.id}.\n  `upskill view {found.id}` shows its answers, to be marked."
        )


def _import(store: Store, run: Run, file: str, model: str) -> None:
    found = import_feedback(store, run, file, model)
    note(f"{file}: {counted(found.stored, 'review')} stored with {run.id}.")
    if found.taken_back:
        note(f"  {counted(found.taken_back, 'review')} taken back: no longer stored.")
    if found.cut:
        note(f"  {counted(found.cut, 'note')} cut: the first {MAX_NOTE:,} characters are kept.")
    if found.other_run:
        note(f"  Left out: {counted(found.other_run, 'review')} of another run.")
    if found.older:
        note(f"  Left out: {counted(found.older, 'review')} older than what is stored of the same answer.")
    if found.no_model:
        models = f"the run has {len(run.models)} models; -m MODEL says whose answers are meant"
        note(f"  Left out, as {models}: {_names(found.no_model)}.")
    if found.unknown:
        note(f"  Left out, as the run has no such answer: {_names(found.unknown)}.")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(printable(name) for name in names[:MOST_NAMED]) + more


def _write(text: str, output: str) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    write_file(output, text, make_folders=False)
    note(f"Wrote {output}")
