"""A Case is a task with checks on its answer; a Suite is cases with a fixed train / held-out split.

Reads our own YAML or JSON, upstream's list and `{"cases": […]}`, `tests` of a `skill_meta.json`, and the `formats` of
other tools. Everything that is wrong with a suite is a usage error before the first call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from upskill.checks import SuiteCheck, read_checks
from upskill.checks.extract import Extract
from upskill.checks.guard import is_test, mentions_file
from upskill.errors import ErrorCollector, UsageError, did_you_mean
from upskill.inputs import read_input
from upskill.plain import as_list, as_mapping, digest, short
from upskill.skills import Skill
from upskill.suites.files import FilesOfFolders, FilesOfSkill, check_sound, decode
from upskill.suites.formats import Notes, Source, convert, recognise
from upskill.suites.ids import make_id
from upskill.suites.part import Part
from upskill.suites.shapes import (
    LISTS,
    OurCase,
    ReadFile,
    Script,
    UpstreamCase,
    check_path,
    fit,
    from_upstream,
    text_reader,
)
from upskill.suites.split import split

FIELDS_BESIDE_CASES = ("checks", "max_output_tokens", "skill_name", "name", "description", "version", "metadata")
LARGEST_SUITE = 20_000_000  # bytes
PLACES_IN_A_SKILL = ("evals/suite.yaml", "evals/suite.yml", "evals/suite.json", "evals/evals.json", "skill_meta.json")


@dataclass(frozen=True)
class Case:
    """One request to a student, and the checks of what it answers."""

    id: str
    prompt: str
    checks: tuple[SuiteCheck, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()
    held_out: bool = False
    reference: str = ""  # an answer that passes, to test the checks with
    expected_output: str = ""  # what a good answer is like, in words
    evidence: tuple[str, ...] = ()  # what it was made from, by the ids of the material
    output_file: str = ""  # what an agent that acts leaves there is looked at in place of what it says
    right: tuple[str | Script, ...] = ()  # answers that must pass, put differently, or scripts that do what is asked
    wrong: tuple[str | Script, ...] = ()  # plausible answers, or scripts, that must fail
    max_output_tokens: int | None = None  # how long an answer may be; None: as the suite says
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what others say of it; it decides nothing
    gpu: bool = False  # its sandbox shows the GPU

    def plain(self) -> dict[str, Any]:
        """The case as a suite file would say it."""
        said: dict[str, Any] = {
            "id": self.id,
            "prompt": self.prompt,
            "checks": [{named.name: named.config} for named in self.checks],
            "held_out": self.held_out,
        }
        optional = {
            "files": dict(self.files),
            "tags": list(self.tags),
            "reference": self.reference,
            "expected_output": self.expected_output,
            "evidence": list(self.evidence),
            "output_file": self.output_file,
            "right": [_plain_answer(answer) for answer in self.right],
            "wrong": [_plain_answer(answer) for answer in self.wrong],
            "max_output_tokens": self.max_output_tokens,
            "metadata": dict(self.metadata),
            "gpu": self.gpu,
        }
        return said | {key: value for key, value in optional.items() if value}

    @cached_property
    def needs_sandbox(self) -> bool:
        return any(named.check.needs_sandbox for named in self.checks)

    @property
    def text(self) -> str:
        """All that the case says, for looking up whether it names something."""
        return json.dumps(self.plain(), ensure_ascii=False)

    @cached_property
    def words(self) -> str:
        """What it asks for and looks at, without what it brings."""
        return "\n".join([self.prompt, self.output_file, *(_said(named.config) for named in self.checks)])

    @cached_property
    def asked_for(self) -> tuple[str, ...]:
        """The files that are the student's: where its answer goes, and what the prompt or a check names to look at."""
        filled = [self.output_file, *(named.check.to for named in self.checks if isinstance(named.check, Extract))]
        looks = [_said(named.config) for named in self.checks if named.name not in ("command", "python")]
        said = "\n".join([self.prompt, *looks])
        asked = [path for path in self.files if not is_test(path) and mentions_file(said, PurePosixPath(path).name)]
        return tuple(path for path in dict.fromkeys([*filled, *asked]) if path)

    @property
    def fingerprint(self) -> str:
        """A hash of what decides an outcome; tags and the split do not."""
        decides: list[Any] = [self.prompt, dict(self.files), [[named.name, named.config] for named in self.checks]]
        if any(named.check.needs_reference for named in self.checks):
            decides.append(self.reference)
        if self.output_file:
            decides.append({"output_file": self.output_file})
        if self.gpu:
            decides.append({"gpu": True})
        if not all(named.check.decides for named in self.checks):
            decides.append("beside the outcome")  # they were part of it once
        if revised := {named.name: named.check.revision for named in self.checks if named.check.revision}:
            decides.append(revised)
        return digest(decides)


