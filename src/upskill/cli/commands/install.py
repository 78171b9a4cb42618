from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from upskill.cli.commands.completion import complete_targets
from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.last_verdicts import is_proven, last_verdicts
from upskill.cli.options import find_project_store, json_option
from upskill.reports.runs import row_in_words
from upskill.skills import Skill
from upskill.skills.archives import SUFFIXES, load_archive
from upskill.skills.install import TARGETS, find_target, install


@click.command("install", cls=Command)
@click.argument("skill", type=click.Path())
@click.option(
    "--to",
    "agent",
    required=True,
    metavar="AGENT",
    help=f"One of: {', '.join(TARGETS)}.",
    shell_complete=complete_targets,
)
@click.option(
    "--global", "user_wide", is_flag=True, help="For all of your projects instead of this one."
)
@click.option(
    "--project",
    type=click.Path(),
    default=".",
    help="The project's folder (default: the current one).",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace the installed copy even if it was edited; the old one is moved to .upskill-kept/.",
)
@click.option(
    "--with-evals",
    is_flag=True,
    help="Also copy evals/ and the other files that only upskill reads.",
)
@json_option
def command(
    skill: str,
    agent: str,
    user_wide: bool,
    project: str,
    force: bool,
    with_evals: bool,
    as_json: bool,
) -> None:
    """Copy SKILL, without its tests, to where an agent looks for skills. Warns if no stored run shows that it helps.

    SKILL is a folder, or an archive: .skill, .zip or .tar.gz. An archive with links, or with paths that lead out of
    the skill, is refused.

    \b
    upskill install ./skills/my-skill --to claude-code     into .claude/skills
    upskill install ./skills/my-skill --to codex --global  into ~/.agents/skills
    """
    target = find_target(agent)
    folder = (
        Path.home() / target.user_skills if user_wide else Path(project) / target.project_skills
    )
    is_archive = skill.lower().endswith(SUFFIXES) and Path(skill).is_file()
    loaded = load_archive(skill) if is_archive else Skill.load(skill)
    done = install(loaded, folder, force=force, with_evals=with_evals)
    with find_project_store(None) or nullcontext() as store:
        verdicts = last_verdicts(store, loaded)
    proven = any(map(is_proven, verdicts))
    if as_json:
        previous = str(done.kept) if done.kept else None
        row = {
            "agent": agent,
            "folder": str(done.folder),
            "done": done.status,
            "kept": previous,
            "proven": proven,
        }
        show_json(row)
        return
    click.echo(f"{done.status}: {done.folder}")
    if done.kept:
        note(f"The previous folder is now {done.kept}")
    if not proven:
        said = f" ({'; '.join(map(row_in_words, verdicts))})" if verdicts else ""
        measure = f"`upskill eval {skill}` measures it."
        note(
            f"Unproven: no run in this project's store shows that this skill helps{said}. {measure}"
        )
