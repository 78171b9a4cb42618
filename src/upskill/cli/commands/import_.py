"""`upskill import`: turn the test cases of another tool into a suite."""

from __future__ import annotations

from pathlib import Path

import click

from upskill.cli.help import Command
from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.suites import Suite
from upskill.suites.files import decode
from upskill.suites.formats import is_ours
from upskill.suites.suite import MAX_SUITE_BYTES, as_yaml


@click.command("import", cls=Command)
@click.argument("file", type=click.Path())
@click.option(
    "-o", "--output", default="", metavar="FILE", help="Where the suite goes; without it, to standard output."
)
@click.option("--force", is_flag=True, help="Overwrite the output if it is there.")
def command(file: str, output: str, force: bool) -> None:
    """Turn the test cases in FILE into a suite, and say what was carried over, changed and left out.

    Reads what promptfoo, inspect_ai, waza and skill-creator read, `.upskill/evals.json`, smoke tests with verifiers,
    and CSV with `prompt,expected`. Recognised by the content. `upskill eval SKILL -t FILE` reads them directly, too.

    \b
    upskill import promptfooconfig.yaml -o my-skill/evals/suite.yaml
    upskill import questions.csv                                       print it
    """
    if is_ours(decode(read_input(file, most=MAX_SUITE_BYTES), file)):
        suite = Suite.load(file)
        click.echo(f"{file}: is a suite already, with {len(suite.cases)} cases. Nothing to import.", err=not output)
        return
    suite = Suite.load(file)
    text = as_yaml(suite)
    if Suite.read(text.encode(), f"{file}, as a suite").fingerprint != suite.fingerprint:
        raise AssertionError("the written suite is not the one that was read")
    if output:
        _write(Path(output), text, force=force)
    else:
        click.echo(text, nl=False)
    for line in _told(suite, output):
        click.echo(line, err=not output)


def _told(suite: Suite, output: str) -> list[str]:
    notes = suite.notes
    lines = [f"wrote {output}"] if output else []
    if notes is None:
        lines += [f"{suite.source}: {len(suite.cases)} cases, as they were"]
    else:
        lines += [f"{suite.source} ({notes.title}): {notes.summary}"]
        for title, told in (("changed", notes.changed()), ("left out", notes.left_out())):
            lines += [f"  {title}: {line}" for line in told]
        lines += [f"  {notes.metadata}"] if notes.metadata else []
    judge = any(named.check.needs_judge for case in suite.cases for named in case.checks)
    if output:
        lines += [f"Next: upskill eval SKILL -t {output}{' --judge MODEL' if judge else ''}"]
    return lines


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path}: is there already", "Name another file, or overwrite it with --force.") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
