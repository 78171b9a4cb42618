"""Builds a Trace while the lines of a file go by."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list
from upskill.traces import Status, Step, StepKind, Trace, Usage
from upskill.traces.formats import Sample, open_trace, split_path
from upskill.traces.values import (
    Row,
    as_row,
    block_text,
    content_text,
    is_object,
    parse_arguments,
    parse_line,
    seconds_between,
)

MAX_WARNINGS = 5


class TraceBuilder:
    """The steps of a session so far. A result finds its call by id, wherever in the file it is.

    What is added happened at the time `at`, and was done by `subagent` if that is not empty: a reader sets both when
    it comes to a line.
    """

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.agent = agent
        self.at = self.subagent = ""
        self.steps: list[Step] = []
        self.ids: list[str] = []  # one for each step: the id of a call, or empty
        self.usage = Usage()
        self.model = self.cwd = self.session = self.stop = self.started = ""
        self.malformed = 0
        self.warnings: list[str] = []
        self._open: dict[str, deque[int]] = {}  # calls without a result yet
        self._last: dict[str, int] = {}  # the latest call of each id

    def read_lines(self, path: Path | None = None) -> Iterator[Row]:
        """The JSON objects of a file, line by line. Anything else is counted, reported and skipped."""
        try:
            with open_trace(path or self.path) as stream:
                for number, line in enumerate(stream, start=1):
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
                    if not text:
                        continue
                    rows = parse_line(text)
                    if not rows:
                        self.skip(f"line {number} is not a JSON object")
                    yield from rows
        except OSError as error:
            raise UsageError(f"{path or self.path}: {error.strerror or error}") from error

    def read_values(self) -> list[Any]:
        """The JSON values of a file: its lines, the items of its list, or the one value that it is."""
        document = Sample.open(self.path).document
        return list(self.read_lines()) if document is None else as_list(document) or [document]

    def read_branch(self, name: str, parent: str) -> list[Row]:
        """The JSON objects on the way to the last one, in a file whose lines form a tree; the others are reported.

        `name` and `parent` are the fields with the ids. All of them, if the way does not lead back to the beginning.
        """
        rows = list(self.read_lines())
        above = {row.text(name): row.text(parent) for row in rows if row.text(name) and parent in row}
        branch: set[str] = set()
        at = next((row.text(name) for row in reversed(rows) if row.text(name) in above), "")
        while at in above and at not in branch:
            branch.add(at)
            at = above[at]
        if at:
            return rows
        chosen = [row for row in rows if row.text(name) not in above or row.text(name) in branch]
        if len(chosen) < len(rows):
            self.warn(f"{len(rows) - len(chosen)} lines belong to turns that were taken back, and were left out")
        return chosen

    def choose_session(self, names: list[str], kind: str, *, latest: bool = False) -> str:
        """The one of several in a file that the path names, `FILE/NAME`, or else the last or the first of them."""
        file, name = split_path(self.path)
        if name:
            if name in names:
                return name
            raise UsageError(
                f"{file}: none of its {kind} is called {name!r}", f"The latest are: {', '.join(names[-5:])}."
            )
        chosen = names[-1 if latest else 0]
        if others := [name for name in names if name != chosen]:
            which = ", ".join(f"{file.name}/{name}" for name in others[-3:])
            self.warn(
                f"it has {len(names)} {kind}, and the {'latest' if latest else 'first'} was read; "
                f"the others are {'… ' * (len(others) > 3)}{which}"
            )
        return chosen

    def skip(self, reason: str) -> None:
        self.malformed += 1
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
        self, tool: str, arguments: object, output: str, status: Status, *, call_id: str = "", **more: Any
    ) -> None:
        """Add a call together with its result."""
        self._last[call_id] = len(self.steps)
        arguments = parse_arguments(arguments)
        self._add(call_id, "tool", tool=tool, arguments=arguments, output=output, status=status, **more)

    def has_call(self, call_id: str) -> bool:
        return bool(call_id) and call_id in self._last

    def add_result(
        self, call_id: str, output: str, status: Status = "unknown", *, tool: str = "", seconds: float | None = None
    ) -> None:
        waiting = self._open.get(call_id)
        if not waiting:
            before = self.steps[self._last[call_id]] if call_id in self._last else None
            if before is None or before.output != output:  # else it is reported twice
                tool = tool or (before.tool if before else "")
                self._add(call_id, "tool", tool=tool, output=output, status=status, seconds=seconds)
            return
        number = waiting.popleft()
        call = self.steps[number]
        if seconds is None:
            seconds = call.seconds if call.seconds is not None else seconds_between(call.at, self.at)
        # An earlier line may have had more of the output.
        output = call.output if len(call.output) > len(output) else output
        status = call.status if status == "unknown" else status
        self.steps[number] = replace(call, output=output, status=status, seconds=seconds)

    def extend_call(
        self, call_id: str, *, status: Status | None = None, output: str = "", seconds: float | None = None
    ) -> None:
        """Add to a call what another line knows about it; the longer output wins."""
        if call_id in self._last:
            step = self.steps[self._last[call_id]]
            self.steps[self._last[call_id]] = replace(
                step,
                output=max(step.output, output, key=len),
                status=status or step.status,
                seconds=step.seconds if seconds is None else seconds,
            )

    def add_content(self, role: str, content: object, *, status: Status = "ok") -> None:
        """Add a message: text, or blocks of text, thinking, tool calls and results.

        `status` is that of results which do not say whether they are errors.
        """
        kind = _kind_of(role)
        blocks = as_list(content)
        for item in [content] if blocks is None else blocks:
            if not is_object(item):
                self.add_text(kind, content_text(item))
                continue
            block = as_row(item)
            name = block.text("type")
            if name in ("thinking", "reasoning", "redacted_thinking"):
                self.add_text("thinking", block.text("thinking", "text"))
            elif name in ("tool_use", "server_tool_use", "mcp_tool_use", "tool-call"):
                arguments = block.get("input") if "input" in block else block.get("args")
                self.add_call(block.text("id", "toolCallId"), block.text("name", "toolName"), arguments)
            elif name.endswith(("tool_result", "tool-result")):
                is_error = block.get("is_error")
                known: Status = status if is_error is None else "error" if is_error is True else "ok"
                result = block.get("content") if "content" in block else block.get("result")
                self.add_result(block.text("tool_use_id", "toolCallId"), content_text(result), known)
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
        for warning in other.warnings:
            self.warn(warning)

    def build(self) -> Trace:
        if self.malformed > MAX_WARNINGS:
            self.warnings[-1] = f"{self.malformed} lines in all could not be read and were skipped"
        requests = [step for step in self.steps if step.kind == "user"]
        goal = next((step.text for step in requests if not step.agent), requests[0].text if requests else "")
        started = self.started or next((step.at for step in self.steps if step.at), "")
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
        )

    def _add(self, call_id: str, kind: StepKind, **fields: Any) -> None:
        self.steps.append(Step(kind, at=self.at, agent=self.subagent, **fields))
        self.ids.append(call_id)


def _kind_of(role: str) -> StepKind:
    if role in ("user", "human"):
        return "user"
    if role in ("assistant", "model", "ai", "gemini", "agent"):
        return "assistant"
    return "system"
