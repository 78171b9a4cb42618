from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click
from rich.markup import escape
from rich.tree import Tree

from upskill.authoring.saving.provenance import Provenance
from upskill.cli.console import note, show, show_json
from upskill.cli.help import Command
from upskill.cli.last_verdicts import last_verdicts
from upskill.cli.options import find_project_store, json_option, say_nothing_yet
from upskill.errors import UsageError
from upskill.reports.view import row_in_words
from upskill.settings import Settings
from upskill.skills import Skill, find_skills


@click.command("list", cls=Command)
@click.argument("path", required=False, type=click.Path())
@click.option("-d", "--dir", "folder", metavar="DIR", hidden=True)  # upstream's; elsewhere -d is the folder of runs
@click.option("-v", "--verbose", count=True, help="Also list each skill's files, and log.")
@json_option
def command(path: str | None, folder: str | None, verbose: int, as_json: bool) -> None:
    """List the skills in the folder PATH (default: skills_dir of the settings, ./skills), with their last verdicts."""
    named = path or folder
    root = Path(named or Settings.load().skills_dir)
    if named and not root.is_dir():
        raise UsageError(f"{root}: no such folder", "Name the folder with your skills.")
    skills: list[Skill] = []
    unreadable: list[UsageError] = []
    for skill_folder in find_skills(root) if root.is_dir() else ():
        try:
            skills.append(Skill.load(skill_folder))
        except UsageError as error:
            unreadable.append(error)
    with find_project_store(None) or nullcontext() as store:
        verdicts = [last_verdicts(store, skill) for skill in skills]
    if as_json:
        show_json(
            [
                {
                    "name": skill.name,
                    "description": skill.description,
                    "folder": str(skill.folder),
                    "tokens": skill.tokens,
                    "state": _state(skill),
                    "verdicts": rows,
                    "fingerprint": skill.fingerprint,
                    "files": [file.path for file in skill.files],
                }
                for skill, rows in zip(skills, verdicts, strict=True)
            ]
        )
    else:
        tree = Tree(escape(str(root)))
        for skill, rows in zip(skills, verdicts, strict=True):
            state = f"  [yellow]{escape(state)}[/yellow]" if (state := _state(skill)) else ""
            branch = tree.add(f"[bold]{escape(skill.name)}[/bold]  ~{skill.tokens:,} tokens{state}")
            branch.add(escape(" ".join(skill.description.split())))
            branch.add(escape("; ".join(map(row_in_words, rows)) or "not evaluated yet"))
            for file in skill.files if verbose else ():
                branch.add(escape(file.path))
        if skills:
            show(tree)
        elif not unreadable:
            where = f"no skills in {root} (a skill is a folder with a SKILL.md)"
            say_nothing_yet(where, "`upskill init NAME` starts one; `upskill list .` looks in this folder.")
    for error in unreadable:
        note(f"Skipped: {error.message}")


def _state(skill: Skill) -> str:
    try:
        return str(Provenance.of(skill).metadata.get("state", ""))
    except UsageError:  # written by someone else
        return ""
