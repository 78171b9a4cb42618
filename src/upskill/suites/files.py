"""Reads suite files as plain data, and rejects what a store or a model could not take."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import yaml

from upskill.errors import UsageError
from upskill.inputs import MAX_INPUT_BYTES, read_input
from upskill.plain import json_decoder, load_json, read_yaml, short, yaml_words
from upskill.skills import Skill
from upskill.suites.shapes import EXPECTED_FIELDS, PROMPT_FIELDS
from upskill.traces.readers.inspect_logs import ARCHIVE, unpack_log

MAX_SUITE_BYTES = 20_000_000
MAX_FILES = 1_000  # that a folder beside a suite is searched for
MAX_PATHS = 50_000  # that a folder of cases may have
csv.field_size_limit(MAX_INPUT_BYTES)
PROGRAMS = (".py", ".js", ".cjs", ".mjs", ".ts", ".rb", ".sh", ".go")
SAVE_CASES = (
    "Save its cases as JSON, YAML, or CSV with the columns `prompt,expected`, and pass that file."
)
PROGRAM_HINTS = {  # by what is in the program
    "inspect_ai": "Run it with `inspect eval`, and pass the log it writes.",
    "get_init_inputs": "Run `upskill import kernelbench:FOLDER -o OUTPUT` to import KernelBench problems.",
}

# Checks for a text: `equals: 42` and `equals: yes` mean what is written.
TEXT_CHECKS = frozenset(
    [
        "equals",
        "contains",
        "contains_any",
        "not_contains",
        "starts_with",
        "vars.*",
        "value?",
        "description?",
    ]
)


def decode(data: bytes, where: str) -> object:
    """JSON, JSON lines, CSV or YAML by the content, TOML by the name. A zip archive is a log of inspect_ai."""
    if data.startswith(ARCHIVE):
        return unpack_log(data, where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where}: not UTF-8 text (byte {error.start})", "Save it as UTF-8."
        ) from error
    if where.endswith(PROGRAMS) or text.startswith("#!"):
        hint = next((hint for marker, hint in PROGRAM_HINTS.items() if marker in text), SAVE_CASES)
        raise UsageError(f"{where}: this is a program, not a suite", hint)
    try:
        if where.endswith(".toml"):
            return tomllib.loads(text)
        if text.lstrip()[:1] in ("{", "["):
            try:
                return _load_json(text)
            except json.JSONDecodeError as error:
                with suppress(json.JSONDecodeError):  # a value on every line
                    return [_load_json(line) for line in text.splitlines() if line.strip()]
                if where.endswith(".json"):
                    raise UsageError(
                        f"{where}: line {error.lineno}: not valid JSON: {error.msg}"
                    ) from error
        rows = _csv_rows(text, named=where.endswith((".csv", ".tsv")))
        if rows is not None:
            return rows
        return read_yaml(text, text_fields=TEXT_CHECKS)
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: {yaml_words(error)}") from error
    except RecursionError as error:
        raise UsageError(f"{where}: nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def check_sound(data: object, where: str) -> None:
    """Reject what a store or a model could not take: NaN, half a character, a value that is not JSON."""
    try:
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UsageError(
            f"{where}: unpaired surrogate ({half!r})",
            "Write the character itself, or the full pair.",
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: cannot be stored as JSON: {error}") from error


class Rows(list[dict[str, str]]):
    """The rows of a CSV file, by the names in its header."""


class Folder(list[str]):
    """The paths of the files in a folder, for formats that keep each case in a folder of its own."""

    @classmethod
    def of(cls, root: Path) -> Folder:
        """Empty for what is no folder."""
        paths: list[str] = []
        for folder, folders, files in os.walk(root) if os.path.isdir(root) else ():  # noqa: PTH112 - any name will do
            folders[:] = [name for name in folders if name not in (".git", "node_modules", ".venv")]
            paths += (Path(folder, name).relative_to(root).as_posix() for name in files)
            if len(paths) > MAX_PATHS:
                raise UsageError(
                    f"{root}: more than {MAX_PATHS:,} files", "Pass the folder that has the cases."
                )
        return cls(sorted(paths))

    def below(self, *beginnings: str) -> list[str]:
        return [path for path in self if path.startswith(beginnings)]

    def having(self, *names: str) -> list[str]:
        """The folders with a file of one of these names, each as the beginning of its paths; none inside another."""
        found = sorted(
            {
                path[: -len(path.rpartition("/")[2])]
                for path in self
                if path.rpartition("/")[2] in names
            }
        )
        return [
            path
            for path in found
            if not any(path != other and path.startswith(other) for other in found)
        ]


@dataclass(frozen=True, slots=True)
class FilesOfSkill:
    """Files that a suite in a skill may use: from the skill's folder or `evals/`. Call it to read one."""

    skill: Skill

    def __call__(self, name: str) -> bytes | None:
        data = self.skill.read(name)
        return data if data is not None else self.skill.read(f"evals/{name}")

    def below(self, folder: str) -> list[str]:
        paths = sorted(file.path for file in self.skill.files)
        inside = folder.strip("/") + "/"
        below = [path for path in paths if path.startswith(inside)]
        return below or [path for path in paths if path.startswith(f"evals/{inside}")]


