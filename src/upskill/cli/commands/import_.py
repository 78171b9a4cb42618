from __future__ import annotations

import click

from upskill.cli.console import write_file
from upskill.cli.help import Command
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
        write_file(output, text, overwrite=force, private=False)
    else:
        click.echo(text, nl=False)
    for line in _describe(suite, output):
        click.echo(line, err=not output)


def _describe(suite: Suite, output: str) -> list[str]:
    notes = suite.notes
    lines = [f"wrote {output}"] if output else []
    if notes is None:
        lines += [f"{suite.source}: {len(suite.cases)} cases, as they were"]
    else:
        lines += [f"{suite.source} ({notes.title}): {notes.summary}"]
        for title, details in (("changed", notes.changed()), ("left out", notes.left_out())):
            lines += [f"  {title}: {line}" for line in details]
        lines += [f"  {notes.metadata}"] if notes.metadata else []
    judge = any(named.check.needs_judge for case in suite.cases for named in case.checks)
    if output:
        lines += [f"Next: upskill eval SKILL -t {output}{' --judge MODEL' if judge else ''}"]
    return lines
