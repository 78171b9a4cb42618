"""A Format: a kind of trace file, how it is recognized by a Sample of its content, and the builder that reads it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from upskill.errors import UsageError
from upskill.inputs import open_input
from upskill.installation import add_extra
from upskill.plain import as_list, as_mapping, counted, load_json
from upskill.skills.markdown import read_fences
from upskill.traces import FORMATS, Status, Step, StepKind, Trace, Usage
from upskill.traces.values import (
    Row,
    as_row,
    block_text,
    content_text,
    date_in,
    is_object,
    kind_of,
    parse_arguments,
    parse_line,
    seconds_between,
)

SAMPLE_BYTES = 1_000_000  # the first line of a Codex session alone may have 60,000
MAX_SAMPLE_ROWS = 50
MAX_WARNINGS = 5
MAX_DOCUMENT_BYTES = 200_000_000  # of one JSON value, which is read whole
MAX_TRACE_BYTES = 2_000_000_000  # of a file of lines
MAX_QUERY_TURNS = 500  # million steps of SQLite
ROLES: dict[str, StepKind] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "model", "ai", "gemini", "agent"), "assistant"),
}
HINT = "Run `upskill trace list` to see the sessions on this machine."
SQLITE = b"SQLite format 3\0"
ZSTD = b"\x28\xb5\x2f\xfd"
# Files we cannot read, by a kind of record, a field of a document or a table that only they have.
UNREAD = {
    **dict.fromkeys(
        ("toolRequest", "toolResponse"), "a file from Goose, which upskill cannot read yet"
    ),
    **dict.fromkeys(
        ("session/update", "_x.ai/session/update"),
        "Grok's `updates.jsonl`; pass the `chat_history.jsonl` beside it",
    ),
    "trajectory_meta": "Antigravity's database; pass a `transcript.jsonl` from Antigravity's `brain` folder",
}
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78cDEHM])"
)
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Format:
    """`sessions` lists ids and times of last change in a file that holds many. `is_main` is for agents that keep the
    sessions of sub-agents beside those that people start.
    """

    name: str
    title: str
    fill: Callable[[Any], None]  # reads the file of a builder
    detects: Callable[[Sample], bool]
    sessions: Callable[[Path], list[tuple[str, float]]] | None = None
    is_main: Callable[[Path], bool] | None = None
    builder: type[TraceBuilder] | None = None  # one of its own
    noise: tuple[str, ...] = ()  # kinds of records in which nothing is said or done

    def read(self, path: Path) -> Trace:
        return self.open(path).build()

    def open(self, path: Path) -> TraceBuilder:
        builder = (self.builder or TraceBuilder)(path, self.name)
        self.fill(builder)
        return builder

    def count_unknown(self, skipped: Mapping[str, int]) -> int:
        """How many records are not noise, which also covers kinds below it: `turn` covers `turn.ended`."""
        noise = tuple(f"{kind}/".replace(".", "/") for kind in self.noise)
        return sum(
            count
            for kind, count in skipped.items()
            if not f"{kind}/".replace(".", "/").startswith(noise)
        )


@dataclass(frozen=True)
class Sample:
    """The beginning of a file. `rows` are the JSON objects among its first lines, if the first or most are such."""

    path: Path
    data: bytes = b""
    whole: bool = True  # `data` is the whole file

    @classmethod
    def open(cls, path: Path) -> Sample:
        with open_trace(path) as stream:
            data = stream.read(SAMPLE_BYTES + 1)
        if not data.strip():
            raise UsageError(f"{path}: empty file", HINT)
        return cls(path, data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES)

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8-sig", "replace")

    @cached_property
    def rows(self) -> list[Row]:
        if self.document is not None and "\n" in self.text.strip():
            return []  # lines of one value
        lines = self.text.split("\n")
        if not self.whole and len(lines) > 1:
            lines.pop()  # cut in the middle
        lines = [line for line in lines if line.strip()]
        objects = [line.lstrip().startswith("{") for line in lines]
        if not any(objects[:1]) and 2 * sum(objects) < len(lines):
            return []  # a page with examples in JSON
        rows: list[Row] = []
        for line in lines:
            rows += parse_line(line) if line.strip().startswith("{") else []
            if len(rows) >= MAX_SAMPLE_ROWS:
                break
        return rows

    @cached_property
    def document(self) -> object:
        first, _, rest = self.text.strip().partition("\n")
        if first[:1] not in ("{", "[") or (rest and parse_line(first)):
            return None
        with suppress(UsageError):
            return load_document(self.path)
        return None

    @cached_property
    def tables(self) -> set[str]:
        """The names of the tables, if it is a database."""
        with suppress(UsageError):
            if self.data.startswith(SQLITE):
                with open_database(split_path(self.path)[0], "a database", "") as connection:
                    return table_names(connection)
        return set()

    @property
    def values(self) -> list[Any]:
        """The first JSON values: of the lines, of a list, or the one that the file is."""
        return (
            list(self.rows) if self.document is None else as_list(self.document) or [self.document]
        )

    @property
    def outline(self) -> str:
        """What the file consists of, in a few words."""
        if self.data.startswith(SQLITE):
            return "a database"
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
    def is_text(self) -> bool:
        return b"\0" not in self.data and self.text.lstrip()[:1] not in ("{", "[")

    @property
    def prose(self) -> str:
        """The lines of a text that are not in a block of code."""
        return "\n".join(
            line for line, kind in read_fences(self.text.splitlines()) if kind == "text"
        )

    @property
    def foreign_note(self) -> str:
        """That another program wrote it whose files we know but cannot read; else empty."""
        for row in map(as_row, [dict.fromkeys(self.tables), *self.values[:MAX_SAMPLE_ROWS]]):
            inner = row.child("message", "event")
            blocks = [
                block.text("type")
                for block in (*inner.children("content"), *row.children("content"))
            ]
            for name in (
                row.text("type", "role"),
                row.text("method"),
                inner.text("type"),
                *blocks,
                *row,
            ):
                if name in UNREAD:
                    return f": it looks like {UNREAD[name]}"
        return ""


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(name[:40] for name in unique[:6]) + (", …" if len(unique) > 6 else "")


def split_path(path: Path) -> tuple[Path, str]:
    """The file, and the session that the path names inside it: `opencode.db/ses_1`, `conversations.json/ID`."""
    inside = os.path.isfile(path.parent)  # noqa: PTH113 - never raises
    return (path.parent, path.name) if inside else (path, "")


def open_trace(path: Path, limit: int = MAX_TRACE_BYTES) -> BinaryIO:
    """A file of at most this many bytes, decompressed if need be."""
    file = split_path(path)[0]
    stream = open_input(file, most=limit, hint=HINT)
    packed = stream.read(len(ZSTD)) == ZSTD
    stream.seek(0)
    return _unpack(file, stream) if packed else stream


def read_text(path: Path) -> str:
    with open_trace(path, MAX_DOCUMENT_BYTES) as stream:
        return stream.read().decode("utf-8-sig", "replace")


def text_lines(path: Path) -> Iterator[str]:
    with open_trace(path) as data, TextIOWrapper(data, "utf-8-sig", "replace", None) as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _unpack(path: Path, stream: BinaryIO) -> BinaryIO:
    """What a file that was compressed with Zstandard unpacks to."""
    with stream:
        try:
            zstandard: Any = import_module("zstandard")
            data = (
                zstandard.ZstdDecompressor()
                .stream_reader(stream, read_across_frames=True)
                .read(MAX_DOCUMENT_BYTES)
            )
        except ImportError as error:
            raise UsageError(
                f"{path}: compressed with Zstandard, and the `zstandard` package is not installed",
                f"Run `{add_extra('zstd')}`, or decompress the file first: zstd -d '{path}'.",
            ) from error
        except Exception as error:  # the library's own, which is loaded here alone
            raise UsageError(
                f"{path}: cannot be decompressed: {error}", "Check that the whole file was copied."
            ) from error
    if len(data) == MAX_DOCUMENT_BYTES:
        raise UsageError(
            f"{path}: too large once decompressed", f"Decompress it first: zstd -d '{path}'."
        )
    return BytesIO(data)


@contextmanager
def open_database(path: Path, kind: str, hint: str) -> Generator[sqlite3.Connection]:
    """An SQLite file, only to be read. UsageError, with this hint, if it is not of this kind."""
    file = path.resolve()
    try:
        with file.open("rb") as stream:
            logged = stream.read(19).endswith(
                b"\2"
            )  # SQLite would write a log and its index beside it
        unused = logged and not file.with_name(f"{file.name}-wal").exists()
        address = f"{file.as_uri()}?mode=ro{'&immutable=1' if unused else ''}"
        with closing(sqlite3.connect(address, uri=True, timeout=5)) as connection:
            turns = repeat(0, MAX_QUERY_TURNS)
            connection.set_progress_handler(lambda: next(turns, 1), 10**6)  # a view may never end
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"{path}: could not be read as {kind}: {error}", hint) from error


def table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def load_document(path: Path) -> object:
    try:
        return load_json(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path}: not JSON that upskill can read: {error}") from error


def read_trace(path: str | Path, format: str = "") -> Trace:  # noqa: A002
    """Read a trace in any known format, or any text as a transcript. UsageError if the file is in none of the formats,
    if most of it is not understood, or if it has no step in it.
    """
    sample = Sample.open(Path(path))
    try:
        name = format or _detect_format(sample)
    except UsageError:
        transcript: Format = FORMATS.load("markdown")
        if sample.is_text and (trace := transcript.read(sample.path)).steps:
            return trace
        raise
    chosen: Format = FORMATS.load(name)
    builder = chosen.open(sample.path)
    trace = builder.build()
    if not trace.steps:
        nothing = f"it contains {sample.outline}, but no messages or actions{sample.foreign_note}"
        why = "; ".join(dict.fromkeys(trace.warnings)) or nothing
        how = "read as" if format else "detected as"
        raise UsageError(
            f"{path}: contains no steps. It was {how} {name} ({chosen.title}): {why}",
            "To read it as another format, use `upskill trace show --format NAME`: "
            + ", ".join(FORMATS.names())
            + ".",
        )
    if (
        not format and 2 * chosen.count_unknown(trace.skipped) > builder.records > 0
    ):  # a text has no records
        raise UsageError(
            f"{path}: most of the file could not be read{sample.foreign_note}. It was detected as {name}"
            f" ({chosen.title}), and of its {builder.records} records, these would be skipped:"
            f" {describe_skipped(trace.skipped)}",
            "Export it as messages (lines of JSON with `role` and `content`) or as text with lines such as `User:` and"
            f" `Assistant:`. `upskill trace show --format {name}` shows the part that could be read.",
        )
    return trace


def detect_format(path: str | Path) -> str:
    return _detect_format(Sample.open(Path(path)))


def describe_skipped(skipped: Mapping[str, int], most: int = 8) -> str:
    kinds = Counter(skipped).most_common()
    others = sum(count for _, count in kinds[most:])
    parts = [_count_kind(kind, count) for kind, count in kinds[:most]]
    return ", ".join(
        [*parts, f"{others:,} of {len(kinds) - most} other kinds"] if others else parts
    )


def _count_kind(kind: str, count: int) -> str:
    """`2 lines before the first turn`, but `2 event_msg/token_count`."""
    noun, *rest = kind.split(" ")
    return " ".join([counted(count, noun) if rest else f"{count:,} {noun}", *rest])


def _detect_format(sample: Sample) -> str:
    for name in dict.fromkeys([*FORMATS.table, *FORMATS.names()]):
        known: Format = FORMATS.load(name)
        if known.detects(sample):
            return name
    why = sample.foreign_note
    if sample.data.startswith(SQLITE) and not sample.tables:
        why = ": it is a database, but it is empty or cannot be opened"
    if not sample.rows and sample.text.lstrip()[:1] in ("{", "["):
        try:
            load_document(sample.path)
        except UsageError as error:
            why = error.message.removeprefix(f"{sample.path}")
    raise UsageError(
        f"{sample.path}: not in any known trace format{why}",
        f"Formats: {', '.join(FORMATS.names())}. A text file needs lines such as `User:` and `Assistant:`.",
    )


class TraceBuilder:
    """Steps so far. A result finds its call by id anywhere in a file. Readers set `at` and `subagent` per line.

    `watch` counts the records from which a reader takes nothing: no step, no result, and no `usage`, `model`, `stop`
    or `started`. A reader calls `use` for a record that only repeats what is known.
    """

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.agent = agent
        self.at = self.subagent = ""
        self.steps: list[Step] = []
        self.lines: list[str] = []  # of a text that is not complete yet
        self.ids: list[str] = []  # one for each step: the id of a call, or empty
        self.usage = Usage()
        self.model = self.cwd = self.session = self.stop = self.started = ""
        self.title = (
            ""  # what a text has before its first turn, or else its file's name, may have the date
        )
        self.malformed = self.turns = 0
        self.warnings: list[str] = []
        self.skipped = Counter[str]()  # records that nothing was taken from, by kind
        self.records = self._uses = 0
        self._open: dict[str, deque[int]] = {}  # calls without a result yet
        self._last: dict[str, int] = {}  # the latest call of each id

    def watch(
        self, records: Iterable[_Record], kind: Callable[[_Record], str] = kind_of
    ) -> Iterator[_Record]:
        for record in records:
            self.records += 1
            before = (self._uses, self.usage, self.model, self.stop, self.started)
            yield record
            if before == (self._uses, self.usage, self.model, self.stop, self.started):
                self.leave_out(kind(record))

    def use(self) -> None:
        self._uses += 1

    def leave_out(self, kind: str, count: int = 1) -> None:
        if count > 0:
            self.skipped[kind] += count
            self.use()  # a record around it is not counted again

    def read_lines(self) -> Iterator[Row]:
        """The JSON objects of a file, line by line. Anything else is counted, reported and skipped."""
        for number, line in enumerate(text_lines(self.path), start=1):
            rows = parse_line(line)
            if line.strip() and not rows:
                self.skip(f"line {number} is not a JSON object")
            yield from rows

    def read_values(self) -> list[Any]:
        """The JSON values of a file: its lines, the items of its list, or the one value that it is."""
        document = Sample.open(self.path).document
        return list(self.read_lines()) if document is None else as_list(document) or [document]

    def read_beside(self, name: str) -> Row:
        """The JSON object in a file next to this one; empty if there is none."""
        with suppress(UsageError):
            return as_row(load_document(self.path.with_name(name)))
        return Row()

    def read_branch(self, name: str, parent: str) -> list[Row]:
        """The JSON objects on the path to the last one in a tree of lines; all, if it does not lead to the root.

        `name` and `parent` are the fields with the ids. Objects that are left out are reported.
        """
        rows = list(self.read_lines())
        above = {
            row.text(name): row.text(parent) for row in rows if row.text(name) and parent in row
        }
        branch: set[str] = set()
        at = next((row.text(name) for row in reversed(rows) if row.text(name) in above), "")
        while at in above and at not in branch:
            branch.add(at)
            at = above[at]
        if at:
            return rows
        chosen = [row for row in rows if row.text(name) not in above or row.text(name) in branch]
        if len(chosen) < len(rows):
            self.warn(
                f"skipped {counted(len(rows) - len(chosen), 'line')} from turns that were undone"
            )
        return chosen

    def read_kept(
        self, begins: Callable[[Row], bool], undone: Callable[[Row], int]
    ) -> Iterator[Row]:
        """The JSON objects of a file without those of turns that were taken back, which are reported.

        `begins` says whether a turn begins with an object, `undone` how many turns an object takes back.
        """
        rows: list[Row] = []
        for row in self.read_lines():
            rows.append(row)
            turns = (
                [number for number, each in enumerate(rows) if begins(each)] if undone(row) else []
            )
            if turns:
                begin = turns[-undone(row) :][0]
                self.warn(
                    f"skipped {counted(len(rows) - begin, 'line')} from turns that were undone"
                )
                del rows[begin:]
        return iter(rows)

    def choose_session(
        self, names: list[str], kind: str, *, latest: bool = False, missing: str = ""
    ) -> str:
        """The one of several in a file that the path names, `FILE/NAME`, or else the last or the first of them.

        UsageError, with the hint `missing`, if there are none.
        """
        file, name = split_path(self.path)
        if not names:
            raise UsageError(f"{file}: contains no {kind}", missing)
        if name and name in names:
            return name
        if name:
            hint = f"The latest are: {', '.join(names[-5:])}."
            raise UsageError(f"{file}: no {kind[:-1]} named {name!r}", hint)
        chosen = names[-1 if latest else 0]
        if others := [name for name in names if name != chosen]:
            which = ", ".join(f"{file.name}/{name}" for name in others[-3:])
            self.warn(
                f"it contains {len(names)} {kind}; only the {'latest' if latest else 'first'} was read. "
                f"The others are {'… ' * (len(others) > 3)}{which}"
            )
        return chosen

    def skip(self, reason: str) -> None:
        self.malformed += 1
        self.use()
        self.warn(f"{reason}; it was skipped")

    def warn(self, warning: str) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(warning)

    def add_text(self, kind: StepKind, text: str) -> None:
        if text.strip():
            self._add("", kind, text=text)

    def add_call(self, call_id: str, tool: str, arguments: object) -> None:
        self._open.setdefault(call_id, deque()).append(len(self.steps))
        self._last[call_id] = len(self.steps)
        self._add(call_id, "tool", tool=tool, arguments=parse_arguments(arguments))

    def add_done(
        self, tool: str, arguments: object, output: str, status: Status, **more: Any
    ) -> None:
        """Add a call together with its result; `more` are other fields of the step."""
        self._add(
            "",
            "tool",
            tool=tool,
            arguments=parse_arguments(arguments),
            output=output,
            status=status,
            **more,
        )

    def has_call(self, call_id: str) -> bool:
        return bool(call_id) and call_id in self._last

    def add_result(
        self,
        call_id: str,
        output: str,
        status: Status = "unknown",
        *,
        tool: str = "",
        seconds: float | None = None,
    ) -> None:
        waiting = self._open.get(call_id)
        if not waiting:
            before = self.steps[self._last[call_id]] if call_id in self._last else None
            self.use()
            if before is None or before.output != output:  # else it is reported twice
                tool = tool or (before.tool if before else "")
                self._add(call_id, "tool", tool=tool, output=output, status=status, seconds=seconds)
            return
        number = waiting.popleft()
        call = self.steps[number]
        if seconds is None:
            seconds = (
                call.seconds if call.seconds is not None else seconds_between(call.at, self.at)
            )
        # An earlier line may have had more of the output.
        output = call.output if len(call.output) > len(output) else output
        status = call.status if status == "unknown" else status
        self.use()
        self.steps[number] = replace(call, output=output, status=status, seconds=seconds)

    def extend_call(
        self,
        call_id: str,
        *,
        status: Status | None = None,
        output: str = "",
        seconds: float | None = None,
    ) -> None:
        """Add to a call what another line knows about it; the longer output wins."""
        if call_id in self._last:
            step = self.steps[self._last[call_id]]
            self.use()
            self.steps[self._last[call_id]] = replace(
                step,
                output=max(step.output, output, key=len),
                status=status or step.status,
                seconds=step.seconds if seconds is None else seconds,
            )

    def add_arguments(self, text: str) -> None:
        """Add to the arguments of the latest call, if they arrive in pieces."""
        numbers = range(len(self.steps) - 1, -1, -1)
        mine = (
            n
            for n in numbers
            if self.steps[n].kind == "tool" and self.steps[n].agent == self.subagent
        )
        if (number := next(mine, None)) is not None:
            begun = self.steps[number].arguments.get("input", "")
            self.use()
            self.steps[number] = replace(
                self.steps[number], arguments=parse_arguments(f"{begun}{text}")
            )

    def add_content(self, role: str, content: object, *, status: Status = "ok") -> None:
        """Add a message: text or blocks. `status` is that of results which do not say whether they are errors."""
        kind = ROLES.get(role, "system")
        blocks = as_list(content)
        for item in [content] if blocks is None else blocks:
            if not is_object(item):
                self.add_text(kind, content_text(item))
                continue
            block = as_row(item)
            name = block.text("type")
            if name in ("thinking", "reasoning", "redacted_thinking", "think"):
                self.add_text("thinking", block.text("thinking", "text", "think"))
            elif name in ("tool_use", "server_tool_use", "mcp_tool_use", "tool-call"):
                arguments = block.get("input") if "input" in block else block.get("args")
                self.add_call(
                    block.text("id", "toolCallId"), block.text("name", "toolName"), arguments
                )
            elif name.endswith(("tool_result", "tool-result")):
                is_error = block.get("is_error")
                known: Status = (
                    status if is_error is None else "error" if is_error is True else "ok"
                )
                result = block.get("content") if "content" in block else block.get("result")
                self.add_result(
                    block.text("tool_use_id", "toolCallId"), content_text(result), known
                )
            else:
                self.add_text(kind, block_text(block))

    def add_tool_calls(self, message: Row) -> None:
        """Add the calls of a message as OpenAI's API writes them."""
        for call in message.children("tool_calls"):
            function = call.child("function", "custom") or call
            arguments = function.get("arguments", function.get("input"))
            self.add_call(call.text("id"), function.text("name", "function"), arguments)

    def add_subagent(self, after: str, other: TraceBuilder) -> None:
        """Insert a sub-agent's steps after the call that started it, or at the end."""
        index = self.ids.index(after) + 1 if after and after in self.ids else len(self.steps)
        self.steps[index:index] = other.steps
        self.ids[index:index] = other.ids
        self.usage = self.usage + other.usage
        self.malformed += other.malformed
        self.skipped.update(other.skipped)
        self.records += other.records
        for warning in other.warnings:
            self.warn(warning)

    def build(self) -> Trace:
        if self.malformed > MAX_WARNINGS:
            self.warnings[-1] = f"in all, {self.malformed} lines could not be read and were skipped"
        self.steps = [_without_escapes(step) for step in self.steps]
        requests = [step for step in self.steps if step.kind == "user"]
        goal = next(
            (step.text for step in requests if not step.agent), requests[0].text if requests else ""
        )
        started = self.started or next((step.at for step in self.steps if step.at), "")
        started = started or date_in(self.title) or date_in(split_path(self.path)[0].name)
        return Trace(
            steps=tuple(self.steps),
            usage=self.usage,
            stop=self.stop,
            model=self.model,
            goal=goal.strip(),
            agent=self.agent,
            source=str(self.path),
            cwd=self.cwd,
            session=self.session,
            started=started,
            malformed=self.malformed,
            warnings=tuple(self.warnings),
            turns=self.turns,
            skipped=dict(self.skipped.most_common()),
        )

    def _add(self, call_id: str, kind: StepKind, **fields: Any) -> None:
        self.use()
        self.steps.append(Step(kind, at=self.at, agent=self.subagent, **fields))
        self.ids.append(call_id)


def _without_escapes(step: Step) -> Step:
    """Without what colors a terminal and moves its cursor."""
    return replace(
        step, **{name: _unescape(getattr(step, name)) for name in ("text", "output", "arguments")}
    )


def _unescape(value: Any) -> Any:
    if isinstance(value, str):
        return _ESCAPE.sub("", value) if "\x1b" in value else value
    if (fields := as_mapping(value)) is not None:
        return {name: _unescape(item) for name, item in fields.items()}
    items = as_list(value)
    return value if items is None else [_unescape(item) for item in items]
