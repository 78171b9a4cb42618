"""Cursor's databases, as lines of a transcript: `state.vscdb` of the editor, and `store.db` of a chat of its program.

A conversation in the first has the path `state.vscdb/ID`; the file alone means its latest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from upskill.traces.formats import Sample, TraceBuilder, open_database, split_path, table_names
from upskill.traces.values import Row, as_row, content_text, iso_time, parse_object, read_usage

ROLES = {1: "user", 2: "assistant", "user": "user", "ai": "assistant"}
ITEMS = {
    "composer.composerData": "allComposers",
    "workbench.panel.aichat.view.aichat.chatdata": "tabs",
}
FAILED = ("error", "cancelled", "rejected")
KIND = (
    "a Cursor database",
    "Copy it together with the files beside it (-wal, -shm) while Cursor is closed.",
)
GLOBAL = "Cursor keeps newer ones in `User/globalStorage/state.vscdb`, for all workspaces."
EMPTY = "bubble"  # what the editor shows while nothing is said yet


def is_store(sample: Sample) -> bool:
    return (
        not {"cursorDiskKV", "ItemTable"}.isdisjoint(sample.tables)
        or {"blobs", "meta"} <= sample.tables
    )


def store_rows(builder: TraceBuilder) -> Iterator[Row]:
    with open_database(split_path(builder.path)[0], *KIND) as connection:
        if "blobs" in table_names(connection):
            yield from _chat(builder, connection)
        else:
            composers = {each.text("composerId"): each for each in _composers(connection)}
            builder.session = builder.choose_session(
                [*composers], "conversations", latest=True, missing=GLOBAL
            )
            yield from _conversation(builder, connection, composers[builder.session])


def list_conversations(database: Path) -> list[tuple[str, float]]:
    """Latest first: id, and time of the last change in seconds."""
    with open_database(database, *KIND) as connection:
        return [
            (each.text("composerId"), _changed(each) / 1000)
            for each in reversed(_composers(connection))
        ]


def _object(data: object) -> Row:
    return (parse_object(data) if isinstance(data, str | bytes) else None) or Row()


def _changed(composer: Row) -> float:
    return next(
        filter(None, map(composer.number, ("lastUpdatedAt", "lastSendTime", "createdAt"))), 0
    )


def _composers(connection: sqlite3.Connection) -> list[Row]:
    """The conversations in which something was said, latest last; older versions kept them in one value."""
    tables, found = table_names(connection), list[Row]()
    if "cursorDiskKV" in tables:
        query = "SELECT key, value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'"
        for key, value in connection.execute(query):
            found.append(Row(_object(value) | {"composerId": str(key).partition(":")[2]}))
    if "ItemTable" in tables:
        for key, value in connection.execute(
            "SELECT key, value FROM ItemTable WHERE key IN (?, ?)", tuple(ITEMS)
        ):
            tabs = _object(value).children(ITEMS[key])
            found += [
                Row({"composerId": tab.text("tabId"), "conversation": tab.get("bubbles")} | tab)
                for tab in tabs
            ]
    said = [
        each
        for each in found
        if each.array("fullConversationHeadersOnly") or each.array("conversation")
    ]
    return sorted((each for each in said if each.text("composerId")), key=_changed)


def _conversation(
    builder: TraceBuilder, connection: sqlite3.Connection, composer: Row
) -> Iterator[Row]:
    builder.started = iso_time(composer.get("createdAt"))
    builder.model = composer.child("modelConfig").text("modelName")
    builder.cwd = composer.child("workspaceIdentifier").child("uri").text("fsPath", "path")
    yield from map(_bubble, composer.children("conversation"))
    for header in composer.children("fullConversationHeadersOnly"):
        key = f"bubbleId:{composer.text('composerId')}:{header.text('bubbleId')}"
        row = connection.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
        bubble = _object(row[0] if row else None)
        builder.model = bubble.child("modelInfo").text("modelName") or builder.model
        builder.usage += read_usage(bubble.child("tokenCount"), "inputTokens", "outputTokens")
        yield _bubble(bubble) if bubble else Row(type="bubble that is missing")


def _bubble(bubble: Row) -> Row:
    at = bubble.text("createdAt") or iso_time(bubble.get("createdAt") or bubble.get("timestamp"))
    kind, call = bubble.get("type"), bubble.child("toolFormerData")
    role = ROLES.get(kind) if isinstance(kind, int | str) else None
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": bubble.child("thinking").text("text")},
        {"type": "text", "text": bubble.text("text")},
    ]
    if call.text("name"):
        call_id = call.text("toolCallId") or bubble.text("bubbleId")
        arguments = _object(call.get("rawArgs")) or call.get("params") or call.get("rawArgs")
        blocks.append(
            {"type": "tool_use", "id": call_id, "name": call.text("name"), "input": arguments}
        )
        if "result" in call or call.text("status") in FAILED:
            blocks.append({"type": "tool_result", "tool_use_id": call_id, **_outcome(call)})
    return (
        Row(type=EMPTY, role=role, timestamp=at, content=blocks)
        if role
        else Row(type="bubble of an unknown kind")
    )


def _outcome(call: Row) -> dict[str, Any]:
    result, status = call.get("result"), call.text("status")
    fields = _object(result) if isinstance(result, str) else as_row(result)
    code = fields.get("exitCode", fields.get("exitCodeV2"))
    failed = status in FAILED or bool(code) or "rejected" in call.text("userDecision")
    output = fields.text("output", "contents", "stdout", "error") or content_text(
        fields or result or call.get("error")
    )
    return {
        "content": output,
        "is_error": failed if failed or code == 0 or status == "completed" else None,
    }


def _chat(builder: TraceBuilder, connection: sqlite3.Connection) -> Iterator[Row]:
    for (value,) in connection.execute("SELECT value FROM meta WHERE key = '0'"):
        about = Row()
        with suppress(ValueError, TypeError):  # JSON in hexadecimal digits
            about = _object(bytes.fromhex(value))
        builder.session, builder.model = about.text("agentId"), about.text("lastUsedModel")
        builder.started = iso_time(about.get("createdAt"))
    builder.cwd = builder.read_beside("meta.json").text("cwd")
    for (data,) in connection.execute("SELECT data FROM blobs ORDER BY rowid").fetchall():
        if message := _object(data):  # the others say only what belongs together
            yield message
