"""opencode: `opencode export`, `opencode run --format json`, `/export`, its database, and its older storage folder.

A session in the database has the path `opencode.db/SESSION`; the database alone means its latest session.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from upskill.errors import UsageError
from upskill.plain import load_json
from upskill.traces import Status, Usage
from upskill.traces.formats import (
    Format,
    Sample,
    TraceBuilder,
    load_document,
    open_database,
    read_text,
    split_path,
)
from upskill.traces.readers.opencode_markdown import HEAD, read_markdown
from upskill.traces.values import (
    Row,
    as_row,
    content_text,
    float_or_none,
    iso_time,
    read_usage,
    seconds_between,
)

STATUSES: dict[str, Status] = {"completed": "ok", "error": "error"}
NOISE = (
    "step-start",
    "step-finish",
    "step_start",
    "step_finish",
    "snapshot",
    "patch",
    "compaction",
    "agent",
)
KIND = (
    "an opencode database",
    "Run `opencode export SESSION > session.json` to write a session to a file.",
)
STREAM = ("step_start", "step_finish", "tool_use", "text", "reasoning", "error")


def detects(sample: Sample) -> bool:
    if {"session", "message", "part"} <= sample.tables or (
        sample.is_text and HEAD.match(sample.text)
    ):
        return True
    if any(row.get("type") in STREAM and "sessionID" in row for row in sample.rows):
        return True
    document = as_row(sample.document)
    exported = isinstance(document.get("info"), dict) and isinstance(document.get("messages"), list)
    if exported and all("info" in message for message in document.children("messages")[:1]):
        return True
    return _is_stored(sample.path, document)


class _Reader(TraceBuilder):
    def __init__(self, path: Path, agent: str, subagent: str = "") -> None:
        super().__init__(path, agent)
        self.subagent = subagent
        self.spawned: list[tuple[str, str]] = []  # calls, and the sessions that they started

    def fill(self) -> None:
        sample = Sample.open(self.path)
        if sample.tables:
            database, session = split_path(self.path)
            with open_database(database, *KIND) as connection:
                latest = [session_id for session_id, _ in _main_sessions(connection)[:1]]
                if not session and not latest:
                    raise UsageError(f"{self.path}: contains no sessions")
                self.read_database(connection, session or latest[0])
        elif HEAD.match(sample.text):
            read_markdown(self, read_text(self.path))
        elif any("sessionID" in row and "part" in row for row in sample.rows):
            self.read_stream()
        elif _is_stored(self.path, document := as_row(load_document(self.path))):
            self.read_storage(self.path, document)
        else:
            self.read_info(document.child("info"))
            for message in self.watch(document.children("messages")):
                self.read_message(message.child("info"), message.children("parts"))

    def read_info(self, info: Row) -> None:
        self.session = info.text("id")
        self.cwd = info.text("directory")
        self.started = iso_time(info.child("time").get("created"))
        self.usage = Usage(cost_usd=0.0)

    def read_message(self, info: Row, parts: list[Row]) -> None:
        role = info.text("role")
        self.at = at = iso_time(info.child("time").get("created"))
        if role == "assistant":
            self.model = info.text("modelID") or self.model
            self.stop = info.text("finish") or self.stop
            self.cwd = self.cwd or info.child("path").text("cwd")
            self.usage += _usage(info)
        for part in self.watch(parts):
            self.at = at
            self.read_part(part, role)
        self.at = at
        if error := info.child("error"):
            self.add_text(
                "system", f"error: {error.child('data').text('message') or error.text('name')}"
            )

    def read_part(self, part: Row, role: str) -> None:
        kind, by_user = part.text("type"), role == "user"
        if kind == "text":
            synthetic = part.get("synthetic") is True
            self.add_text(
                "system" if synthetic else "user" if by_user else "assistant", part.text("text")
            )
        elif kind == "reasoning":
            self.add_text("thinking", part.text("text"))
        elif kind == "file":
            self.add_text("user" if by_user else "system", f"[file {part.text('filename')}]")
        elif kind == "tool":
            self.read_tool(part)

    def read_tool(self, part: Row) -> None:
        state, call_id = part.child("state"), part.text("callID")
        time, metadata = state.child("time"), state.child("metadata")
        code = metadata.get("exit")
        output, status = "", STATUSES.get(state.text("status"), "unknown")
        if status != "unknown":
            result = content_text(state.get("output" if status == "ok" else "error"))
            output = max(result, metadata.text("output"), key=len)
            if isinstance(code, int) and code != 0:  # the call succeeded, but its command failed
                status = "error"
        self.at, end = iso_time(time.get("start")), iso_time(time.get("end"))
        seconds = seconds_between(self.at, end) if status != "unknown" else None
        self.add_call(call_id, part.text("tool"), state.get("input"))
        self.extend_call(call_id, output=output, status=status, seconds=seconds)
        if child := metadata.text("sessionId"):
            self.spawned.append((call_id, child))

    def read_stream(self) -> None:
        self.usage = Usage(cost_usd=0.0)
        for row in self.watch(self.read_lines()):
            part, self.at = row.child("part"), iso_time(row.get("timestamp"))
            self.session = self.session or row.text("sessionID")
            if part.get("type") == "step-finish":
                self.usage += _usage(part)
                self.stop = part.text("reason")
            elif row.get("type") == "error":
                self.add_text("system", f"error: {content_text(row.get('error'))}")
            else:
                self.read_part(part, "assistant")

    def read_storage(self, path: Path, info: Row) -> None:
        """The folder of older versions: session/PROJECT/ID.json, message/ID/*.json, part/MESSAGE/*.json."""
        root = path.parent.parent.parent
        self.read_info(info)
        for file in sorted((root / "message" / path.stem).glob("*.json")):
            parts = sorted((root / "part" / file.stem).glob("*.json"))
            self.read_message(self.load_stored(file), [self.load_stored(part) for part in parts])
        for call, child in self.spawned:
            file = path.parent / f"{child}.json"
            if file.is_file():
                other = _Reader(file, self.agent, child)
                other.read_storage(file, self.load_stored(file))
                self.add_subagent(call, other)

    def load_stored(self, file: Path) -> Row:
        try:
            return as_row(load_document(file))
        except UsageError as error:
            self.skip(error.message)
            return Row()

    def read_database(self, connection: sqlite3.Connection, session: str) -> None:
        row = connection.execute(
            "SELECT directory, time_created FROM session WHERE id = ?", (session,)
        ).fetchone()
        if row is None:
            raise UsageError(
                f"{self.path}: session not found", "Run `upskill trace list` to see the sessions."
            )
        self.read_info(Row(id=session, directory=row[0], time={"created": row[1]}))
        query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for message_id, data in connection.execute(query, (session,)).fetchall():
            parts = connection.execute(
                "SELECT data FROM part WHERE message_id = ? ORDER BY id", (message_id,)
            )
            self.read_message(self.decode(data), [self.decode(part) for (part,) in parts])
        for call, child in self.spawned:
            other = _Reader(self.path, self.agent, child)
            with suppress(UsageError):  # the sub-agent's session was deleted
                other.read_database(connection, child)
                self.add_subagent(call, other)

    def decode(self, data: object) -> Row:
        try:
            return as_row(load_json(data if isinstance(data, (str, bytes)) else ""))
        except ValueError:
            self.skip("a row in the database is not a JSON object")
            return Row()


def _usage(info: Row) -> Usage:
    tokens = info.child("tokens")
    counts = Row(tokens | tokens.child("cache"))
    return read_usage(
        counts,
        "input write read",
        "output reasoning",
        "read",
        "reasoning",
        cost=info.number("cost"),
    )


def _is_stored(path: Path, document: Row) -> bool:
    return "projectID" in document and "id" in document and path.parent.parent.name == "session"


def _list_sessions(database: Path) -> list[tuple[str, float]]:
    """The sessions that a person started, latest first: id, and time of the last change in seconds."""
    with open_database(database, *KIND) as connection:
        return _main_sessions(connection)


def _main_sessions(connection: sqlite3.Connection) -> list[tuple[str, float]]:
    query = (
        "SELECT id, time_updated FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC"
    )
    return [
        (str(session_id), (float_or_none(changed) or 0) / 1000)
        for session_id, changed in connection.execute(query)
    ]


FORMAT = Format(
    "opencode",
    "opencode session",
    _Reader.fill,
    detects,
    _list_sessions,
    builder=_Reader,
    noise=NOISE,
)
