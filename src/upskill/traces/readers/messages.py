"""Messages as they are sent to a model, OpenAI's or Anthropic's: a list, `{"messages": […]}`, or one per line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty, list_or_empty
from upskill.traces import Trace
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    anthropic_usage,
    content_text,
    get_count,
    get_dict,
    get_dicts,
    get_list,
    get_str,
    read_usage,
)

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "model", "human")
ITEM_TYPES = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def detects(sample: Sample) -> bool:
    document = sample.document
    messages = as_list(document) or _messages_in(as_mapping(document) or {}) or sample.rows
    outer = [_unwrap(dict_or_empty(item)) for item in messages[:20]]
    inner = [dict_or_empty(item) for message in outer for item in _messages_in(message)]
    return any(map(_is_message, [*outer, *inner]))


def _unwrap(message: dict[str, Any]) -> dict[str, Any]:
    """The message in a line that has more to tell about it: `{"type": "message", "message": {…}}`."""
    inner = get_dict(message, "message")
    return inner if "role" not in message and inner.get("role") in ROLES else message


def _is_message(message: dict[str, Any]) -> bool:
    if message.get("type") == "reasoning" and "summary" in message:
        return True
    is_item = message.get("type") in ITEM_TYPES and ("call_id" in message or "name" in message)
    return message.get("role") in ROLES or is_item


def _messages_in(message: dict[str, Any]) -> list[Any]:
    for name in ("messages", "input", "conversation", "history"):
        if messages := get_list(message, name):
            return messages
    return []


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "messages")
    _read_all(builder, builder.read_values())
    return builder.build()


def _read_all(builder: TraceBuilder, messages: Iterable[Any]) -> None:
    for item in messages:
        row = as_mapping(item)
        message = _unwrap(row) if row is not None else None
        if message is None:
            builder.skip(f"message {len(builder.steps) + 1} is not an object")
        elif _is_message(message):
            _read_message(builder, message)
        elif inner := _messages_in(message):
            builder.model = get_str(message, "model") or builder.model
            builder.add_content("system", message.get("system") or message.get("instructions") or [], system=True)
            _read_all(builder, inner)
            _read_answer(builder, message)
        else:
            builder.skip(f"message {len(builder.steps) + 1} has no role")


def _read_answer(builder: TraceBuilder, message: dict[str, Any]) -> None:
    """The answer beside the messages that were sent, and its usage."""
    answer = get_dict(message, "response") or get_dict(message, "output")
    for choice in get_dicts(answer, "choices"):
        _read_message(builder, get_dict(choice, "message"))
    if answer.get("role") == "assistant":
        _read_message(builder, answer)
    used = get_dict(message, "usage") or get_dict(answer, "usage")
    if "prompt_tokens" in used:
        used |= {"cached_tokens": get_count(get_dict(used, "prompt_tokens_details"), "cached_tokens")}
        builder.usage += read_usage(used, "prompt_tokens", "completion_tokens", "cached_tokens")
    else:
        builder.usage += anthropic_usage(used)


def _read_message(builder: TraceBuilder, message: dict[str, Any]) -> None:
    role, kind = get_str(message, "role"), get_str(message, "type")
    at = get_str(message, "timestamp")
    if kind.endswith("_output"):
        builder.add_result(get_str(message, "call_id"), content_text(message.get("output")), at=at)
    elif kind.endswith("_call"):
        arguments = message.get("arguments", message.get("input"))
        builder.add_call(get_str(message, "call_id"), get_str(message, "name"), arguments, at=at)
    elif kind == "reasoning" and not role:
        thinking = content_text(message.get("summary")) or content_text(message.get("content"))
        builder.add_text("thinking", thinking, at=at)
    elif role in ("tool", "function"):
        name = get_str(message, "name")
        content = message.get("content")
        if any(get_str(dict_or_empty(block), "type").endswith("tool-result") for block in list_or_empty(content)):
            builder.add_content(role, content, at=at, status="unknown")
            return
        call_id = get_str(message, "tool_call_id") or (f"function {name}" if role == "function" else "")
        builder.add_result(call_id, content_text(content), tool=name, at=at)
    else:
        for name in ("reasoning_content", "reasoning", "thinking"):
            if isinstance(message.get(name), str):
                builder.add_text("thinking", message[name], at=at)
        if message.get("content") is not None:
            builder.add_content(role, message["content"], at=at)
        builder.add_text("assistant", get_str(message, "refusal"), at=at)
        builder.model = get_str(message, "model") or builder.model
        builder.add_tool_calls(message, at=at)
        if call := get_dict(message, "function_call"):
            name = get_str(call, "name")
            builder.add_call(f"function {name}", name, call.get("arguments"), at=at)


FORMAT = Format("OpenAI or Anthropic messages", read, detects)
