"""`upskill compare`: which cases changed from one run to another, with both answers."""

from __future__ import annotations

from typing import Any, get_args

import click

from upskill.cli.commands.completion import complete_models, complete_runs
from upskill.cli.console import note, show, show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option, open_existing_store, store_option
from upskill.cli.run_names import find_run
from upskill.errors import UsageError, did_you_mean
from upskill.runs.planning.plan import Arm
from upskill.runs.results.comparison import Comparison, Side, compare
from upskill.runs.stores import Run, Store

MOST_CASES = 20  # whose answers are shown


@click.command("compare", cls=Command)
@click.argument("before", required=False, shell_complete=complete_runs)
@click.argument("after", required=False, shell_complete=complete_runs)
@click.option(
    *("-m", "--student", "models"),
    multiple=True,
    metavar="MODEL",
    help="Only this student; two: one with the other.",
    shell_complete=complete_models,
)
@click.option("--arm", type=click.Choice(get_args(Arm)), default="skill", show_default=True, help="The arm to compare.")
@click.option("--all", "every", is_flag=True, help=f"All cases that changed, not only the first {MOST_CASES}.")
@store_option
@json_option
def command(
    before: str | None, after: str | None, models: tuple[str, ...], arm: Arm, every: bool, **given: Any
) -> None:
    """Show which cases changed from run BEFORE to run AFTER, with both answers.

    A run is an id, the start of one, `last`, or `last~1` for the one before it. AFTER is `last` where it is left out;
    without both, the last run is compared with the one before it of the same skill and cases.

    \b
    upskill compare                           the last run with the one before it
    upskill compare last~3                    the last run with an earlier one
    upskill compare last -m haiku -m local    two models of one run
    """
    with open_existing_store(given["store"]) as store:
        one = find_run(store, before) if before else _run_before_last(store)
        two = one if before and not after and len(models) > 1 else find_run(store, after or "last")
        found = [compare(store, *sides) for sides in _sides(one, two, models, arm)]
        if given["as_json"]:
            from upskill.reports.comparison import to_json  # noqa: PLC0415 - only for programs

            show_json({"comparisons": [to_json(each, store) for each in found]})
            return
        for each in found:
            _show(store, each, len(each.cases) if every else MOST_CASES)


def _show(store: Store, found: Comparison, most: int) -> None:
    from upskill.reports.comparison import render, render_case  # noqa: PLC0415 - rich, only where it is drawn

    show(*render(found))
    changed = [*found.changed("worse"), *found.changed("better")]
    for case in changed[:most]:
        show(*render_case(store, found, case))
    if len(changed) > most:
        note(f"{len(changed) - most} more cases changed; --all shows them.")


def _run_before_last(store: Store) -> Run:
    """The latest before the last one that has its skill and some of its cases."""
    last = find_run(store, "last")
    cases = last.plan.suite.by_id.keys()
    runs = (run for run in store.runs(last.skill, newest_first=True) if run.id != last.id)
    return next((run for run in runs if cases & run.plan.suite.by_id.keys()), None) or find_run(store, "last~1")


def _sides(one: Run, two: Run, models: tuple[str, ...], arm: Arm) -> list[tuple[Side, Side]]:
    """What is compared with what: each model with itself, or the two that are named."""
    if len(models) > 2:
        raise UsageError(f"{len(models)} models cannot be compared with each other", "Name one or two with -m.")
    for run, named in ((one, models[:1]), (two, models[-1:])):
        for model in named:
            if model not in run.models:
                raise UsageError(f"{run.id}: no model is called {model!r}", did_you_mean(model, run.models))
        if arm not in run.plan.arms:
            raise UsageError(f"{run.id}: has no arm {arm!r}", f"It has {', '.join(run.plan.arms)}.")
    pairs = [(models[0], models[-1])] if models else [(model, model) for model in one.models if model in two.models]
    if not pairs and len(one.models) == len(two.models) == 1:
        pairs = [(one.models[0], two.models[0])]
    if not pairs:
        raise UsageError(
            f"{one.id} and {two.id} have no model in common", "Name one of each: -m MODEL -m MODEL, in that order."
        )
    sides = [(Side(one, before, arm), Side(two, after, arm)) for before, after in pairs]
    if any(before == after for before, after in sides):
        raise UsageError(f"{one.id}: would be compared with itself", "Name two runs, or two of its models with -m.")
    return sides
