"""`upskill validate`: hold skills against the Agent Skills specification."""

from __future__ import annotations

import click

from upskill.cli.around import json_option
from upskill.cli.screen import show_json
from upskill.errors import UsageError
from upskill.frontmatter import Problem
from upskill.skill import Profile, Skill
from upskill.suite import Suite


@click.command("validate")
@click.argument("skills", nargs=-1, required=True, type=click.Path())
@click.option(
    "--profile",
    type=click.Choice(["strict", "clients"]),
    default="strict",
    show_default=True,
    help="strict: the specification to the letter; clients: fields that clients have added are warnings.",
)
@json_option
def command(skills: tuple[str, ...], profile: Profile, as_json: bool) -> None:
    """Hold SKILLS against the specification, and read their suites. Exit code 2 when one is invalid."""
    found = {path: _problems(path, profile) for path in skills}
    valid = {path: not any(problem.level == "error" for problem in problems) for path, problems in found.items()}
    if as_json:
        show_json(
            [
                {
                    "skill": path,
                    "valid": valid[path],
                    "problems": [{"level": problem.level, "message": problem.message} for problem in problems],
                }
                for path, problems in found.items()
            ]
        )
    else:
        for path, problems in found.items():
            click.echo(f"{path}: {'valid' if valid[path] else 'invalid'}")
            for problem in problems:
                click.echo(f"  {problem.level}: {problem.message}")
    if not all(valid.values()):
        raise click.exceptions.Exit(2)


def _problems(path: str, profile: Profile) -> list[Problem]:
    try:
        skill = Skill.load(path)
        problems = skill.problems(profile)
        suite = Suite.of(skill)
    except UsageError as error:
        return [Problem("error", f"{error.message}. {error.hint}".rstrip())]
    return problems + [Problem("warning", warning) for warning in (suite.warnings if suite else ())]
