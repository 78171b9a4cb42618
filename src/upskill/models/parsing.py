"""Reading what other programs wrote, where anything may be missing or of another type than promised, and quoting it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from upskill.plain import is_deep

MAX_EXCERPT = 300  # characters of a provider's own words in a message
INVALID_ARGUMENTS = "invalid_json"  # the one argument of a tool call whose arguments were not a JSON object


def count_or_zero(value: object) -> int:
    """The value where it is a count, otherwise none."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def safe_excerpt(text: str, secrets: Iterable[str]) -> str:
    """A provider's own words for a message: short, on one line, without a key."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(text.split())
    return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"


def parse_arguments(text: object) -> Mapping[str, Any]:
    """The arguments of a tool call. What is no JSON object is the model's own mistake, handed on to be told to it."""
    parsed: Any = text
    try:
        if not isinstance(text, dict):
            parsed = json.loads(text) if isinstance(text, str) and text.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict) and not is_deep(cast("object", parsed)):
        return cast("dict[str, Any]", parsed)
    return {INVALID_ARGUMENTS: text if isinstance(text, str) else ""}


def estimate_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def collect_secrets(key: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """Everything that may not show up in a message: the key in use, and the others we were given."""
    others = (value for name, value in keys.items() if not name.endswith(("_URL", "_BASE")))
    return tuple(sorted({secret for secret in (key, *others) if len(secret) >= 6}, key=len, reverse=True))
