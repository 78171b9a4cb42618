from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import get_args

import click

from upskill.cli.commands.completion import complete_models, complete_runs
from upskill.cli.console import note, show_report
from upskill.cli.help import Command
from upskill.cli.options import find_run, json_option, open_existing_store, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.reports.comparison import report_comparison
from upskill.runs.planning.plan import Arm
from upskill.runs.results.comparison import Side, compare, latest_pair
from upskill.runs.results.shown import mark_shown, part_of
from upskill.runs.stores import Run, Store

MAX_CASES = 20  # whose answers are shown
MAX_RUNS = 500  # the latest, to search for a run to compare with


@click.command("compare", cls=Command)
@click.argument("before", required=False, shell_complete=complete_runs)
@click.argument("after", required=False, shell_complete=complete_runs)
@click.option(
    *("-m", "--student", "models"),
    multiple=True,
    metavar="MODEL",
    help="Only this student; pass two to compare them.",
    shell_complete=complete_models,
)
@click.option(
    "--arm",
    type=click.Choice(get_args(Arm)),
    default="skill",
    show_default=True,
    help="The arm to compare.",
)
@click.option(
    "--all", "every", is_flag=True, help=f"All cases that changed, not only the first {MAX_CASES}."
)
@store_option
@json_option
def command(
    before: str | None,
    after: str | None,
    models: tuple[str, ...],
    arm: Arm,
    every: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show which cases changed from run BEFORE to run AFTER, with both answers.

    A run is an id, a prefix of one, `last`, or `last~1` for the one before it. AFTER defaults to `last`. Without both,
    the latest two finished runs that share a suite and a model are compared.

    \b
    upskill compare                           the latest two runs that match
    upskill compare last~3                    the last run with an earlier one
    upskill compare last -m haiku -m local    two models of one run
    """
    with open_existing_store(store) as opened:
        if before:
            first = find_run(opened, before)
            second = first if not after and len(models) > 1 else find_run(opened, after or "last")
        else:
            first, second = _latest_pair(opened, models)
        for run in (first, second):
            if caveat := mark_shown(opened, run):
                note(caveat)
        comparisons = [compare(opened, *sides) for sides in _sides(first, second, models, arm)]
        report = report_comparison(comparisons, opened, None if every else MAX_CASES)
        show_report(report, as_json=as_json, detail="answers")


def _latest_pair(store: Store, models: tuple[str, ...]) -> tuple[Run, Run]:
    last = find_run(store, "last")
    runs = list(islice(store.runs(newest_first=True, listed=True), MAX_RUNS))
    if pair := latest_pair(store, runs, runs, models):
        if last not in pair:
            note(
                f"{last.id}, the last run, has no finished run before it with the same suite and model."
            )
        return pair
    if len(runs) < 2:
        raise UsageError(
            "nothing to compare: only one run is stored", "Run another `upskill eval`."
        )
    latest = "; ".join(f"{run.id} ({', '.join(_describe(run))})" for run in runs[:2])
    hint = f"The latest: {latest}. upskill compare BEFORE AFTER compares any two that share cases."
    raise UsageError(
        "nothing to compare: no two finished runs share a model, cases and a baseline", hint
    )


def _describe(run: Run) -> Iterator[str]:
    yield run.plan.other_suite or "own suite"
    yield from run.models
    if run.purpose != "eval":
        yield part_of(run)
    elif run.plan.reference_skill:
        yield "against a reference skill"


def _sides(old: Run, new: Run, models: tuple[str, ...], arm: Arm) -> list[tuple[Side, Side]]:
    if len(models) > 2:
        raise UsageError(
            f"{len(models)} models are too many to compare", "Choose one or two with -m."
        )
    for run, named in ((old, models[:1]), (new, models[-1:])):
        for model in named:
            if model not in run.models:
                raise UsageError(
                    f"{run.id}: no model named {model!r}", did_you_mean(model, run.models)
                )
        if arm not in run.plan.arms:
            raise UsageError(
                f"{run.id}: no arm named {arm!r}", f"It has {', '.join(run.plan.arms)}."
            )
    pairs = (
        [(models[0], models[-1])]
        if models
        else [(model, model) for model in old.models if model in new.models]
    )
    if not pairs and len(old.models) == len(new.models) == 1:
        pairs = [(old.models[0], new.models[0])]
    if not pairs:
        raise UsageError(
            f"{old.id} and {new.id} have no model in common",
            "Choose one from each: -m MODEL -m MODEL, in that order.",
        )
    sides = [(Side(old, before, arm), Side(new, after, arm)) for before, after in pairs]
    if any(before == after for before, after in sides):
        raise UsageError(
            f"{old.id} cannot be compared with itself",
            "Name two runs, or two of its models with -m.",
        )
    return sides
