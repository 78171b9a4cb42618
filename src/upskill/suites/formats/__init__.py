"""A Format reads another tool's test cases: it recognizes the file by its content and turns it into a suite.

Kinds, tried in this order:

- `plugin_eval`: case folders of `claude plugin eval` (`prompt.md`, `graders/*.md`)
- `harbor`: task folders of Harbor and SkillsBench (`task.toml`, `instruction.md`, `tests/`)
- `tessl`: scenario folders with `task.md` and `criteria.json`
- `skillgrade`: tasks with an `instruction` and graders
- `inspect`: datasets and logs of inspect_ai (`input` and `target`)
- `promptfoo`: configurations and test files (`prompts`, `vars`, `assert`)
- `scenarios`: `.upskill/evals.json`, which names suites and the criteria of a judge
- `evals`: skill-creator's `evals.json` and those like it, such as dotnet/skills' `eval.yaml`: assertions in words
- `table`: rows with a prompt and what is expected, of a CSV file or JSON
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import count
from posixpath import normpath
from typing import Any

from upskill.checks import read_checks
from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, canonical, counted, digest_text, printable
from upskill.registry import Registry
from upskill.suites.files import (
    MAX_SUITE_BYTES,
    FilesOfFolders,
    FilesOfSkill,
    Folder,
    decode,
)
from upskill.suites.shapes import (
    LISTS,
    OurCase,
    ReadFile,
    check_path,
    fit,
    mapping_or_empty,
    text_of,
    text_reader,
)

MAX_CASES = 100_000
MAX_LINES = 8  # of warnings about one file
MAX_NAMES = 3  # that are listed before an ellipsis
MAX_ID = 190  # characters: room for a number behind it
ASSERTS = re.compile(
    r"(?i)(^|[_.])(assert\w*|graders?|rubrics?|must|reject\w*|forbid\w*|validators?|verifiers?)(_|$)"
)
RULE_OUT = {
    "not_contains",
    "not_regex",
    "max_length",
    "max_turns",
    "tool_not_called",
    "skill_activated",
}
MAX_NAME = 300  # characters of a text that may be the name of a file
ONLY_ONE_ARM = "both arms get a case's files, but only one arm gets the skill"
ONLY_TRIGGERS = "only says when the skill should activate; `upskill trigger` measures that"
FORMATS = Registry(
    "suite format",
    "upskill.suite_formats",
    {
        "plugin_eval": "upskill.suites.formats.plugin_eval:FORMAT",
        "harbor": "upskill.suites.formats.harbor:FORMAT",
        "tessl": "upskill.suites.formats.tessl:FORMAT",
        "skillgrade": "upskill.suites.formats.skillgrade:FORMAT",
        "inspect": "upskill.suites.formats.inspect:FORMAT",
        "promptfoo": "upskill.suites.formats.promptfoo:FORMAT",
        "scenarios": "upskill.suites.formats.scenarios:FORMAT",
        "evals": "upskill.suites.formats.evals:FORMAT",
        "table": "upskill.suites.formats.table:FORMAT",
    },
)


class Notes:
    def __init__(self) -> None:
        self.title = ""
        self.cases_read = 0
        self.cases_kept = 0
        self.carried: Counter[str] = Counter()  # our checks, by name
        self.changes: dict[str, list[str]] = {}
        self.omissions: dict[str, list[str]] = {}
        self.cases_left_out: dict[str, list[str]] = {}
        self.fields: Counter[str] = Counter()  # that have no meaning here, and are kept as metadata

    def change(self, what: str, case: str = "") -> None:
        self.changes.setdefault(what, []).append(case)

    def leave_out(self, what: str, why: str, case: str = "") -> None:
        self.omissions.setdefault(f"{what}: {why}", []).append(case)

    def leave_out_case(self, why: str, case: str) -> None:
        self.cases_left_out.setdefault(why, []).append(case)

    def keep(self, fields: Iterable[str]) -> None:
        self.fields.update(list(fields))

    @property
    def summary(self) -> str:
        checks = ", ".join(f"{number} {name}" for name, number in self.carried.most_common())
        cases = counted(self.cases_read, "case")
        if self.cases_kept != self.cases_read:
            cases = f"{self.cases_kept} of {cases}"
        return f"{cases} with {counted(self.carried.total(), 'check')} ({checks})"

    def changed(self) -> Iterator[str]:
        for what, cases in self.changes.items():
            yield printable(what + _in_cases(cases))

    def left_out(self) -> Iterator[str]:
        for what, cases in self.omissions.items():
            yield printable(what + _in_cases(cases))
        yield from map(printable, grouped(self.cases_left_out))

    @property
    def metadata(self) -> str:
        """One note about all fields that upskill ignores; empty without any."""
        if not self.fields:
            return ""
        names = ", ".join(
            f"{name} ({number})" if number > 1 else name
            for name, number in self.fields.most_common()
        )
        return printable(f"kept as metadata, not used: {names}")

    def warnings(self, where: str) -> Iterator[str]:
        """What to tell a person who uses the file without importing it."""
        if self.metadata:
            yield f"{where}: {self.metadata}"
        for title, lines in (
            ("left out", list(self.left_out())),
            ("changed", list(self.changed())),
        ):
            for line in lines[:MAX_LINES]:
                yield f"{where}: {title}: {line}"
            if len(lines) > MAX_LINES:
                yield f"{where}: {title}: {len(lines) - MAX_LINES} more; run `upskill import {where}` to see them"


def grouped(cases: Mapping[str, list[str]]) -> Iterator[str]:
    """One line per message, with the cases that it is about."""
    for what, names in cases.items():
        yield (
            f"{names[0]}: {what}"
            if len(names) == 1
            else f"{len(names)} cases ({_first_few(names)}): {what}"
        )


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def _in_cases(cases: list[str]) -> str:
    names = _first_few(list(dict.fromkeys(filter(None, cases))))
    times = f"{len(cases)} times" if len(cases) > 1 else ""
    inside = ": ".join(filter(None, (times, names)))
    return f" ({inside})" if inside else ""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of another tool: its plain data, its path, and the files next to it."""

    data: object
    where: str
    read_file: ReadFile | None
    notes: Notes

    def read(self, name: str, where: str = "") -> str:
        return text_reader(self.read_file, where or self.where)(name)

    def load(self, name: str, where: str = "") -> object:
        return decode(self.read(name, where).encode(), name)

    def text_or_file(self, value: object) -> str:
        """A text, or that of the file it names."""
        text = text_of(value)
        is_name = 0 < len(text) < MAX_NAME and "\n" not in text.strip()
        data = (
            self.read_file(text.strip().removeprefix("./"))
            if is_name and self.read_file is not None
            else None
        )
        try:
            return text if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{text!r} is not text") from error

    def files(self, paths: Folder, folder: str, *names: str) -> dict[str, str]:
        """The files and folders of these names in a folder, by their path in it."""
        files: dict[str, str] = {}
        for name in names:
            place = f"{folder}{normpath(name)}"
            found = [
                path for path in paths.below(place) if path == place or path.startswith(f"{place}/")
            ]
            if not found:
                raise UsageError(
                    f"{name!r} is not in the folder of the case", "Put the files there."
                )
            files |= {path.removeprefix(folder): self.read(path) for path in found}
        return files

    def below(self, folder: str) -> list[str]:
        return (
            self.read_file.below(folder)
            if isinstance(self.read_file, FilesOfFolders | FilesOfSkill)
            else []
        )

    def matching(self, pattern: str) -> list[str]:
        pattern = pattern.removeprefix("./")
        if "*" not in pattern:
            return [pattern]
        folder = pattern.partition("*")[0].rpartition("/")[0]
        return [path for path in self.below(folder or ".") if fnmatch(path, pattern)]

    def leave_out(self, what: str, error: UsageError) -> None:
        self.notes.leave_out(what, error.message.removeprefix(f"{self.where}: "))


