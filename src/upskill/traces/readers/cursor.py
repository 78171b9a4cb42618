"""Cursor: the transcripts below `~/.cursor/projects`, and `cursor-agent --output-format stream-json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from upskill.plain import as_list, dict_or_empty
from upskill.traces import Status, Trace
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_str, iso_time, read_usage, status_of

_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.S)
_TOOL = "ToolCall"


def detects(sample: Sample) -> bool:
    return any(
        ("role" in row and "content" in get_dict(row, "message") and "type" not in row)
        or (row.get("type") == "tool_call" and isinstance(row.get("tool_call"), dict))
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "cursor")
    builder.session = path.stem
    for row in builder.read_lines():
        at = get_str(row, "timestamp") or iso_time(row.get("timestamp_ms"))
        kind, message = get_str(row, "type"), get_dict(row, "message")
        role = get_str(row, "role") or get_str(message, "role")
        if kind == "tool_call":
            _read_call(builder, row, at)
        elif kind == "thinking":
            builder.add_text("thinking", get_str(row, "text"), at=at)
        elif kind == "result":
            builder.stop = get_str(row, "subtype")
            sent = "inputTokens cacheWriteTokens cacheReadTokens"
            builder.usage = read_usage(get_dict(row, "usage"), sent, "outputTokens", "cacheReadTokens")
        elif kind == "system":
            builder.model = get_str(row, "model")
            builder.cwd = get_str(row, "cwd")
            builder.session = get_str(row, "session_id") or builder.session
        elif role:
            content = message.get("content", row.get("content"))
            builder.add_content(role, _strip_tags(content) if role == "user" else content, at=at, status="unknown")
    return builder.build()


def _strip_tags(content: object) -> object:
    """The person's words without the tags that Cursor puts around them; what stands beside the tags is kept."""
    if isinstance(content, str):
        return _QUERY.sub(r"\1", content)
    if (blocks := as_list(content)) is None:
        return content
    return [
        block | {"text": _strip_tags(block["text"])}
        if isinstance((block := dict_or_empty(item)).get("text"), str)
        else item
        for item in blocks
    ]


def _read_call(builder: TraceBuilder, row: dict[str, Any], at: str) -> None:
    tool_call = get_dict(row, "tool_call")
    call_id = get_str(row, "call_id") or get_str(tool_call, "toolCallId")
    name = next((key for key in tool_call if key.endswith(_TOOL)), "function" if "function" in tool_call else "")
    call = get_dict(tool_call, name)
    tool = name.removesuffix(_TOOL)
    if name == "function":
        tool = get_str(call, "name")
    if not builder.has_call(call_id) or not call_id:
        if row.get("subtype") not in ("started", "completed"):
            return
        builder.add_call(call_id, tool, call.get("args", call.get("arguments")), at=at)
    if row.get("subtype") != "completed":
        return
    result = call.get("result")
    outcomes = dict_or_empty(result)
    status: Status = "unknown"
    for name in ("success", "error", "failure", "rejected"):
        if name in outcomes:
            status = "ok" if name == "success" else "error"
            result = outcomes[name]
            break
    exit_code = dict_or_empty(result).get("exitCode")
    if isinstance(exit_code, int):
        status = status_of(exit_code)
    builder.add_result(call_id, _output(result), status, at=at)


def _output(result: object) -> str:
    fields = dict_or_empty(result)
    streams = [get_str(fields, name) for name in ("stdout", "stderr", "interleavedOutput") if get_str(fields, name)]
    if streams:
        return "\n".join(dict.fromkeys(streams))
    for name in ("content", "errorMessage", "message", "diffString"):
        if isinstance(fields.get(name), str):
            return fields[name]
    return content_text(result)


FORMAT = Format("Cursor transcript", read, detects)
