from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upskill.cli.help import Command
from upskill.errors import SeveralErrors, UsageError
from upskill.plain import counted
from upskill.skills import MANIFEST, Profile, Skill, find_skills
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.skills.frontmatter import Problem

if TYPE_CHECKING:
    from upskill.suites import Suite

MAX_LISTED = 3  # more cases with the same problem share one line
MAX_SHOWN_APART = 20  # more skills are shown together, problem by problem


@dataclass
class Checked:
    path: str
    problems: list[Problem]
    suite: list[Problem] = field(default_factory=list[Problem])
    listed: tuple[str, str] | None = None  # its name and its description, as in a catalog
    diff: str = ""  # what was fixed

    @property
    def is_valid(self) -> bool:
        return not _has_errors([*self.problems, *self.suite])

    def to_json(self) -> dict[str, Any]:
        listed = {
            name: [
                {key: getattr(problem, key) for key in ("level", "message", "rule", "file", "line")}
                for problem in problems
            ]
            for name, problems in (("problems", self.problems), ("suite_problems", self.suite))
        }
        fixed = {"fixed": True} if self.diff else {}
        return {
            "skill": self.path,
            "valid": self.is_valid,
            "suite_valid": not _has_errors(self.suite),
            **fixed,
            **listed,
        }


@dataclass(frozen=True)
class Checks:
    """What is checked, and whether it is fixed first."""

    profile: Profile = "strict"
    strict_suite: bool = False
    fix: bool = False


