"""Prompts with `{{ variables }}` in them, as promptfoo writes them. Only variables are put in: no tags, no filters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping
from upskill.suites.words import text_of

MOST_COMBINATIONS = 1_000  # of values that are lists
_VARIABLE = re.compile(r"\{\{-?\s*([^{}|]+?)\s*(\|[^{}]*)?-?\}\}")
_HARMLESS = {"trim", "safe", "dump", "string", "tojson"}  # filters that leave a text as it is


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The text with its variables put in; UsageError for what takes more than that."""
    if tag := re.search(r"\{%-?\s*(\w+)", template):
        raise UsageError(
            f"its template has the tag {tag[1]!r}, and only variables are put in", "Write the prompts out."
        )

    def value(found: re.Match[str]) -> str:
        filters = {part.strip() for part in (found[2] or "").split("|") if part.strip()}
        if not filters <= _HARMLESS:
            raise UsageError(
                f"its template has the filter {sorted(filters - _HARMLESS)[0]!r}", "Write the prompts out."
            )
        here: Any = dict(values)
        for name in re.findall(r"[\w-]+", found[1]):
            inner = as_mapping(here)
            items = as_list(here)
            here = (inner or {}).get(name) if items is None else items[int(name)] if _is_index(name, items) else None
            if here is None:
                raise UsageError(f"its template asks for {found[1]!r}, and no variable is called that", "")
        return text_of(here)

    return _VARIABLE.sub(value, template)


def _is_index(name: str, items: list[Any]) -> bool:
    return name.isdecimal() and int(name) < len(items)


def combinations(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A list of values stands for as many cases: every combination of them, up to the limit."""
    for chosen in islice(product(*_lists(values)), MOST_COMBINATIONS):
        yield dict(zip(values, chosen, strict=True))


def count(values: Mapping[str, Any]) -> int:
    """How many combinations there are, beyond the limit too."""
    return prod(map(len, _lists(values)))


def _lists(values: Mapping[str, Any]) -> list[list[Any]]:
    return [items if (items := as_list(value)) else [value] for value in values.values()]
