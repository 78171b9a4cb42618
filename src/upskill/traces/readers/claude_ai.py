"""Claude.ai: the JSON of a data export, `conversations.json`, or of one conversation.

`conversations.json` has many: `conversations.json/UUID` is one, the file alone the latest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty
from upskill.traces import Trace
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import get_dicts, get_str

BLOCKS = ("text", "thinking", "tool_use", "tool_result", "voice_note", "image", "document")


def detects(sample: Sample) -> bool:
    document = sample.document
    rows = as_list(document) or ([document] if document is not None else sample.rows)
    return any("sender" in message for row in rows[:50] for message in _messages(dict_or_empty(row))[:5])


def _messages(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    return get_dicts(conversation, "chat_messages")


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "claude-ai")
    conversations = [row for item in builder.read_values() if (row := as_mapping(item)) is not None and _messages(row)]
    conversations.sort(key=lambda row: get_str(row, "updated_at") or get_str(row, "created_at"))
    names = [get_str(row, "uuid") for row in conversations]
    if not conversations:
        return builder.build()
    builder.session = builder.choose_session(names, "conversations", latest=True)
    conversation = conversations[names.index(builder.session)]
    builder.model = get_str(conversation, "model")
    builder.started = get_str(conversation, "created_at")
    for message in _messages(conversation):
        _read_message(builder, message)
    return builder.build()


def _read_message(builder: TraceBuilder, message: dict[str, Any]) -> None:
    role, at = get_str(message, "sender"), get_str(message, "created_at")
    blocks = [_with_id(block) for block in get_dicts(message, "content") if block.get("type") in BLOCKS]
    if any(block.get("text") or block.get("type") != "text" for block in blocks):
        builder.add_content(role, blocks, at=at)
    else:  # older exports have the text alone
        builder.add_content(role, get_str(message, "text"), at=at)
    for file in (*get_dicts(message, "attachments"), *get_dicts(message, "files")):
        content = get_str(file, "extracted_content")
        builder.add_content(role, f"[file {get_str(file, 'file_name')}]" + (f"\n{content}" if content else ""), at=at)


def _with_id(block: dict[str, Any]) -> dict[str, Any]:
    """Calls and results often have no id, and then are told one after the other."""
    name = f"tool {get_str(block, 'name')}"
    if block.get("type") == "tool_use":
        return block | {"id": get_str(block, "id") or name}
    if block.get("type") == "tool_result":
        return block | {"tool_use_id": get_str(block, "tool_use_id") or name}
    return block


FORMAT = Format("Claude.ai export", read, detects)
