"""`upskill validate`: check skills against the Agent Skills specification."""

from __future__ import annotations

import asyncio

import click

from upskill.cli.console import show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option
from upskill.errors import UsageError
from upskill.skills import Profile, Skill
from upskill.skills.frontmatter import Problem
from upskill.suites import Suite
from upskill.suites.quality import probe_suite, summarise
from upskill.suites.twins import near_duplicates


@click.command("validate", cls=Command)
@click.argument("skills", nargs=-1, required=True, type=click.Path())
@click.option(
    "--profile",
    type=click.Choice(["strict", "clients"]),
    default="strict",
    show_default=True,
    help="strict: the specification to the letter; clients: fields that clients have added are warnings.",
)
@click.option("--suite", "try_cases", is_flag=True, help="Also try every case with answers that know nothing.")
@click.option("--strict-suite", is_flag=True, help="Like --suite, and a case that such an answer passes is an error.")
@json_option
def command(skills: tuple[str, ...], profile: Profile, try_cases: bool, strict_suite: bool, as_json: bool) -> None:
    """Check SKILLS against the Agent Skills specification, and their suites. Exit code 2 when one is invalid.

    Warns of text that a model reads and a person does not see: invisible characters, hidden comments and elements.

    --suite tries each case with answers that know nothing: an empty one, "I do not know.", the asked form with the
    prompt's words in it, the skill recited, the reference denied, the reference of another case. A case that one of
    them passes says nothing about what a student knows. Its own right answers must pass, its wrong ones must fail.
    """
    found = {path: _problems(path, profile) for path in skills}
    if try_cases or strict_suite:
        for path, problems in found.items():
            problems.extend(_weak_cases(path, strict=strict_suite))
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


def _weak_cases(path: str, *, strict: bool) -> list[Problem]:
    try:
        skill = Skill.load(path)
        suite = Suite.of(skill)
    except UsageError:
        return []  # among the problems already
    if suite is None:
        return [Problem("error", "has no suite to try")]
    weak = asyncio.run(probe_suite(suite, skill))
    return [
        *(
            Problem(
                "error" if strict or case.probe in ("empty", "reference", "right", "wrong") else "warning", str(case)
            )
            for case in weak
            if case.probe != "untried"
        ),
        *(Problem("warning", line) for line in summarise(case for case in weak if case.probe == "untried")),
        *(
            Problem("warning", f"cases {one!r} and {two!r} ask nearly the same; keep one")
            for one, two in near_duplicates(suite.cases)
        ),
    ]


def _problems(path: str, profile: Profile) -> list[Problem]:
    try:
        skill = Skill.load(path)
        problems = skill.problems(profile)
        suite = Suite.of(skill)
    except UsageError as error:
        return [Problem("error", f"{error.message}. {error.hint}".rstrip())]
    return problems + [Problem("warning", warning) for warning in (suite.warnings if suite else ())]