OWN_FACTS = "own facts"  # the tag of cases that ask for what the lines of the skill say


@dataclass(frozen=True)
class Suite:
    """The cases that a skill is put to the test with."""

    cases: tuple[Case, ...]
    source: str = ""
    # How long an answer may be, in cases that do not say; one that is cut off there has failed.
    max_output_tokens: int | None = None
    warnings: tuple[str, ...] = ()
    notes: Notes | None = field(default=None, compare=False, repr=False)  # where it was in the format of another tool
    part: Part | None = None  # the cases were chosen from more

    @classmethod
    def load(cls, path: str | Path) -> Suite:
        """Read a suite file."""
        file = Path(path)
        data = read_input(file, most=LARGEST_SUITE, hint="Give a suite file: YAML or JSON.")
        inside = file.absolute().parent.name in ("evals", ".upskill", "tasks")
        return cls.read(data, str(path), FilesOfFolders((file.parent.parent if inside else file.parent, file.parent)))

    @classmethod
    def of(cls, skill: Skill) -> Suite | None:
        """The suite that lies in a skill's folder, None when there is none."""

        read = FilesOfSkill(skill)
        for place in PLACES_IN_A_SKILL:
            data = skill.read(place)
            if data is None:
                continue
            where = str(skill.folder / place) if skill.folder else place
            if place != "skill_meta.json":
                return cls.read(data, where, read)
            meta = as_mapping(decode(data, where))
            if meta and meta.get("tests"):
                return cls.parse({"tests": meta["tests"]}, where, read)
        return None

    @classmethod
    def read(cls, data: bytes, where: str, read_file: ReadFile | None = None) -> Suite:
        return cls.parse(decode(data, where), where, read_file)

    @classmethod
    def parse(cls, said: object, where: str = "suite", read_file: ReadFile | None = None) -> Suite:
        """A suite from plain data, in any of the shapes this module reads."""
        check_sound(said, where)
        notes: Notes | None = None
        if name := recognise(said):
            notes = Notes()
            said = convert(name, Source(said, where, read_file, notes)) | _common(said)
        items, common = _cases_of(said, where)
        shared: list[SuiteCheck] = []
        for number, item in enumerate(common):
            place = f"{where}: checks[{number}]"
            shared += read_checks(item, place, text_reader(read_file, place))
        warnings: list[str] = list(notes.warnings(where)) if notes else []
        read: list[tuple[Case, bool | None]] = []
        problems = ErrorCollector()
        for number, item in enumerate(items, start=1):
            with problems.collect():
                read.append(_read_case(item, f"{where}: case {number}", shared, read_file, warnings))
        problems.raise_any()
        sides = split((case.id, side) for case, side in read)
        cases = [replace(case, held_out=side) for (case, _), side in zip(read, sides, strict=True)]
        if not cases:
            raise UsageError(f"{where}: has no cases", "A suite of nothing proves nothing: add cases.")
        warnings += _risks(cases)
        seen: dict[str, int] = {}
        for number, case in enumerate(cases, start=1):
            if case.id in seen:
                raise UsageError(
                    f"{where}: case {number} has the id {case.id!r} of case {seen[case.id]}",
                    "Give each case an id of its own.",
                )
            seen[case.id] = number
        return cls(tuple(cases), where, _limit_of(said, where), tuple(warnings), notes)

    @cached_property
    def fingerprint(self) -> str:
        return digest([[case.id, case.fingerprint, case.held_out] for case in self.cases])

    @cached_property
    def by_id(self) -> dict[str, Case]:
        return {case.id: case for case in self.cases}

    @property
    def held_out(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.held_out)

    @property
    def train(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if not case.held_out)

    def plain(self) -> dict[str, Any]:
        said: dict[str, Any] = {"cases": [case.plain() for case in self.cases]}
        return said | ({"max_output_tokens": self.max_output_tokens} if self.max_output_tokens else {})


def _plain_answer(answer: str | Script) -> str | dict[str, str]:
    return answer if isinstance(answer, str) else {"run": answer.run}


def _said(written: object) -> str:
    return written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)