@dataclass(slots=True)
class Draft:
    place: str  # in messages: "case 3 ('login')"
    notes: Notes
    prompt: str = ""
    checks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    id: str | int | None = None
    more: dict[str, Any] = field(default_factory=dict[str, Any])  # other fields of ours
    metadata: dict[str, Any] = field(
        default_factory=dict[str, Any]
    )  # what has no place in a suite of ours
    problem: UsageError | None = None  # why it cannot be carried over
    nothing: str = "nothing to check"
    refused: list[str] = field(
        default_factory=list[str]
    )  # assertions that no check of ours stands for

    def leave_out(self, what: str, why: str) -> None:
        self.refused.append(f"{what}: {why}")
        self.notes.leave_out(what, why, self.place)

    def refuse(self, kind: str, more: Iterable[str] = ()) -> None:
        """Leave out a grader with a type, or with more fields, than our checks have."""
        field = min(more, default="")
        has = f"with the field {field!r}" if field else "of this type"
        self.leave_out(kind or "a grader without a type", f"upskill has no check {has}")

    def change(self, what: str) -> None:
        self.notes.change(what, self.place)

    def keep(self, fields: Mapping[str, Any], used: Iterable[str], section: str = "") -> None:
        """Keep what is not used as metadata."""
        rest = {f"{section}{key}": value for key, value in fields.items() if key not in used}
        self.metadata |= {
            key: value for key, value in rest.items() if value not in (None, "", [], {})
        }

    def note_weights(self, weights: dict[str, Any]) -> None:
        """Kept as metadata where they differ: here every check must hold."""
        if len(set(map(str, weights.values()))) > 1:
            self.metadata["weights"] = weights
            self.change("weights: kept as metadata; every check must pass")


