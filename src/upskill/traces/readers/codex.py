"""Codex: the sessions below `~/.codex/sessions` with their sub-agents, and `codex exec --json`."""

from __future__ import annotations

import glob
import re
from collections import Counter
from pathlib import Path

from upskill.plain import list_or_empty
from upskill.traces import Status, StepKind, Usage
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import (
    Row,
    as_row,
    content_text,
    exit_status,
    parse_object,
    read_usage,
    status_of,
)

ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
STREAM = ("thread.started", "turn.started", "item.started", "item.completed", "turn.completed")
# What the program itself writes into the user's turns.
BY_PROGRAM = (
    *(
        "<environment_context>",
        "<user_instructions>",
        "<turn_aborted>",
        "<permissions",
        "<collaboration_mode>",
    ),
    *("<skill>", "<skills_instructions>", "<subagent_notification>", "# AGENTS.md instructions"),
)
STREAM_KINDS: dict[str, StepKind] = {
    "agent_message": "assistant",
    "reasoning": "thinking",
    "user_message": "user",
}
NOISE = (
    *(
        "turn_context",
        "session_meta",
        "turn.started",
        "state",
        "world_state",
        "response_item/reasoning",
    ),
    *(
        "event_msg/token_count",
        "event_msg/task_started",
        "event_msg/task_complete",
        "event_msg/thread_settings_applied",
    ),
    *("event_msg/item_completed", "token_usage_record"),
)
REFUSALS = ("unsupported ", "failed to parse ", "exec_command failed", "apply_patch verification")
STATUSES: dict[str, Status] = {"completed": "ok", "failed": "error", "declined": "error"}
# "Chunk ID: 9e5f71\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n" and its older forms.
_ENVELOPE = re.compile(
    r"\A(?=Chunk ID: |Exit code: |Wall time: )(?:[A-Z][\w ]*: [^\n]*\n|Process [^\n]*\n)+?Output:\n"
)
_WALL = re.compile(r"^Wall time: ([\d.]+) seconds?$", re.M)


def detects(sample: Sample) -> bool:
    return any(
        (row.get("type") in ROLLOUT and "payload" in row)
        or row.get("type") in STREAM
        or (row.get("record_type") == "state")
        or ("msg" in row and "id" in row and isinstance(as_row(row["msg"]).get("type"), str))
        for row in sample.rows
    )


def is_main(path: Path) -> bool:
    """Whether a person started the session, rather than another agent."""
    return not any(_spawned(row.child("payload")) for row in Sample.open(path).rows[:1])


def _spawned(meta: Row) -> Row:
    """What is told of the sub-agent that a session is of; empty for a person's session."""
    source = meta.child("source")
    kind = source.get("subagent", source.get("subAgent"))
    return as_row(kind).child("thread_spawn") or (Row(agent_role=str(kind)) if kind else Row())


def _drop_copied(builder: TraceBuilder, other: TraceBuilder) -> None:
    """Leave out what a sub-agent was given of the session that started it."""
    copied = 0
    for mine, copy in zip(builder.steps, other.steps, strict=False):
        if (mine.kind, mine.text, mine.tool, mine.arguments) != (
            copy.kind,
            copy.text,
            copy.tool,
            copy.arguments,
        ):
            break
        copied += 1
    del other.steps[:copied], other.ids[:copied]


