"""Claude.ai: the JSON of a data export, `conversations.json`, or of one conversation.

`conversations.json` has many: `conversations.json/UUID` is one, the file alone the latest.
"""

from __future__ import annotations

from typing import Any

from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, kind_of

BLOCKS = ("text", "thinking", "tool_use", "tool_result", "voice_note", "image", "document")


def detects(sample: Sample) -> bool:
    return any(
        "sender" in message for row in sample.values[:50] for message in _messages(as_row(row))[:5]
    )


def _messages(conversation: Row) -> list[Row]:
    return conversation.children("chat_messages")


def read(builder: TraceBuilder) -> None:
    rows = [row for row in map(as_row, builder.read_values()) if _messages(row)]
    conversations = sorted(rows, key=lambda row: row.text("updated_at", "created_at"))
    names = [row.text("uuid") for row in conversations]
    builder.session = builder.choose_session(names, "conversations", latest=True)
    conversation = conversations[names.index(builder.session)]
    builder.model = conversation.text("model")
    builder.started = conversation.text("created_at")
    for message in builder.watch(_messages(conversation)):
        _read_message(builder, message)


def _read_message(builder: TraceBuilder, message: Row) -> None:
    role, builder.at = message.text("sender"), message.text("created_at")
    for block in message.children("content"):
        builder.leave_out(kind_of(block), block.get("type") not in BLOCKS)
    blocks = [
        _with_id(block) for block in message.children("content") if block.get("type") in BLOCKS
    ]
    if any(block.get("text") or block.get("type") != "text" for block in blocks):
        builder.add_content(role, blocks)
    else:  # older exports have the text alone
        builder.add_content(role, message.text("text"))
    for file in (*message.children("attachments"), *message.children("files")):
        content = file.text("extracted_content")
        builder.add_content(
            role, f"[file {file.text('file_name')}]" + (f"\n{content}" if content else "")
        )


def _with_id(block: Row) -> dict[str, Any]:
    """Calls and results often have no id, and then are told one after the other."""
    name = f"tool {block.text('name')}"
    if block.get("type") == "tool_use":
        return block | {"id": block.text("id") or name}
    if block.get("type") == "tool_result":
        return block | {"tool_use_id": block.text("tool_use_id") or name}
    return block


FORMAT = Format("claude-ai", "Claude.ai export", read, detects, noise=("token_budget",))
