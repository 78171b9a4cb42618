from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from upskill.cli.console import write_file
from upskill.cli.help import Command
from upskill.errors import UsageError
from upskill.settings import FILE as SETTINGS_FILE
from upskill.skills import Skill
from upskill.skills.starter import DESCRIPTION, SCHEMAS, schema_files, settings_file, skill_files, workflow_file

WORKFLOW = ".github/workflows/upskill.yaml"


@click.command("init", cls=Command)
@click.argument("place", metavar="[NAME]", default="")
@click.option("--description", default="", help="What the skill does, then when to use it.", metavar="TEXT")
@click.option("--ci", is_flag=True, help=f"Also write {WORKFLOW}, which proves the skill when it changes.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
def command(place: str, description: str, ci: bool, yes: bool) -> None:
    """Start a skill in a folder NAME: SKILL.md, test cases that already run, upskill.config.yaml, and schemas.

    The example in it is about a tool that does not exist, so that you see a lift at once, without a key. Put what you
    know in its place. Nothing that is there already is overwritten.

    \b
    upskill init deploy-shop        a folder deploy-shop, asking what it is for
    upskill init skills/shop --yes  the same elsewhere, asking nothing
    """
    ask = not yes and sys.stdin.isatty()
    place = place or (click.prompt("Name of the skill", default="my-skill") if ask else "my-skill")
    folder = Path(place)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{place}: is there already", "Name another folder: upskill init NAME.")
    if ask:
        description = description or click.prompt("What it does, then when to use it", default=DESCRIPTION)
        ci = ci or click.confirm(f"Write {WORKFLOW} too?", default=False)
    named = folder.as_posix() if folder.is_absolute() or ".." in folder.parts else f"./{folder.as_posix()}"
    name = folder.resolve().name
    problems = Skill.new(name, description or DESCRIPTION, "An example.").problems()
    if wrong := next((problem for problem in problems if problem.level == "error"), None):
        raise UsageError(f"{named}: {wrong.message}", "Names have lowercase letters, digits and single dashes.")
    to_schemas = Path(os.path.relpath(SCHEMAS, folder / "evals")).as_posix()
    for path, text in skill_files(name, named, description, to_schemas).items():
        write_file(str(folder / path), text, overwrite=False, private=False)
    others = {Path(SETTINGS_FILE): settings_file()}
    schemas = {Path(path): text for path, text in schema_files().items()}
    if ci:
        others[Path(WORKFLOW)] = workflow_file(folder.as_posix())
    kept = [path for path in (*others, *schemas) if path.exists()]
    for path, text in (others | schemas).items():
        if path not in kept:
            write_file(str(path), text, overwrite=False, private=False)
    for path in [folder, *others]:
        click.echo(f"{'kept' if path in kept else 'wrote'} {path.as_posix()}{'/' if path == folder else ''}")
    click.echo(f"{'kept' if set(schemas) <= set(kept) else 'wrote'} {SCHEMAS}/ (what editors complete and check with)")
    click.echo(
        f"\nNext:\n  upskill eval {named}       does it help? (the embedded model, no key)\n  upskill validate {named}"
    )