@dataclass(frozen=True, slots=True)
class FilesOfFolders:
    """Files that a suite outside a skill may use: from any of these folders."""

    roots: tuple[Path, ...]

    def __call__(self, name: str) -> bytes | None:
        for root in self.roots:
            try:
                file = (root / name).resolve()
                if file.is_relative_to(root.resolve()) and file.is_file():
                    return read_input(file)
            except (
                OSError,
                RuntimeError,
                UsageError,
            ):  # a circle of links, no permission: not there for us
                continue
        return None

    def below(self, folder: str) -> list[str]:
        for root in self.roots:
            try:
                path = (root / folder).resolve()
                if path.is_relative_to(root.resolve()) and path.is_dir():
                    files = list(
                        islice((file for file in path.rglob("*") if file.is_file()), MAX_FILES + 1)
                    )
                    if len(files) > MAX_FILES:
                        raise UsageError(
                            f"{folder}: more than {MAX_FILES:,} files", "Name a smaller folder."
                        )
                    return sorted(file.relative_to(root.resolve()).as_posix() for file in files)
            except (OSError, RuntimeError):
                continue
        return []


def _load_json(text: str) -> Any:
    return load_json(text, json_decoder(_unique))


def _csv_rows(text: str, *, named: bool) -> Rows | None:
    """The rows of a table with a header; None if the first line is none and the file is not `named` like a table."""
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as old spreadsheets end lines
    above = len(text) - len(text := text.lstrip("\n"))  # empty lines
    first = re.split("[\r\n]", text, maxsplit=1)[0]
    mark = max(",\t;", key=first.count)
    names = [name for row in csv.reader([first], delimiter=mark) for name in row]
    known = {name.strip().lower() for name in names} & {*PROMPT_FIELDS, "__expected"}
    plain = len(names) > 1 and all(re.fullmatch(r"[\w .:/-]{1,60}", name.strip()) for name in names)
    if not named and not (known and plain):
        return None
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=mark, strict=True)
    rows = Rows()
    before = 0  # lines of the rows that are read
    try:
        columns = [_column(name) for cells in islice(reader, 1) for name in cells]
        if twice := next((name for name in columns if name and columns.count(name) > 1), ""):
            raise ValueError(f"line {above + 1}: duplicate column {twice!r}")
        before = reader.line_num
        for cells in reader:
            line, before = above + before + 1, reader.line_num
            if any(cell.strip() for cell in cells[len(columns) :]):
                raise ValueError(
                    f"line {line}: {len(cells)} cells, but the header has {len(columns)}: quote cells that contain"
                    f" {mark!r}"
                )
            unnamed = [
                cell
                for name, cell in zip(columns, cells, strict=False)
                if not name and cell.strip()
            ]
            if nameless := next(
                (cell for cell in unnamed if not cell.isdecimal()), ""
            ):  # numbers of rows say nothing
                raise ValueError(f"line {line}: {short(nameless)} is in a column without a name")
            if any(cell.strip() for cell in cells):
                padded = zip_longest(columns, cells[: len(columns)], fillvalue="")
                rows.append({name: cell for name, cell in padded if name})
    except csv.Error as error:
        problem = str(error)
        if "new-line character" in problem:
            problem = "a carriage return is not in quotes; end lines with a line feed, and quote cells with line breaks"
        raise ValueError(f"line {above + before + 1}: not valid CSV: {problem}") from error
    return rows


def _column(name: str) -> str:
    name = name.strip()
    return (
        name.lower()
        if name.lower() in (*PROMPT_FIELDS, *EXPECTED_FIELDS, "id", "tags", "choices")
        else name
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"duplicate field {key!r} in one object")
        mapping[key] = value
    return mapping
