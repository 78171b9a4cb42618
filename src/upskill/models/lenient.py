"""Reading JSON that others wrote, where anything may be missing or of another type than promised."""

from __future__ import annotations

from typing import Any, cast


def mapping(value: object) -> dict[str, Any]:
    """The value where it is a JSON object, otherwise an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value where it is a JSON array, otherwise an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def number(value: object) -> int:
    """The value where it is a count, otherwise none."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0
