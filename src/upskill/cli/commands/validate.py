from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from upskill.cli.help import Command
from upskill.errors import SeveralErrors, UsageError
from upskill.installation import add_extra
from upskill.plain import counted
from upskill.skills import MANIFEST, Profile, Skill, find_skills
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.skills.frontmatter import Level, Problem
from upskill.version import __version__

if TYPE_CHECKING:
    from upskill.suites import Suite

MAX_LISTED = 3  # more cases with the same problem share one line
MAX_SHOWN_APART = 20  # from more skills on, what several have in common is said once
MIN_PARALLEL = 64  # fewer skills are checked before a second process has started
CHUNK = 16  # skills that a process gets at a time
_CASE = re.compile(r"\bcase (\d+(?: \('[^']*'\))?)(?=: )")
_VARIABLE = re.compile(  # what differs in messages that say the same: names, numbers, paths, and lists of them
    r"(?:'[^']*'|~?\d[\d,.]*\b|[\w./-]*\w[./]\w[\w./-]*)(?:(?:, | and )(?:'[^']*'|[\w./-]*\w[./]\w[\w./-]*))*"
)


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
    scanner: bool = False


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
@click.option(
    "--scanner",
    is_flag=True,
    help="Add what Cisco's skill-scanner finds, as warnings (needs the `scanner` extra).",
)
@click.option(
    "--sarif", metavar="FILE", help="Also write the findings as SARIF, for code scanning."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(
    skills: tuple[str, ...],
    profile: Profile,
    strict_suite: bool,
    fix: bool,
    agents: tuple[str, ...],
    scanner: bool,
    sarif: str | None,
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
    if scanner:
        _load_scanner()
    names, results = [*_find(skills)], list[Checked]()
    is_library = len(names) > MAX_SHOWN_APART
    checks = Checks(profile, strict_suite, fix, scanner)
    with click.progressbar(
        check_all(names, checks),
        len(names),
        "Checking",
        file=sys.stderr,
        hidden=not (is_library and sys.stderr.isatty()),
    ) as progress:
        for checked in progress:
            if not as_json:
                click.echo(checked.diff, nl=False)
                if not is_library:
                    click.echo("\n".join(describe(checked)))
            results.append(checked)
    if sarif:
        from upskill.cli.console import write_file  # noqa: PLC0415 - as below

        write_file(sarif, to_sarif(results), private=False)
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


def to_sarif(results: Iterable[Checked]) -> str:
    """For code scanning: one result per problem, at its file and line, below the root of the repository."""
    found = [
        {
            "ruleId": rule or problem.rule,
            "level": problem.level,
            "message": {"text": problem.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(Path(checked.path, problem.file))},
                        "region": {"startLine": problem.line or 1},
                    }
                }
            ],
        }
        for checked in results
        for rule, problems in (("", checked.problems), ("suite", checked.suite))
        for problem in problems
    ]
    rules = [{"id": rule} for rule in ("skill", "hidden", "security", "scanner", "suite")]
    driver = {"name": "upskill", "version": __version__, "rules": rules}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps(
        {
            "$schema": schema,
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": found}],
        },
        indent=1,
    )


def _uri(path: Path) -> str:
    """From the root of the repository that the file is in, or else from here."""
    folder = _resolved(path.parent)
    root = _root(folder) or Path.cwd()
    whole = folder / path.name
    return (
        quote(whole.relative_to(root).as_posix()) if whole.is_relative_to(root) else whole.as_uri()
    )


@cache
def _resolved(folder: Path) -> Path:
    return folder.resolve()


@cache
def _root(folder: Path) -> Path | None:
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)


def _has_errors(problems: list[Problem]) -> bool:
    return any(problem.level == "error" for problem in problems)


def describe(checked: Checked) -> Iterator[str]:
    path = checked.path if checked.path.isprintable() else ascii(checked.path)
    yield f"{path}: {'valid' if checked.is_valid else 'invalid'}"
    yield from (f"  {problem.level}: {problem.message}" for problem in checked.problems)
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for problem in checked.suite:
        shared = problem.shared if isinstance(problem, CaseProblem) else (problem.message,)
        groups.setdefault((problem.level, *shared), []).append(problem)
    for (level, *shared), problems in groups.items():
        of_cases = {each.case: each for each in reversed(problems) if isinstance(each, CaseProblem)}
        if len(of_cases) <= MAX_LISTED:
            yield from (f"  suite {level}: {problem.message}" for problem in problems)
            continue
        yield f"  suite {level}: {f'{len(of_cases)} cases'.join(shared)}"
        yield _wrapped(", ".join(reversed(of_cases)))
        *_, first = of_cases.values()
        if first.reason:
            yield _wrapped(f"For example, {first.case}: {first.reason} (--json lists every reason)")


