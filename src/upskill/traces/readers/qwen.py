"""Qwen Code: the chats below `~/.qwen/projects`."""

from __future__ import annotations

from upskill.traces import StepKind
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.readers.gemini_parts import STATUSES, add_parts, parts_usage
from upskill.traces.values import Row, as_row, content_text, kind_of

TYPES = ("user", "assistant", "tool_result", "system")
BY_PROGRAM = "<qwen:"  # what hooks put beside the person's words


def detects(sample: Sample) -> bool:
    rows = [row for row in sample.rows if row.get("type") in TYPES and "sessionId" in row]
    return any("parts" in row.child("message") or "systemPayload" in row for row in rows)


def read(builder: TraceBuilder) -> None:
    for row in builder.watch(builder.read_branch("uuid", "parentUuid")):
        _read_row(builder, row)


def _read_row(builder: TraceBuilder, row: Row) -> None:
    builder.session = builder.session or row.text("sessionId")
    builder.cwd = row.text("cwd") or builder.cwd
    builder.model = row.text("model") or builder.model
    kind, builder.at, message = row.get("type"), row.text("timestamp"), row.child("message")
    builder.usage += parts_usage(row.child("usageMetadata"))
    if kind == "assistant":
        add_parts(builder, "assistant", message)
    elif kind == "tool_result":
        ended = row.child("toolCallResult")
        status = STATUSES.get(ended.text("status"), "unknown")
        add_parts(builder, "user", message, status)
        if not any("functionResponse" in part for part in message.children("parts")):
            builder.add_result(
                ended.text("callId"), content_text(ended.get("resultDisplay")), status
            )
    elif kind == "user":
        for part in message.array("parts"):
            by_program = as_row(part).text("text").lstrip().startswith(BY_PROGRAM)
            speaker: StepKind = (
                "system" if by_program or row.get("subtype") == "notification" else "user"
            )
            add_parts(builder, speaker, Row(parts=[part]))
    elif kind != "system":
        builder.leave_out(kind_of(row))


FORMAT = Format("qwen-code", "Qwen Code session", read, detects, noise=("system",))
