"""Values out of trace files, where anything may be missing or of another type than expected."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty, is_deep, list_or_empty
from upskill.traces import Status, Usage

_FAILED = re.compile(r"^(?:FAILED|ERROR|[Ee]rror:)(?!\w|\W*(?:0|none)\b)", re.M)
_SHOWS = re.compile(r"(?:sudo )?(?:cat|less|more|head|tail|grep|rg|awk|sed|journalctl)\b")
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?|\(?exit (?:code|status):?) (-?\d+)\)?\s*$", re.M | re.I)


def get_dict(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    return dict_or_empty(row.get(key))


def get_list(row: Mapping[str, Any], key: str) -> list[Any]:
    return list_or_empty(row.get(key))


def get_dicts(row: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in a list; an empty one for anything else in it."""
    return [dict_or_empty(item) for item in get_list(row, key)]


def get_str(row: Mapping[str, Any], key: str) -> str:
    return str_or_empty(row.get(key))


def get_count(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def get_float(row: Mapping[str, Any], key: str) -> float | None:
    return float_or_none(row.get(key))


def str_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def float_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def sum_counts(row: Mapping[str, Any], names: str) -> int:
    return sum(get_count(row, name) for name in names.split())


def read_usage(
    row: Mapping[str, Any], sent: str, received: str, cached: str = "", reasoning: str = "", cost: float | None = None
) -> Usage:
    """Tokens by the names of their fields; several names, separated by spaces, are added up."""
    return Usage(
        input_tokens=sum_counts(row, sent),
        output_tokens=sum_counts(row, received),
        cached_tokens=sum_counts(row, cached),
        reasoning_tokens=sum_counts(row, reasoning),
        cost_usd=cost,
    )


def anthropic_usage(row: Mapping[str, Any], cost: float | None = None) -> Usage:
    sent = "input_tokens cache_creation_input_tokens cache_read_input_tokens"
    return read_usage(row, sent, "output_tokens", "cache_read_input_tokens", cost=cost)


def parse_object(line: str) -> dict[str, Any] | None:
    try:
        value = as_mapping(json.loads(line))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(value) else value


def parse_line(line: str) -> list[dict[str, Any]]:
    """The JSON objects of a line: one, or several if a program was stopped before it ended a line; none if broken."""
    if (row := parse_object(line)) is not None:
        return [row]
    rows: list[dict[str, Any]] = []
    text, decoder = line.strip(), json.JSONDecoder()
    while text.startswith("{"):
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return []
        if is_deep(value):
            return []
        rows.append(dict_or_empty(value))
        text = text[end:].lstrip()
    return [] if text else rows


def content_text(value: object) -> str:
    """What a tool returned, as text: plain, a list of blocks, or any other JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    blocks = as_list(value)
    if blocks is not None and all(isinstance(block, str) or _is_block(block) for block in blocks):
        return "\n".join(block if isinstance(block, str) else block_text(dict_or_empty(block)) for block in blocks)
    if (block := as_mapping(value)) is not None and _is_block(block):
        return block_text(block)
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_block(value: object) -> bool:
    block = dict_or_empty(value)
    return isinstance(block.get("type"), str) or (isinstance(block.get("text"), str) and len(block) == 1)


def block_text(block: Mapping[str, Any]) -> str:
    for key in ("text", "thinking", "refusal"):
        if isinstance(block.get(key), str):
            return block[key]
    if isinstance(block.get("content"), (str, list)):
        return content_text(block["content"])
    kind = get_str(block, "type")
    if kind in ("image", "image_url", "input_image", "document", "file", "input_file", "audio", "input_audio"):
        return f"[{kind}]"
    return json.dumps(block, ensure_ascii=False, default=str)


def parse_arguments(value: object) -> dict[str, Any]:
    """A call's arguments: an object, an object written as text, or any text as `input`."""
    if (arguments := as_mapping(value)) is not None:
        return arguments
    if isinstance(value, str):
        if (arguments := parse_object(value) if value.lstrip().startswith("{") else None) is not None:
            return arguments
        return {"input": value} if value else {}
    return {} if value is None else {"input": value}


def seconds_between(begin: str, end: str) -> float | None:
    first, last = _seconds_since_epoch(begin), _seconds_since_epoch(end)
    if first is None or last is None or last < first:
        return None
    return round(last - first, 3)


def _seconds_since_epoch(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(milliseconds: object) -> str:
    """A time in milliseconds since 1970 as the other formats write it."""
    value = float_or_none(milliseconds)
    if not value:
        return ""
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def continue_command(command: str, line: str) -> str:
    """A command that ends in a backslash, with the line that continues it; empty for every other command."""
    begun = command.rstrip()
    return f"{begun[:-1].rstrip()} {line.removeprefix('>').strip()}" if begun.endswith((" \\", "\t\\")) else ""


def typed_status(command: str, output: str) -> Status:
    """How a command ended that somebody typed, by what it printed; one that shows a file says nothing about itself."""
    status = exit_status(output)
    return "error" if status == "unknown" and not _SHOWS.match(command) and _FAILED.search(output) else status


def status_of(outcome: object) -> Status:
    """How a call ended, by an exit code or by whether it succeeded."""
    if isinstance(outcome, bool):
        return "ok" if outcome else "error"
    return "unknown" if not isinstance(outcome, int) else "ok" if outcome == 0 else "error"


def exit_status(text: str) -> Status:
    """What a program's words say about how it ended."""
    code = _EXIT.search(text)
    return "unknown" if code is None else status_of(int(code[1]))
