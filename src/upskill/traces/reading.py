"""What the readers of traces share: a look at the beginning of a file, its lines one by one, and the steps so far."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, is_deep
from upskill.traces import Status, Step, StepKind, Trace, Usage

HEAD = 1_000_000  # bytes that a format may be known by; the first line of a Codex session alone may have 60,000
MOST_ROWS = 50
LARGEST_DOCUMENT = 200_000_000  # bytes of one JSON value, which is read whole; files of lines have no limit
MOST_WARNINGS = 5
SQLITE = b"SQLite format 3\0"
UNKNOWN_COST = Usage()


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is known by its content, and how it becomes a Trace."""

    title: str
    read: Callable[[Path], Trace]
    detects: Callable[[Sample], bool]
    inside: Callable[[Path], list[tuple[str, float, str]]] | None = None  # id, time and folder of a file's sessions


@dataclass(frozen=True)
class Sample:
    """The beginning of a file. `rows` are the JSON objects that stand alone on its first lines."""

    path: Path
    data: bytes = b""
    whole: bool = True  # there is no more than `data`

    @classmethod
    def of(cls, path: Path) -> Sample:
        try:
            if path.parent.is_file():  # a session inside a database: opencode.db/ses_1
                with path.parent.open("rb") as stream:
                    return cls(path, stream.read(len(SQLITE)))
            with path.open("rb") as stream:
                data = stream.read(HEAD + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{path}: {why}", "`upskill trace list` shows the sessions that are here.") from error
        if not data.strip():
            raise UsageError(f"{path}: is empty", "`upskill trace list` shows the sessions that are here.")
        return cls(path, data[:HEAD], len(data) <= HEAD)

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
            if line.strip().startswith("{") and (row := _object(line)) is not None:
                found.append(row)
                if len(found) == MOST_ROWS:
                    break
        return found

    @cached_property
    def _parsed(self) -> tuple[object, str]:
        """The file as one JSON value, or why it is none."""
        if self.text.lstrip()[:1] not in ("{", "["):
            return None, ""
        try:
            return load_document(self.path), ""
        except UsageError as error:
            # Lines of JSON are no broken document, whatever one parser would say about the second of them.
            return None, "" if self.rows else error.message.removeprefix(f"{self.path}: ")

    @property
    def document(self) -> object:
        return None if len(self.rows) > 1 else self._parsed[0]

    @property
    def broken(self) -> str:
        return self._parsed[1]

    def has_row(self, *keys: str, **values: object) -> bool:
        """Is there a line that has these keys, and these values?"""
        return any(
            all(key in row for key in keys) and all(row.get(name) == value for name, value in values.items())
            for row in self.rows
        )


def load_document(path: Path) -> object:
    """A whole file as one JSON value."""
    try:
        size = path.stat().st_size
        if size > LARGEST_DOCUMENT:
            raise UsageError(f"{path}: is larger than {LARGEST_DOCUMENT // 10**6} MB", "Is this the right file?")
        return json.loads(path.read_bytes().decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: line {error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise UsageError(f"{path}: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _object(line: str) -> dict[str, Any] | None:
    try:
        said = as_mapping(json.loads(line))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(said) else said


# Values of a line that may be anything.


def mapping(value: object) -> dict[str, Any]:
    return as_mapping(value) or {}


def items(value: object) -> list[Any]:
    return as_list(value) or []


def word(value: object) -> str:
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def amount(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text_of(value: object) -> str:
    """What a tool returned, as text: plain, a list of blocks, or any other JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    blocks = as_list(value)
    if blocks is not None and all(isinstance(block, str) or _is_block(block) for block in blocks):
        return "\n".join(block if isinstance(block, str) else _block_text(mapping(block)) for block in blocks)
    if (block := as_mapping(value)) is not None and _is_block(block):
        return _block_text(block)
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_block(value: object) -> bool:
    block = mapping(value)
    return isinstance(block.get("type"), str) or (isinstance(block.get("text"), str) and len(block) == 1)


def _block_text(block: Mapping[str, Any]) -> str:
    for key in ("text", "thinking", "refusal"):
        if isinstance(block.get(key), str):
            return block[key]
    if isinstance(block.get("content"), (str, list)):
        return text_of(block["content"])
    kind = word(block.get("type"))
    if kind in ("image", "image_url", "input_image", "document", "file", "input_file", "audio", "input_audio"):
        return f"[{kind}]"
    return json.dumps(block, ensure_ascii=False, default=str)


def arguments_of(value: object) -> dict[str, Any]:
    """A call's arguments: an object, an object written as text, or any text as `input`."""
    if (given := as_mapping(value)) is not None:
        return given
    if isinstance(value, str):
        if (given := _object(value) if value.lstrip().startswith("{") else None) is not None:
            return given
        return {"input": value} if value else {}
    return {} if value is None else {"input": value}


def seconds_between(begin: str, end: str) -> float | None:
    first, last = _moment(begin), _moment(end)
    if first is None or last is None or last < first:
        return None
    return round(last - first, 3)


def _moment(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except (ValueError, OverflowError, OSError):
        return None


def from_epoch(milliseconds: object) -> str:
    """A time in milliseconds since 1970 as the other formats write it."""
    value = amount(milliseconds)
    if not value:
        return ""
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


class Recording:
    """The steps of a session while its lines go by. A result finds its call by id, wherever it stands."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.agent = agent
        self.steps: list[Step] = []
        self.ids: list[str] = []  # of the calls, beside their steps
        self.usage = UNKNOWN_COST
        self.model = self.cwd = self.session = self.stop = self.started = ""
        self.malformed = 0
        self.warnings: list[str] = []
        self._open: dict[str, deque[int]] = {}  # calls that nothing came back for yet
        self._last: dict[str, int] = {}

    def rows(self, path: Path | None = None) -> Iterator[dict[str, Any]]:
        """The JSON objects of a file, a line at a time. What is no object is counted, told and passed over."""
        try:
            with (path or self.path).open("rb") as stream:
                for number, line in enumerate(stream, start=1):
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
                    if not text:
                        continue
                    row = _object(text)
                    if row is None:
                        self.refuse(f"line {number} is not a JSON object")
                    else:
                        yield row
        except OSError as error:
            raise UsageError(f"{path or self.path}: {error.strerror or error}") from error

    def refuse(self, why: str) -> None:
        self.malformed += 1
        self.warn(f"{why}; it was passed over")

    def warn(self, said: str) -> None:
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(said)

    def say(self, kind: StepKind, text: str, *, at: str = "", agent: str = "") -> None:
        if text.strip():
            self._add(Step(kind, text, at=at, agent=agent), "")

    def call(self, id: str, tool: str, arguments: object, *, at: str = "", agent: str = "") -> None:  # noqa: A002
        number = self._add(Step("tool", tool=tool, arguments=arguments_of(arguments), at=at, agent=agent), id)
        self._open.setdefault(id, deque()).append(number)
        self._last[id] = number

    def known(self, id: str) -> bool:  # noqa: A002
        return bool(id) and id in self._last

    def result(
        self,
        id: str,  # noqa: A002
        output: str,
        status: Status = "unknown",
        *,
        tool: str = "",
        at: str = "",
        seconds: float | None = None,
        agent: str = "",
    ) -> None:
        waiting = self._open.get(id)
        if not waiting:
            if id in self._last and self.steps[self._last[id]].output == output:
                return  # told twice
            before = self.steps[self._last[id]] if id in self._last else None
            named = tool or (before.tool if before else "")
            self._add(Step("tool", tool=named, output=output, status=status, seconds=seconds, at=at, agent=agent), id)
            return
        number = waiting.popleft()
        begun = self.steps[number]
        if seconds is None:
            seconds = begun.seconds if begun.seconds is not None else seconds_between(begun.at, at)
        # Another line may have told more of it before.
        output = begun.output if len(begun.output) > len(output) else output
        status = begun.status if status == "unknown" else status
        self.steps[number] = replace(begun, output=output, status=status, seconds=seconds)

    def amend(
        self,
        id: str,  # noqa: A002
        *,
        status: Status | None = None,
        output: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Add to a call what another line knows better: never less output than there was."""
        if id not in self._last:
            return
        step = self.steps[self._last[id]]
        if output is not None and len(output) > len(step.output):
            step = replace(step, output=output)
        if status is not None:
            step = replace(step, status=status)
        if seconds is not None:
            step = replace(step, seconds=seconds)
        self.steps[self._last[id]] = step

    def content(
        self, role: str, content: object, *, at: str = "", agent: str = "", status: Status = "ok", system: bool = False
    ) -> None:
        """A message: text, or blocks with text, thinking, tool calls and results. `status` is that of a result
        which does not say whether it is an error."""
        kind: StepKind = "system" if system else _kind_of(role)
        blocks = as_list(content)
        for item in [content] if blocks is None else blocks:
            block = as_mapping(item)
            if block is None:
                self.say(kind, text_of(item), at=at, agent=agent)
                continue
            name = word(block.get("type"))
            if name in ("thinking", "reasoning", "redacted_thinking"):
                self.say("thinking", word(block.get("thinking")) or word(block.get("text")), at=at, agent=agent)
            elif name in ("tool_use", "server_tool_use", "mcp_tool_use", "tool-call"):
                id = word(block.get("id")) or word(block.get("toolCallId"))  # noqa: A001
                named = word(block.get("name")) or word(block.get("toolName"))
                given = block.get("input") if "input" in block else block.get("args")
                self.call(id, named, given, at=at, agent=agent)
            elif name.endswith(("tool_result", "tool-result")):
                said = block.get("is_error")
                known: Status = status if said is None else "error" if said is True else "ok"
                id = word(block.get("tool_use_id")) or word(block.get("toolCallId"))  # noqa: A001
                given = block.get("content") if "content" in block else block.get("result")
                self.result(id, text_of(given), known, at=at, agent=agent)
            else:
                self.say(kind, _block_text(block), at=at, agent=agent)

    def splice(self, after: str, other: Recording) -> None:
        """Put a sub-agent's steps behind the call that started it, or at the end."""
        place = self.ids.index(after) + 1 if after and after in self.ids else len(self.steps)
        self.steps[place:place] = other.steps
        self.ids[place:place] = other.ids
        self.usage = self.usage + other.usage
        self.malformed += other.malformed
        for said in other.warnings:
            self.warn(said)

    def trace(self) -> Trace:
        if self.malformed > MOST_WARNINGS:
            self.warnings[-1] = f"{self.malformed} lines in all could not be read and were passed over"
        asked = [step for step in self.steps if step.kind == "user"]
        goal = next((step.text for step in asked if not step.agent), asked[0].text if asked else "")
        started = self.started or next((step.at for step in self.steps if step.at), "")
        return Trace(
            tuple(self.steps),
            self.usage,
            self.stop,
            self.model,
            goal.strip(),
            self.agent,
            str(self.path),
            self.cwd,
            self.session,
            started,
            self.malformed,
            tuple(self.warnings),
        )

    def _add(self, step: Step, id: str) -> int:  # noqa: A002
        self.steps.append(step)
        self.ids.append(id)
        return len(self.steps) - 1


def _kind_of(role: str) -> StepKind:
    if role in ("user", "human"):
        return "user"
    if role in ("assistant", "model", "ai", "gemini", "agent"):
        return "assistant"
    return "system"


_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?|\(?exit (?:code|status):?) (-?\d+)\)?\s*$", re.M | re.I)


def exit_status(text: str) -> Status:
    """What a program's words say about how it ended."""
    found = _EXIT.search(text)
    return "unknown" if found is None else "ok" if found[1] == "0" else "error"
