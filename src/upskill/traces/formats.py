"""A Format: a kind of trace file, how it is recognised by a sample of its content, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from upskill.errors import UsageError
from upskill.inputs import open_input, read_input
from upskill.traces import Trace
from upskill.traces.values import parse_object

SAMPLE_BYTES = 1_000_000  # the first line of a Codex session alone may have 60,000
MAX_SAMPLE_ROWS = 50
MAX_DOCUMENT_BYTES = 200_000_000  # of one JSON value, which is read whole
MAX_TRACE_BYTES = 2_000_000_000  # of a file of lines
HINT = "`upskill trace list` shows the sessions that are here."
SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Format:
    """A kind of trace file. `sessions` lists those in a file that holds many: id, time of the last change, folder."""

    title: str
    read: Callable[[Path], Trace]
    detects: Callable[[Sample], bool]
    sessions: Callable[[Path], list[tuple[str, float, str]]] | None = None


@dataclass(frozen=True)
class Sample:
    """The beginning of a file. `rows` are the JSON objects among its first lines."""

    path: Path
    data: bytes = b""
    whole: bool = True  # `data` is the whole file

    @classmethod
    def open(cls, path: Path) -> Sample:
        try:
            inside = path.parent.is_file()  # a session inside a database: opencode.db/ses_1
        except (OSError, ValueError):
            inside = False
        with open_trace(path.parent if inside else path) as stream:
            data = stream.read(len(SQLITE) if inside else SAMPLE_BYTES + 1)
        if inside:
            return cls(path, data)
        if not data.strip():
            raise UsageError(f"{path}: is empty", HINT)
        return cls(path, data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES)

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8-sig", "replace")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        lines = self.text.split("\n")
        if not self.whole and len(lines) > 1:
            lines.pop()  # cut in the middle
        found: list[dict[str, Any]] = []
        for line in lines:
            if line.strip().startswith("{") and (row := parse_object(line)) is not None:
                found.append(row)
                if len(found) == MAX_SAMPLE_ROWS:
                    break
        return found

    @cached_property
    def _parsed(self) -> tuple[object, str]:
        """The file as one JSON value, or why it is not one."""
        if self.text.lstrip()[:1] not in ("{", "["):
            return None, ""
        try:
            return load_document(self.path), ""
        except UsageError as error:
            # A file of JSON lines is no broken document, whatever the parser says about its second line.
            return None, "" if self.rows else error.message.removeprefix(f"{self.path}: ")

    @property
    def document(self) -> object:
        return None if len(self.rows) > 1 else self._parsed[0]

    @property
    def parse_error(self) -> str:
        return self._parsed[1]


def open_trace(path: Path) -> BinaryIO:
    return open_input(path, most=MAX_TRACE_BYTES, hint=HINT)


def load_document(path: Path) -> object:
    """A whole file as one JSON value."""
    try:
        return json.loads(read_input(path, most=MAX_DOCUMENT_BYTES).decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: line {error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise UsageError(f"{path}: {error}") from error