def _show_together(results: Sequence[Checked]) -> None:
    """What is wrong with many skills: each problem once, with how many have it; errors and what is frequent first."""
    above = os.path.commonpath([Path(checked.path).parent.absolute() for checked in results])
    by_message: dict[
        tuple[str, str], dict[str, str]
    ] = {}  # the skills that have it, with all that is said there
    for checked in results:
        name = os.path.relpath(checked.path, above)
        for kind, problems in (("", checked.problems), ("suite ", checked.suite)):
            for problem in problems:
                message = re.sub(
                    rf"^\S*{re.escape(problem.file)}(?:, line \d+)?: ", "", problem.message
                )
                by_message.setdefault((f"{kind}{problem.level}", message), {}).setdefault(
                    name, problem.message
                )
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for (kind, message), names in by_message.items():
        alike = message if len(names) > MAX_LISTED else _VARIABLE.sub("…", message)
        groups.setdefault((kind, alike), {}).update(names)
    for (kind, message), names in sorted(
        groups.items(), key=lambda item: ("error" not in item[0][0], -len(item[1]))
    ):
        name, whole = next(iter(names.items()))
        if len(names) == 1:
            click.echo(f"{kind} in {name}: {whole}")
            continue
        is_same = (kind, message) in by_message
        click.echo(
            f"{kind} in {len(names)} skills{': ' + message if is_same else ', for example: ' + whole}"
        )
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        click.echo(_wrapped(", ".join([*names][:MAX_LISTED]) + more))


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


def _find(paths: Iterable[str]) -> Iterator[str]:
    """The skills at these paths or below them; a path itself if there is none, or if it cannot be read."""
    for path in paths:
        try:
            below = list(find_skills(path)) if Path(path).is_dir() else []
        except UsageError:
            below = []
        yield from (path if each == Path(path) else str(each) for each in below or [Path(path)])


def check_all(paths: Iterable[str], checks: Checks) -> Iterator[Checked]:
    """The skills at these paths or below them, in order; many of them on all cores."""
    names = [*_find(paths)]
    processes = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if len(names) < MIN_PARALLEL or processes == 1:
        yield from map(partial(_check, checks=checks), names)
        return
    from concurrent.futures import Future, ProcessPoolExecutor  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_ignore_interrupts)
    waiting: deque[Future[list[Checked]]] = deque()
    try:
        for start in range(0, len(names), CHUNK):
            waiting.append(pool.submit(_check_chunk, names[start : start + CHUNK], checks))
            if len(waiting) > 4 * processes:  # what is done is taken before more is begun
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    import signal  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others


def _check_chunk(names: Sequence[str], checks: Checks) -> list[Checked]:
    return [_check(name, checks) for name in names]


def _check(name: str, checks: Checks) -> Checked:
    try:
        deque(
            find_skills(name) if Path(name).is_dir() else (), maxlen=0
        )  # a folder that cannot be read is an error
        diff = _fix(name) if checks.fix else ""
        skill = Skill.inspect(name)
    except UsageError as error:
        return Checked(name, [_as_problem(error)])
    problems = [*skill.problems(checks.profile), *(_scan(name) if checks.scanner else ())]
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


@cache
def _load_scanner() -> Any:
    try:
        scanner = import_module("skill_scanner")
    except ImportError as error:
        raise UsageError(
            "--scanner needs Cisco's skill-scanner", f"Run `{add_extra('scanner')}`."
        ) from error
    return scanner.SkillScanner()


def _scan(name: str) -> Iterator[Problem]:
    """What Cisco's scanner finds. It flags much that is harmless, so everything is a warning."""
    try:
        findings = _load_scanner().scan_skill(name).findings
    except Exception as error:  # whatever another program does, the skill is still checked
        yield Problem("warning", f"skill-scanner failed: {error}", rule="scanner")
        return
    for finding in findings:
        file, line = finding.file_path or MANIFEST, finding.line_number or 1
        what = f"{file}, line {line}: {finding.title} (skill-scanner: {finding.severity.value} {finding.rule_id})"
        yield Problem("warning", what, rule="scanner", file=file, line=line)


def _at_its_case(problem: Problem, skill: Skill) -> Problem:
    """The problem of a suite with its file, and the line of its case."""
    from upskill.suites.suite import PATHS_IN_SKILL  # noqa: PLC0415

    path = next((path for path in PATHS_IN_SKILL if skill.file(path)), PATHS_IN_SKILL[0])
    name = re.search(r"'([^']+)'", problem.case) if isinstance(problem, CaseProblem) else None
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
        return CaseProblem(
            level, message, case=case[1], shared=(message[: case.start()], message[case.end() :])
        )
    return Problem(level, message)


def _weak_cases(skill: Skill, suite: Suite, *, strict: bool) -> Iterator[Problem]:
    import asyncio  # noqa: PLC0415

    from upskill.suites.near_duplicates import describe_near_duplicates, group_near_duplicates  # noqa: PLC0415
    from upskill.suites.quality import ADVICE, UNTRIED, WORDS, probe_suite  # noqa: PLC0415

    for leak in asyncio.run(probe_suite(suite, skill)):
        is_error = leak.probe in ("empty", "reference", "right", "wrong") or (
            strict and leak.probe not in UNTRIED
        )
        shared = ("", f": {WORDS[leak.probe]}; {ADVICE[leak.probe]}")
        level: Level = "error" if is_error else "warning"
        yield CaseProblem(level, str(leak), case=repr(leak.case), shared=shared, reason=leak.reason)
    for message in describe_near_duplicates(group_near_duplicates(suite.cases)):
        yield Problem("warning", message)
