from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from upskill.cli.console import write_file
from upskill.cli.help import Command
from upskill.cli.progress import display_of_command
from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.plain import counted
from upskill.suites import Suite
from upskill.suites.files import MAX_SUITE_BYTES, decode
from upskill.suites.formats import is_ours, recognize
from upskill.suites.kernelbench import PREFIX, import_problems
from upskill.suites.suite import as_yaml
from upskill.traces import FORMATS as TRACE_FORMATS
from upskill.traces.formats import Format, detect_format
from upskill.traces.sessions import find_trace


@click.command("import", cls=Command)
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    default="",
    metavar="FILE",
    help="Where to write the suite (default: standard output).",
)
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
def command(file: str, output: str, force: bool) -> None:
    """Convert the test cases in FILE into a suite, and say what was carried over, changed and left out.

    Reads the formats of promptfoo, inspect_ai, skill-creator and skillgrade, `.upskill/evals.json`, smoke
    tests with verifiers, CSV with `prompt,expected`, and folders of `claude plugin eval`, Tessl and Harbor. The
    format is detected. `upskill eval SKILL -t FILE` also reads them.

    \b
    upskill import promptfooconfig.yaml -o my-skill/evals/suite.yaml
    upskill import questions.csv                     print it
    upskill import kernelbench:level1 -o kernels     problems as kernel tasks
    """
    if file.startswith(PREFIX):
        _import_kernelbench(Path(file.removeprefix(PREFIX)), output, force)
        return
    try:
        suite = Suite.load(file)
    except UsageError as error:
        raise (_is_session(file) or error) from None
    if suite.notes is None and is_ours(decode(read_input(file, most=MAX_SUITE_BYTES), file)):
        click.echo(
            f"{file}: already a suite, with {counted(len(suite.cases), 'case')}. Nothing to import.",
            err=not output,
        )
        return
    text = as_yaml(suite)
    if Suite.read(text.encode(), f"{file}, as a suite").fingerprint != suite.fingerprint:
        raise AssertionError("the written suite differs from the one that was read")
    if output:
        write_file(output, text, overwrite=force, private=False)
    else:
        click.echo(text, nl=False)
    for line in _describe(suite, output):
        click.echo(line, err=not output)


def _import_kernelbench(folder: Path, output: str, force: bool) -> None:
    if not output:
        raise UsageError(
            "KernelBench problems are written as a folder, with a suite and its tasks",
            "Add -o FOLDER.",
        )
    display = display_of_command(quiet=False)
    problems = import_problems(
        folder, lambda name: display.doing("running problems on the CPU", name)
    )
    display.stop()
    for name, text in {"suite.yaml": problems.suite, **problems.tasks}.items():
        write_file(str(Path(output) / name), text, overwrite=force, private=False)
    total = len(problems.tasks) + len(problems.left_out)
    click.echo(f"wrote {output}: {len(problems.tasks)} of {total} problems as kernel tasks")
    for name, why in problems.left_out.items():
        click.echo(f"  left out: {name}: {why}")
    click.echo(f"Next: upskill eval SKILL -t {Path(output) / 'suite.yaml'}")


def _is_session(file: str) -> UsageError | None:
    """Say so if this is an agent's session and not test cases."""
    with suppress(UsageError):
        if recognize(decode(read_input(file, most=MAX_SUITE_BYTES), file)):
            return None  # test cases that cannot be carried over
    with suppress(UsageError):
        known: Format = TRACE_FORMATS.load(detect_format(find_trace(file)))
        return UsageError(
            f"{file}: this is an agent's session ({known.title}), not a file of test cases",
            f'`upskill generate "TASK" --from {file}` makes a skill and test cases from it.',
        )
    return None


def _describe(suite: Suite, output: str) -> list[str]:
    notes = suite.notes
    lines = [f"wrote {output}"] if output else []
    if notes is None:
        lines += [f"{suite.source}: {counted(len(suite.cases), 'case')}, unchanged"]
    else:
        lines += [f"{suite.source} ({notes.title}): {notes.summary}"]
        for title, details in (("changed", notes.changed()), ("left out", notes.left_out())):
            lines += [f"  {title}: {line}" for line in details]
        lines += [f"  {notes.metadata}"] if notes.metadata else []
    judge = any(named.check.needs_judge for case in suite.cases for named in case.checks)
    if output:
        lines += [f"Next: upskill eval SKILL -t {output}{' --judge MODEL' if judge else ''}"]
    return lines
