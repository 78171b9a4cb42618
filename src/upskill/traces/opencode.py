"""opencode: `opencode export`, `opencode run --format json`, its database, and its older storage folder.

A session in the database is written `opencode.db/SESSION`; the database alone stands for its latest session.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_mapping
from upskill.traces import Status, Trace, Usage
from upskill.traces.reading import (
    SQLITE,
    Format,
    Recording,
    Sample,
    amount,
    count,
    from_epoch,
    items,
    load_document,
    mapping,
    text_of,
    word,
)

STREAM = ("step_start", "step_finish", "tool_use", "text", "reasoning", "error")


def detects(sample: Sample) -> bool:
    if sample.data.startswith(SQLITE):
        return True
    if any(row.get("type") in STREAM and "sessionID" in row for row in sample.rows):
        return True
    document = as_mapping(sample.document)
    if document is None:
        return False
    exported = isinstance(document.get("info"), dict) and isinstance(document.get("messages"), list)
    return exported or _is_stored(sample.path, document)


def read(path: Path) -> Trace:
    recording = Recording(path, "opencode")
    if (database := _database_of(path)) is not None:
        with _connected(database) as connection:
            _read_database(recording, connection, path.name if database != path else _latest(connection, path))
        return recording.trace()
    sample = Sample.of(path)
    if any("sessionID" in row and "part" in row for row in sample.rows):
        _read_stream(recording)
        return recording.trace()
    document = mapping(load_document(path))
    if _is_stored(path, document):
        _read_storage(recording, path, document)
    else:
        info = mapping(document.get("info"))
        _read_info(recording, info)
        messages = [mapping(message) for message in items(document.get("messages"))]
        _read_messages(recording, ((mapping(m.get("info")), items(m.get("parts"))) for m in messages))
    return recording.trace()


def _read_info(recording: Recording, info: dict[str, Any]) -> None:
    recording.session = word(info.get("id"))
    recording.cwd = word(info.get("directory"))
    recording.started = from_epoch(mapping(info.get("time")).get("created"))
    recording.usage = Usage(cost_usd=0.0)


def _read_messages(
    recording: Recording, messages: Iterable[tuple[dict[str, Any], list[Any]]], agent: str = ""
) -> list[tuple[str, str]]:
    """Adds the steps; returns which call started which other session."""
    children: list[tuple[str, str]] = []
    for info, parts in messages:
        role = word(info.get("role"))
        at = from_epoch(mapping(info.get("time")).get("created"))
        if role == "assistant":
            recording.model = word(info.get("modelID")) or recording.model
            recording.stop = word(info.get("finish")) or recording.stop
            recording.cwd = recording.cwd or word(mapping(info.get("path")).get("cwd"))
            recording.usage = recording.usage + _usage(info)
        for part in parts:
            if child := _read_part(recording, mapping(part), role, at, agent):
                children.append(child)
        if error := mapping(info.get("error")):
            said = word(mapping(error.get("data")).get("message")) or word(error.get("name"))
            recording.say("system", f"error: {said}", at=at, agent=agent)
    return children


def _read_part(
    recording: Recording, part: dict[str, Any], role: str, at: str, agent: str = ""
) -> tuple[str, str] | None:
    kind = word(part.get("type"))
    if kind == "text":
        ours = part.get("synthetic") is True
        said = "system" if ours else "user" if role == "user" else "assistant"
        recording.say(said, word(part.get("text")), at=at, agent=agent)
    elif kind == "reasoning":
        recording.say("thinking", word(part.get("text")), at=at, agent=agent)
    elif kind == "file":
        recording.say(
            "user" if role == "user" else "system", f"[file {word(part.get('filename'))}]", at=at, agent=agent
        )
    elif kind == "tool":
        return _read_tool(recording, part, agent)
    return None


def _read_tool(recording: Recording, part: dict[str, Any], agent: str) -> tuple[str, str] | None:
    state, id = mapping(part.get("state")), word(part.get("callID"))  # noqa: A001
    time, about = mapping(state.get("time")), mapping(state.get("metadata"))
    at = from_epoch(time.get("start"))
    recording.call(id, word(part.get("tool")), state.get("input"), at=at, agent=agent)
    ended, code = word(state.get("status")), about.get("exit")
    status: Status = "ok" if ended == "completed" else "error" if ended == "error" else "unknown"
    if isinstance(code, int) and code != 0:  # the call was carried out; the command failed
        status = "error"
    if ended in ("completed", "error"):
        output = text_of(state.get("output") if ended == "completed" else state.get("error"))
        recording.result(id, output, status, at=from_epoch(time.get("end")))
        recording.amend(id, output=word(about.get("output")) or None)
    child = word(about.get("sessionId"))
    return (id, child) if child else None


def _usage(info: dict[str, Any]) -> Usage:
    tokens = mapping(info.get("tokens"))
    cache = mapping(tokens.get("cache"))
    reasoning = count(tokens.get("reasoning"))
    cached = count(cache.get("read"))
    fresh = count(tokens.get("input")) + count(cache.get("write"))
    return Usage(fresh + cached, count(tokens.get("output")) + reasoning, cached, reasoning, amount(info.get("cost")))


def _read_stream(recording: Recording) -> None:
    recording.usage = Usage(cost_usd=0.0)
    for row in recording.rows():
        part, at = mapping(row.get("part")), from_epoch(row.get("timestamp"))
        recording.session = recording.session or word(row.get("sessionID"))
        if part.get("type") == "step-finish":
            recording.usage = recording.usage + _usage(part)
            recording.stop = word(part.get("reason"))
        elif row.get("type") == "error":
            recording.say("system", f"error: {text_of(row.get('error'))}", at=at)
        else:
            _read_part(recording, part, "assistant", at)


# The storage folder of older versions: session/PROJECT/ID.json, message/ID/*.json, part/MESSAGE/*.json.


def _is_stored(path: Path, document: dict[str, Any]) -> bool:
    return "projectID" in document and "id" in document and path.parent.parent.name == "session"


def _read_storage(recording: Recording, path: Path, info: dict[str, Any], agent: str = "") -> None:
    root = path.parent.parent.parent
    _read_info(recording, info)

    def messages() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        for file in sorted((root / "message" / path.stem).glob("*.json")):
            said = _stored(recording, file)
            parts = [_stored(recording, part) for part in sorted((root / "part" / file.stem).glob("*.json"))]
            yield said, parts

    for call, child in _read_messages(recording, messages(), agent):
        file = path.parent / f"{child}.json"
        if file.is_file():
            other = Recording(file, "opencode")
            _read_storage(other, file, _stored(recording, file), child)
            recording.splice(call, other)


def _stored(recording: Recording, file: Path) -> dict[str, Any]:
    try:
        return mapping(load_document(file))
    except UsageError as error:
        recording.refuse(error.message)
        return {}


# The database.


def _database_of(path: Path) -> Path | None:
    for place in (path, path.parent):
        if place.is_file():
            with place.open("rb") as stream:
                return place if stream.read(len(SQLITE)) == SQLITE else None
    return None


@contextmanager
def _connected(database: Path) -> Generator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise UsageError(
            f"{database}: cannot be read as a database of opencode: {error}",
            "`opencode export SESSION > session.json` writes a session as a file.",
        ) from error


def sessions_of(database: Path) -> list[tuple[str, float, str]]:
    """The sessions a person started, latest first: id, time of the last change in seconds, folder."""
    with _connected(database) as connection:
        rows = connection.execute(
            "SELECT id, time_updated, directory FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC"
        ).fetchall()
    return [(str(id), float(changed or 0) / 1000, str(folder)) for id, changed, folder in rows]  # noqa: A001


def _latest(connection: sqlite3.Connection, path: Path) -> str:
    row = connection.execute(
        "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC LIMIT 1"
    ).fetchone()
    if row is None:
        raise UsageError(f"{path}: there is no session in it")
    return str(row[0])


def _read_database(recording: Recording, connection: sqlite3.Connection, session: str, agent: str = "") -> None:
    row = connection.execute("SELECT directory, time_created FROM session WHERE id = ?", (session,)).fetchone()
    if row is None:
        raise UsageError(f"{recording.path}: there is no such session", "`upskill trace list` shows them.")
    _read_info(recording, {"id": session, "directory": row[0], "time": {"created": row[1]}})

    def messages() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        told = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for id, data in connection.execute(told, (session,)).fetchall():  # noqa: A001
            parts = connection.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (id,))
            yield _decoded(recording, data), [_decoded(recording, part) for (part,) in parts]

    for call, child in _read_messages(recording, messages(), agent):
        other = Recording(recording.path, "opencode")
        try:
            _read_database(other, connection, child, child)
        except UsageError:
            continue  # the sub-agent's session was deleted
        recording.splice(call, other)


def _decoded(recording: Recording, data: object) -> dict[str, Any]:
    try:
        return mapping(json.loads(data if isinstance(data, (str, bytes)) else ""))
    except (ValueError, RecursionError):
        recording.refuse("a row of the database is not a JSON object")
        return {}


FORMAT = Format("opencode session", read, detects, sessions_of)