@dataclass(frozen=True, slots=True)
class Format:
    title: str  # what a person would call it
    recognizes: Callable[[object], bool]
    cases: Callable[[Source], Iterable[Draft]]


def folder_format(
    title: str,
    folders: Callable[[Folder], list[str]],
    read: Callable[[str, Folder, Draft, Source], None],
) -> Format:
    """The format of a tool that keeps each case in a folder of its own."""

    def cases(source: Source) -> Iterator[Draft]:
        paths = source.data if isinstance(source.data, Folder) else Folder()
        for folder in folders(paths):
            name = (folder or source.where).rstrip("/").rpartition("/")[2]
            draft = Draft(f"case {name!r}", source.notes, id=name)
            try:
                read(folder, paths, draft, source)
            except UsageError as error:
                draft.problem = error
            yield draft

    return Format(title, lambda data: isinstance(data, Folder) and bool(folders(data)), cases)


def recognize(data: object) -> str | None:
    """The name of the format that this data is in; None for a suite of ours, and for what nothing recognizes."""
    if is_ours(data):
        return None
    names = [*FORMATS.table, *(name for name in FORMATS.rows if name not in FORMATS.table)]
    return next((name for name in names if FORMATS.load(name).recognizes(data)), None)


def is_ours(data: object) -> bool:
    """Whether it has upskill's own format."""
    mapping = as_mapping(data)
    keys = [key for key in LISTS if key in mapping] if mapping else []
    items = as_list(mapping[keys[0]]) if mapping and len(keys) == 1 else as_list(data)
    cases = [as_mapping(item) for item in items or ()]
    known = set(OurCase.model_fields)
    return bool(cases) and all(
        case is not None and set(case) <= known and isinstance(case.get("files", {}), dict)
        for case in cases
    )


