"""Gemini CLI: `--output-format stream-json`, the chats and checkpoints below `~/.gemini/tmp`; `contents` of the API."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty, list_or_empty
from upskill.traces import Status, Trace
from upskill.traces.formats import Format, Sample, load_document
from upskill.traces.readers.gemini_parts import STATUSES, add_parts, has_parts, parts_usage, response_output
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    content_text,
    exit_status,
    get_dict,
    get_dicts,
    get_list,
    get_str,
    read_usage,
    str_or_empty,
)


def detects(sample: Sample) -> bool:
    if any(_is_event(row) or ("sessionId" in row and "projectHash" in row) for row in sample.rows):
        return True
    document = as_mapping(sample.document) or {}
    if "projectHash" in document and isinstance(document.get("messages"), list):
        return True
    return any(has_parts(dict_or_empty(message)) for message in _contents_in(sample.document, sample.rows)[:20])


def _contents_in(document: object, rows: list[dict[str, Any]]) -> list[Any]:
    """The messages of a request to the API, of a checkpoint, or one a line."""
    fields = as_mapping(document)
    if fields is None:
        return as_list(document) or [dict_or_empty(row.get("content", row)) for row in rows]
    for name in ("contents", "history", "clientHistory"):
        if contents := get_list(fields, name):
            return [*contents, *_candidates(get_dict(fields, "response") or fields)]
    return _candidates(fields) or [fields]


def _candidates(answer: dict[str, Any]) -> list[Any]:
    return [candidate.get("content") for candidate in get_dicts(answer, "candidates")]


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
    builder = TraceBuilder(path, "gemini")
    sample = Sample.open(path)
    if any(_is_event(row) for row in sample.rows):
        _read_stream(builder)
    elif any(has_parts(dict_or_empty(message)) for message in _contents_in(sample.document, sample.rows)[:20]):
        _read_contents(builder, sample.document)
    elif len(sample.rows) > 1:
        _read_chat_lines(builder)
    else:
        chat = dict_or_empty(load_document(path))
        _read_metadata(builder, chat)
        _read_chat(builder, get_dicts(chat, "messages"))
    return builder.build()


def _read_contents(builder: TraceBuilder, document: object) -> None:
    fields = as_mapping(document) or {}
    builder.model = get_str(fields, "modelVersion") or get_str(fields, "model")
    instruction = fields.get("systemInstruction", fields.get("system_instruction"))
    add_parts(
        builder, as_mapping(instruction) or {"parts": [instruction] * isinstance(instruction, str)}, kind="system"
    )
    for item in _contents_in(document, [] if document is not None else list(builder.read_lines())):
        message = dict_or_empty(item)
        add_parts(builder, message, kind="assistant" if message.get("role") == "model" else "user")
    answer = get_dict(fields, "response") or fields
    builder.usage = parts_usage(get_dict(answer, "usageMetadata"))


def _read_stream(builder: TraceBuilder) -> None:
    pieces: list[str] = []  # of one turn
    began = ""

    def flush() -> None:
        nonlocal began
        builder.add_text("assistant", "".join(pieces), at=began)
        pieces.clear()
        began = ""

    for row in builder.read_lines():
        kind, at = row.get("type"), get_str(row, "timestamp")
        if kind == "message" and row.get("role") == "assistant" and row.get("delta") is True:
            began = began or at
            pieces.append(content_text(row.get("content")))
            continue
        flush()
        if kind == "init":
            builder.session, builder.model = get_str(row, "session_id"), get_str(row, "model")
            builder.started = at
        elif kind == "message":
            builder.add_content(get_str(row, "role"), row.get("content"), at=at)
        elif kind == "tool_use":
            builder.add_call(get_str(row, "tool_id"), get_str(row, "tool_name"), row.get("parameters"), at=at)
        elif kind == "tool_result":
            output = content_text(row.get("output")) or get_str(get_dict(row, "error"), "message")
            status = _status(get_str(row, "status"), output)
            builder.add_result(get_str(row, "tool_id"), output, status, at=at)
        elif kind == "error":
            builder.add_text("system", f"{get_str(row, 'severity') or 'error'}: {get_str(row, 'message')}", at=at)
        elif kind == "result":
            builder.usage = read_usage(get_dict(row, "stats"), "input_tokens", "output_tokens", "cached")
            builder.stop = get_str(row, "status")
    flush()


def _read_chat_lines(builder: TraceBuilder) -> None:
    """A chat that grows by lines: a message may be written again once more of it is known."""
    messages: dict[str, dict[str, Any]] = {}
    for row in builder.read_lines():
        if "$set" in row:
            _read_metadata(builder, dict_or_empty(row["$set"]))
        elif "projectHash" in row:
            _read_metadata(builder, row)
        elif "type" in row:
            messages[get_str(row, "id") or str(len(messages))] = row
    _read_chat(builder, messages.values())


def _read_metadata(builder: TraceBuilder, metadata: dict[str, Any]) -> None:
    builder.session = get_str(metadata, "sessionId") or builder.session
    builder.started = get_str(metadata, "startTime") or builder.started
    folders = get_list(metadata, "directories")
    builder.cwd = builder.cwd or (str_or_empty(folders[0]) if folders else "")


def _read_chat(builder: TraceBuilder, messages: Iterable[dict[str, Any]]) -> None:
    for message in messages:
        kind, at = get_str(message, "type"), get_str(message, "timestamp")
        for thought in get_dicts(message, "thoughts"):
            parts = [get_str(thought, name) for name in ("subject", "description")]
            builder.add_text("thinking", "\n".join(filter(None, parts)), at=at)
        builder.add_content(kind, message.get("content"), at=at)
        for call in get_dicts(message, "toolCalls"):
            call_id = get_str(call, "id")
            builder.add_call(call_id, get_str(call, "name"), call.get("args"), at=get_str(call, "timestamp") or at)
            output = _response_text(call.get("result")) or content_text(call.get("resultDisplay"))
            status = _status(get_str(call, "status"), output)
            builder.add_result(call_id, output, status)
        builder.model = get_str(message, "model") or builder.model
        used = get_dict(message, "tokens")
        builder.usage += read_usage(used, "input tool", "output thoughts", "cached", "thoughts")


def _status(call_status: str, output: str) -> Status:
    """How a call ended. One that ran a command succeeds as a call, whatever the command's exit code is."""
    failed = output.startswith("Command: ") and exit_status(output) == "error"
    return "error" if failed else STATUSES.get(call_status, "unknown")


def _response_text(result: object) -> str:
    """The text in a list of function responses."""
    texts: list[str] = []
    for item in list_or_empty(result) or ([result] if result is not None else []):
        response = dict_or_empty(get_dict(dict_or_empty(item), "functionResponse").get("response"))
        texts.append(response_output(response)[0] if response else content_text(item))
    return "\n".join(texts)


FORMAT = Format("Gemini session", read, detects)
