"""Gemini CLI: `gemini --output-format stream-json`, and the chats below `~/.gemini/tmp`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping
from upskill.traces import Status, Trace, Usage
from upskill.traces.reading import (
    Format,
    Recording,
    Sample,
    count,
    items,
    load_document,
    mapping,
    text_of,
    word,
)

STREAM = ("init", "message", "tool_use", "tool_result", "error", "result")


def detects(sample: Sample) -> bool:
    if any(_is_event(row) or ("sessionId" in row and "projectHash" in row) for row in sample.rows):
        return True
    document = as_mapping(sample.document)
    return document is not None and "projectHash" in document and isinstance(document.get("messages"), list)


def _is_event(row: dict[str, Any]) -> bool:
    kind = row.get("type")
    if kind == "tool_use":
        return "tool_name" in row
    if kind == "tool_result":
        return "tool_id" in row
    if kind == "init":
        return "session_id" in row
    return kind == "message" and "role" in row and isinstance(row.get("content"), str) and "timestamp" in row


def read(path: Path) -> Trace:
    recording = Recording(path, "gemini")
    sample = Sample.of(path)
    if any(_is_event(row) for row in sample.rows):
        _read_stream(recording)
    elif len(sample.rows) > 1:
        _read_chat_lines(recording)
    else:
        chat = mapping(load_document(path))
        _read_about(recording, chat)
        _read_chat(recording, (mapping(message) for message in items(chat.get("messages"))))
    return recording.trace()


def _read_stream(recording: Recording) -> None:
    said: list[str] = []  # the pieces of one turn
    began = ""

    def flush() -> None:
        nonlocal began
        recording.say("assistant", "".join(said), at=began)
        said.clear()
        began = ""

    for row in recording.rows():
        kind, at = row.get("type"), word(row.get("timestamp"))
        if kind == "message" and row.get("role") == "assistant" and row.get("delta") is True:
            began = began or at
            said.append(text_of(row.get("content")))
            continue
        flush()
        if kind == "init":
            recording.session, recording.model = word(row.get("session_id")), word(row.get("model"))
            recording.started = at
        elif kind == "message":
            recording.content(word(row.get("role")), row.get("content"), at=at)
        elif kind == "tool_use":
            recording.call(word(row.get("tool_id")), word(row.get("tool_name")), row.get("parameters"), at=at)
        elif kind == "tool_result":
            ended = word(row.get("status"))
            status: Status = "ok" if ended == "success" else "error" if ended == "error" else "unknown"
            output = text_of(row.get("output")) or word(mapping(row.get("error")).get("message"))
            recording.result(word(row.get("tool_id")), output, status, at=at)
        elif kind == "error":
            recording.say("system", f"{word(row.get('severity')) or 'error'}: {word(row.get('message'))}", at=at)
        elif kind == "result":
            stats = mapping(row.get("stats"))
            recording.usage = Usage(
                count(stats.get("input_tokens")), count(stats.get("output_tokens")), count(stats.get("cached"))
            )
            recording.stop = word(row.get("status"))
    flush()


def _read_chat_lines(recording: Recording) -> None:
    """A chat that grows by lines: a message may be told again when more of it is known."""
    messages: dict[str, dict[str, Any]] = {}
    for row in recording.rows():
        if "$set" in row:
            _read_about(recording, mapping(row["$set"]))
        elif "projectHash" in row:
            _read_about(recording, row)
        elif "type" in row:
            messages[word(row.get("id")) or str(len(messages))] = row
    _read_chat(recording, messages.values())


def _read_about(recording: Recording, about: dict[str, Any]) -> None:
    recording.session = word(about.get("sessionId")) or recording.session
    recording.started = word(about.get("startTime")) or recording.started
    folders = items(about.get("directories"))
    recording.cwd = recording.cwd or (word(folders[0]) if folders else "")


def _read_chat(recording: Recording, messages: Iterable[dict[str, Any]]) -> None:
    for message in messages:
        kind, at = word(message.get("type")), word(message.get("timestamp"))
        for thought in items(message.get("thoughts")):
            parts = [word(mapping(thought).get(name)) for name in ("subject", "description")]
            recording.say("thinking", "\n".join(filter(None, parts)), at=at)
        recording.content(kind, message.get("content"), at=at)
        for item in items(message.get("toolCalls")):
            call = mapping(item)
            id = word(call.get("id"))  # noqa: A001
            recording.call(id, word(call.get("name")), call.get("args"), at=word(call.get("timestamp")) or at)
            ended = word(call.get("status"))
            status: Status = "ok" if ended == "success" else "error" if ended in ("error", "cancelled") else "unknown"
            output = _answered(call.get("result")) or text_of(call.get("resultDisplay"))
            recording.result(id, output, status)
        recording.model = word(message.get("model")) or recording.model
        used = mapping(message.get("tokens"))
        thought_tokens = count(used.get("thoughts"))
        recording.usage = recording.usage + Usage(
            count(used.get("input")) + count(used.get("tool")),
            count(used.get("output")) + thought_tokens,
            count(used.get("cached")),
            thought_tokens,
        )


def _answered(result: object) -> str:
    """The text in a list of function responses."""
    texts: list[str] = []
    for item in items(result) or ([result] if result is not None else []):
        response = mapping(mapping(mapping(item).get("functionResponse")).get("response"))
        if response:
            told = response.get("output", response.get("error"))
            texts.append(text_of(told if told is not None else response))
        else:
            texts.append(text_of(item))
    return "\n".join(texts)


FORMAT = Format("Gemini CLI session", read, detects)