def convert(name: str, source: Source) -> dict[str, Any]:
    """A suite of ours, as plain data. What is wrong with a case leaves it out; where none remains, it is an error."""
    form: Format = FORMATS.load(name)
    notes = source.notes
    notes.title = form.title
    cases: list[dict[str, Any]] = []
    problems: list[UsageError] = []
    ids: set[str] = set()
    hashes: set[str] = set()
    room = MAX_SUITE_BYTES
    for draft in form.cases(source):
        notes.cases_read += 1
        if notes.cases_read > MAX_CASES:
            raise UsageError(
                f"{source.where}: more than {MAX_CASES:,} cases", "Import a part of it."
            )
        draft.id = _usable_id(draft.id)
        try:
            case = _finish(draft, source)
        except UsageError as error:
            problems.append(error)
            why = error.message.removeprefix(f"{source.where}: ").removeprefix(f"{draft.place}: ")
            notes.leave_out_case(why, draft.place)
            continue
        text = canonical([case.get(field) for field in ("id", "prompt", "files", "checks")])
        if (room := room - len(text)) < 0:  # of a few variables, all combinations are cases
            raise UsageError(
                f"{source.where}: its cases are larger than {MAX_SUITE_BYTES // 10**6} MB",
                "Import a part of it.",
            )
        hashed = digest_text(text)
        if hashed in hashes:
            notes.leave_out_case("duplicate", draft.place)
            continue
        hashes.add(hashed)
        if draft.id is not None and draft.id in ids:
            case["id"] = next(
                name for number in count(2) if (name := f"{draft.id}-{number}") not in ids
            )
            notes.change(f"duplicate id {draft.id!r}: a number was added")
        ids.add(str(case.get("id")))
        cases.append(case)
        for unknown in filter(ASSERTS.search, draft.metadata):
            notes.leave_out(unknown, "upskill does not know this field", draft.place)
        notes.keep(draft.metadata)
        notes.carried.update(next(iter(check)) for check in case["checks"])
    if not cases and len(problems) == 1:
        raise problems[0]
    if not cases and problems:
        several = "\n  ".join(map(printable, grouped(notes.cases_left_out)))
        message = f"{source.where}: none of the {len(problems)} cases can be imported:\n  {several}"
        raise UsageError(message, problems[0].hint)
    if not cases:
        reasons = "; ".join(notes.left_out())
        raise UsageError(
            f"{source.where}: no cases" + (f" that can be imported: {reasons}" if reasons else ""),
            "Add at least one case.",
        )
    notes.cases_kept = len(cases)
    return {"cases": cases}


def _finish(draft: Draft, source: Source) -> dict[str, Any]:
    """The case in our format, with the checks that are valid."""
    where = f"{source.where}: {draft.place}"
    if draft.problem:
        error = draft.problem
        raise (
            error
            if error.message.startswith(source.where)
            else UsageError(f"{where}: {error.message}", error.hint)
        )
    if not draft.prompt.strip():
        raise UsageError(f"{where}: no prompt", "Add a prompt to send to the student.")
    nothing = (
        f"none of the assertions can be imported: {draft.refused[0]}"
        if draft.refused
        else draft.nothing
    )
    checks: list[dict[str, Any]] = []
    for check in draft.checks:
        try:
            read_checks(check, where, text_reader(source.read_file, where))
        except UsageError as error:
            why = error.message.removeprefix(f"{where}: ")
            nothing = f"none of the checks is valid: {why}"
            name = next(iter(as_mapping(check) or {"check": ""}))
            draft.leave_out(name, why.removeprefix(f"{name}: "))
            continue
        if check not in checks:
            checks.append(check)
    if not checks:
        raise UsageError(
            f"{where}: {printable(nothing)}",
            "Say what a right answer contains, for example `contains: text`.",
        )
    if all(next(iter(check)) in RULE_OUT for check in checks):  # which an empty answer passes
        if draft.refused:
            why = "an empty answer passes the assertions that can be imported"
            raise UsageError(
                f"{where}: {why}", "Say what a right answer contains, for example `contains: text`."
            )
        checks.append({"min_length": 1})
        draft.change(
            "min_length added: the other checks only rule things out, so an empty answer would pass"
        )
    case: dict[str, Any] = {"id": draft.id, "prompt": draft.prompt, "checks": checks, **draft.more}
    case["metadata"] = {**mapping_or_empty(draft.more.get("metadata")), **draft.metadata}
    case = {key: value for key, value in case.items() if value not in (None, "", [], {})}
    for path in fit(OurCase, case, where).files:
        check_path(path, where)
    return case


def _usable_id(value: object) -> str | None:
    """Another tool's name of a case as an id; None if it is not a valid id."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = " ".join(str(value).split())[:MAX_ID]
    return text if text.isprintable() and text else None


def place_of(number: int, case: dict[str, Any]) -> str:
    """How messages refer to a case: by number and name."""
    name = next(
        (case[key] for key in ("id", "name", "case_id", "description") if case.get(key)), None
    )
    return f"case {number} ({str(name)[:60]!r})" if isinstance(name, str) else f"case {number}"


__all__ = [
    "FORMATS",
    "Draft",
    "Format",
    "Notes",
    "Source",
    "convert",
    "folder_format",
    "is_ours",
    "place_of",
    "recognize",
]