def _risks(cases: Iterable[Case]) -> Iterator[str]:
    """What students could do about checks, each risk once, with the cases that have it."""
    found: dict[str, list[str]] = {}
    for case in cases:
        for risk in dict.fromkeys(risk for named in case.checks for risk in named.check.risks(case.words)):
            found.setdefault(risk, []).append(case.id)
    for risk, ids in found.items():
        more = ", …" if len(ids) > 3 else ""
        yield f"{'case' if len(ids) == 1 else f'{len(ids)} cases'} {', '.join(map(repr, ids[:3]))}{more}: {risk}"


def _read_case(
    item: object, place: str, shared: list[SuiteCheck], read_file: ReadFile | None, warnings: list[str]
) -> tuple[Case, bool | None]:
    """The case, and which side of the split it says that it is on."""
    said = as_mapping(item)
    if said is None:
        raise UsageError(f"{place}: is not a case but {short(item)}", "A case has a prompt and checks.")
    if isinstance(said.get("id"), str):
        place += f" ({short(said['id'])})"
    upstream = "input" in said
    ours = from_upstream(fit(UpstreamCase, said, place), place, warnings) if upstream else fit(OurCase, said, place)
    read_text = text_reader(read_file, place)
    own: list[SuiteCheck] = []
    problems = ErrorCollector()
    for check in ours.checks:
        with problems.collect():
            own += read_checks(check, place, read_text)
    problems.raise_any()
    checks = (*own, *shared)
    if any(named.check.needs_reference for named in checks) and not ours.reference.strip():
        raise UsageError(
            f"{place}: is compared with its reference and has none", "Add `reference:`, an answer to measure against."
        )
    if not checks:
        raise UsageError(f"{place}: has no checks", "Say what a right answer has, for example `contains: text`.")
    if not any(named.check.decides for named in checks):
        raise UsageError(
            f"{place}: {checks[0].name} alone decides nothing: only an arm with a skill can open one",
            "Add a check of the answer or of what was done. To test when a skill is opened, use `upskill trigger`.",
        )
    if not ours.prompt.strip():
        raise UsageError(f"{place}: the prompt is empty")
    for name in [*ours.files, *([ours.output_file] if ours.output_file else [])]:
        check_path(name, place)
    made = ours.id if ours.id is not None else make_id(ours.prompt, digest([ours.prompt, ours.files, ours.checks]))
    id = str(made).strip()  # noqa: A001
    if not id or len(id) > 200 or not id.isprintable():
        raise UsageError(f"{place}: {short(id)} cannot be an id", "Use 1 to 200 printable characters.")
    case = Case(
        id,
        ours.prompt,
        checks,
        ours.files,
        tuple(ours.tags),
        bool(ours.held_out),
        ours.reference,
        ours.expected_output,
        tuple(ours.evidence),
        ours.output_file,
        tuple(ours.right),
        tuple(ours.wrong),
        ours.max_output_tokens,
        ours.metadata,
        ours.gpu,
    )
    return case, ours.held_out


def _common(said: object) -> dict[str, Any]:
    """What a file says of all its cases in our words, whatever its format."""
    return {key: value for key, value in (as_mapping(said) or {}).items() if key in ("checks", "max_output_tokens")}


def _cases_of(said: object, where: str) -> tuple[list[Any], list[Any]]:
    """The cases, and the checks of all of them."""
    plain_list = as_list(said)
    if plain_list is not None:
        return plain_list, []
    mapping = as_mapping(said)
    keys = [key for key in LISTS if mapping and key in mapping]
    if mapping is None or len(keys) != 1:
        raise UsageError(
            f"{where}: is not a suite",
            "A suite is a list of cases, or a mapping with `cases:` and a list below it. Also read: files of promptfoo,"
            " inspect_ai, waza and skill-creator, and CSV with `prompt,expected`.",
        )
    allowed = {keys[0], *FIELDS_BESIDE_CASES}
    if unknown := sorted(set(mapping) - allowed):
        hint = did_you_mean(unknown[0], allowed, otherwise=f"Fields: {', '.join(sorted(allowed))}.")
        raise UsageError(f"{where}: no field is called {unknown[0]!r}", hint)
    cases, checks = as_list(mapping[keys[0]]), as_list(mapping.get("checks", []))
    if cases is None:
        raise UsageError(f"{where}: {keys[0]} is not a list")
    if checks is None:
        raise UsageError(f"{where}: checks is not a list")
    return cases, checks


def _limit_of(said: object, where: str) -> int | None:
    limit = (as_mapping(said) or {}).get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f"{where}: max_output_tokens is a number of tokens, not {short(limit)}")
    return limit
