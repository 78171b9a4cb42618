from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.tree import Tree

from upskill.authoring.saving.provenance import Provenance
from upskill.cli.console import note, show, show_json
from upskill.cli.help import Command
from upskill.cli.last_verdicts import is_proven, verdicts_on_record
from upskill.cli.options import find_project_store, json_option, say_nothing_yet
from upskill.errors import UsageError
from upskill.plain import listed
from upskill.reports.view import row_in_words
from upskill.settings import Settings
from upskill.skills import MANIFEST, Skill, find_skills


@click.command("list", cls=Command)
@click.argument("path", required=False, type=click.Path())
@click.option(
    "-d", "--dir", "folder", metavar="DIR", hidden=True
)  # upstream's; elsewhere -d is the folder of runs
@click.option("-v", "--verbose", count=True, help="Also list each skill's files, and log.")
@json_option
def command(path: str | None, folder: str | None, verbose: int, as_json: bool) -> None:
    """List the skills in the folder PATH, with their last verdicts.

    Without PATH: those in skills_dir of the settings (./skills), and those that `upskill init` put into this folder.

    A verdict comes from the store, or else from the skill's receipt. The list says if the skill, its suite or the model
    behind the name has changed since.
    """
    named = path or folder
    root = Path(named or Settings.load().skills_dir)
    roots = [root] if named else [*_skills_here(), root]
    if named and not root.is_dir():
        raise UsageError(f"{root}: no such folder", "Pass the folder that holds your skills.")
    skills: list[Skill] = []
    unreadable: list[UsageError] = []
    found = (folder for each in roots if each.is_dir() for folder in find_skills(each))
    for skill_folder in {folder.resolve(): folder for folder in found}.values():
        try:
            skills.append(Skill.load(skill_folder))
        except UsageError as error:
            unreadable.append(error)
    with find_project_store(None) or nullcontext() as store:
        verdicts = [verdicts_on_record(store, skill) for skill in skills]
    if as_json:
        show_json(
            [
                {
                    "name": skill.name,
                    "description": skill.description,
                    "folder": str(skill.folder),
                    "tokens": skill.tokens,
                    "state": _state(skill, rows),
                    "verdicts": rows,
                    "fingerprint": skill.fingerprint,
                    "files": [file.path for file in skill.files],
                }
                for skill, rows in zip(skills, verdicts, strict=True)
            ]
        )
    else:
        tree = Tree(escape(str(root if named or not _skills_here() else Path())))
        names = Counter(skill.name for skill in skills)
        for skill, rows in zip(skills, verdicts, strict=True):
            where = f"  {escape(str(skill.folder))}" if names[skill.name] > 1 else ""
            state = f"  [yellow]{escape(state)}[/yellow]" if (state := _state(skill, rows)) else ""
            branch = tree.add(
                f"[bold]{escape(skill.name)}[/bold]  ~{skill.tokens:,} tokens{where}{state}"
            )
            branch.add(escape(" ".join(skill.description.split())))
            branch.add(escape("; ".join(map(_verdict, rows)) or "not evaluated yet"))
            for file in skill.files if verbose else ():
                branch.add(escape(file.path))
        if skills:
            show(tree)
        elif not unreadable:
            where = f"no skills in {root}{'' if named else ' or this folder'} (a skill is a folder with a SKILL.md)"
            say_nothing_yet(where, "`upskill init NAME` starts one.")
    for error in unreadable:
        note(f"Skipped: {error.message}")


def _skills_here() -> list[Path]:
    return sorted(manifest.parent for manifest in Path().glob(f"*/{MANIFEST}"))


def _verdict(row: dict[str, Any]) -> str:
    since = [
        f"its {part}" for part in row["changed"] if part != "skill"
    ]  # which the row says itself
    return row_in_words(row) + (f" ({listed(since)} changed since)" if since else "")


def _state(skill: Skill, rows: list[dict[str, Any]]) -> str:
    """As it was written, unless a run has shown since that it helps."""
    if any(map(is_proven, rows)):
        return ""
    try:
        return str(Provenance.of(skill).metadata.get("state", ""))
    except UsageError:  # written by someone else
        return ""
