"""Fields of records by their paths (`verdict.skill.pass_rate`), for JSON documents, rows of CSV and tables.

A document is a table of names and paths, so that each of its keys is written once, beside where its value lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast


def read(record: Any, path: str) -> Any:
    """None where something on the way is None."""
    for name in path.split("."):
        if record is None:
            return None
        if isinstance(record, Mapping):
            record = cast("Mapping[str, Any]", record).get(name)
        elif name.isdigit():
            record = record[int(name)]
        else:
            record = getattr(record, name)
    return record


def pick(record: object, *names: str | Mapping[str, str]) -> dict[str, Any]:
    """Fields of a record as plain data: by their names, or by a name for each path."""
    found: dict[str, Any] = {}
    for name in names:
        paths = {name: name} if isinstance(name, str) else name
        found |= {key: to_plain(read(record, path)) for key, path in paths.items()}
    return found


def to_plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        items: list[Any] = [*value]
        return [to_plain(item) for item in items]
    if isinstance(value, Path):
        return str(value)
    return value.to_dict() if hasattr(value, "to_dict") else value


def named(rows: Iterable[Sequence[object]], *names: str) -> list[dict[str, Any]]:
    """Each row with a name for each of its values."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def rows_of(
    records: Iterable[object], columns: Mapping[str, str | Callable[[Any], Any]]
) -> Iterator[dict[str, Any]]:
    """A row for each record: by the name of a column its path, or what makes the cell."""
    for record in records:
        yield {
            name: place(record) if callable(place) else read(record, place)
            for name, place in columns.items()
        }
