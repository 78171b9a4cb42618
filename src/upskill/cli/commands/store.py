from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import click

from upskill.cli.console import note, show, show_json
from upskill.cli.help import Group
from upskill.cli.options import (
    click_options,
    json_option,
    open_existing_store,
    quiet_option,
    store_option,
)
from upskill.cli.progress import display_of_command
from upskill.errors import UsageError
from upskill.options import option
from upskill.plain import counted
from upskill.runs.stores import Run, open_store
from upskill.runs.stores.maintenance import (
    Report,
    check_store,
    choose_runs,
    copy_store,
    prune,
    unused_replies,
)

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
    """Copy stored runs to another store, check them, or delete those you no longer need.

    \b
    upskill store copy ./runs postgresql://me@db.example.org/upskill
    upskill store check
    upskill store prune --older-than 90d --keep 5 --dry-run
    """


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
@quiet_option
def copy_command(source: str, target: str, as_json: bool, quiet: bool) -> None:
    """Copy all runs, replies and versions FROM one store TO another: folders or postgresql:// URLs.

    An interrupted copy continues where it stopped, and copying again adds what is new. Nothing in TO is lost: a run
    whose id is taken gets the next free one.
    """
    with open_existing_store(source) as here, open_store(target) as there:
        copied = copy_store(here, there, _teller("Copying", quiet=quiet or as_json))
        if as_json:
            show_json({"from": here.location, "to": there.location, **asdict(copied)})
        elif not quiet:
            note(
                f"Copied to {there.location}: {counted(copied.runs, 'run')} ({copied.new_runs:,} new), "
                f"{counted(copied.results, 'result')} ({copied.new_results:,} new), "
                f"{_replies(copied.replies)} ({copied.new_replies:,} new)."
            )


@command.command("check")
@store_option
@json_option
@quiet_option
def check_command(store: str | None, as_json: bool, quiet: bool) -> None:
    """Read the whole store, and list what is damaged or orphaned. Exit code 1 if anything is."""
    opened = open_existing_store(store)
    try:  # not `with`, which would raise what we want to list
        problems = check_store(opened, _teller("Checking", quiet=quiet or as_json))
        runs, location = opened.count_runs(), opened.location
    finally:
        opened.close()
    if as_json:
        show_json({"store": location, "runs": runs, "problems": problems})
    elif problems:
        show(*(f"- {problem}" for problem in problems))
    elif not quiet:
        note(f"{location}: {counted(runs, 'run')}, no problems found.")
    if problems:
        raise click.exceptions.Exit(1)


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


def _teller(activity: str, *, quiet: bool) -> Report:
    display = display_of_command(quiet=quiet)
    return lambda what, share: display.doing(activity, what, share)
