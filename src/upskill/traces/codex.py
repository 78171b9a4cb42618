"""Codex: the sessions below `~/.codex/sessions`, and `codex exec --json`."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping
from upskill.traces import Status, StepKind, Trace, Usage
from upskill.traces.reading import (
    Format,
    Recording,
    Sample,
    amount,
    arguments_of,
    count,
    exit_status,
    items,
    mapping,
    text_of,
    word,
)

ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
STREAM = ("thread.started", "turn.started", "item.started", "item.completed", "turn.completed")
# Written by the program into the person's turn.
NOT_SAID = (
    *("<environment_context>", "<user_instructions>", "<turn_aborted>", "<permissions", "<collaboration_mode>"),
    *("<skill>", "<skills_instructions>", "<subagent_notification>", "# AGENTS.md instructions"),
)
SAID: dict[str, StepKind] = {"agent_message": "assistant", "reasoning": "thinking", "user_message": "user"}
ENDED: dict[str, Status] = {"completed": "ok", "failed": "error", "declined": "error"}
# "Chunk ID: 9e5f71\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n" and its older forms.
_ENVELOPE = re.compile(r"\A(?=Chunk ID: |Exit code: |Wall time: )(?:[A-Z][\w ]*: [^\n]*\n|Process [^\n]*\n)+?Output:\n")
_WALL = re.compile(r"^Wall time: ([\d.]+) seconds?$", re.M)


def detects(sample: Sample) -> bool:
    return any(
        (row.get("type") in ROLLOUT and "payload" in row)
        or row.get("type") in STREAM
        or (row.get("record_type") == "state")
        or ("msg" in row and "id" in row and isinstance(mapping(row["msg"]).get("type"), str))
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    recording = Recording(path, "codex")
    reader = _Reader(recording)
    for row in recording.rows():
        kind, payload, at = row.get("type"), mapping(row.get("payload")), word(row.get("timestamp"))
        if kind == "session_meta":
            reader.meta(payload, at)
        elif kind == "turn_context":
            recording.model = word(payload.get("model")) or recording.model
            recording.cwd = recording.cwd or word(payload.get("cwd"))
        elif kind == "response_item":
            reader.item(payload, at)
        elif kind == "event_msg":
            reader.event(payload, at)
        elif kind == "compacted":
            recording.say("system", word(payload.get("message")), at=at)
        elif kind in STREAM or kind == "error":
            reader.stream(row)
        elif "msg" in row:  # `codex exec --json` of 2025
            reader.event(mapping(row["msg"]), at)
    return recording.trace()


class _Reader:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        # The same turn is told by an item and by an event, in either order.
        self.said = {"item": Counter[tuple[str, str]](), "event": Counter[tuple[str, str]]()}

    def meta(self, payload: dict[str, Any], at: str) -> None:
        recording = self.recording
        recording.session = recording.session or word(payload.get("id"))
        recording.cwd = recording.cwd or word(payload.get("cwd"))
        recording.started = recording.started or word(payload.get("timestamp")) or at

    def item(self, payload: dict[str, Any], at: str) -> None:
        kind = word(payload.get("type"))
        if kind == "message":
            role, text = word(payload.get("role")), text_of(payload.get("content"))
            if role == "user" and text.lstrip().startswith(NOT_SAID):
                self.recording.say("system", text, at=at)
            elif role in ("user", "assistant"):
                self.turn("item", role, text, at)
            else:
                self.recording.say("system", text, at=at)
        elif kind == "reasoning":
            parts = [text_of(payload.get("summary")), text_of(payload.get("content"))]
            self.turn("item", "thinking", "\n".join(filter(None, parts)), at)
        elif kind.endswith("_output"):
            self.output(word(payload.get("call_id")), payload.get("output"), at)
        elif kind.endswith("_call"):
            self.call(kind, payload, at)

    def turn(self, told_by: str, role: str, text: str, at: str) -> None:
        other = self.said["event" if told_by == "item" else "item"]
        if other[role, text] > 0:
            other[role, text] -= 1
            return
        self.said[told_by][role, text] += 1
        if role == "thinking":
            self.recording.say("thinking", text, at=at)
        else:
            self.recording.say("user" if role == "user" else "assistant", text, at=at)

    def call(self, kind: str, payload: dict[str, Any], at: str) -> None:
        id = word(payload.get("call_id")) or word(payload.get("id"))  # noqa: A001
        if self.recording.known(id):  # an event told of it first
            return
        tool = word(payload.get("name")) or kind.removesuffix("_call")
        given: object = payload.get("arguments", payload.get("input", payload.get("action")))
        self.recording.call(id, tool, given, at=at)
        if kind == "web_search_call" or (kind == "local_shell_call" and not payload.get("call_id")):
            self.recording.result(id, "", "ok" if payload.get("status") == "completed" else "unknown")

    def output(self, id: str, output: object, at: str) -> None:  # noqa: A002
        text, status, seconds = _unwrapped(output)
        self.recording.result(id, text, status, at=at, seconds=seconds)

    def event(self, payload: dict[str, Any], at: str) -> None:
        kind, recording = word(payload.get("type")), self.recording
        if kind in ("user_message", "agent_message"):
            self.turn("event", "user" if kind == "user_message" else "assistant", word(payload.get("message")), at)
        elif kind == "agent_reasoning":
            self.turn("event", "thinking", word(payload.get("text")), at)
        elif kind == "token_count":
            total = mapping(mapping(payload.get("info")).get("total_token_usage")) or payload
            if "input_tokens" in total:
                recording.usage = _usage(total)
        elif kind == "session_configured":
            recording.model = word(payload.get("model")) or recording.model
            recording.session = recording.session or word(payload.get("session_id"))
        elif kind in ("exec_command_begin", "mcp_tool_call_begin", "patch_apply_begin"):
            self.begin(kind, payload, at)
        elif kind in ("exec_command_end", "mcp_tool_call_end", "patch_apply_end"):
            self.end(payload, at)
        elif kind == "item_completed":
            self.completed(mapping(payload.get("item")))
        elif kind in ("turn_aborted", "error", "stream_error"):
            said = word(payload.get("message")) or word(payload.get("reason"))
            recording.say("system", f"{kind.replace('_', ' ')}: {said}", at=at)

    def begin(self, kind: str, payload: dict[str, Any], at: str) -> None:
        id = word(payload.get("call_id"))  # noqa: A001
        if self.recording.known(id):
            return
        invocation = mapping(payload.get("invocation"))
        tool = word(invocation.get("tool")) or ("apply_patch" if kind.startswith("patch") else "shell")
        keep = {key: payload[key] for key in ("command", "cwd", "changes") if key in payload}
        self.recording.call(id, tool, invocation.get("arguments") if invocation else keep, at=at)

    def end(self, payload: dict[str, Any], at: str) -> None:
        id = word(payload.get("call_id"))  # noqa: A001
        code, success = payload.get("exit_code"), payload.get("success")
        status: Status = "unknown"
        if isinstance(code, int):
            status = "ok" if code == 0 else "error"
        elif isinstance(success, bool):
            status = "ok" if success else "error"
        full = word(payload.get("aggregated_output")) or "\n".join(
            filter(None, [word(payload.get("stdout")), word(payload.get("stderr"))])
        )
        if "result" in payload:
            full = text_of(payload["result"])
        if not self.recording.known(id):
            self.recording.call(id, "shell", {}, at=at)
        # The output as the model saw it may still follow.
        self.recording.amend(id, output=full, status=status if status != "unknown" else None)

    def completed(self, item: dict[str, Any]) -> None:
        """What the program itself kept of a call: all of the output, and how the command ended."""
        id = word(item.get("id"))  # noqa: A001
        status = ENDED.get(word(item.get("status")))
        took = mapping(item.get("duration"))
        seconds = count(took.get("secs")) + count(took.get("nanos")) / 1e9 if took else None
        self.recording.amend(id, status=status, output=word(item.get("aggregated_output")) or None, seconds=seconds)

    def stream(self, row: dict[str, Any]) -> None:
        recording, kind = self.recording, row.get("type")
        if kind == "thread.started":
            recording.session = word(row.get("thread_id"))
        elif kind == "turn.completed":
            recording.usage = _usage(mapping(row.get("usage")))  # of the whole thread so far
            recording.stop = "end"
        elif kind == "error":
            recording.say("system", f"error: {word(row.get('message'))}")
        elif kind in ("item.started", "item.completed"):
            self.streamed(mapping(row.get("item")), done=kind == "item.completed")

    def streamed(self, item: dict[str, Any], *, done: bool) -> None:
        recording, id, kind = self.recording, word(item.get("id")), word(item.get("type"))  # noqa: A001
        if kind in ("agent_message", "reasoning", "user_message", "error"):
            text = word(item.get("text")) or word(item.get("message"))
            if done and kind == "error":
                recording.say("system", f"error: {text}")
            elif done:
                recording.say(SAID[kind], text)
            return
        outcome = ("aggregated_output", "exit_code", "status", "result", "error")
        if not recording.known(id):
            tool = word(item.get("tool")) or kind
            given = {key: value for key, value in item.items() if key not in (*outcome, "id", "type", "tool")}
            recording.call(id, tool, arguments_of(item["arguments"]) if "arguments" in item else given)
        if done:
            status: Status = "error" if item.get("status") in ("failed", "declined") or item.get("error") else "ok"
            output = word(item.get("aggregated_output")) or text_of(item.get("result") or item.get("error"))
            recording.result(id, output, status)


def _unwrapped(output: object) -> tuple[str, Status, float | None]:
    """A tool's output without what Codex wraps around it, and what the wrapping says."""
    said = as_mapping(output)
    if said is None and isinstance(output, str) and output.startswith('{"output"'):
        try:
            said = as_mapping(json.loads(output))
        except (ValueError, RecursionError):
            said = None
    if said is not None and ("output" in said or "content" in said):
        about, success = mapping(said.get("metadata")), said.get("success")
        status: Status = "unknown"
        if isinstance(about.get("exit_code"), int):
            status = "ok" if about["exit_code"] == 0 else "error"
        elif isinstance(success, bool):
            status = "ok" if success else "error"
        return text_of(said.get("output", said.get("content"))), status, amount(about.get("duration_seconds"))
    text = text_of(items(output) or output)
    envelope = _ENVELOPE.match(text)
    if envelope is None:
        refused = text.startswith(
            ("unsupported ", "failed to parse ", "exec_command failed", "apply_patch verification")
        )
        return text, "error" if refused else "unknown", None
    wall = _WALL.search(envelope[0])
    return text[envelope.end() :], exit_status(envelope[0]), float(wall[1]) if wall else None


def _usage(said: dict[str, Any]) -> Usage:
    return Usage(
        count(said.get("input_tokens")),
        count(said.get("output_tokens")),
        count(said.get("cached_input_tokens")),
        count(said.get("reasoning_output_tokens")),
    )


FORMAT = Format("Codex session", read, detects)
