"""Qwen Code: the chats below `~/.qwen/projects`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty
from upskill.traces import StepKind, Trace
from upskill.traces.formats import Format, Sample
from upskill.traces.readers.gemini_parts import STATUSES, add_parts, parts_usage
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_dicts, get_list, get_str

TYPES = ("user", "assistant", "tool_result", "system")
PROGRAM_PREFIX = "<qwen:"  # what hooks put beside the person's words


def detects(sample: Sample) -> bool:
    return any(
        row.get("type") in TYPES
        and "sessionId" in row
        and ("parts" in get_dict(row, "message") or "systemPayload" in row)
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "qwen-code")
    for row in builder.read_branch("uuid", "parentUuid"):
        _read_row(builder, row)
    return builder.build()


def _read_row(builder: TraceBuilder, row: dict[str, Any]) -> None:
    builder.session = builder.session or get_str(row, "sessionId")
    builder.cwd = get_str(row, "cwd") or builder.cwd
    builder.model = get_str(row, "model") or builder.model
    kind, at, message = row.get("type"), get_str(row, "timestamp"), get_dict(row, "message")
    builder.usage = builder.usage + parts_usage(get_dict(row, "usageMetadata"))
    if kind == "assistant":
        add_parts(builder, message, kind="assistant", at=at)
    elif kind == "tool_result":
        ended = get_dict(row, "toolCallResult")
        status = STATUSES.get(get_str(ended, "status"), "unknown")
        add_parts(builder, message, kind="user", at=at, status=status)
        if not any("functionResponse" in part for part in get_dicts(message, "parts")):
            builder.add_result(get_str(ended, "callId"), content_text(ended.get("resultDisplay")), status, at=at)
    elif kind == "user":
        for part in get_list(message, "parts"):
            by_program = get_str(dict_or_empty(part), "text").lstrip().startswith(PROGRAM_PREFIX)
            speaker: StepKind = "system" if by_program or row.get("subtype") == "notification" else "user"
            add_parts(builder, {"parts": [part]}, kind=speaker, at=at)


FORMAT = Format("Qwen Code session", read, detects)
