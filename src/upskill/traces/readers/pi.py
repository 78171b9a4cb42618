"""Pi: the sessions below `~/.pi/agent/sessions`, and `pi --mode json`."""

from __future__ import annotations

from upskill.traces import Usage
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, content_text, read_usage, status_of

OWN_ROLES = ("toolResult", "bashExecution")


def detects(sample: Sample) -> bool:
    return any(
        (row.get("type") == "session" and "cwd" in row and "id" in row)
        or (
            row.get("type") in ("message", "message_end")
            and row.child("message").get("role") in OWN_ROLES
        )
        or any(
            block.get("type") == "toolCall" for block in row.child("message").children("content")
        )
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    builder.usage = Usage(cost_usd=0.0)
    for row in builder.watch(builder.read_branch("id", "parentId")):
        kind, builder.at = row.get("type"), row.text("timestamp")
        if kind == "session":
            builder.session, builder.cwd, builder.started = (
                row.text("id"),
                row.text("cwd"),
                builder.at,
            )
            builder.model = row.text("modelId") or builder.model
        elif kind == "model_change":
            builder.model = row.text("modelId") or builder.model
        elif kind in ("message", "message_end"):
            _read_message(builder, row.child("message"))
        elif kind in ("compaction", "branch_summary"):
            builder.add_text("system", row.text("summary"))
        elif kind == "custom_message":
            builder.add_text("system", content_text(row.get("content")))


def _read_message(builder: TraceBuilder, message: Row) -> None:
    role, content = message.text("role"), message.get("content")
    if role == "toolResult":
        failed = message.get("isError")
        status = status_of(not failed if isinstance(failed, bool) else None)
        call, tool = message.text("toolCallId"), message.text("toolName")
        builder.add_result(call, content_text(content), status, tool=tool)
    elif role == "bashExecution":  # typed by the person, after "!"
        command, status = {"command": message.text("command")}, status_of(message.get("exitCode"))
        builder.add_done("bash", command, message.text("output"), status)
    elif role == "assistant":
        for item in message.array("content"):
            block = as_row(item)
            if block.get("type") == "toolCall":
                builder.add_call(block.text("id"), block.text("name"), block.get("arguments"))
            else:
                builder.add_content("assistant", [item])
        if failed := message.text("errorMessage"):
            builder.add_text("system", f"error: {failed}")
        builder.model = message.text("model") or builder.model
        builder.stop = message.text("stopReason") or builder.stop
        used = message.child("usage")
        cost = used.child("cost").number("total")
        builder.usage += read_usage(
            used, "input cacheWrite cacheRead", "output", "cacheRead", cost=cost
        )
    elif role == "user":
        builder.add_content("user", content)
    else:  # of an extension, or a summary
        builder.add_text("system", message.text("summary") or content_text(content))


NOISE = ("thinking_level_change", "custom", "label", "session_info", "model_change")
FORMAT = Format("pi", "Pi session", read, detects, noise=NOISE)
