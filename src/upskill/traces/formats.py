"""A Format: a kind of trace file, how it is recognized by a sample of its content, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from upskill.errors import UsageError
from upskill.inputs import open_input
from upskill.installation import add_extra
from upskill.plain import as_list, as_mapping
from upskill.traces import FORMATS, Trace
from upskill.traces.values import Row, parse_line

SAMPLE_BYTES = 1_000_000  # the first line of a Codex session alone may have 60,000
MAX_SAMPLE_ROWS = 50
MAX_DOCUMENT_BYTES = 200_000_000  # of one JSON value, which is read whole
MAX_TRACE_BYTES = 2_000_000_000  # of a file of lines
HINT = "`upskill trace list` shows the sessions that are here."
SQLITE = b"SQLite format 3\0"
ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Format:
    """A kind of trace file.

    `sessions` lists those in a file that holds many: id, time of the last change, folder. `is_main` is for agents that
    keep the sessions of their sub-agents beside those that people start.
    """

    title: str
    read: Callable[[Path], Trace]
    detects: Callable[[Sample], bool]
    sessions: Callable[[Path], list[tuple[str, float, str]]] | None = None
    is_main: Callable[[Path], bool] | None = None


@dataclass(frozen=True)
class Sample:
    """The beginning of a file. `rows` are the JSON objects among its first lines."""

    path: Path
    data: bytes = b""
    whole: bool = True  # `data` is the whole file

    @classmethod
    def open(cls, path: Path) -> Sample:
        with open_trace(path) as stream:
            data = stream.read(SAMPLE_BYTES + 1)
        if not data.strip():
            raise UsageError(f"{path}: is empty", HINT)
        return cls(path, data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES)

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8-sig", "replace")

    @cached_property
    def rows(self) -> list[Row]:
        lines = self.text.split("\n")
        if not self.whole and len(lines) > 1:
            lines.pop()  # cut in the middle
        rows: list[Row] = []
        for line in lines:
            rows += parse_line(line) if line.strip().startswith("{") else []
            if len(rows) >= MAX_SAMPLE_ROWS:
                break
        return rows

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
    def values(self) -> list[Any]:
        """The first JSON values: of the lines, of a list, or the one that the file is."""
        return list(self.rows) if self.document is None else as_list(self.document) or [self.document]

    @property
    def outline(self) -> str:
        """What the file consists of, in a few words."""
        if fields := as_mapping(self.document):
            return f"an object with {_listed(fields)}"
        if (values := as_list(self.document)) is not None:
            return f"a list of {len(values)}"
        if self.rows:
            kinds = [row.get("type") or row.get("kind") or row.get("role") for row in self.rows]
            named = _listed(kind for kind in kinds if isinstance(kind, str))
            some = "" if self.whole and len(self.rows) < MAX_SAMPLE_ROWS else " or more"
            return f"{len(self.rows)}{some} lines of JSON" + (f" ({named})" if named else "")
        return f"{len(self.text.splitlines())} lines of text"

    @property
    def parse_error(self) -> str:
        return self._parsed[1]


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(name[:40] for name in unique[:6]) + (", …" if len(unique) > 6 else "")


def split_path(path: Path) -> tuple[Path, str]:
    """The file, and the session that the path names inside it: `opencode.db/ses_1`, `conversations.json/ID`."""
    try:
        inside = path.parent.is_file()
    except (OSError, ValueError):
        inside = False
    return (path.parent, path.name) if inside else (path, "")


def open_trace(path: Path, limit: int = MAX_TRACE_BYTES) -> BinaryIO:
    """A file of at most this many bytes, decompressed if need be."""
    file = split_path(path)[0]
    stream = open_input(file, most=limit, hint=HINT)
    packed = stream.read(len(ZSTD)) == ZSTD
    stream.seek(0)
    return _unpack(file, stream) if packed else stream


def read_text(path: Path) -> str:
    """A whole file as text."""
    try:
        with open_trace(path, MAX_DOCUMENT_BYTES) as stream:
            return stream.read().decode("utf-8-sig", "replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a trace that is written for people."""
    try:
        with open_trace(path) as data, TextIOWrapper(data, "utf-8-sig", "replace", None) as stream:
            for line in stream:
                yield line.removesuffix("\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _unpack(path: Path, stream: BinaryIO) -> BinaryIO:
    """What a file that was compressed with Zstandard unpacks to."""
    with stream:
        try:
            zstandard: Any = import_module("zstandard")
            data = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read(MAX_DOCUMENT_BYTES)
        except ImportError as error:
            raise UsageError(
                f"{path}: is compressed with Zstandard, and the package zstandard, which reads that, is not installed",
                f"Run `{add_extra('zstd')}`, or unpack it first: zstd -d '{path}'.",
            ) from error
        except Exception as error:  # the library's own, which is loaded here alone
            raise UsageError(f"{path}: cannot be unpacked: {error}", "Was it copied whole?") from error
    if len(data) == MAX_DOCUMENT_BYTES:
        raise UsageError(f"{path}: unpacks to more than can be read at once", f"Unpack it first: zstd -d '{path}'.")
    return BytesIO(data)


def load_document(path: Path) -> object:
    """A whole file as one JSON value."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: line {error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise UsageError(f"{path}: {error}") from error


def read_trace(path: str | Path, format: str = "") -> Trace:  # noqa: A002
    """Read a trace in any known format; UsageError if the file is in none of them, or has no step in it."""
    sample = Sample.open(Path(path))
    name = format or _detect_format(sample)
    chosen: Format = FORMATS.load(name)
    trace = chosen.read(sample.path)
    if not trace.steps:
        nothing = f"it consists of {sample.outline}, and tells nothing that was said or done"
        why = "; ".join(dict.fromkeys(trace.warnings)) or nothing
        how = "read as" if format else "taken for"
        raise UsageError(
            f"{path}: has no step in it. It was {how} {name} ({chosen.title}): {why}",
            "`--format NAME` of `upskill trace show` reads it as another format: " + ", ".join(FORMATS.names()) + ".",
        )
    return trace


def detect_format(path: str | Path) -> str:
    """The name of the format that a file is in."""
    return _detect_format(Sample.open(Path(path)))


def _detect_format(sample: Sample) -> str:
    for name in dict.fromkeys([*FORMATS.table, *FORMATS.names()]):
        known: Format = FORMATS.load(name)
        if known.detects(sample):
            return name
    why = f": {sample.parse_error}" if sample.parse_error else ""
    raise UsageError(
        f"{sample.path}: is not a trace in any known format{why}",
        f"Formats: {', '.join(FORMATS.names())}. A text file needs lines such as `User:`, `Assistant:` or `$ command`.",
    )