class _Reader(TraceBuilder):
    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path, agent)
        self.read_files = {path}
        self.spawned: dict[
            str, str
        ] = {}  # the threads of sub-agents, by the call that started them
        # The same turn comes as an item and as an event, in either order.
        self.unmatched = {"item": Counter[tuple[str, str]](), "event": Counter[tuple[str, str]]()}

    def fill(self) -> None:
        """Read a session, and after the calls that started them those of its sub-agents, which are files beside it."""
        for row in self.watch(self.read_kept(_begins_turn, _undone_turns)):
            self.row(row)
        for call, thread in self.spawned.items():
            files = sorted(self.path.parent.parent.glob(f"*/rollout-*{glob.escape(thread)}.jsonl*"))
            for file in [
                file for file in files if file not in self.read_files and len(thread) >= 8
            ][:1]:
                self.read_files.add(file)
                other = _Reader(file, self.agent)
                other.subagent, other.read_files = thread, self.read_files
                other.fill()
                _drop_copied(self, other)
                self.add_subagent(call, other)

    def row(self, row: Row) -> None:
        kind, payload, self.at = row.get("type"), row.child("payload"), row.text("timestamp")
        if kind == "session_meta":
            if (
                self.subagent and not self.session
            ):  # that of the session it was forked from may follow
                self.subagent = (
                    _spawned(payload).text("agent_nickname", "agent_role") or self.subagent
                )
            self.session = self.session or payload.text("id")
            self.cwd = self.cwd or payload.text("cwd")
            self.started = self.started or payload.text("timestamp") or self.at
        elif kind == "turn_context":
            self.model = payload.text("model") or self.model
            self.cwd = self.cwd or payload.text("cwd")
        elif kind == "response_item":
            self.item(payload)
        elif kind == "event_msg":
            self.event(payload)
        elif kind == "compacted":
            self.add_text("system", payload.text("message"))
        elif kind == "thread.started":
            self.session = row.text("thread_id")
            self.use()
        elif kind == "turn.completed":
            self.usage = _usage(row.child("usage"))  # of the whole thread so far
            self.stop = "end"
        elif kind == "error":
            self.add_text("system", f"error: {row.text('message')}")
        elif kind in ("item.started", "item.completed"):
            self.streamed(row.child("item"), done=kind == "item.completed")
        elif "msg" in row:  # `codex exec --json` of 2025
            self.event(row.child("msg"))
        elif isinstance(kind, str):  # sessions of 2025: items without a wrapping
            self.item(row)

    def item(self, payload: Row) -> None:
        kind = payload.text("type")
        if kind == "message" or (not kind and "role" in payload):
            role, text = payload.text("role"), content_text(payload.get("content"))
            if role == "assistant" or (role == "user" and not text.lstrip().startswith(BY_PROGRAM)):
                self.turn("item", "user" if role == "user" else "assistant", text)
            else:
                self.add_text("system", text)
        elif kind == "reasoning":
            parts = [content_text(payload.get("summary")), content_text(payload.get("content"))]
            self.turn("item", "thinking", "\n".join(filter(None, parts)))
        elif kind.endswith("_output"):
            self.output(payload.text("call_id"), payload.get("output"))
        elif kind.endswith("_call"):
            self.call(kind, payload)

    def turn(self, source: str, kind: StepKind, text: str) -> None:
        other = self.unmatched["event" if source == "item" else "item"]
        if other[kind, text] > 0:
            other[kind, text] -= 1
            self.use()
        else:
            self.unmatched[source][kind, text] += 1
            self.add_text(kind, text)

    def call(self, kind: str, payload: Row) -> None:
        call_id = payload.text("call_id", "id")
        if self.has_call(call_id):  # an event came first
            self.use()
            return
        tool = payload.text("name") or kind.removesuffix("_call")
        arguments: object = payload.get("arguments", payload.get("input", payload.get("action")))
        self.add_call(call_id, tool, arguments)
        if kind == "web_search_call" or (kind == "local_shell_call" and not payload.get("call_id")):
            self.extend_call(call_id, status="ok" if payload.get("status") == "completed" else None)

    def output(self, call_id: str, output: object) -> None:
        text, status, seconds = _unwrap_output(output)
        thread = (parse_object(text) or Row()).text("agent_id") if text.startswith("{") else ""
        if thread and self.has_call(call_id):
            self.spawned.setdefault(call_id, thread)
        self.add_result(call_id, text, status, seconds=seconds)

    def event(self, payload: Row) -> None:
        kind = payload.text("type")
        if kind in ("user_message", "agent_message"):
            self.turn(
                "event", "user" if kind == "user_message" else "assistant", payload.text("message")
            )
        elif kind == "agent_reasoning":
            self.turn("event", "thinking", payload.text("text"))
        elif kind == "token_count":
            total = payload.child("info").child("total_token_usage") or payload
            self.usage = _usage(total) if "input_tokens" in total else self.usage
        elif kind == "session_configured":
            self.model = payload.text("model") or self.model
            self.session = self.session or payload.text("session_id")
        elif kind in ("exec_command_begin", "mcp_tool_call_begin", "patch_apply_begin"):
            self.begin(kind, payload)
        elif kind in ("exec_command_end", "mcp_tool_call_end", "patch_apply_end"):
            self.end(payload)
        elif kind == "collab_agent_spawn_end":
            self.spawned[payload.text("call_id")] = payload.text("new_thread_id")
            self.use()
        elif kind == "item_completed":
            self.completed(payload.child("item"))
        elif kind in ("turn_aborted", "error", "stream_error"):
            self.add_text(
                "system", f"{kind.replace('_', ' ')}: {payload.text('message', 'reason')}"
            )

    def begin(self, kind: str, payload: Row) -> None:
        call_id = payload.text("call_id")
        if self.has_call(call_id):
            self.use()
        else:
            invocation = payload.child("invocation")
            tool = invocation.text("tool") or (
                "apply_patch" if kind.startswith("patch") else "shell"
            )
            arguments = {
                key: payload[key] for key in ("command", "cwd", "changes") if key in payload
            }
            self.add_call(call_id, tool, invocation.get("arguments") if invocation else arguments)

    def end(self, payload: Row) -> None:
        call_id = payload.text("call_id")
        status = status_of(payload.get("exit_code", payload.get("success")))
        streams = [payload.text("stdout"), payload.text("stderr")]
        output = payload.text("aggregated_output") or "\n".join(filter(None, streams))
        if "result" in payload:
            output = content_text(payload["result"])
        self.begin(payload.text("type"), payload)
        # The output that the model saw may still follow.
        self.extend_call(call_id, output=output, status=status if status != "unknown" else None)

    def completed(self, item: Row) -> None:
        """What the program itself recorded of a call: the whole output, and how the command ended."""
        duration = item.child("duration")
        seconds = duration.count("secs") + duration.count("nanos") / 1e9 if duration else None
        status, output = STATUSES.get(item.text("status")), item.text("aggregated_output")
        self.extend_call(item.text("id"), status=status, output=output, seconds=seconds)

    def streamed(self, item: Row, *, done: bool) -> None:
        call_id, kind, text = item.text("id"), item.text("type"), item.text("text", "message")
        if kind == "error" or kind in STREAM_KINDS:
            self.use()
            if done:
                self.add_text(
                    STREAM_KINDS.get(kind, "system"), f"error: {text}" if kind == "error" else text
                )
            return
        self.use()
        if not self.has_call(call_id):
            other = (
                "aggregated_output",
                "exit_code",
                "status",
                "result",
                "error",
                "id",
                "type",
                "tool",
            )
            arguments = {key: value for key, value in item.items() if key not in other}
            tool = "__".join(filter(None, (item.text("server"), item.text("tool")))) or kind
            self.add_call(call_id, tool, item.get("arguments", arguments))
        if done:
            status: Status = (
                "error"
                if item.get("status") in ("failed", "declined") or item.get("error")
                else "ok"
            )
            output = item.text("aggregated_output") or content_text(
                item.get("result") or item.get("error")
            )
            self.add_result(call_id, output, status)


