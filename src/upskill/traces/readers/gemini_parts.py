"""The `parts` in which Gemini's API writes a message; programs made from Gemini CLI keep them as they are."""

from __future__ import annotations

from upskill.traces import Status, StepKind, Usage
from upskill.traces.formats import TraceBuilder
from upskill.traces.values import Row, as_row, content_text, read_usage

STATUSES: dict[str, Status] = {"success": "ok", "error": "error", "cancelled": "error"}


def has_parts(message: Row) -> bool:
    parts = message.get("parts")
    return (
        isinstance(parts, list)
        and isinstance(message.get("role", ""), str)
        and "content" not in message
    )


def add_parts(
    builder: TraceBuilder, kind: StepKind, message: Row, status: Status = "unknown"
) -> None:
    """Add a message. `status` is that of the results in it which do not say whether they are errors."""
    for item in builder.watch(message.array("parts")):
        part = as_row(item)
        # The second names are those of Python's client.
        call, back = (
            part.child("functionCall", "function_call"),
            part.child("functionResponse", "function_response"),
        )
        code = part.child("executableCode", "executable_code")
        ran = part.child("codeExecutionResult", "code_execution_result")
        if isinstance(item, str):
            builder.add_text(kind, item)
        elif call:
            builder.add_call(_id_of(call), call.text("name"), call.get("args"))
        elif back:
            output, failed = response_output(back.get("response"))
            known: Status = "error" if failed else status
            builder.add_result(_id_of(back), output, known, tool=back.text("name"))
        elif code:
            builder.add_call("code", "code_execution", {"code": code.text("code")})
        elif ran:
            done = ran.text("outcome").upper().endswith("OK")
            builder.add_result("code", ran.text("output"), "ok" if done else "error")
        elif isinstance(part.get("text"), str):
            builder.add_text("thinking" if part.get("thought") is True else kind, part["text"])
        elif file := part.child("inlineData", "inline_data", "fileData", "file_data"):
            builder.add_text(kind, f"[{file.text('mimeType', 'mime_type') or 'file'}]")


def response_output(response: object) -> tuple[str, bool]:
    fields = as_row(response)
    if fields.get("error") and not fields.get("output"):
        return content_text(fields["error"]), True
    for name in ("output", "result", "content"):
        if fields.get(name) is not None:
            others = {
                key: value
                for key, value in fields.items()
                if key != name and value not in (None, "", [], {})
            }
            return "\n".join(
                filter(None, [content_text(fields[name]), content_text(others or None)])
            ), False
    return content_text(response), False


def parts_usage(metadata: Row) -> Usage:
    received = "candidatesTokenCount thoughtsTokenCount"
    return read_usage(
        metadata, "promptTokenCount", received, "cachedContentTokenCount", "thoughtsTokenCount"
    )


def _id_of(call: Row) -> str:
    return call.text("id") or f"function {call.text('name')}"
