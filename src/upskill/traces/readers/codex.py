"""Codex: the sessions below `~/.codex/sessions` with their sub-agents, and `codex exec --json`."""

from __future__ import annotations

import glob
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping, dict_or_empty, list_or_empty
from upskill.traces import Status, StepKind, Trace, Usage
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    content_text,
    exit_status,
    get_count,
    get_dict,
    get_float,
    get_str,
    parse_arguments,
    parse_object,
    read_usage,
    status_of,
)

ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
STREAM = ("thread.started", "turn.started", "item.started", "item.completed", "turn.completed")
# What the program itself writes into the user's turns.
PROGRAM_PREFIXES = (
    *("<environment_context>", "<user_instructions>", "<turn_aborted>", "<permissions", "<collaboration_mode>"),
    *("<skill>", "<skills_instructions>", "<subagent_notification>", "# AGENTS.md instructions"),
)
STREAM_KINDS: dict[str, StepKind] = {"agent_message": "assistant", "reasoning": "thinking", "user_message": "user"}
STATUSES: dict[str, Status] = {"completed": "ok", "failed": "error", "declined": "error"}
# "Chunk ID: 9e5f71\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n" and its older forms.
_ENVELOPE = re.compile(r"\A(?=Chunk ID: |Exit code: |Wall time: )(?:[A-Z][\w ]*: [^\n]*\n|Process [^\n]*\n)+?Output:\n")
_WALL = re.compile(r"^Wall time: ([\d.]+) seconds?$", re.M)


def detects(sample: Sample) -> bool:
    return any(
        (row.get("type") in ROLLOUT and "payload" in row)
        or row.get("type") in STREAM
        or (row.get("record_type") == "state")
        or ("msg" in row and "id" in row and isinstance(dict_or_empty(row["msg"]).get("type"), str))
        for row in sample.rows
    )


def is_main(path: Path) -> bool:
    """Whether a person started the session, rather than another agent."""
    return not any(_spawned(get_dict(row, "payload")) for row in Sample.open(path).rows[:1])


def _spawned(meta: dict[str, Any]) -> dict[str, Any]:
    """What is told of the sub-agent that a session is of; empty for a person's session."""
    source = get_dict(meta, "source")
    kind = source.get("subagent", source.get("subAgent"))
    return dict_or_empty(dict_or_empty(kind).get("thread_spawn")) or ({"agent_role": str(kind)} if kind else {})


def read(path: Path) -> Trace:
    return _read_file(path, {path}).build()


def _read_file(path: Path, seen: set[Path], agent: str = "") -> TraceBuilder:
    """A session, and after the calls that started them the sessions of its sub-agents, which are files beside it."""
    builder = TraceBuilder(path, "codex")
    reader = _Reader(builder)
    for row in builder.read_lines():
        reader.row(row)
    if agent:
        builder.steps = [replace(step, agent=reader.nickname or agent) for step in builder.steps]
    for call, thread in reader.spawned.items():
        for file in sorted(path.parent.parent.glob(f"*/rollout-*{glob.escape(thread)}.jsonl*")):
            if file not in seen and len(thread) >= 8:
                seen.add(file)
                other = _read_file(file, seen, thread)
                _drop_copied(builder, other)
                builder.add_subagent(call, other)
                break
    return builder


def _drop_copied(builder: TraceBuilder, other: TraceBuilder) -> None:
    """Leave out what a sub-agent was given of the session that started it."""
    copied = 0
    for mine, copy in zip(builder.steps, other.steps, strict=False):
        if (mine.kind, mine.text, mine.tool, mine.arguments) != (copy.kind, copy.text, copy.tool, copy.arguments):
            break
        copied += 1
    del other.steps[:copied], other.ids[:copied]


