"""Gemini CLI: `--output-format stream-json`, the chats and checkpoints below `~/.gemini/tmp`; `contents` of the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from upskill.plain import as_list, counted, list_or_empty
from upskill.traces import Status
from upskill.traces.formats import ROLES, Format, Sample, TraceBuilder, load_document
from upskill.traces.readers.gemini_parts import (
    STATUSES,
    add_parts,
    has_parts,
    parts_usage,
    response_output,
)
from upskill.traces.values import Row, as_row, content_text, exit_status, is_object, read_usage

BY_PROGRAM = ("<session_context>", "<hook_context>")  # put beside the person's words


def detects(sample: Sample) -> bool:
    if any(_is_event(row) or ("sessionId" in row and "projectHash" in row) for row in sample.rows):
        return True
    document = as_row(sample.document)
    if "projectHash" in document and isinstance(document.get("messages"), list):
        return True
    return _has_contents(sample)


def _has_contents(sample: Sample) -> bool:
    return any(
        has_parts(as_row(message)) for message in _contents_in(sample.document, sample.rows)[:20]
    )


def _contents_in(document: object, rows: list[Row]) -> list[Any]:
    """The messages of a request to the API, of a checkpoint, or one a line."""
    if not is_object(document):
        return as_list(document) or [row.get("content", row) for row in rows]
    fields = as_row(document)
    for name in ("contents", "history", "clientHistory"):
        if contents := fields.array(name):
            return [*contents, *_candidates(fields.child("response") or fields)]
    return _candidates(fields) or [fields]


def _candidates(answer: Row) -> list[Any]:
    return [candidate.get("content") for candidate in answer.children("candidates")]


def _is_event(row: Row) -> bool:
    kind = row.get("type")
    if kind == "tool_use":
        return "tool_name" in row
    if kind == "tool_result":
        return "tool_id" in row
    if kind == "init":
        return "session_id" in row
    return (
        kind == "message"
        and "role" in row
        and isinstance(row.get("content"), str)
        and "timestamp" in row
    )


def read(builder: TraceBuilder) -> None:
    sample = Sample.open(builder.path)
    if any(_is_event(row) for row in sample.rows):
        _read_stream(builder)
    elif _has_contents(sample):
        _read_contents(builder, sample.document)
    elif len(sample.rows) > 1:
        _read_chat_lines(builder)
    else:
        chat = as_row(load_document(builder.path))
        _read_metadata(builder, chat)
        _read_chat(builder, chat.children("messages"))


def _read_contents(builder: TraceBuilder, document: object) -> None:
    fields = as_row(document)
    builder.model = fields.text("modelVersion", "model")
    instruction = fields.get("systemInstruction", fields.get("system_instruction"))
    add_parts(
        builder,
        "system",
        Row(parts=[instruction]) if isinstance(instruction, str) else as_row(instruction),
    )
    for item in builder.watch(
        _contents_in(document, [] if document is not None else list(builder.read_lines()))
    ):
        message = as_row(item)
        add_parts(builder, "assistant" if message.get("role") == "model" else "user", message)
    answer = fields.child("response") or fields
    builder.usage = parts_usage(answer.child("usageMetadata"))


def _read_stream(builder: TraceBuilder) -> None:
    pieces: list[str] = []  # of one turn
    for row in builder.watch(builder.read_lines()):
        kind, at = row.get("type"), row.text("timestamp")
        if kind == "message" and row.get("role") == "assistant" and row.get("delta") is True:
            builder.at = builder.at if pieces else at
            pieces.append(content_text(row.get("content")))
            builder.use()
            continue
        builder.add_text("assistant", "".join(pieces))
        pieces.clear()
        builder.at = at
        if kind == "init":
            builder.session, builder.model, builder.started = (
                row.text("session_id"),
                row.text("model"),
                at,
            )
        elif kind == "message":
            builder.add_content(row.text("role"), row.get("content"))
        elif kind == "tool_use":
            builder.add_call(row.text("tool_id"), row.text("tool_name"), row.get("parameters"))
        elif kind == "tool_result":
            told = (content_text(row.get("output")), row.child("error").text("message"))
            output = "\n".join(dict.fromkeys(filter(None, told)))
            builder.add_result(row.text("tool_id"), output, _status(row.text("status"), output))
        elif kind == "error":
            builder.add_text("system", f"{row.text('severity') or 'error'}: {row.text('message')}")
        elif kind == "result":
            builder.usage = read_usage(
                row.child("stats"), "input_tokens", "output_tokens", "cached"
            )
            builder.stop = row.text("status")
    builder.add_text("assistant", "".join(pieces))


def _read_chat_lines(builder: TraceBuilder) -> None:
    """A chat that grows by lines: a message may be written again once more of it is known."""
    messages: dict[str, Row] = {}
    for row in builder.watch(builder.read_lines()):
        if (undone := row.text("$rewindTo")) in messages:
            kept = list(messages).index(undone)
            builder.warn(
                f"skipped {counted(len(messages) - kept, 'message')} from turns that were undone"
            )
            messages = dict(list(messages.items())[:kept])
            builder.use()
        elif "$set" in row:
            _read_metadata(builder, as_row(row["$set"]))
            # What the model sees from now on. After a compression, what was said before is no longer in it, and the
            # rest has other ids.
            told = {content_text(message.get("content")) for message in messages.values()}
            for message in as_row(row["$set"]).children("messages"):
                if (
                    message.text("id") in messages
                    or content_text(message.get("content")) not in told
                ):
                    messages[message.text("id")] = message
        elif "projectHash" in row:
            _read_metadata(builder, row)
        elif "type" in row:
            messages[row.text("id") or str(len(messages))] = row
            builder.use()
    _read_chat(builder, messages.values())


def _read_metadata(builder: TraceBuilder, metadata: Row) -> None:
    builder.use()
    builder.session = metadata.text("sessionId") or builder.session
    builder.started = metadata.text("startTime") or builder.started
    for folder in metadata.array("directories")[:1]:
        builder.cwd = builder.cwd or (folder if isinstance(folder, str) else "")


def _read_chat(builder: TraceBuilder, messages: Iterable[Row]) -> None:
    told = set[str]()  # the calls in `toolCalls`, which may be in the parts too
    for message in builder.watch(messages):
        at = builder.at = message.text("timestamp")
        for thought in message.children("thoughts"):
            parts = [thought.text(name) for name in ("subject", "description")]
            builder.add_text("thinking", "\n".join(filter(None, parts)))
        calls = message.children("toolCalls")
        told |= {call.text("id") for call in calls}
        for part in as_list(message.get("content")) or [message.get("content")]:
            call = as_row(part).child("functionCall", "functionResponse")
            if not call:
                by_program = content_text(part).lstrip().startswith(BY_PROGRAM)
                builder.add_content("system" if by_program else message.text("type"), part)
            elif calls or call.text("id") in told:
                builder.use()
            else:
                add_parts(builder, "assistant", Row(parts=[part]))
        add_parts(builder, ROLES.get(message.text("type"), "system"), message)
        for call in calls:
            builder.at = call.text("timestamp") or at
            output = _response_text(call.get("result")) or content_text(call.get("resultDisplay"))
            builder.add_done(
                call.text("name"), call.get("args"), output, _status(call.text("status"), output)
            )
        builder.model = message.text("model") or builder.model
        used = message.child("tokens")
        builder.usage += read_usage(used, "input tool", "output thoughts", "cached", "thoughts")


def _status(call_status: str, output: str) -> Status:
    """How a call ended. One that ran a command succeeds as a call, whatever the command's exit code is."""
    failed = output.startswith("Command: ") and exit_status(output) == "error"
    return "error" if failed else STATUSES.get(call_status, "unknown")


def _response_text(result: object) -> str:
    texts: list[str] = []
    for item in list_or_empty(result) or ([result] if result is not None else []):
        response = as_row(item).child("functionResponse").child("response")
        texts.append(response_output(response)[0] if response else content_text(item))
    return "\n".join(texts)


FORMAT = Format("gemini", "Gemini session", read, detects)
