"""Pi: the sessions below `~/.pi/agent/sessions`, and `pi --mode json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty
from upskill.traces import Trace, Usage
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_dicts, get_float, get_list, get_str, read_usage, status_of

OWN_ROLES = ("toolResult", "bashExecution")


def detects(sample: Sample) -> bool:
    return any(
        (row.get("type") == "session" and "cwd" in row and "id" in row)
        or (row.get("type") in ("message", "message_end") and _is_own(get_dict(row, "message")))
        for row in sample.rows
    )


def _is_own(message: dict[str, Any]) -> bool:
    return message.get("role") in OWN_ROLES or any(
        block.get("type") == "toolCall" for block in get_dicts(message, "content")
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "pi")
    builder.usage = Usage(cost_usd=0.0)
    for row in builder.read_branch("id", "parentId"):
        kind, at = row.get("type"), get_str(row, "timestamp")
        if kind == "session":
            builder.session, builder.cwd, builder.started = get_str(row, "id"), get_str(row, "cwd"), at
            builder.model = get_str(row, "modelId") or builder.model
        elif kind == "model_change":
            builder.model = get_str(row, "modelId") or builder.model
        elif kind in ("message", "message_end"):
            _read_message(builder, get_dict(row, "message"), at)
        elif kind in ("compaction", "branch_summary"):
            builder.add_text("system", get_str(row, "summary"), at=at)
        elif kind == "custom_message":
            builder.add_text("system", content_text(row.get("content")), at=at)
    return builder.build()


def _read_message(builder: TraceBuilder, message: dict[str, Any], at: str) -> None:
    role, content = get_str(message, "role"), message.get("content")
    if role == "toolResult":
        failed = message.get("isError")
        status = status_of(not failed if isinstance(failed, bool) else None)
        call, tool = get_str(message, "toolCallId"), get_str(message, "toolName")
        builder.add_result(call, content_text(content), status, tool=tool, at=at)
    elif role == "bashExecution":  # typed by the person, after "!"
        call = f"typed {len(builder.steps)}"
        builder.add_call(call, "bash", {"command": get_str(message, "command")}, at=at)
        builder.add_result(call, get_str(message, "output"), status_of(message.get("exitCode")))
    elif role == "assistant":
        for item in get_list(message, "content"):
            block = dict_or_empty(item)
            if block.get("type") == "toolCall":
                builder.add_call(get_str(block, "id"), get_str(block, "name"), block.get("arguments"), at=at)
            else:
                builder.add_content("assistant", [item], at=at)
        if failed := get_str(message, "errorMessage"):
            builder.add_text("system", f"error: {failed}", at=at)
        builder.model = get_str(message, "model") or builder.model
        builder.stop = get_str(message, "stopReason") or builder.stop
        used = get_dict(message, "usage")
        cost = get_float(get_dict(used, "cost"), "total")
        builder.usage += read_usage(used, "input cacheWrite cacheRead", "output", "cacheRead", cost=cost)
    elif role == "user":
        builder.add_content("user", content, at=at)
    else:  # of an extension, or a summary
        builder.add_text("system", get_str(message, "summary") or content_text(content), at=at)


FORMAT = Format("Pi session", read, detects)
