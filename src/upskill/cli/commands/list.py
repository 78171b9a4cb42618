from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from upskill.authoring.saving.provenance import Provenance
from upskill.cli.console import note, show_report
from upskill.cli.help import Command
from upskill.cli.last_verdicts import is_proven, verdicts_on_record
from upskill.cli.options import find_project_store, json_option, say_nothing_yet
from upskill.errors import UsageError
from upskill.reports.runs import ListedSkill, report_skills
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
    listed = [
        ListedSkill(skill=skill, state=_state(skill, rows), verdicts=rows)
        for skill, rows in zip(skills, verdicts, strict=True)
    ]
    if as_json or skills:
        show_report(
            report_skills(listed), as_json=as_json, detail="outcomes" if verbose else "result"
        )
    elif not unreadable:
        where = f"no skills in {root}{'' if named else ' or this folder'} (a skill is a folder with a SKILL.md)"
        say_nothing_yet(where, "`upskill init NAME` starts one.")
    for error in unreadable:
        note(f"Skipped: {error.message}")


def _skills_here() -> list[Path]:
    return sorted(manifest.parent for manifest in Path().glob(f"*/{MANIFEST}"))


def _state(skill: Skill, rows: list[dict[str, Any]]) -> str:
    """As it was written, unless a run has shown since that it helps."""
    if any(map(is_proven, rows)):
        return ""
    try:
        return str(Provenance.of(skill).metadata.get("state", ""))
    except UsageError:  # written by someone else
        return ""
