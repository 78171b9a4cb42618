from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from upskill.cli.console import note, write_file
from upskill.cli.help import Command
from upskill.errors import UsageError
from upskill.skills import MANIFEST, Skill
from upskill.skills.changes import repository_of
from upskill.skills.starter import DESCRIPTION, TO_DO, skill_files, workflow_file

WORKFLOW = ".github/workflows/upskill.yaml"


@click.command("init", cls=Command)
@click.argument("place", metavar="[NAME]", default="")
@click.option(
    "--description", default="", help="What the skill does, then when to use it.", metavar="TEXT"
)
@click.option(
    "--ci", is_flag=True, help=f"Also write {WORKFLOW}, which tests the skill when it changes."
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
def command(place: str, description: str, ci: bool, yes: bool) -> None:
    """Start a skill in the folder NAME: SKILL.md, test cases that already run, trigger queries and editor schemas.

    The example is about a made-up tool, so you see a lift at once, without a key. Replace it with what you know.
    Existing files are never overwritten.

    \b
    upskill init deploy-shop        a folder deploy-shop, asking what it is for
    upskill init skills/shop --yes  in another folder, without questions
    upskill init skills/old --ci    for a skill that you have: only the workflow
    """
    ask = not yes and sys.stdin.isatty()
    place = place or (click.prompt("Name of the skill", default="my-skill") if ask else "my-skill")
    folder = Path(place)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if ci and (folder / MANIFEST).is_file():
            Skill.load(folder)
            _write_workflow(folder)
            return
        hint = "Choose another folder: upskill init NAME. To test a skill that you have in CI, use --ci."
        raise UsageError(f"{place}: already exists", hint)
    if ask:
        description = description or click.prompt(
            "What it does, then when to use it", default=DESCRIPTION
        )
        ci = ci or click.confirm(f"Write {WORKFLOW} too?", default=False)
    named = (
        folder.as_posix()
        if folder.is_absolute() or ".." in folder.parts
        else f"./{folder.as_posix()}"
    )
    name = folder.resolve().name
    problems = Skill.new(name, description or DESCRIPTION, "An example.").problems()
    if wrong := next((problem for problem in problems if problem.level == "error"), None):
        raise UsageError(
            f"{named}: {wrong.message}", "Use lowercase letters, digits and single dashes."
        )
    if ci:
        _workflow_path(folder)  # before anything is written
    for path, text in skill_files(name, named, description).items():
        write_file(str(folder / path), text, overwrite=False, private=False)
    click.echo(f"wrote {folder.as_posix()}/")
    if ci:
        _write_workflow(folder)
    click.echo(
        f"\nNext:\n  upskill eval {named}       does it help? (the embedded model, no key)"
        f"\n  upskill validate {named}   are the skill and its cases sound? (runs no model)"
    )


def _workflow_path(folder: Path) -> tuple[Path | None, str]:
    """The repository, and the path from there, which stands in shell, YAML and GitHub's expressions at once."""
    root = repository_of(folder)
    skill = folder.resolve().relative_to(root).as_posix() if root else folder.as_posix()
    if not re.fullmatch(r"[\w./-]+", skill):
        raise UsageError(
            f"{skill!r}: a workflow cannot safely name this folder",
            "Use letters, digits, dashes, dots and underscores, or leave out --ci.",
        )
    return root, skill


def _write_workflow(folder: Path) -> None:
    """For GitHub, at the top of the repository, with paths from there."""
    root, skill = _workflow_path(folder)
    file = Path(os.path.relpath(root or ".")) / WORKFLOW
    if not file.exists():
        text = workflow_file(skill)
        write_file(str(file), text, overwrite=False, private=False)
        click.echo(f"wrote {file}")
        if TO_DO in text:
            note(
                f"upskill was installed from a path on this machine. In {file}, fill in where CI can get it."
            )
        return
    before = file.read_text(encoding="utf-8")
    tested = re.search(r"upskill ci (.+) --yes", before)
    if tested and any(Path(skill).is_relative_to(each) for each in tested[1].split()):
        click.echo(f"kept {file}")
        return
    after, triggers = re.subn(
        r"^( +paths: \[.+)\]$", rf'\1, "{skill}/**"]', before, count=1, flags=re.MULTILINE
    )
    after, steps = re.subn(
        r"run: upskill (?:validate|ci).*?(?= --|$)", rf"\g<0> {skill}", after, flags=re.MULTILINE
    )
    if (triggers, steps) == (1, 2):
        write_file(str(file), after, private=False)
        click.echo(f"added {skill} to {file}")
    else:
        click.echo(f"kept {file}")
        note(f"{file} does not test {skill}. Add it to `paths` and to `upskill ci`.")
