from __future__ import annotations

import re

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import check_writable, note, show_document, write_file
from upskill.cli.help import Command
from upskill.cli.options import force_option, open_run, redact_option, store_option
from upskill.errors import UsageError
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.exports import EXPORTS, Export, StoredRun
from upskill.reports.html import render
from upskill.reports.redacted import RunRedactor, describe_contents
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Run, Store


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
def command(run: str, output: str | None, redact: bool, force: bool, store: str | None) -> None:
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
        if file.endswith(".svg"):
            _draw(opened, stored, file, redact=redact, force=force)
            return
        if file.endswith((".md", ".xml", ".json", ".csv", ".png")):
            hint = f"For other formats: upskill export {run} --format KIND"
            raise UsageError(f"{file}: `upskill report` writes HTML and SVG", hint)
        if file != "-":
            check_writable(file, force=force)
        redactor = RunRedactor() if redact else None
        page = render_page(opened, stored, redactor)
    if file == "-":
        show_document(page)
        return
    write_file(file, page)
    note(f"Wrote {file} ({max(1, len(page) // 1000):,} kB). Open it in a browser.")
    note(describe_contents(redactor.counts if redactor else None))


def _draw(store: Store, run: Run, file: str, *, redact: bool, force: bool) -> None:
    export: Export = EXPORTS.load("svg")
    source = StoredRun(store, run)
    export.save(source.without_secrets() if redact else source, file, force=force)
    note(f"Wrote {file}")


def render_page(store: Store, run: Run, redactor: RunRedactor | None = None) -> str:
    evaluation = evaluation_of(store, run)
    context = ReportContext(store=store)
    if redactor:
        evaluation = redactor.evaluation(evaluation)
        context = ReportContext(store=store, clean=redactor.results)
    return render(report_evaluation(evaluation, context))
