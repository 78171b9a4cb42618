"""`upskill export`: a stored run as files for other tools, and its replies for other machines."""

from __future__ import annotations

import click

from upskill.cli.completion import complete_runs
from upskill.cli.console import note
from upskill.cli.help import Command
from upskill.cli.options import open_existing_store, quiet_option, runs_dir_option
from upskill.cli.run_names import find_run
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.runs.replies import export_replies
from upskill.runs.stores import Run, Store
from upskill.settings import Settings


@click.command("export", cls=Command)
@click.argument("run", shell_complete=complete_runs)
@click.option("--replies", metavar="FILE", help="Write what the models answered, for `upskill eval --replay FILE`.")
@runs_dir_option
@quiet_option
def command(run: str, replies: str | None, runs_dir: str | None, quiet: bool) -> None:
    """Write RUN as files for other tools, or its replies for other machines.

    RUN is an id, the start of one, or `last`, as with `upskill show`.

    \b
    upskill export last --replies replies.jsonl.gz
    """
    if not replies:
        raise UsageError("nothing was asked for", "Give --replies FILE.")
    with open_existing_store(runs_dir or Settings.load().store) as store:
        found = find_run(store, run)
        if not quiet and not found.finished:
            left = found.trials - found.passed - found.failed - found.errored
            note(f"Run {found.id} is not finished: {counted(left, 'trial')} not run, {found.errored} errored.")
        _export_replies(store, found, replies, quiet=quiet)


def _export_replies(store: Store, run: Run, file: str, *, quiet: bool) -> None:
    from upskill.traces.redact import describe_counts  # noqa: PLC0415 - detect-secrets comes with it

    done = export_replies(store, run, file)
    if done.redacted:
        cases = ", ".join(list(done.redacted_cases)[:5]) + (", …" if len(done.redacted_cases) > 5 else "")
        note(
            f"Warning: {describe_counts(done.redacted)} in answers to {counted(len(done.redacted_cases), 'case')}"
            f" ({cases}). What is graded on replay differs there from what was answered."
        )
    if not quiet:
        replies = "1 reply" if done.replies == 1 else f"{done.replies:,} replies"
        note(f"Wrote {replies} of {counted(done.trials, 'trial')} to {file}")
