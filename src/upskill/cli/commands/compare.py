from __future__ import annotations

from itertools import islice
from typing import get_args

import click

from upskill.cli.commands.completion import complete_models, complete_runs
from upskill.cli.console import note, show, show_json
from upskill.cli.help import Command
from upskill.cli.options import find_run, json_option, open_existing_store, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.reports.comparison import render, render_case, to_json
from upskill.runs.planning.plan import Arm
from upskill.runs.results.comparison import Side, compare
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
@click.option("--arm", type=click.Choice(get_args(Arm)), default="skill", show_default=True, help="The arm to compare.")
@click.option("--all", "every", is_flag=True, help=f"All cases that changed, not only the first {MAX_CASES}.")
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
    the last run is compared with the latest one before it that has the same skill and cases.

    \b
    upskill compare                           the last run with the one before it
    upskill compare last~3                    the last run with an earlier one
    upskill compare last -m haiku -m local    two models of one run
    """
    with open_existing_store(store) as opened:
        first = find_run(opened, before) if before else _run_before_last(opened)
        second = first if before and not after and len(models) > 1 else find_run(opened, after or "last")
        comparisons = [compare(opened, *sides) for sides in _sides(first, second, models, arm)]
        if as_json:
            show_json({"comparisons": [to_json(each, opened) for each in comparisons]})
            return
        for comparison in comparisons:
            show(*render(comparison))
            changed = [*comparison.changed("worse"), *comparison.changed("better")]
            most = len(changed) if every else MAX_CASES
            for case in changed[:most]:
                show(*render_case(opened, comparison, case))
            if len(changed) > most:
                note(f"{counted(len(changed) - most, 'more case')} changed. Use --all to show everything.")


def _run_before_last(store: Store) -> Run:
    """The latest run before the last one that shares cases with it, preferably of the same skill and suite."""
    last = find_run(store, "last")
    cases = last.plan.suite.by_id.keys()
    alike = [
        run
        for run in islice(store.runs(newest_first=True), MAX_RUNS)
        if run.id != last.id and cases & run.plan.suite.by_id.keys() and _kind(run) == _kind(last)
    ]
    if not alike:
        hint = "`upskill runs` lists all runs; upskill compare BEFORE AFTER compares two of them."
        raise UsageError(f"no earlier run can be compared with {last.id}: none has the same cases and baseline", hint)
    return max(alike, key=lambda run: (run.skill == last.skill, run.plan.suite.by_id.keys() == cases))


def _kind(run: Run) -> tuple[bool, bool]:
    """Whether it is part of a search, and whether its baseline is another skill."""
    return run.plan.analysis.reported is False, run.plan.reference_skill is not None


def _sides(old: Run, new: Run, models: tuple[str, ...], arm: Arm) -> list[tuple[Side, Side]]:
    if len(models) > 2:
        raise UsageError(f"{len(models)} models are too many to compare", "Choose one or two with -m.")
    for run, named in ((old, models[:1]), (new, models[-1:])):
        for model in named:
            if model not in run.models:
                raise UsageError(f"{run.id}: no model named {model!r}", did_you_mean(model, run.models))
        if arm not in run.plan.arms:
            raise UsageError(f"{run.id}: no arm named {arm!r}", f"It has {', '.join(run.plan.arms)}.")
    pairs = [(models[0], models[-1])] if models else [(model, model) for model in old.models if model in new.models]
    if not pairs and len(old.models) == len(new.models) == 1:
        pairs = [(old.models[0], new.models[0])]
    if not pairs:
        raise UsageError(
            f"{old.id} and {new.id} have no model in common", "Choose one from each: -m MODEL -m MODEL, in that order."
        )
    sides = [(Side(old, before, arm), Side(new, after, arm)) for before, after in pairs]
    if any(before == after for before, after in sides):
        raise UsageError(f"{old.id} cannot be compared with itself", "Name two runs, or two of its models with -m.")
    return sides
