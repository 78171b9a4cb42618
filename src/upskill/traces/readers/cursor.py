"""Cursor: the transcripts below `~/.cursor/projects`, its databases (`state.vscdb`, and `store.db` below
`~/.cursor/chats`), and `cursor-agent --output-format stream-json`.
"""

from __future__ import annotations

import re

from upskill.plain import as_list
from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.readers.cursor_store import EMPTY, is_store, list_conversations, store_rows
from upskill.traces.values import Row, as_row, content_text, iso_time, read_usage, status_of

_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.S)
_TOOL = "ToolCall"


def detects(sample: Sample) -> bool:
    return is_store(sample) or any(
        ("role" in row and "content" in row.child("message") and "type" not in row)
        or (row.get("type") == "tool_call" and isinstance(row.get("tool_call"), dict))
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    builder.session = builder.path.stem
    stored = is_store(Sample.open(builder.path))
    for row in builder.watch(store_rows(builder) if stored else builder.read_lines()):
        builder.at = row.text("timestamp") or iso_time(row.get("timestamp_ms"))
        kind, message = row.text("type"), row.child("message")
        role = row.text("role") or message.text("role")
        if kind == "tool_call":
            _read_call(builder, row)
        elif kind == "thinking":
            builder.add_text("thinking", row.text("text"))
        elif kind == "result":
            builder.stop = row.text("subtype")
            sent = "inputTokens cacheWriteTokens cacheReadTokens"
            builder.usage = read_usage(row.child("usage"), sent, "outputTokens", "cacheReadTokens")
        elif kind == "system":
            builder.model = row.text("model")
            builder.cwd = row.text("cwd")
            builder.session = row.text("session_id") or builder.session
        elif role:
            content = message.get("content", row.get("content"))
            if role == "user":
                role = (
                    "system" if content_text(content).lstrip().startswith("<user_info>") else role
                )
                content = _strip_tags(content)
            builder.add_content(role, content, status="unknown")


def _strip_tags(content: object) -> object:
    """The person's words without the tags that Cursor puts around them; what stands beside the tags is kept."""
    if isinstance(content, str):
        return _QUERY.sub(r"\1", content)
    if (blocks := as_list(content)) is None:
        return content
    return [
        block | {"text": _strip_tags(block["text"])}
        if isinstance((block := as_row(item)).get("text"), str)
        else item
        for item in blocks
    ]


def _read_call(builder: TraceBuilder, row: Row) -> None:
    tool_call = row.child("tool_call")
    call_id = row.text("call_id") or tool_call.text("toolCallId")
    name = next(
        (key for key in tool_call if key.endswith(_TOOL)),
        "function" if "function" in tool_call else "",
    )
    call = tool_call.child(name)
    tool = call.text("name") if name == "function" else name.removesuffix(_TOOL)
    if not builder.has_call(call_id):
        if row.get("subtype") not in ("started", "completed"):
            return
        builder.add_call(call_id, tool, call.get("args", call.get("arguments")))
    builder.use()
    if row.get("subtype") != "completed":
        return
    result = call.get("result")
    outcomes = as_row(result)
    status: Status = "unknown"
    for name in ("success", "error", "failure", "rejected"):
        if name in outcomes:
            status = "ok" if name == "success" else "error"
            result = outcomes[name]
            break
    exit_code = as_row(result).get("exitCode")
    if isinstance(exit_code, int):
        status = status_of(exit_code)
    builder.add_result(call_id, _output(result), status)


def _output(result: object) -> str:
    fields = as_row(result)
    streams = [fields.text(name) for name in ("stdout", "stderr", "interleavedOutput")]
    if any(streams):
        return "\n".join(dict.fromkeys(filter(None, streams)))
    for name in ("content", "errorMessage", "message", "diffString"):
        if isinstance(fields.get(name), str):
            return fields[name]
    return content_text(result)


FORMAT = Format("cursor", "Cursor conversation", read, detects, list_conversations, noise=(EMPTY,))