class _Reader:
    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.nickname = ""
        self.spawned: dict[str, str] = {}  # the threads of sub-agents, by the call that started them
        # The same turn comes as an item and as an event, in either order.
        self.unmatched = {"item": Counter[tuple[str, str]](), "event": Counter[tuple[str, str]]()}

    def row(self, row: dict[str, Any]) -> None:
        builder = self.builder
        kind, payload, at = row.get("type"), get_dict(row, "payload"), get_str(row, "timestamp")
        if kind == "session_meta":
            self.meta(payload, at)
        elif kind == "turn_context":
            builder.model = get_str(payload, "model") or builder.model
            builder.cwd = builder.cwd or get_str(payload, "cwd")
        elif kind == "response_item":
            self.item(payload, at)
        elif kind == "event_msg":
            self.event(payload, at)
        elif kind == "compacted":
            builder.add_text("system", get_str(payload, "message"), at=at)
        elif kind in STREAM or kind == "error":
            self.stream(row)
        elif "msg" in row:  # `codex exec --json` of 2025
            self.event(dict_or_empty(row["msg"]), at)
        elif isinstance(kind, str):  # sessions of 2025: items without a wrapping
            self.item(row, at)

    def meta(self, payload: dict[str, Any], at: str) -> None:
        builder = self.builder
        if not builder.session:  # that of the session it was forked from may follow
            spawned = _spawned(payload)
            self.nickname = get_str(spawned, "agent_nickname") or get_str(spawned, "agent_role")
        builder.session = builder.session or get_str(payload, "id")
        builder.cwd = builder.cwd or get_str(payload, "cwd")
        builder.started = builder.started or get_str(payload, "timestamp") or at

    def item(self, payload: dict[str, Any], at: str) -> None:
        kind = get_str(payload, "type")
        if kind == "message" or (not kind and "role" in payload):
            role, text = get_str(payload, "role"), content_text(payload.get("content"))
            if role == "user" and text.lstrip().startswith(PROGRAM_PREFIXES):
                self.builder.add_text("system", text, at=at)
            elif role in ("user", "assistant"):
                self.turn("item", role, text, at)
            else:
                self.builder.add_text("system", text, at=at)
        elif kind == "reasoning":
            parts = [content_text(payload.get("summary")), content_text(payload.get("content"))]
            self.turn("item", "thinking", "\n".join(filter(None, parts)), at)
        elif kind.endswith("_output"):
            self.output(get_str(payload, "call_id"), payload.get("output"), at)
        elif kind.endswith("_call"):
            self.call(kind, payload, at)

    def turn(self, source: str, role: str, text: str, at: str) -> None:
        other = self.unmatched["event" if source == "item" else "item"]
        if other[role, text] > 0:
            other[role, text] -= 1
            return
        self.unmatched[source][role, text] += 1
        if role == "thinking":
            self.builder.add_text("thinking", text, at=at)
        else:
            self.builder.add_text("user" if role == "user" else "assistant", text, at=at)

    def call(self, kind: str, payload: dict[str, Any], at: str) -> None:
        call_id = get_str(payload, "call_id") or get_str(payload, "id")
        if self.builder.has_call(call_id):  # an event came first
            return
        tool = get_str(payload, "name") or kind.removesuffix("_call")
        arguments: object = payload.get("arguments", payload.get("input", payload.get("action")))
        self.builder.add_call(call_id, tool, arguments, at=at)
        if kind == "web_search_call" or (kind == "local_shell_call" and not payload.get("call_id")):
            self.builder.add_result(call_id, "", "ok" if payload.get("status") == "completed" else "unknown")

    def output(self, call_id: str, output: object, at: str) -> None:
        text, status, seconds = _unwrap_output(output)
        thread = get_str(parse_arguments(text), "agent_id") if text.startswith("{") else ""
        if thread and self.builder.has_call(call_id):
            self.spawned.setdefault(call_id, thread)
        self.builder.add_result(call_id, text, status, at=at, seconds=seconds)

    def event(self, payload: dict[str, Any], at: str) -> None:
        kind, builder = get_str(payload, "type"), self.builder
        if kind in ("user_message", "agent_message"):
            self.turn("event", "user" if kind == "user_message" else "assistant", get_str(payload, "message"), at)
        elif kind == "agent_reasoning":
            self.turn("event", "thinking", get_str(payload, "text"), at)
        elif kind == "token_count":
            total = get_dict(get_dict(payload, "info"), "total_token_usage") or payload
            if "input_tokens" in total:
                builder.usage = _usage(total)
        elif kind == "session_configured":
            builder.model = get_str(payload, "model") or builder.model
            builder.session = builder.session or get_str(payload, "session_id")
        elif kind in ("exec_command_begin", "mcp_tool_call_begin", "patch_apply_begin"):
            self.begin(kind, payload, at)
        elif kind in ("exec_command_end", "mcp_tool_call_end", "patch_apply_end"):
            self.end(payload, at)
        elif kind == "collab_agent_spawn_end":
            self.spawned[get_str(payload, "call_id")] = get_str(payload, "new_thread_id")
        elif kind == "item_completed":
            self.completed(get_dict(payload, "item"))
        elif kind in ("turn_aborted", "error", "stream_error"):
            message = get_str(payload, "message") or get_str(payload, "reason")
            builder.add_text("system", f"{kind.replace('_', ' ')}: {message}", at=at)

    def begin(self, kind: str, payload: dict[str, Any], at: str) -> None:
        call_id = get_str(payload, "call_id")
        if self.builder.has_call(call_id):
            return
        invocation = get_dict(payload, "invocation")
        tool = get_str(invocation, "tool") or ("apply_patch" if kind.startswith("patch") else "shell")
        arguments = {key: payload[key] for key in ("command", "cwd", "changes") if key in payload}
        self.builder.add_call(call_id, tool, invocation.get("arguments") if invocation else arguments, at=at)

    def end(self, payload: dict[str, Any], at: str) -> None:
        call_id = get_str(payload, "call_id")
        status = status_of(payload.get("exit_code", payload.get("success")))
        streams = [get_str(payload, "stdout"), get_str(payload, "stderr")]
        output = get_str(payload, "aggregated_output") or "\n".join(filter(None, streams))
        if "result" in payload:
            output = content_text(payload["result"])
        if not self.builder.has_call(call_id):
            self.builder.add_call(call_id, "shell", {}, at=at)
        # The output that the model saw may still follow.
        self.builder.extend_call(call_id, output=output, status=status if status != "unknown" else None)

    def completed(self, item: dict[str, Any]) -> None:
        """What the program itself recorded of a call: the whole output, and how the command ended."""
        call_id = get_str(item, "id")
        status = STATUSES.get(get_str(item, "status"))
        duration = get_dict(item, "duration")
        seconds = get_count(duration, "secs") + get_count(duration, "nanos") / 1e9 if duration else None
        self.builder.extend_call(
            call_id, status=status, output=get_str(item, "aggregated_output") or None, seconds=seconds
        )

    def stream(self, row: dict[str, Any]) -> None:
        builder, kind = self.builder, row.get("type")
        if kind == "thread.started":
            builder.session = get_str(row, "thread_id")
        elif kind == "turn.completed":
            builder.usage = _usage(get_dict(row, "usage"))  # of the whole thread so far
            builder.stop = "end"
        elif kind == "error":
            builder.add_text("system", f"error: {get_str(row, 'message')}")
        elif kind in ("item.started", "item.completed"):
            self.streamed(get_dict(row, "item"), done=kind == "item.completed")

    def streamed(self, item: dict[str, Any], *, done: bool) -> None:
        builder, call_id, kind = self.builder, get_str(item, "id"), get_str(item, "type")
        if kind in ("agent_message", "reasoning", "user_message", "error"):
            text = get_str(item, "text") or get_str(item, "message")
            if done and kind == "error":
                builder.add_text("system", f"error: {text}")
            elif done:
                builder.add_text(STREAM_KINDS[kind], text)
            return
        outcome = ("aggregated_output", "exit_code", "status", "result", "error")
        if not builder.has_call(call_id):
            tool = get_str(item, "tool") or kind
            arguments = {key: value for key, value in item.items() if key not in (*outcome, "id", "type", "tool")}
            builder.add_call(call_id, tool, parse_arguments(item["arguments"]) if "arguments" in item else arguments)
        if done:
            status: Status = "error" if item.get("status") in ("failed", "declined") or item.get("error") else "ok"
            output = get_str(item, "aggregated_output") or content_text(item.get("result") or item.get("error"))
            builder.add_result(call_id, output, status)


def _unwrap_output(output: object) -> tuple[str, Status, float | None]:
    """A tool's output without what Codex wraps around it, and the status and seconds found there."""
    data = as_mapping(output)
    if data is None and isinstance(output, str) and output.startswith('{"output"'):
        data = parse_object(output)
    if data is not None and ("output" in data or "content" in data):
        metadata = get_dict(data, "metadata")
        status = status_of(metadata.get("exit_code", data.get("success")))
        return content_text(data.get("output", data.get("content"))), status, get_float(metadata, "duration_seconds")
    text = content_text(list_or_empty(output) or output)
    envelope = _ENVELOPE.match(text)
    if envelope is None:
        refused = text.startswith(
            ("unsupported ", "failed to parse ", "exec_command failed", "apply_patch verification")
        )
        return text, "error" if refused else "unknown", None
    wall = _WALL.search(envelope[0])
    return text[envelope.end() :], exit_status(envelope[0]), float(wall[1]) if wall else None


def _usage(data: dict[str, Any]) -> Usage:
    return read_usage(data, "input_tokens", "output_tokens", "cached_input_tokens", "reasoning_output_tokens")


FORMAT = Format("Codex session", read, detects, is_main=is_main)
