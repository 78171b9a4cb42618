from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upskill.cli.help import Command
from upskill.errors import SeveralErrors, UsageError
from upskill.skills import Profile, Skill, find_skills
from upskill.skills.frontmatter import Level, Problem
from upskill.version import __version__

if TYPE_CHECKING:
    from upskill.suites import Suite

MAX_LISTED = 3  # more cases with the same problem share one line
_CASE = re.compile(r"\bcase (\d+(?: \('[^']*'\))?)(?=: )")


@dataclass(frozen=True)
class CaseProblem(Problem):
    """One that other cases may have, too."""

    case: str = ""
    shared: tuple[str, ...] = ()  # what is said of all of them, before and after "5 cases"
    reason: str = ""  # of this case alone


@dataclass
class Checked:
    path: str
    problems: list[Problem]
    suite: list[Problem] = field(default_factory=list[Problem])

    @property
    def is_valid(self) -> bool:
        return not _has_errors([*self.problems, *self.suite])

    def to_json(self) -> dict[str, Any]:
        listed = {
            name: [{"level": problem.level, "message": problem.message} for problem in problems]
            for name, problems in (("problems", self.problems), ("suite_problems", self.suite))
        }
        return {"skill": self.path, "valid": self.is_valid, "suite_valid": not _has_errors(self.suite), **listed}


@click.command("validate", cls=Command)
@click.argument("skills", nargs=-1, required=True, type=click.Path())
@click.option(
    "--profile",
    type=click.Choice(["strict", "clients"]),
    default="strict",
    show_default=True,
    help="strict: the exact specification; clients: what clients accept anyway is only a warning.",
)
@click.option("--suite", is_flag=True, hidden=True, expose_value=False)  # now always on
@click.option(
    "--strict-suite", is_flag=True, help="Also treat a case that another uninformed answer passes as an error."
)
@click.option("--sarif", metavar="FILE", help="Also write the findings as SARIF, for code scanning.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(skills: tuple[str, ...], profile: Profile, strict_suite: bool, sarif: str | None, as_json: bool) -> None:
    """Check SKILLS (skills, or folders of skills) against the Agent Skills specification, and their suites.

    Exit code 2 if a skill or a suite is invalid.

    Warns about missing files that the instructions name, and about text that a model reads but a person does not see:
    invisible characters, hidden comments and elements.

    --profile clients accepts what clients load, even where the specification forbids it: extra fields (version, author,
    tags, homepage, triggers, …) and YAML with […] or {…} are warnings.

    Each case of a suite is tried with uninformed answers: an empty one, "I do not know.", a reply in the requested
    format that only repeats the prompt, the skill's own text, the reference negated, another case's reference. If one
    of them passes, the case does not show what a student knows. Right answers must pass, wrong ones must fail.
    """
    results: list[Checked] = []
    for checked in (checked for path in skills for checked in check_all(path, profile, strict=strict_suite)):
        if not as_json:
            _show(checked)
        results.append(checked)
    if sarif:
        from upskill.cli.console import write_file  # noqa: PLC0415 - as below

        write_file(sarif, to_sarif(results), private=False)
    if as_json:
        from upskill.cli.console import show_json  # noqa: PLC0415 - a skill is checked faster than this is imported

        show_json([checked.to_json() for checked in results])
    elif len(results) > 1:
        invalid = sum(not checked.is_valid for checked in results)
        click.echo(f"{len(results)} skills: {len(results) - invalid} valid, {invalid} invalid")
    if not all(checked.is_valid for checked in results):
        raise click.exceptions.Exit(2)


def to_sarif(results: Iterable[Checked]) -> str:
    """For code scanning: one result per problem, at its file."""
    found = [
        {
            "ruleId": rule,
            "level": problem.level,
            "message": {"text": problem.message},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": f"{Path(checked.path).as_posix()}/{file}"}}}
            ],
        }
        for checked in results
        for rule, file, problems in (
            ("skill", "SKILL.md", checked.problems),
            ("suite", "evals/suite.yaml", checked.suite),
        )
        for problem in problems
    ]
    driver = {"name": "upskill", "version": __version__, "rules": [{"id": "skill"}, {"id": "suite"}]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps(
        {"$schema": schema, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": found}]}, indent=1
    )


def _has_errors(problems: list[Problem]) -> bool:
    return any(problem.level == "error" for problem in problems)


def _show(checked: Checked) -> None:
    path = checked.path if checked.path.isprintable() else ascii(checked.path)
    click.echo(f"{path}: {'valid' if checked.is_valid else 'invalid'}")
    for problem in checked.problems:
        click.echo(f"  {problem.level}: {problem.message}")
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for problem in checked.suite:
        shared = problem.shared if isinstance(problem, CaseProblem) else (problem.message,)
        groups.setdefault((problem.level, *shared), []).append(problem)
    for (level, *shared), problems in groups.items():
        of_cases = {each.case: each for each in reversed(problems) if isinstance(each, CaseProblem)}
        if len(of_cases) <= MAX_LISTED:
            for problem in problems:
                click.echo(f"  suite {level}: {problem.message}")
            continue
        click.echo(f"  suite {level}: {f'{len(of_cases)} cases'.join(shared)}")
        _show_wrapped(", ".join(reversed(of_cases)))
        *_, first = of_cases.values()
        if first.reason:
            _show_wrapped(f"For example, {first.case}: {first.reason} (--json gives every reason)")


def _show_wrapped(text: str) -> None:
    width = min(shutil.get_terminal_size((120, 24)).columns, 120)
    click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False))


