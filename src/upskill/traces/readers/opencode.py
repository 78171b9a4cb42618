"""opencode: `opencode export`, `opencode run --format json`, its database, and its older storage folder.

A session in the database has the path `opencode.db/SESSION`; the database alone means its latest session.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import dict_or_empty
from upskill.traces import Status, Trace, Usage
from upskill.traces.formats import SQLITE, Format, Sample, load_document, split_path
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_dicts, get_float, get_list, get_str, iso_time, read_usage

STREAM = ("step_start", "step_finish", "tool_use", "text", "reasoning", "error")


def detects(sample: Sample) -> bool:
    if sample.data.startswith(SQLITE):
        return True
    if any(row.get("type") in STREAM and "sessionID" in row for row in sample.rows):
        return True
    document = dict_or_empty(sample.document)
    exported = isinstance(document.get("info"), dict) and isinstance(document.get("messages"), list)
    if exported and all("info" in message for message in get_dicts(document, "messages")[:1]):
        return True
    return _is_stored(sample.path, document)


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "opencode")
    if (database := _database_of(path)) is not None:
        with _connect(database) as connection:
            _read_database(builder, connection, path.name if database != path else _latest_session(connection, path))
        return builder.build()
    sample = Sample.open(path)
    if any("sessionID" in row and "part" in row for row in sample.rows):
        _read_stream(builder)
        return builder.build()
    document = dict_or_empty(load_document(path))
    if _is_stored(path, document):
        _read_storage(builder, path, document)
    else:
        info = get_dict(document, "info")
        _read_info(builder, info)
        messages = get_dicts(document, "messages")
        _read_messages(builder, ((get_dict(m, "info"), get_list(m, "parts")) for m in messages))
    return builder.build()


def _read_info(builder: TraceBuilder, info: dict[str, Any]) -> None:
    builder.session = get_str(info, "id")
    builder.cwd = get_str(info, "directory")
    builder.started = iso_time(get_dict(info, "time").get("created"))
    builder.usage = Usage(cost_usd=0.0)


def _read_messages(
    builder: TraceBuilder, messages: Iterable[tuple[dict[str, Any], list[Any]]], agent: str = ""
) -> list[tuple[str, str]]:
    """Add the steps; returns pairs of a call and the session that it started."""
    children: list[tuple[str, str]] = []
    for info, parts in messages:
        role = get_str(info, "role")
        at = iso_time(get_dict(info, "time").get("created"))
        if role == "assistant":
            builder.model = get_str(info, "modelID") or builder.model
            builder.stop = get_str(info, "finish") or builder.stop
            builder.cwd = builder.cwd or get_str(get_dict(info, "path"), "cwd")
            builder.usage += _usage(info)
        for part in parts:
            if child := _read_part(builder, dict_or_empty(part), role, at, agent):
                children.append(child)
        if error := get_dict(info, "error"):
            message = get_str(get_dict(error, "data"), "message") or get_str(error, "name")
            builder.add_text("system", f"error: {message}", at=at, agent=agent)
    return children


def _read_part(
    builder: TraceBuilder, part: dict[str, Any], role: str, at: str, agent: str = ""
) -> tuple[str, str] | None:
    kind = get_str(part, "type")
    if kind == "text":
        synthetic = part.get("synthetic") is True
        speaker = "system" if synthetic else "user" if role == "user" else "assistant"
        builder.add_text(speaker, get_str(part, "text"), at=at, agent=agent)
    elif kind == "reasoning":
        builder.add_text("thinking", get_str(part, "text"), at=at, agent=agent)
    elif kind == "file":
        builder.add_text(
            "user" if role == "user" else "system", f"[file {get_str(part, 'filename')}]", at=at, agent=agent
        )
    elif kind == "tool":
        return _read_tool(builder, part, agent)
    return None


def _read_tool(builder: TraceBuilder, part: dict[str, Any], agent: str) -> tuple[str, str] | None:
    state, call_id = get_dict(part, "state"), get_str(part, "callID")
    time, metadata = get_dict(state, "time"), get_dict(state, "metadata")
    at = iso_time(time.get("start"))
    builder.add_call(call_id, get_str(part, "tool"), state.get("input"), at=at, agent=agent)
    state_status, code = get_str(state, "status"), metadata.get("exit")
    status: Status = "ok" if state_status == "completed" else "error" if state_status == "error" else "unknown"
    if isinstance(code, int) and code != 0:  # the call succeeded, but its command failed
        status = "error"
    if state_status in ("completed", "error"):
        output = content_text(state.get("output") if state_status == "completed" else state.get("error"))
        builder.add_result(call_id, output, status, at=iso_time(time.get("end")))
        builder.extend_call(call_id, output=get_str(metadata, "output") or None)
    child = get_str(metadata, "sessionId")
    return (call_id, child) if child else None


def _usage(info: dict[str, Any]) -> Usage:
    tokens = get_dict(info, "tokens")
    counts = tokens | get_dict(tokens, "cache")
    return read_usage(counts, "input write read", "output reasoning", "read", "reasoning", cost=get_float(info, "cost"))


def _read_stream(builder: TraceBuilder) -> None:
    builder.usage = Usage(cost_usd=0.0)
    for row in builder.read_lines():
        part, at = get_dict(row, "part"), iso_time(row.get("timestamp"))
        builder.session = builder.session or get_str(row, "sessionID")
        if part.get("type") == "step-finish":
            builder.usage += _usage(part)
            builder.stop = get_str(part, "reason")
        elif row.get("type") == "error":
            builder.add_text("system", f"error: {content_text(row.get('error'))}", at=at)
        else:
            _read_part(builder, part, "assistant", at)


# The storage folder of older versions: session/PROJECT/ID.json, message/ID/*.json, part/MESSAGE/*.json.


def _is_stored(path: Path, document: dict[str, Any]) -> bool:
    return "projectID" in document and "id" in document and path.parent.parent.name == "session"


def _read_storage(builder: TraceBuilder, path: Path, info: dict[str, Any], agent: str = "") -> None:
    root = path.parent.parent.parent
    _read_info(builder, info)

    def messages() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        for file in sorted((root / "message" / path.stem).glob("*.json")):
            message = _load_stored(builder, file)
            parts = [_load_stored(builder, part) for part in sorted((root / "part" / file.stem).glob("*.json"))]
            yield message, parts

    for call, child in _read_messages(builder, messages(), agent):
        file = path.parent / f"{child}.json"
        if file.is_file():
            other = TraceBuilder(file, "opencode")
            _read_storage(other, file, _load_stored(builder, file), child)
            builder.add_subagent(call, other)


def _load_stored(builder: TraceBuilder, file: Path) -> dict[str, Any]:
    try:
        return dict_or_empty(load_document(file))
    except UsageError as error:
        builder.skip(error.message)
        return {}


# The database.


def _database_of(path: Path) -> Path | None:
    file = split_path(path)[0]
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return file if stream.read(len(SQLITE)) == SQLITE else None


@contextmanager
def _connect(database: Path) -> Generator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise UsageError(
            f"{database}: cannot be read as a database of opencode: {error}",
            "`opencode export SESSION > session.json` writes a session as a file.",
        ) from error


def list_sessions(database: Path) -> list[tuple[str, float, str]]:
    """The sessions that a person started, latest first: id, time of the last change in seconds, folder."""
    with _connect(database) as connection:
        rows = _main_sessions(connection)
    return [(str(session_id), float(changed or 0) / 1000, str(folder)) for session_id, changed, folder in rows]


def _main_sessions(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(
        "SELECT id, time_updated, directory FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC"
    ).fetchall()


def _latest_session(connection: sqlite3.Connection, path: Path) -> str:
    rows = _main_sessions(connection)
    if not rows:
        raise UsageError(f"{path}: there is no session in it")
    return str(rows[0][0])


def _read_database(builder: TraceBuilder, connection: sqlite3.Connection, session: str, agent: str = "") -> None:
    row = connection.execute("SELECT directory, time_created FROM session WHERE id = ?", (session,)).fetchone()
    if row is None:
        raise UsageError(f"{builder.path}: there is no such session", "`upskill trace list` shows them.")
    _read_info(builder, {"id": session, "directory": row[0], "time": {"created": row[1]}})

    def messages() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for message_id, data in connection.execute(query, (session,)).fetchall():
            parts = connection.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (message_id,))
            yield _decode(builder, data), [_decode(builder, part) for (part,) in parts]

    for call, child in _read_messages(builder, messages(), agent):
        other = TraceBuilder(builder.path, "opencode")
        try:
            _read_database(other, connection, child, child)
        except UsageError:
            continue  # the sub-agent's session was deleted
        builder.add_subagent(call, other)


def _decode(builder: TraceBuilder, data: object) -> dict[str, Any]:
    try:
        return dict_or_empty(json.loads(data if isinstance(data, (str, bytes)) else ""))
    except (ValueError, RecursionError):
        builder.skip("a row of the database is not a JSON object")
        return {}


FORMAT = Format("opencode session", read, detects, list_sessions)