def _unwrap_output(output: object) -> tuple[str, Status, float | None]:
    """A tool's output without what Codex wraps around it, and the status and seconds found there."""
    data = as_row(output)
    if isinstance(output, str) and output.startswith('{"output"'):
        data = parse_object(output) or data
    if "output" in data or "content" in data:
        metadata = data.child("metadata")
        status = status_of(metadata.get("exit_code", data.get("success")))
        return (
            content_text(data.get("output", data.get("content"))),
            status,
            metadata.number("duration_seconds"),
        )
    text = content_text(list_or_empty(output) or output)
    envelope = _ENVELOPE.match(text)
    if envelope is None:
        return text, "error" if text.startswith(REFUSALS) else "unknown", None
    wall = _WALL.search(envelope[0])
    return text[envelope.end() :], exit_status(envelope[0]), float(wall[1]) if wall else None


def _begins_turn(row: Row) -> bool:
    return row.child("payload").get("type") == "task_started"


def _undone_turns(row: Row) -> int:
    event = row.child("payload")
    return event.count("num_turns") if event.get("type") == "thread_rolled_back" else 0


def _usage(data: Row) -> Usage:
    return read_usage(
        data, "input_tokens", "output_tokens", "cached_input_tokens", "reasoning_output_tokens"
    )


FORMAT = Format(
    "codex", "Codex session", _Reader.fill, detects, is_main=is_main, builder=_Reader, noise=NOISE
)
