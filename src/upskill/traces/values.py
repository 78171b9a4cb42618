"""Values out of trace files, where anything may be missing or of another type than expected."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from upskill.plain import (
    JSON,
    as_list,
    as_mapping,
    dict_or_empty,
    is_deep,
    list_or_empty,
    load_json,
)
from upskill.traces import Status, Usage

_DATE = re.compile(
    r"(?<!\d)(\d{4}-\d\d-\d\d)(?:[ _T](\d\d)[-:.]?(\d\d)(?:[-:.]?(\d\d))?(Z?))?(?!\d)"
)
_OBJECT = re.compile(r"\s*(?=\{)")
_FAILED = re.compile(r"^(?:FAILED|ERROR|[Ee]rror:)(?!\w|\W*(?:0|none)\b)", re.M)
_SHOWS = re.compile(r"(?:sudo )?(?:cat|less|more|head|tail|grep|rg|awk|sed|journalctl)\b")
_EXIT = re.compile(
    r"^(?:Process exited with code|Exit code:?|\(?exit (?:code|status):?) (-?\d+)\)?\s*$",
    re.M | re.I,
)


class Row(dict[str, Any]):
    """A JSON object in which any field may be missing, or of another type than expected."""

    def text(self, *names: str) -> str:
        """The first of these fields that is a text, and not an empty one."""
        values = (self.get(name) for name in names)
        return next((value for value in values if value and isinstance(value, str)), "")

    def child(self, *names: str) -> Row:
        """The first of these fields that is an object, and not an empty one."""
        children = (as_row(self.get(name)) for name in names)
        return next((child for child in children if child), Row())

    def array(self, name: str) -> list[Any]:
        return list_or_empty(self.get(name))

    def children(self, name: str) -> list[Row]:
        """The objects in a list; an empty one for anything else in it."""
        return [as_row(item) for item in self.array(name)]

    def count(self, names: str) -> int:
        """Of several names, separated by spaces, the sum."""
        values = (self.get(name) for name in names.split())
        return sum(value for value in values if type(value) is int and value > 0)

    def number(self, name: str) -> float | None:
        return float_or_none(self.get(name))


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def as_row(value: object) -> Row:
    return Row(dict_or_empty(value))


def float_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def read_usage(
    row: Row,
    sent: str,
    received: str,
    cached: str = "",
    reasoning: str = "",
    cost: float | None = None,
) -> Usage:
    """Tokens by the names of their fields; several names, separated by spaces, are added up."""
    return Usage(
        row.count(sent), row.count(received), row.count(cached), row.count(reasoning), cost
    )


def anthropic_usage(row: Row, cost: float | None = None) -> Usage:
    sent = "input_tokens cache_creation_input_tokens cache_read_input_tokens"
    return read_usage(row, sent, "output_tokens", "cache_read_input_tokens", cost=cost)


def parse_object(line: str | bytes) -> Row | None:
    try:
        value = load_json(line)
    except ValueError:
        return None
    return as_row(value) if is_object(value) else None


def parse_line(line: str) -> list[Row]:
    """The JSON objects of a line: one, or several if a program was stopped before it ended a line; none if broken."""
    if (row := parse_object(line)) is not None:
        return [row]
    rows: list[Row] = []
    text, at = line.strip(), 0
    while begin := _OBJECT.match(text, at):
        try:
            value, at = JSON.raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            return []
        if is_deep(value):
            return []
        rows.append(as_row(value))
    return [] if text[at:].strip() else rows


def kind_of(record: object) -> str:
    """What a record calls itself, for people: `event_msg/token_count`, `assistant/thinking`; else its first fields."""
    row = as_row(record)
    kind = row.text("type", "kind", "role", "action", "observation", "record_type")
    inner = row.child("payload", "message", "attachment", "event", "item", "part", "msg", "data")
    blocks = [as_row(block).text("type") for block in inner.array("content")]
    detail = (
        "+".join(dict.fromkeys(filter(None, blocks)))
        or inner.text("type", "role")
        or row.text("subtype")
    )
    name = f"{kind}/{detail}" if detail not in ("", kind) else kind
    name = name or (f"object with {', '.join(list(row)[:3])}" if row else type(record).__name__)
    return re.sub(r"[^\w.$,+/ -]", "?", name)[:60]


def content_text(value: object) -> str:
    """What a tool returned, as text: plain, a list of blocks, or any other JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    blocks = as_list(value)
    if blocks is not None and all(isinstance(block, str) or _is_block(block) for block in blocks):
        return "\n".join(
            block if isinstance(block, str) else block_text(as_row(block)) for block in blocks
        )
    if _is_block(value):
        return block_text(as_row(value))
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_block(value: object) -> bool:
    block = dict_or_empty(value)
    return isinstance(block.get("type"), str) or (
        isinstance(block.get("text"), str) and len(block) == 1
    )


def block_text(block: Row) -> str:
    for key in ("text", "thinking", "refusal"):
        if isinstance(block.get(key), str):
            return block[key]
    if isinstance(block.get("content"), (str, list)):
        return content_text(block["content"])
    kind = block.text("type")
    if kind in (
        "image",
        "image_url",
        "input_image",
        "document",
        "file",
        "input_file",
        "audio",
        "input_audio",
    ):
        return f"[{kind}]"
    return json.dumps(block, ensure_ascii=False, default=str)


def parse_arguments(value: object) -> dict[str, Any]:
    """A call's arguments: an object, an object written as text, or any text as `input`."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        parsed = parse_object(value)
        value = value if parsed is None else parsed
    if (arguments := as_mapping(value)) is not None:
        return arguments
    return {} if value in (None, "") else {"input": value}


def seconds_between(begin: str, end: str) -> float | None:
    try:
        seconds = (
            datetime.fromisoformat(end).timestamp() - datetime.fromisoformat(begin).timestamp()
        )
    except (ValueError, OverflowError, OSError):
        return None
    return round(seconds, 3) if seconds >= 0 else None


def date_in(text: str) -> str:
    """The first date with a time in a title or a file name, else the first: `… (2025-06-18 16:25Z)`."""
    for day, hour, minute, second, zone in sorted(
        _DATE.findall(text), key=lambda date: not date[1]
    ):
        date = f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{zone}"
        with suppress(ValueError):
            datetime.fromisoformat(date)
            return date
    return ""


def iso_time(milliseconds: object) -> str:
    """A time in milliseconds since 1970 as the other formats write it."""
    value = float_or_none(milliseconds)
    try:
        return (
            datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
            if value
            else ""
        )
    except (ValueError, OverflowError, OSError):
        return ""


def continue_command(command: str, line: str) -> str:
    """A command that ends in a backslash, with the line that continues it; empty for every other command."""
    begun = command.rstrip()
    return (
        f"{begun[:-1].rstrip()} {line.removeprefix('>').strip()}"
        if begun.endswith((" \\", "\t\\"))
        else ""
    )


def typed_status(command: str, output: str) -> Status:
    """How a command ended that somebody typed, by what it printed; one that shows a file says nothing about itself."""
    status = exit_status(output)
    return (
        "error"
        if status == "unknown" and not _SHOWS.match(command) and _FAILED.search(output)
        else status
    )


def status_of(outcome: object) -> Status:
    """How a call ended, by an exit code or by whether it succeeded."""
    if isinstance(outcome, bool):
        return "ok" if outcome else "error"
    return "unknown" if not isinstance(outcome, int) else "ok" if outcome == 0 else "error"


def exit_status(text: str) -> Status:
    code = _EXIT.search(text)
    return "unknown" if code is None else status_of(int(code[1]))