def check_all(path: str, profile: Profile, *, strict: bool) -> Iterator[Checked]:
    """The skill at this path or those below it; the path itself if there is none."""
    try:
        below = list(find_skills(path)) if Path(path).is_dir() else []
    except UsageError as error:  # a folder below it cannot be read
        yield Checked(path, [_as_problem(error)])
        return
    for each in below or [Path(path)]:
        name = path if each == Path(path) else str(each)
        try:
            skill = Skill.inspect(name)
        except UsageError as error:
            yield Checked(name, [_as_problem(error)])
        else:
            yield Checked(name, skill.problems(profile), [*_suite_problems(skill, strict=strict)])


def _suite_problems(skill: Skill, *, strict: bool) -> Iterator[Problem]:
    if not any(file.path.startswith(("evals", "eval_queries", ".upskill", "skill_meta.json")) for file in skill.files):
        return
    from upskill.suites import Suite  # noqa: PLC0415
    from upskill.suites.queries import Queries, starter_warning  # noqa: PLC0415

    try:
        suite = Suite.of(skill)
        queries = Queries.of(skill)
    except UsageError as error:
        yield from map(_as_problem, error.errors if isinstance(error, SeveralErrors) else [error])
        return
    if suite:
        yield from (_read_case("warning", warning) for warning in suite.warnings)
        yield from _weak_cases(skill, suite, strict=strict)
    if queries and (warning := starter_warning(skill, queries)):
        yield Problem("warning", warning)


def _as_problem(error: UsageError) -> Problem:
    return _read_case("error", f"{error.message}. {error.hint}".rstrip())


def _read_case(level: Level, message: str) -> Problem:
    if case := _CASE.search(message):
        return CaseProblem(level, message, case=case[1], shared=(message[: case.start()], message[case.end() :]))
    return Problem(level, message)


def _weak_cases(skill: Skill, suite: Suite, *, strict: bool) -> Iterator[Problem]:
    import asyncio  # noqa: PLC0415

    from upskill.suites.near_duplicates import near_duplicates  # noqa: PLC0415
    from upskill.suites.quality import ADVICE, WORDS, probe_suite  # noqa: PLC0415

    for leak in asyncio.run(probe_suite(suite, skill)):
        is_error = leak.probe in ("empty", "reference", "right", "wrong") or (strict and leak.probe != "untried")
        shared = ("", f": {WORDS[leak.probe]}; {ADVICE[leak.probe]}")
        level: Level = "error" if is_error else "warning"
        yield CaseProblem(level, str(leak), case=repr(leak.case), shared=shared, reason=leak.reason)
    for first, second in near_duplicates(suite.cases):
        yield Problem("warning", f"cases {first!r} and {second!r} are near-duplicates; keep one")
