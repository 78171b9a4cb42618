from __future__ import annotations

import re

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.commands.export import write_export
from upskill.cli.help import Command
from upskill.cli.options import force_option, open_run, quiet_option, redact_option, store_option
from upskill.errors import UsageError
from upskill.reports.exports import EXPORTS, Export, StoredRun
from upskill.reports.exports.text_files import PAGE


@click.command("report", cls=Command)
@click.argument("run", default="last", shell_complete=complete_runs)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write it: .html or .svg (default RUN.html here; - prints the page).",
)
@redact_option
@force_option
@store_option
@quiet_option
def command(
    run: str, output: str | None, redact: bool, force: bool, store: str | None, quiet: bool
) -> None:
    """Write RUN as one HTML page: the verdict, the cases, worst first, and their answers with what the checks found.

    \b
    upskill report last                the latest run
    upskill report last -o page.html   into this file
    upskill report last -o lift.svg    a picture of the lift

    The file needs no network and no server. It contains full prompts and answers; --redact removes secrets.
    RUN is an id, a prefix of one, `last`, or `last~1` for the one before it.
    """
    with open_run(store, run) as (opened, stored):
        file = output or re.sub(r"[^\w.-]+", "-", stored.id) + ".html"
        if file.endswith((".md", ".xml", ".json", ".csv", ".png")):
            hint = f"For other formats: upskill export {run} --format KIND"
            raise UsageError(f"{file}: `upskill report` writes HTML and SVG", hint)
        source = StoredRun(opened, stored)
        source = source.without_secrets() if redact else source
        export: Export = EXPORTS.load("svg") if file.endswith(".svg") else PAGE
        write_export(export, source, file, force=force, quiet=quiet)
