"""Messages as they are sent to a model: OpenAI's or Anthropic's, as a list, as `{"messages": […]}`, or one a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping
from upskill.traces import Trace, Usage
from upskill.traces.reading import Format, Recording, Sample, count, items, load_document, mapping, text_of, word

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "model", "human")
ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def detects(sample: Sample) -> bool:
    document = sample.document
    told = as_list(document) or _list_in(as_mapping(document) or {}) or sample.rows
    found = [mapping(item) for item in told[:20]]
    return any(_is_message(one) or any(_is_message(mapping(inner)) for inner in _list_in(one)) for one in found)


def _is_message(one: dict[str, Any]) -> bool:
    if one.get("type") == "reasoning" and "summary" in one:
        return True
    return one.get("role") in ROLES or (one.get("type") in ITEMS and ("call_id" in one or "name" in one))


def _list_in(one: dict[str, Any]) -> list[Any]:
    for name in ("messages", "input", "conversation", "history"):
        if found := items(one.get(name)):
            return found
    return []


def read(path: Path) -> Trace:
    recording = Recording(path, "messages")
    document = Sample.of(path).document
    if document is None:
        _read_all(recording, recording.rows())
    else:
        whole = load_document(path)
        _read_all(recording, as_list(whole) or [whole])
    return recording.trace()


def _read_all(recording: Recording, told: Iterable[Any]) -> None:
    for item in told:
        one = as_mapping(item)
        if one is None:
            recording.refuse(f"message {len(recording.steps) + 1} is not an object")
        elif _is_message(one):
            _read_message(recording, one)
        elif inner := _list_in(one):
            recording.model = word(one.get("model")) or recording.model
            recording.content("system", one.get("system") or one.get("instructions") or [], system=True)
            _read_all(recording, inner)
            _read_answer(recording, one)
        else:
            recording.refuse(f"message {len(recording.steps) + 1} has no role")


def _read_answer(recording: Recording, one: dict[str, Any]) -> None:
    """What stands beside the messages that were sent: the answer, and what it used."""
    answer = mapping(one.get("response")) or mapping(one.get("output"))
    for choice in items(answer.get("choices")):
        _read_message(recording, mapping(mapping(choice).get("message")))
    if answer.get("role") == "assistant":
        _read_message(recording, answer)
    used = mapping(one.get("usage")) or mapping(answer.get("usage"))
    read = count(used.get("cache_read_input_tokens"))
    cached = read or count(mapping(used.get("prompt_tokens_details")).get("cached_tokens"))
    fresh = count(used.get("input_tokens")) + count(used.get("cache_creation_input_tokens")) + read
    written = count(used.get("output_tokens")) or count(used.get("completion_tokens"))
    recording.usage = recording.usage + Usage(fresh or count(used.get("prompt_tokens")), written, cached)


def _read_message(recording: Recording, one: dict[str, Any]) -> None:
    role, kind = word(one.get("role")), word(one.get("type"))
    at = word(one.get("timestamp"))
    if kind.endswith("_output"):
        recording.result(word(one.get("call_id")), text_of(one.get("output")), at=at)
    elif kind.endswith("_call"):
        recording.call(word(one.get("call_id")), word(one.get("name")), one.get("arguments", one.get("input")), at=at)
    elif kind == "reasoning" and not role:
        recording.say("thinking", text_of(one.get("summary")) or text_of(one.get("content")), at=at)
    elif role in ("tool", "function"):
        name = word(one.get("name"))
        content = one.get("content")
        if any(word(mapping(block).get("type")).endswith("tool-result") for block in items(content)):
            recording.content(role, content, at=at, status="unknown")
            return
        id = word(one.get("tool_call_id")) or (f"function {name}" if role == "function" else "")  # noqa: A001
        recording.result(id, text_of(content), tool=name, at=at)
    else:
        for name in ("reasoning_content", "reasoning", "thinking"):
            if isinstance(one.get(name), str):
                recording.say("thinking", one[name], at=at)
        if one.get("content") is not None:
            recording.content(role, one["content"], at=at)
        recording.say("assistant", word(one.get("refusal")), at=at)
        recording.model = word(one.get("model")) or recording.model
        _read_calls(recording, one, at)


def _read_calls(recording: Recording, one: dict[str, Any], at: str) -> None:
    for item in items(one.get("tool_calls")):
        call = mapping(item)
        function = mapping(call.get("function")) or mapping(call.get("custom")) or call
        given = function.get("arguments", function.get("input"))
        recording.call(word(call.get("id")), word(function.get("name")), given, at=at)
    if call := mapping(one.get("function_call")):
        name = word(call.get("name"))
        recording.call(f"function {name}", name, call.get("arguments"), at=at)


FORMAT = Format("OpenAI or Anthropic messages", read, detects)
