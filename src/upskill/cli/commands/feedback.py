from __future__ import annotations

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import check_writable, note, show_json, to_json_text, write_file
from upskill.cli.help import Command
from upskill.cli.options import force_option, json_option, open_run, store_option
from upskill.plain import counted
from upskill.runs.results.feedback import (
    MAX_NOTE,
    agreement_with_people,
    feedback_document,
    import_feedback,
)
from upskill.runs.stores import Run, Store
from upskill.sandboxes import printable

MAX_NAMED = 5


@click.command("feedback", cls=Command)
@click.argument("run", shell_complete=complete_runs)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write all feedback on the run as feedback.json (- prints it).",
)
@click.option(
    *("-m", "--student", "model"),
    default="",
    metavar="MODEL",
    help="The student that FILE is about, if FILE names none (skill-creator's).",
)
@force_option
@store_option
@json_option
def command(
    run: str,
    files: tuple[str, ...],
    output: str | None,
    model: str,
    force: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show how well the checks of RUN agree with people's feedback on its answers (Cohen's kappa).

    FILE is a feedback.json from a report or from skill-creator; it is stored with the run first. Feedback given in
    `upskill view` is already stored.

    \b
    upskill feedback last                      agreement between checks and people
    upskill feedback last feedback.json        the same, with this feedback
    upskill feedback last -o feedback.json     for generate --feedback
    """
    with open_run(store, run) as (opened, stored):
        for file in files:
            _import(opened, stored, file, model)
        if output:
            text = to_json_text(feedback_document(stored, opened.reviews(stored))) + "\n"
            if output == "-":
                click.echo(text, nl=False)
            else:
                check_writable(output, force=force)
                write_file(output, text)
                note(f"Wrote {output}")
            return
        agreement = agreement_with_people(opened, stored)
    if as_json:
        show_json({"run": stored.id, "feedback": agreement.to_dict() if agreement else None})
    elif agreement:
        click.echo("\n".join(agreement.lines()))
    else:
        note(
            f"No feedback yet on {stored.id}.\n  `upskill view {stored.id}` lets you mark its answers."
        )


def _import(store: Store, run: Run, file: str, model: str) -> None:
    done = import_feedback(store, run, file, model)
    note(f"{file}: {counted(done.stored, 'review')} stored with {run.id}.")
    models = f"the run has {len(run.models)} models; choose one with -m MODEL"
    for has_happened, line in (
        (done.taken_back, f"{counted(done.taken_back, 'review')} withdrawn: no longer stored."),
        (done.cut, f"{counted(done.cut, 'note')} cut to the first {MAX_NOTE:,} characters."),
        (done.other_run, f"Left out: {counted(done.other_run, 'review')} of another run."),
        (
            done.older,
            f"Left out: {counted(done.older, 'review')} older than the stored one for the same answer.",
        ),
        (done.no_model, f"Left out, because {models}: {_names(done.no_model)}."),
        (done.unknown, f"Left out, because the run has no such answer: {_names(done.unknown)}."),
    ):
        if has_happened:
            note(f"  {line}")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(printable(name) for name in names[:MAX_NAMED]) + more