@click.command("validate", cls=Command)
@click.argument("skills", nargs=-1, required=True, type=click.Path())
@click.option(
    "--profile",
    type=click.Choice(["strict", "clients"]),
    default="strict",
    show_default=True,
    help="strict: the exact specification; clients: what clients accept anyway is only a warning.",
)
@click.option(
    "--strict-suite",
    is_flag=True,
    help="Also fail if any uninformed answer passes a case, not just the empty one.",
)
@click.option(
    "--fix", is_flag=True, help="Make the safe, mechanical fixes in SKILL.md and print the diff."
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    type=click.Choice([spec.name for spec in AGENT_SPECS.values() if spec.catalog]),
    help="Show which descriptions this agent would truncate, counting the skills already installed for it; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(
    skills: tuple[str, ...],
    profile: Profile,
    strict_suite: bool,
    fix: bool,
    agents: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check SKILLS (skills, or folders of skills) against the Agent Skills specification, and check their suites.

    Exit code 2 if a skill or a suite is invalid.

    Warns about files that the instructions mention but that don't exist, and about text that a model reads but a person
    doesn't see: invisible characters, hidden comments and elements. A skill that almost certainly contains an attack is
    invalid.

    --fix removes from SKILL.md: byte order marks, carriage returns, and tabs or spaces that YAML forbids or ignores. It
    also adds missing quotes and a final newline, and sets `name` to the folder's name. Nothing else changes.

    --profile clients reports what clients load anyway (extra fields such as version, author, tags, homepage or
    triggers, YAML with […] or {…}) as warnings, not errors.

    Each case of a suite is tried with uninformed answers: an empty one, "I do not know.", a reply in the requested
    format that only repeats the prompt, the skill's own text, a negated reference answer, another case's reference.
    If one of them passes, the case doesn't show what a student knows. The suite's own `right` answers must pass,
    and its `wrong` ones must fail.
    """
    names = _find(skills)
    is_library = len(names) > MAX_SHOWN_APART
    checks = Checks(profile, strict_suite, fix)
    results: list[Checked] = []
    with click.progressbar(
        names,
        label="Checking",
        file=sys.stderr,
        hidden=not (is_library and sys.stderr.isatty()),
    ) as progress:
        for name in progress:
            checked = check(name, checks)
            if not as_json:
                click.echo(checked.diff, nl=False)
                if not is_library:
                    click.echo("\n".join(_describe(checked)))
            results.append(checked)
    if as_json:
        from upskill.cli.console import show_json  # noqa: PLC0415 - a skill is checked faster than this is imported

        show_json([checked.to_json() for checked in results])
    else:
        if is_library:
            _show_together(results)
        if agents or len(results) > 1:
            _show_catalogs(results, agents)
        if len(results) > 1:
            invalid = sum(not checked.is_valid for checked in results)
            click.echo(f"{len(results)} skills: {len(results) - invalid} valid, {invalid} invalid")
    if not all(checked.is_valid for checked in results):
        raise click.exceptions.Exit(2)


def _has_errors(problems: list[Problem]) -> bool:
    return any(problem.level == "error" for problem in problems)


def _describe(checked: Checked) -> Iterator[str]:
    path = checked.path if checked.path.isprintable() else ascii(checked.path)
    yield f"{path}: {'valid' if checked.is_valid else 'invalid'}"
    for problem in checked.problems:
        yield f"  {problem.level}: {problem.message}"
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in checked.suite:
        key = (problem.level, problem.rule, problem.summary or problem.message)
        groups.setdefault(key, []).append(problem)
    for (level, _, summary), problems in groups.items():
        cases = list(dict.fromkeys(problem.case for problem in problems))
        if len(cases) <= MAX_LISTED:
            for problem in problems:
                yield f"  suite {level}: {problem.message}"
            continue
        yield f"  suite {level}: {len(cases)} cases: {summary}"
        yield _wrapped(", ".join(cases))
        first = problems[0]
        if first.reason:
            yield _wrapped(f"For example, {first.case}: {first.reason} (--json lists every reason)")


def _show_together(results: Sequence[Checked]) -> None:
    """What is wrong with many skills, by rule: errors first, and then what most of them have."""
    folder = os.path.commonpath([Path(checked.path).parent.absolute() for checked in results])
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}  # the messages of each skill
    for checked in results:
        name = os.path.relpath(checked.path, folder)
        for kind, problems in (("", checked.problems), ("suite ", checked.suite)):
            for problem in problems:
                skills = groups.setdefault((f"{kind}{problem.level}", problem.rule), {})
                skills.setdefault(name, []).append(problem.message)
    for (kind, _), skills in sorted(
        groups.items(), key=lambda group: ("error" not in group[0][0], -len(group[1]))
    ):
        names = list(skills)
        messages = [message for of_skill in skills.values() for message in of_skill]
        if len(names) == 1:
            more = f" (and {len(messages) - 1} more like it)" if len(messages) > 1 else ""
            click.echo(f"{kind} in {names[0]}: {messages[0]}{more}")
            continue
        example = ": " if len(set(messages)) == 1 else ", for example: "
        click.echo(f"{kind} in {len(names)} skills{example}{messages[0]}")
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        click.echo(_wrapped(", ".join(names[:MAX_LISTED]) + more))


def _show_catalogs(results: Iterable[Checked], agents: Sequence[str]) -> None:
    """What agents would cut of the descriptions, with all these skills installed together."""
    from upskill.skills.catalogs import shown_descriptions  # noqa: PLC0415

    checked = dict(each.listed for each in results if each.listed)
    for spec in AGENT_SPECS.values():
        if (
            not spec.catalog
            or (agents and spec.name not in agents)
            or not (agents or spec.catalog.overflow)
        ):
            continue
        installed = (
            _installed((Path.home() / spec.user_skills, Path(spec.project_skills)))
            if agents
            else {}
        )
        skills = sorted((installed | checked).items())
        shown = dict(zip(dict(skills), shown_descriptions(spec.catalog, skills), strict=True))
        missing = [name for name in checked if shown[name] is None]
        bare = [name for name in checked if shown[name] == ""]
        cut = [
            name
            for name, description in checked.items()
            if shown[name] and shown[name] != description
        ]
        beside = (
            f" alongside {counted(len(skills) - len(checked), 'other')}"
            if len(skills) > len(checked)
            else ""
        )
        left = sum(len(shown[name] or "") for name in cut) / max(
            1, sum(len(checked[name]) for name in cut)
        )
        shortened = f"with a shortened description ({left:.0%} left)"
        kinds = ((missing, "left out"), (bare, "without a description"), (cut, shortened))
        if any(names for names, _ in kinds):
            parts = ", ".join(f"{len(names)} {what}" for names, what in kinds if names)
            click.echo(f"{spec.title} would show {counted(len(checked), 'skill')}{beside}: {parts}")
        elif agents:
            click.echo(
                f"{spec.title} would show {counted(len(checked), 'skill')}{beside} with the full description"
            )
        for names, what in kinds if agents else ():
            if names:
                click.echo(_wrapped(f"{what}: {', '.join(names)}"))


def _installed(folders: Iterable[Path]) -> dict[str, str]:
    listed: dict[str, str] = {}
    for folder in chain.from_iterable(find_skills(folder) for folder in folders if folder.is_dir()):
        with suppress(UsageError):
            skill = Skill.load(folder)
            listed[skill.name] = skill.description
    return listed


def _wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size((120, 24)).columns, 120)
    return textwrap.fill(
        text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def _find(paths: Iterable[str]) -> list[str]:
    """The skills at these paths or below them; a path itself if there is none, or if it cannot be read."""
    names: list[str] = []
    for path in paths:
        try:
            below = list(find_skills(path)) if Path(path).is_dir() else []
        except UsageError:
            below = []
        for skill in below or [Path(path)]:
            names.append(path if skill == Path(path) else str(skill))
    return names


def check(name: str, checks: Checks) -> Checked:
    try:
        if Path(name).is_dir():
            list(find_skills(name))  # a folder that cannot be read is an error
        diff = _fix(name) if checks.fix else ""
        skill = Skill.inspect(name)
    except UsageError as error:
        return Checked(name, [_as_problem("unreadable", error)])
    problems = skill.problems(checks.profile)
    suite = [
        _at_its_case(problem, skill)
        for problem in _suite_problems(skill, strict=checks.strict_suite)
    ]
    listed = (skill.name, skill.description) if skill.name and skill.description else None
    return Checked(name, problems, suite, listed, diff)


def _fix(name: str) -> str:
    """Fix the SKILL.md in this folder; the difference."""
    from difflib import unified_diff  # noqa: PLC0415

    from upskill.outputs import whole_file  # noqa: PLC0415
    from upskill.skills.fixes import fix_manifest  # noqa: PLC0415

    path = Path(name) / MANIFEST if Path(name).is_dir() else Path(name)
    if path.name != MANIFEST or path.is_symlink() or not path.is_file():
        return ""
    before = path.read_bytes()
    after = fix_manifest(before, path.resolve().parent.name)
    if after == before:
        return ""
    with whole_file(path) as stream:
        stream.write(after)
    old, new = (_visible(data.decode()) for data in (before, after))
    return "".join(
        f"{line}\n" for line in unified_diff(old, new, str(path), str(path), lineterm="")
    )


def _visible(text: str) -> list[str]:
    """Its lines, with the invisible characters that a fix removes."""
    shown = text.replace("\ufeff", "\\ufeff").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r" +$", lambda spaces: "·" * len(spaces[0]), shown, flags=re.M).split("\n")


def _at_its_case(problem: Problem, skill: Skill) -> Problem:
    """The problem of a suite with its file, and the line of its case."""
    from upskill.suites.suite import PATHS_IN_SKILL  # noqa: PLC0415

    path = next((path for path in PATHS_IN_SKILL if skill.file(path)), PATHS_IN_SKILL[0])
    name = re.search(r"'([^']+)'", problem.case)
    text = (skill.read(path) or b"").decode("utf-8", "replace")
    place = re.search(rf"\bid[\"']?\s*:\s*[\"']?{re.escape(name[1])}\b", text) if name else None
    return replace(problem, file=path, line=text.count("\n", 0, place.start()) + 1 if place else 1)


def _suite_problems(skill: Skill, *, strict: bool) -> Iterator[Problem]:
    if not any(
        file.path.startswith(("evals", "eval_queries", ".upskill", "skill_meta.json"))
        for file in skill.files
    ):
        return
    from upskill.suites import Suite  # noqa: PLC0415
    from upskill.suites.queries import Queries, starter_warning  # noqa: PLC0415

    try:
        suite = Suite.of(skill)
        queries = Queries.of(skill)
    except UsageError as error:
        for each in error.errors if isinstance(error, SeveralErrors) else [error]:
            yield _as_problem("suite", each)
        return
    if suite:
        for warning in suite.warnings:
            yield Problem("warning", "suite", warning)
        yield from _weak_cases(skill, suite, strict=strict)
    if queries and (warning := starter_warning(skill, queries)):
        yield Problem("warning", "queries", warning)


def _as_problem(rule: str, error: UsageError) -> Problem:
    message = f"{error.message}. {error.hint}".rstrip()
    _, _, summary = message.partition(f"case {error.case}: ")
    return Problem("error", rule, message, case=error.case, summary=summary)


def _weak_cases(skill: Skill, suite: Suite, *, strict: bool) -> Iterator[Problem]:
    import asyncio  # noqa: PLC0415

    from upskill.suites.near_duplicates import describe_near_duplicates, group_near_duplicates  # noqa: PLC0415
    from upskill.suites.quality import ADVICE, UNTRIED, WORDS, probe_suite  # noqa: PLC0415

    for leak in asyncio.run(probe_suite(suite, skill)):
        is_error = leak.probe in ("empty", "reference", "right", "wrong") or (
            strict and leak.probe not in UNTRIED
        )
        yield Problem(
            "error" if is_error else "warning",
            leak.probe,
            str(leak),
            case=repr(leak.case),
            summary=f"{WORDS[leak.probe]}; {ADVICE[leak.probe]}",
            reason=leak.reason,
        )
    for message in describe_near_duplicates(group_near_duplicates(suite.cases)):
        yield Problem("warning", "near-duplicates", message)
