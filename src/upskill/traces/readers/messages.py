"""Messages as they are sent to a model, OpenAI's or Anthropic's: a list, `{"messages": […]}`, or one per line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from upskill.plain import as_list, list_or_empty
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, anthropic_usage, as_row, content_text, read_usage

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "model", "human")
ITEM_TYPES = (
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)


def detects(sample: Sample) -> bool:
    document = sample.document
    messages = as_list(document) or _messages_in(as_row(document)) or sample.rows
    outer = [_unwrap(as_row(item)) for item in messages[:20]]
    inner = [as_row(item) for message in outer for item in _messages_in(message)]
    return any(map(_is_message, [*outer, *inner]))


def _unwrap(message: Row) -> Row:
    """The message in a line that has more to tell about it: `{"type": "message", "message": {…}}`."""
    inner = message.child("message")
    return inner if "role" not in message and inner.get("role") in ROLES else message


def _is_message(message: Row) -> bool:
    if message.get("type") == "reasoning" and "summary" in message:
        return True
    is_item = message.get("type") in ITEM_TYPES and ("call_id" in message or "name" in message)
    return message.get("role") in ROLES or is_item


def _messages_in(message: Row) -> list[Any]:
    for name in ("messages", "input", "conversation", "history"):
        if messages := message.array(name):
            return messages
    return []


def read(builder: TraceBuilder) -> None:
    _read_all(builder, builder.read_values())


def _read_all(builder: TraceBuilder, messages: Iterable[Any]) -> None:
    for item in builder.watch(messages):
        message = _unwrap(as_row(item))
        if _is_message(message):
            _read_message(builder, message)
        elif inner := _messages_in(message):
            builder.model = message.text("model") or builder.model
            builder.add_content(
                "system", message.get("system") or message.get("instructions") or []
            )
            _read_all(builder, inner)
            _read_answer(builder, message)


def _read_answer(builder: TraceBuilder, message: Row) -> None:
    """The answer beside the messages that were sent, and its usage."""
    answer = message.child("response", "output")
    for choice in answer.children("choices"):
        _read_message(builder, choice.child("message"))
    if answer.get("role") == "assistant":
        _read_message(builder, answer)
    used = message.child("usage") or answer.child("usage")
    if "prompt_tokens" in used:
        used["cached_tokens"] = used.child("prompt_tokens_details").count("cached_tokens")
        builder.usage += read_usage(used, "prompt_tokens", "completion_tokens", "cached_tokens")
    else:
        builder.usage += anthropic_usage(used)


def _read_message(builder: TraceBuilder, message: Row) -> None:
    role, kind = message.text("role"), message.text("type")
    builder.at = message.text("timestamp")
    if kind.endswith("_output"):
        builder.add_result(message.text("call_id"), content_text(message.get("output")))
    elif kind.endswith("_call"):
        arguments = message.get("arguments", message.get("input"))
        builder.add_call(message.text("call_id"), message.text("name"), arguments)
    elif kind == "reasoning" and not role:
        thinking = content_text(message.get("summary")) or content_text(message.get("content"))
        builder.add_text("thinking", thinking)
    elif role in ("tool", "function"):
        name = message.text("name")
        content = message.get("content")
        if any(
            as_row(block).text("type").endswith("tool-result") for block in list_or_empty(content)
        ):
            builder.add_content(role, content, status="unknown")
            return
        call_id = message.text("tool_call_id") or (f"function {name}" if role == "function" else "")
        builder.add_result(call_id, content_text(content), tool=name)
    else:
        for name in ("reasoning_content", "reasoning", "thinking"):
            if isinstance(message.get(name), str):
                builder.add_text("thinking", message[name])
        builder.add_content(role, message.get("content", message.get("text")))
        builder.add_text("assistant", message.text("refusal"))
        builder.model = message.text("model") or builder.model
        builder.add_tool_calls(message)
        if call := message.child("function_call"):
            name = call.text("name")
            builder.add_call(f"function {name}", name, call.get("arguments"))


FORMAT = Format("messages", "OpenAI or Anthropic messages", read, detects)
