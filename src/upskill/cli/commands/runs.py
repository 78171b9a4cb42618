from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import click

from upskill.cli.console import (
    check_writable,
    note,
    show_document,
    show_json,
    show_report,
    write_file,
)
from upskill.cli.help import Command
from upskill.cli.options import (
    find_project_store,
    force_option,
    json_option,
    say_nothing_yet,
    store_option,
)
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.reports.csv import write_rows
from upskill.reports.figures import COLUMNS, verdict_row
from upskill.reports.runs import Metric, read_rows, report_runs
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Run, Store

MAX_RUNS = 50  # that are shown at a time


@click.command("runs", cls=Command)
@store_option
@click.option(
    "-s", "--skill", "skills", multiple=True, metavar="NAME", help="Only this skill; repeatable."
)
@click.option(
    "-m",
    "--student",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Only this student; repeatable.",
)
@click.option(
    "--metric",
    type=click.Choice(["success", "tokens"]),
    default="success",
    show_default=True,
    help="What to show.",
)
@click.option(
    "--csv",
    "csv_file",
    metavar="PATH",
    help="Write a CSV file with a row per run and model (- prints it).",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help=f"All runs, not only the latest {MAX_RUNS}, with the parts of searches.",
)
@force_option
@json_option
def command(
    store: str | None,
    skills: tuple[str, ...],
    models: tuple[str, ...],
    metric: Metric,
    csv_file: str | None,
    every: bool,
    force: bool,
    as_json: bool,
) -> None:
    """List the stored runs, latest last.

    One skill: every run. Several skills: the latest result of each skill and model, on the skill's own suite. A run on
    another suite is listed with that suite.
    """
    opened = find_project_store(store)
    if opened is None:
        if as_json:
            show_json([])
        elif csv_file:
            raise UsageError("no stored run to write", "`upskill eval SKILL` creates one.")
        else:
            say_nothing_yet(
                "no run is stored here",
                "`upskill eval SKILL` creates one; `upskill init` starts a skill.",
            )
        return
    with opened:
        is_short = not (as_json or csv_file or every)
        runs = (
            run
            for run in opened.runs(newest_first=True, listed=not every)
            if not skills or run.skill in skills
        )
        if csv_file:
            _write_csv(opened, runs, models, csv_file, force=force)
            return
        listed = list(islice(runs, MAX_RUNS) if is_short else runs)[::-1]
        older = sum(1 for _ in runs)
        rows = read_rows(opened, listed, models)
    if rows or as_json:
        show_report(report_runs(rows, metric=metric, older=older), as_json=as_json)
    else:
        which = "matches" if skills or models else "has a result yet"
        note(f"No stored run {which}. `upskill eval SKILL` starts or continues one.")


def _write_csv(
    store: Store, runs: Iterable[Run], models: Sequence[str], file: str, *, force: bool
) -> None:
    every = (
        (run, verdict) for run in list(runs)[::-1] for verdict in evaluation_of(store, run).verdicts
    )
    rows = [
        verdict_row(run, verdict) for run, verdict in every if not models or verdict.model in models
    ]
    text = write_rows(rows, COLUMNS)
    if file == "-":
        show_document(text)
        return
    check_writable(file, force=force)
    write_file(file, text)
    note(f"Wrote {counted(len(rows), 'row')} to {file}")
