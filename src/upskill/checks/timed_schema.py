"""JSON schemas within a time limit: whatever an answer is made of, holding it against a schema comes to an end.

Every keyword looks at the clock before it begins, patterns have the time that is left, and what `jsonschema` does in
quadratic time is done here in linear.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from referencing import Registry

from upskill.checks import patterns
from upskill.checks.patterns import TooLong, search
from upskill.plain import as_list, as_mapping, quoted

Keyword = Callable[[Any, Any, Any, dict[str, Any]], Iterable[ValidationError]]


class _Clock(threading.local):
    until: float = 0.0

    @property
    def left(self) -> float:
        left = self.until - time.thread_time()
        if left <= 0:
            raise TooLong(f"the schema was not held against it within {patterns.LIMIT:g} s")
        return left


_clock = _Clock()


def misfit(wanted: dict[str, Any], value: Any) -> str:
    """Where a value does not fit a schema, and why; empty when it does. TooLong where that takes too long."""
    _clock.until = time.thread_time() + patterns.LIMIT
    # Where a schema names its draft, jsonschema would go on with a validator of its own. An empty registry: nothing is
    # fetched from the addresses that a schema names.
    schema = {name: said for name, said in wanted.items() if name != "$schema"}
    validator = _Validator(schema, registry=Registry[Any]())
    problem = next(iter(validator.iter_errors(value)), None)
    return f"{problem.json_path}: {problem.message[:200]}" if problem else ""


def _pattern(validator: Any, wanted: str, value: Any, schema: dict[str, Any]) -> Iterator[ValidationError]:
    if isinstance(value, str) and search(wanted, value, limit=_clock.left) is None:
        yield ValidationError(f"{value!r} does not match {quoted(wanted)}")


def _pattern_properties(
    validator: Any, wanted: dict[str, Any], value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    for pattern, inner in wanted.items():
        for name, item in (as_mapping(value) or {}).items():
            if search(pattern, name, limit=_clock.left) is not None:
                yield from validator.descend(item, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, value: Any, schema: dict[str, Any]
) -> Iterable[ValidationError]:
    known, matching = schema.get("properties", {}), schema.get("patternProperties", {})
    others = {
        name: item
        for name, item in (as_mapping(value) or {}).items()
        if name not in known and all(search(pattern, name, limit=_clock.left) is None for pattern in matching)
    }
    return _STANDARD["additionalProperties"](validator, wanted, others, {})


def _unique_items(validator: Any, wanted: Any, value: Any, schema: dict[str, Any]) -> Iterator[ValidationError]:
    items = as_list(value)
    if not wanted or items is None:
        return
    seen: set[str] = set()
    for item in items:
        written = json.dumps(_comparable(item), sort_keys=True)
        if written in seen:
            yield ValidationError(f"{item!r:.100} is there more than once")
            return
        seen.add(written)


def _comparable(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is 1."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if (mapping := as_mapping(value)) is not None:
        return {name: _comparable(item) for name, item in mapping.items()}
    items = as_list(value)
    return value if items is None else [_comparable(item) for item in items]


def _timed(keyword: Keyword) -> Keyword:
    def timed(validator: Any, wanted: Any, value: Any, schema: dict[str, Any]) -> Iterable[ValidationError]:
        assert _clock.left
        return keyword(validator, wanted, value, schema) or ()

    return timed


_STANDARD = cast("dict[str, Keyword]", dict(Draft202012Validator.VALIDATORS))
_OURS: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_KEYWORDS = {name: _timed(keyword) for name, keyword in (_STANDARD | _OURS).items()}
_Validator = cast("type[Draft202012Validator]", extend(Draft202012Validator, _KEYWORDS))
