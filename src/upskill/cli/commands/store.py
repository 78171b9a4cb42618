from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from upskill.cli.console import note, show_json
from upskill.cli.help import Group
from upskill.cli.options import (
    click_options,
    json_option,
    open_existing_store,
    store_option,
)
from upskill.errors import UsageError
from upskill.options import option
from upskill.plain import counted
from upskill.runs.stores import Run
from upskill.runs.stores.prune import choose_runs, prune, unused_replies

UNITS = {"h": "hours", "d": "days", "w": "weeks"}
MAX_LISTED = 20  # runs


def _age(text: str) -> timedelta:
    if not (parsed := re.fullmatch(r"(\d{1,6})([hdw])", text.strip().lower())):
        raise click.BadParameter(
            f"{text!r} is not an age; use hours, days or weeks, such as 12h, 90d or 8w."
        )
    return timedelta(**{UNITS[parsed[2]]: int(parsed[1])})


@click.group("store", cls=Group)
def command() -> None:
    """Delete stored runs that you no longer need.

    \b
    upskill store prune --older-than 90d --keep 5 --dry-run
    """


@dataclass(kw_only=True)
class _PruneOptions:
    older_than: timedelta | None
    store: str | None
    as_json: bool
    keep: int | None = option(
        "--keep", default=None, help="Keep the latest N runs of each skill.", metavar="N", minimum=0
    )
    skill: str | None = option(
        "-s", "--skill", default=None, help="Only runs of this skill.", metavar="NAME"
    )
    replies: bool = option(
        "--replies",
        default=False,
        help="Also delete students' stored answers that no run uses anymore.",
    )
    dry_run: bool = option(
        "--dry-run", default=False, help="Show what would be deleted, without deleting it."
    )
    yes: bool = option("-y", "--yes", default=False, help="Do not ask.")


@command.command("prune")
@click.option(
    "--older-than",
    type=_age,
    metavar="AGE",
    help="Delete runs started longer ago than this: 12h, 90d, 8w.",
)
@click_options(_PruneOptions)
@store_option
@json_option
def prune_command(**values: Any) -> None:
    """Delete runs with their results, or answers that no run uses.

    Runs in progress are kept. Looks at a deleted run still count.

    \b
    upskill store prune --older-than 90d --keep 5 --dry-run
    upskill store prune --keep 0 --skill old-skill --yes
    upskill store prune --replies --yes
    """
    options = _PruneOptions(**values)
    chooses = options.older_than is not None or options.keep is not None
    if not chooses and not options.replies:
        raise UsageError("nothing selected to delete", "Use --older-than, --keep or --replies.")
    with open_existing_store(options.store) as store:
        runs = (
            choose_runs(store, options.skill, older_than=options.older_than, keep=options.keep)
            if chooses
            else []
        )
        for run in store.runs() if options.replies else ():
            if store.is_claimed(run):
                hint = "Wait for it to finish, or drop --replies: its answers may be in use."
                raise UsageError(f"{run.id} is in progress", hint)
        keys = list(unused_replies(store, runs)) if options.replies else []
        if not options.as_json:
            _list(runs, len(keys) if options.replies else None)
        if options.dry_run or not (runs or keys):
            if options.as_json:
                show_json(
                    {
                        "dry_run": options.dry_run,
                        "runs": [run.id for run in runs],
                        "replies": len(keys),
                    }
                )
            return
        if not options.yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    "cannot ask for confirmation without a terminal",
                    "Use --yes to delete them, or --dry-run to see what would be deleted.",
                )
            click.confirm("Delete them?", abort=True, err=True)
        done = prune(store, runs, keys)
    if options.as_json:
        counts = {"results": done.results, "replies": done.replies, "busy": list(done.busy)}
        show_json(
            {
                "dry_run": False,
                "runs": [run.id for run in runs if run.id not in done.busy],
                **counts,
            }
        )
        return
    for run_id in done.busy:
        note(f"{run_id} is in progress and was kept.")
    note(
        f"Deleted {counted(done.runs, 'run')} with {counted(done.results, 'result')}, {_replies(done.replies)}."
    )


def _list(runs: list[Run], replies: int | None) -> None:
    for run in runs[:MAX_LISTED]:
        results = run.passed + run.failed + run.errored
        click.echo(f"{run.id}  {run.created}  {counted(results, 'result')}")
    if len(runs) > MAX_LISTED:
        click.echo(f"and {len(runs) - MAX_LISTED:,} more")
    unused = "" if replies is None else f", {_replies(replies)} that no run uses"
    note(f"{counted(len(runs), 'run')} to delete{unused}.")


def _replies(count: int) -> str:
    return "1 reply" if count == 1 else f"{count:,} replies"
