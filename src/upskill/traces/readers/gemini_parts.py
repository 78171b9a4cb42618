"""The `parts` in which Gemini's API writes a message; programs made from Gemini CLI keep them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upskill.plain import dict_or_empty
from upskill.traces import Status, StepKind, Usage
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_list, get_str, read_usage

STATUSES: dict[str, Status] = {"success": "ok", "error": "error", "cancelled": "error"}


def has_parts(message: Mapping[str, Any]) -> bool:
    """Whether it is a message of that kind."""
    parts = message.get("parts")
    return isinstance(parts, list) and isinstance(message.get("role", ""), str) and "content" not in message


def add_parts(
    builder: TraceBuilder, message: Mapping[str, Any], *, kind: StepKind, at: str = "", status: Status = "unknown"
) -> None:
    """Add a message. `status` is that of the results in it which do not say whether they are errors."""
    for item in get_list(message, "parts"):
        part = dict_or_empty(item)
        call, back = _get(part, "functionCall"), _get(part, "functionResponse")
        code, ran = _get(part, "executableCode"), _get(part, "codeExecutionResult")
        if isinstance(item, str):
            builder.add_text(kind, item, at=at)
        elif call:
            builder.add_call(_id_of(call), get_str(call, "name"), call.get("args"), at=at)
        elif back:
            output, failed = response_output(back.get("response"))
            known: Status = "error" if failed else status
            builder.add_result(_id_of(back), output, known, tool=get_str(back, "name"), at=at)
        elif code:
            builder.add_call("code", "code_execution", {"code": get_str(code, "code")}, at=at)
        elif ran:
            done = get_str(ran, "outcome").upper().endswith("OK")
            builder.add_result("code", get_str(ran, "output"), "ok" if done else "error", at=at)
        elif isinstance(part.get("text"), str):
            builder.add_text("thinking" if part.get("thought") is True else kind, part["text"], at=at)
        elif file := _get(part, "inlineData") or _get(part, "fileData"):
            builder.add_text(kind, f"[{get_str(file, 'mimeType') or get_str(file, 'mime_type') or 'file'}]", at=at)


def response_output(response: object) -> tuple[str, bool]:
    """What a function gave back, and whether that is an error."""
    fields = dict_or_empty(response)
    if fields.get("error") and not fields.get("output"):
        return content_text(fields["error"]), True
    for name in ("output", "result", "content"):
        if fields.get(name) is not None:
            return content_text(fields[name]), False
    return content_text(response), False


def parts_usage(metadata: Mapping[str, Any]) -> Usage:
    received = "candidatesTokenCount thoughtsTokenCount"
    return read_usage(metadata, "promptTokenCount", received, "cachedContentTokenCount", "thoughtsTokenCount")


def _get(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that Python's client writes in its own way: functionCall, function_call."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return get_dict(part, name) or get_dict(part, snake)


def _id_of(call: Mapping[str, Any]) -> str:
    return get_str(call, "id") or f"function {get_str(call, 'name')}"
