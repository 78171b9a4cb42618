"""Cursor: the transcripts below `~/.cursor/projects`, and `cursor-agent --output-format stream-json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping
from upskill.traces import Status, Trace, Usage
from upskill.traces.reading import Format, Recording, Sample, count, from_epoch, mapping, text_of, word

_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.S)
_TOOL = "ToolCall"


def detects(sample: Sample) -> bool:
    return any(
        ("role" in row and "content" in mapping(row.get("message")) and "type" not in row)
        or (row.get("type") == "tool_call" and isinstance(row.get("tool_call"), dict))
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    recording = Recording(path, "cursor")
    recording.session = path.stem
    for row in recording.rows():
        at = word(row.get("timestamp")) or from_epoch(row.get("timestamp_ms"))
        kind, message = word(row.get("type")), mapping(row.get("message"))
        role = word(row.get("role")) or word(message.get("role"))
        if kind == "tool_call":
            _read_call(recording, row, at)
        elif kind == "thinking":
            recording.say("thinking", word(row.get("text")), at=at)
        elif kind == "result":
            recording.stop = word(row.get("subtype"))
            used = mapping(row.get("usage"))
            cached = count(used.get("cacheReadTokens"))
            fresh = count(used.get("inputTokens")) + count(used.get("cacheWriteTokens"))
            recording.usage = Usage(fresh + cached, count(used.get("outputTokens")), cached)
        elif kind == "system":
            recording.model = word(row.get("model"))
            recording.cwd = word(row.get("cwd"))
            recording.session = word(row.get("session_id")) or recording.session
        elif role:
            content = message.get("content", row.get("content"))
            recording.content(role, _asked(content) if role == "user" else content, at=at, status="unknown")
    return recording.trace()


def _asked(content: object) -> object:
    """The person's words without the tags that Cursor puts around them; what stands beside the tags is kept."""
    if isinstance(content, str):
        return _QUERY.sub(lambda found: found[1], content)
    blocks = as_list(content)
    if blocks is None:
        return content
    asked: list[Any] = []
    for item in blocks:
        block = as_mapping(item)
        if block is not None and isinstance(block.get("text"), str):
            asked.append(block | {"text": _asked(block["text"])})
        else:
            asked.append(item)
    return asked


def _read_call(recording: Recording, row: dict[str, Any], at: str) -> None:
    told = mapping(row.get("tool_call"))
    id = word(row.get("call_id")) or word(told.get("toolCallId"))  # noqa: A001
    name = next((key for key in told if key.endswith(_TOOL)), "function" if "function" in told else "")
    call = mapping(told.get(name))
    tool = name.removesuffix(_TOOL)
    if name == "function":
        tool = word(call.get("name"))
    if not recording.known(id) or not id:
        if row.get("subtype") == "completed" or row.get("subtype") == "started":
            recording.call(id, tool, call.get("args", call.get("arguments")), at=at)
        else:
            return
    if row.get("subtype") != "completed":
        return
    result = call.get("result")
    outcome = mapping(result)
    status: Status = "unknown"
    for word_for, means in (("success", "ok"), ("error", "error"), ("failure", "error"), ("rejected", "error")):
        if word_for in outcome:
            status = "ok" if means == "ok" else "error"
            result = outcome[word_for]
            break
    ended = mapping(result)
    if isinstance(ended.get("exitCode"), int):
        status = "ok" if ended["exitCode"] == 0 else "error"
    recording.result(id, _output(result), status, at=at)


def _output(result: object) -> str:
    said = as_mapping(result)
    if said is None:
        return text_of(result)
    streams = [word(said.get(name)) for name in ("stdout", "stderr", "interleavedOutput") if word(said.get(name))]
    if streams:
        return "\n".join(dict.fromkeys(streams))
    for name in ("content", "errorMessage", "message", "diffString"):
        if isinstance(said.get(name), str):
            return said[name]
    return text_of(result)


FORMAT = Format("Cursor transcript", read, detects)
