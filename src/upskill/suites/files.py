"""Reads the files of a suite as plain data, and refuses what no store or model could be sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.plain import read_yaml, yaml_words

# Checks for a text: `equals: 42` and `equals: yes` mean what is written.
TEXT_CHECKS = frozenset(["equals", "contains", "contains_any", "not_contains", "starts_with"])


def decode(data: bytes, where: str) -> object:
    """JSON or YAML, told apart by the content; duplicate keys and NaN are errors, not silently something else."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: is not UTF-8 text (byte {error.start})", "Save it as UTF-8.") from error
    try:
        if text.lstrip()[:1] in ("{", "["):
            try:
                return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
            except json.JSONDecodeError as error:
                if where.endswith(".json"):
                    raise UsageError(f"{where}: line {error.lineno}: not valid JSON: {error.msg}") from error
        return read_yaml(text, text_fields=TEXT_CHECKS)
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: {yaml_words(error)}") from error
    except RecursionError as error:
        raise UsageError(f"{where}: is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def check_sound(said: object, where: str) -> None:
    """Refuse what neither a store nor a model could be sent: NaN, half a character, a value that JSON has not."""
    try:
        json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UsageError(
            f"{where}: holds half a character ({half!r})", "Write it out, or as its two halves."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: is not plain data: {error}") from error


def read_beside(roots: list[Path], name: str) -> bytes | None:
    for root in roots:
        try:
            file = (root / name).resolve()
            if file.is_relative_to(root.resolve()) and file.is_file():
                return read_input(file)
        except (OSError, RuntimeError, UsageError):  # a circle of links, no permission: not there for us
            continue
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the field {key!r} is there twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value that JSON has")
