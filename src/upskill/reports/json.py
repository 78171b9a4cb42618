"""`json`: a report's document. Its keys are stable; new ones may be added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from upskill.reports.report import Report


def render(report: Report) -> str:
    return json.dumps(report.data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def pick(record: object, *names: str) -> dict[str, Any]:
    """These fields of a record as plain data."""
    return {name: to_plain(getattr(record, name)) for name in names}


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
