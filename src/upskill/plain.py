"""Plain data: the dicts, lists and scalars that come out of JSON and YAML files, and hashes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_json

DEEPEST = 100  # lists and objects within each other


def as_mapping(value: object) -> dict[str, Any] | None:
    """The value with text keys when it is a mapping, None when it is anything else."""
    if not isinstance(value, dict):
        return None
    return {str(key): item for key, item in cast("dict[Any, Any]", value).items()}


def as_list(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def is_deep(value: object) -> bool:
    """Whether lists and objects lie so deep in each other that not all that handles them would come back."""
    level = [value]
    for _ in range(DEEPEST):
        lists = (item for each in level for item in as_list(each) or ())
        level = [*lists, *(item for each in level for item in (as_mapping(each) or {}).values())]
    return bool(level)


def fields_of(value: object) -> dict[str, Any]:
    """A dataclass as JSON is to write it: for `json.dumps(..., default=fields_of)`, far cheaper than `asdict`."""
    names: dict[str, Any] | None = getattr(value, "__dataclass_fields__", None)
    if names is None:
        raise TypeError(f"{type(value).__name__} is not plain data")
    return {name: getattr(value, name) for name in names}


def compact(value: object) -> str:
    """Plain data, and dataclasses of it, as JSON without spaces: a trial writes kilobytes of it."""
    try:
        return to_json(value).decode()  # several times as fast as the standard library
    except ValueError:  # half of a surrogate pair, which models do say
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=fields_of)


def _fields_or_text(value: object) -> object:
    return fields_of(value) if hasattr(value, "__dataclass_fields__") else str(value)


def canonical(value: object) -> str:
    """Plain data as JSON: equal data gives equal text, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_fields_or_text)


def digest(value: object) -> str:
    """A short hash of plain data."""
    return digest_text(canonical(value))


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def short(value: object, most: int = 60) -> str:
    """The value as a message can show it."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, noun: str) -> str:
    """1 pair, 2 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with all of these properties and no others: the form that every provider takes."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
