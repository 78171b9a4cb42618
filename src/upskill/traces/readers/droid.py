"""Factory's Droid: the sessions below `~/.factory/sessions`, and `droid exec --output-format stream-json`."""

from __future__ import annotations

import re

from upskill.traces import Usage
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import (
    Row,
    anthropic_usage,
    as_row,
    content_text,
    iso_time,
    read_usage,
    status_of,
)

NOISE = ("todo_state", "session_end", "agent_turn_outcome", "hook")
_EXIT = re.compile(
    r"\AError: Command failed \(exit code: (-?\d+)\)|\[Process exited with code (-?\d+)\]\s*\Z"
)
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>\s*|\Z)", re.S)


def detects(sample: Sample) -> bool:
    return any(
        (
            row.get("type") == "session_start"
            and "cwd" in row
            and not {"title", "owner", "sessionTitle"}.isdisjoint(row)
        )
        or (row.get("type") == "completion" and "finalText" in row)
        or (row.get("type") == "tool_call" and "toolName" in row and "parameters" in row)
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    settings = builder.read_beside(f"{builder.path.stem}.settings.json")
    builder.model = settings.text("model")
    sent = "inputTokens cacheCreationTokens cacheReadTokens"
    used = read_usage(
        settings.child("tokenUsage"), sent, "outputTokens", "cacheReadTokens", "thinkingTokens"
    )
    builder.usage = used if used.total_tokens else Usage()
    for row in builder.watch(builder.read_lines()):
        builder.at = row.text("timestamp") or iso_time(row.get("timestamp"))
        _read_row(builder, row)


def _read_row(builder: TraceBuilder, row: Row) -> None:
    kind, message = row.text("type"), row.child("message")
    if kind in ("session_start", "system"):
        builder.session = row.text("session_id", "sessionId", "id") or builder.session
        builder.cwd, builder.model = (
            row.text("cwd") or builder.cwd,
            row.text("model") or builder.model,
        )
        builder.use()
    elif kind == "message" and "hookEventName" in message:
        _read_hook(builder, message)
    elif kind == "message" and message:
        builder.model = message.text("modelId", "model") or builder.model
        for block in message.array("content") or [message.get("content")]:
            _read_block(builder, message, as_row(block) or Row(type="text", text=block))
    elif kind == "message":  # the others are of a stream
        _read_block(builder, row, Row(type="text", text=row.text("text")))
    elif kind == "reasoning":
        builder.add_text("thinking", row.text("text"))
    elif kind == "tool_call":
        builder.add_call(row.text("id"), row.text("toolName"), row.get("parameters"))
    elif kind == "tool_result":
        _add_result(builder, row.text("id"), row.get("value"), row.get("isError"))
    elif kind == "compaction_state":
        builder.add_text("system", row.text("summaryText"))
    elif kind == "error":
        builder.add_text("system", f"error: {row.text('message')}")
    elif kind == "completion":
        builder.usage = anthropic_usage(row.child("usage"))
        if not any(
            step.text == row.text("finalText") for step in builder.steps
        ):  # the last message, mostly
            builder.add_text("assistant", row.text("finalText"))
        builder.use()


def _read_hook(builder: TraceBuilder, message: Row) -> None:
    for result in message.children("hookResults"):
        builder.add_text(
            "system", "\n".join(filter(None, (result.text("stdout"), result.text("stderr"))))
        )
    builder.leave_out("hook")


def _read_block(builder: TraceBuilder, message: Row, block: Row) -> None:
    if block.get("type") == "tool_result":
        _add_result(builder, block.text("tool_use_id"), block.get("content"), block.get("is_error"))
    elif message.get("role") == "user" and block.get("type") == "text":
        text = block.text("text")
        by_program = message.get("visibility") == "llm_only"
        builder.add_text("system", text if by_program else "".join(_REMINDER.findall(text)))
        builder.add_text("user", "" if by_program else _REMINDER.sub("", text))
    else:
        builder.add_content(message.text("role"), [block])


def _add_result(builder: TraceBuilder, call_id: str, result: object, failed: object) -> None:
    output = content_text(result)
    code = _EXIT.search(output)
    known = not failed if isinstance(failed, bool) else None
    builder.add_result(call_id, output, status_of(int(code[1] or code[2]) if code else known))


FORMAT = Format("droid", "Factory Droid session", read, detects, noise=NOISE)
