from __future__ import annotations

import re

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import check_writable, note, write_file
from upskill.cli.help import Command
from upskill.cli.options import open_run, store_option
from upskill.reports import ReportContext
from upskill.reports.html.page import render
from upskill.runs.results.evaluation import evaluation_of, first_results


@click.command("report", cls=Command)
@click.argument("run", default="last", shell_complete=complete_runs)
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default RUN.html here; - prints it).")
@store_option
def command(run: str, output: str | None, store: str | None) -> None:
    """Write RUN as one HTML page: verdicts, pictures, cases, and every answer with what the checks found.

    \b
    upskill report last                the latest run
    upskill report last -o lift.html   into a file of this name

    The file needs no network and no server, and can be sent to anybody. Answers can be marked right, wrong or odd in
    it. RUN is an id, the start of one, `last`, or `last~1` for the one before it.
    """
    with open_run(store, run) as (opened, stored):
        file = output or re.sub(r"[^\w.-]+", "-", stored.id) + ".html"
        if file != "-":
            check_writable(file)
        context = ReportContext(
            results=lambda: opened.results(stored), first_results=lambda seeds: first_results(opened, stored, seeds)
        )
        page = render(evaluation_of(opened, stored), context)
    if file == "-":
        click.echo(page, nl=False)
        return
    write_file(file, page)
    note(f"Wrote {file} ({max(1, len(page) // 1000):,} kB). Open it in a browser.")
