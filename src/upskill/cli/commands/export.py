from __future__ import annotations

import sys
from pathlib import Path

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import note
from upskill.cli.help import Command
from upskill.cli.options import force_option, open_run, quiet_option, redact_option, store_option
from upskill.errors import UsageError
from upskill.outputs import check_ours
from upskill.plain import counted
from upskill.reports.exports import EXPORTS, Export, StoredRun, file_name
from upskill.reports.redacted import describe_contents
from upskill.runs.replay.replies import export_replies
from upskill.runs.stores import Run, Store
from upskill.traces.redaction.redact import describe_counts


@click.command("export", cls=Command)
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "--format", "kind", metavar="KIND", help=f"What to write: {', '.join(EXPORTS.table)}."
)
@click.option(
    "-o",
    "--output",
    metavar="PLACE",
    help="Where to write it (default: named after the run, in this folder; - prints text formats).",
)
@click.option(
    "--replies", metavar="FILE", help="Write the models' replies, for `upskill eval --replay FILE`."
)
@redact_option
@force_option
@store_option
@quiet_option
def command(
    run: str,
    kind: str | None,
    output: str | None,
    replies: str | None,
    redact: bool,
    force: bool,
    store: str | None,
    quiet: bool,
) -> None:
    """Write RUN as files for other tools, or its replies for other machines.

    \b
    upskill export last --format csv -o trials.csv   one row per trial
    upskill export last --format inspect -o logs     for `inspect view`
    upskill export last --replies replies.jsonl.gz   for `eval --replay FILE`

    RUN is an id, a prefix of one, or `last`, as in `upskill show`. Output is written completely or not at all, and only
    you can read it. upskill overwrites a file only if it wrote it, and a folder only if it is an earlier export.
    Replies never contain secrets.
    """
    if not kind and not replies:
        raise UsageError(
            "nothing to export", f"Pass --format ({', '.join(EXPORTS.names())}) or --replies FILE."
        )
    if output and not kind:
        raise UsageError("-o needs --format", "With --replies, the file follows that option.")
    export: Export | None = EXPORTS.load(kind) if kind else None
    if export and output == "-" and not export.ending:
        raise UsageError(
            f"{kind} is not a text format, so it cannot be printed",
            "Choose a file or folder with -o.",
        )
    with open_run(store, run) as (opened, stored):
        if not quiet and not stored.finished:
            left = stored.trials - stored.passed - stored.failed - stored.errored
            note(
                f"Run {stored.id} is not finished: {counted(left, 'trial')} not run, {stored.errored} missing."
            )
        if export and kind:
            name = file_name(stored.id)
            usual = f"{name}{export.ending or f'-{kind}'}"
            source = StoredRun(opened, stored)
            source = source.without_secrets() if redact else source
            write_export(export, source, output or usual, force=force, quiet=quiet)
        if replies:
            check_ours(replies, force=force)
            _export_replies(opened, stored, replies, quiet=quiet)


def write_export(export: Export, run: StoredRun, path: str, *, force: bool, quiet: bool) -> None:
    if path == "-":
        sys.stdout.flush()
        export.write(run, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        export.save(run, path, force=force)
        if not quiet:
            trials = counted(run.run.passed + run.run.failed + run.run.errored, "trial")
            note(f"Wrote {trials} to {path}{'/' if Path(path).is_dir() else ''}")
    if export.has_answers and not quiet:
        note(describe_contents(run.redactor.counts if run.redactor else None))


def _export_replies(store: Store, run: Run, file: str, *, quiet: bool) -> None:
    done = export_replies(store, run, file)
    if done.redacted:
        cases = ", ".join(list(done.redacted_cases)[:5]) + (
            ", …" if len(done.redacted_cases) > 5 else ""
        )
        note(
            f"Warning: {describe_counts(done.redacted)} in answers to {counted(len(done.redacted_cases), 'case')}"
            f" ({cases}). On replay, these graded answers differ from the original ones."
        )
    if not quiet:
        replies = "1 reply" if done.replies == 1 else f"{done.replies:,} replies"
        note(f"Wrote {replies} for {counted(done.trials, 'trial')} to {file}")
