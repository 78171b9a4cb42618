"""Checks that the answer, or a file, is JSON of a given shape.

Validation is bounded in time: each keyword checks the clock, and what `jsonschema` does in quadratic time is linear
here.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from pydantic import AfterValidator, Field
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from upskill.checks import Check, Evidence, Finding, texts
from upskill.checks.texts import TooLong, compiles, search
from upskill.checks.workspace import FileCheck
from upskill.plain import as_list, as_mapping, describe_json_error, list_or_empty, quoted

_FENCED = re.compile(r"(```|~~~)([\w+-]{0,20})[ \t]*\n(.*?)\1", re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(json\s)?\s*([\[{][^`]*[\]}])\s*\1(?!`)", re.IGNORECASE)


def _is_a_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        raise ValueError("empty, so it can never fail")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"not a valid JSON Schema: {error.message}") from error
    except RecursionError as error:
        raise ValueError("not a valid JSON Schema: it is nested too deeply") from error
    resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for part in _mappings(schema, skip_ids=True):
        if isinstance(part.get("$ref"), str):
            try:
                resolver.lookup(part["$ref"])
            except Unresolvable as error:
                raise ValueError(
                    f"not a valid JSON Schema: `$ref` points to {part['$ref']!r}, which does not exist"
                ) from error
    keywords: set[str] = set()
    for part in _mappings(schema):
        keywords |= set(part)
        own = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
        for pattern in [*own, *(as_mapping(part.get("patternProperties")) or {})]:
            compiles(pattern)
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        raise ValueError(
            "patternProperties with unevaluatedProperties can take forever; use additionalProperties"
        )
    return schema


def _mappings(schema: object, *, skip_ids: bool = False) -> Iterator[dict[str, Any]]:
    """Every object in a schema; `skip_ids` leaves out those that have an address of their own."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        mapping = as_mapping(value)
        if (
            mapping and "$id" in mapping and skip_ids
        ):  # references below count from there; jsonschema follows them
            continue
        if mapping:
            yield mapping
        waiting += mapping.values() if mapping else as_list(value) or []


Schema = Annotated[dict[str, Any], AfterValidator(_is_a_schema)]


class JsonSchema(Check):
    """Passes when the answer, or the only JSON in it in a fenced block or backticks, fits this JSON schema."""

    wanted: Schema = Field(alias="schema")
    revision: ClassVar[int] = 1  # JSON in ~~~ or in single backticks was none once

    async def run(self, evidence: Evidence) -> Finding:
        answer = evidence.answer.strip()
        codes = [
            match[3] for match in _FENCED.finditer(answer) if match[2].casefold() in ("", "json")
        ]
        if not codes and not answer.startswith(
            ("{", "[", '"')
        ):  # a text in JSON may have backticks, too
            codes = [match[3] for match in _SPAN.finditer(answer)]
        return await _compare("the answer", codes[0] if len(codes) == 1 else answer, self.wanted)


class FileJsonSchema(FileCheck):
    """Passes when this file, as the agent left it, is JSON that fits this JSON schema."""

    wanted: Schema = Field(alias="schema")

    async def look_at(self, content: str) -> Finding:
        return await _compare(self.path, content, self.wanted)


async def _compare(what: str, text: str, schema: dict[str, Any]) -> Finding:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Finding(False, f"{what} is not JSON: {describe_json_error(error)}")
    try:
        problem = await asyncio.to_thread(schema_error, schema, value)
    except (
        RecursionError,
        OverflowError,
    ) as error:  # the value's doing: the schema was tried when it was read
        return Finding(False, f"{what}'s JSON cannot be checked against the schema: {error}")
    if problem:
        return Finding(False, f"{what}'s JSON does not match the schema at {problem}")
    return Finding(True, f"{what} is JSON that matches the schema")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


Keyword = Callable[[Any, Any, Any, dict[str, Any]], Iterable[ValidationError]]


_clock = threading.local()  # `until`: the processor time of a thread at which it gives up


def _time_left() -> float:
    left: float = _clock.until - time.thread_time()
    if left <= 0:
        raise TooLong(f"checking it against the schema took longer than {texts.LIMIT:g} s")
    return left


def schema_error(schema: dict[str, Any], value: Any) -> str:
    """Where and why a value does not fit a schema; empty when it fits. TooLong if that takes too long."""
    _clock.until = time.thread_time() + texts.LIMIT
    # Where a schema names its draft, jsonschema would go on with a validator of its own. An empty registry: nothing is
    # fetched from the addresses that a schema names.
    own_draft = {name: part for name, part in schema.items() if name != "$schema"}
    validator = _Validator(own_draft, registry=Registry[Any]())
    problem = next(iter(validator.iter_errors(value)), None)
    return f"{problem.json_path}: {problem.message[:200]}" if problem else ""


def _pattern(
    validator: Any, pattern: str, value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(value, str) and search(pattern, value, limit=_time_left()) is None:
        yield ValidationError(f"{value!r} does not match {quoted(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Any, value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    for pattern, inner in patterns.items():
        for name, item in (as_mapping(value) or {}).items():
            if search(pattern, name, limit=_time_left()) is not None:
                yield from validator.descend(item, inner, path=name, schema_path=pattern)


def _additional(
    validator: Any, allowed: Any, value: Any, schema: dict[str, Any]
) -> Iterable[ValidationError]:
    known, matching = schema.get("properties", {}), schema.get("patternProperties", {})
    others = {
        name: item
        for name, item in (as_mapping(value) or {}).items()
        if name not in known
        and all(search(pattern, name, limit=_time_left()) is None for pattern in matching)
    }
    return _STANDARD["additionalProperties"](validator, allowed, others, {})


def _unique_items(
    validator: Any, unique: Any, value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    counts = Counter(json.dumps(_comparable(item), sort_keys=True) for item in list_or_empty(value))
    if unique and counts and counts.most_common(1)[0][1] > 1:
        yield ValidationError(f"{counts.most_common(1)[0][0]:.100} appears more than once")


def _comparable(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is 1."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if (mapping := as_mapping(value)) is not None:
        return {name: _comparable(item) for name, item in mapping.items()}
    items = as_list(value)
    return value if items is None else [_comparable(item) for item in items]


def _timed(keyword: Keyword) -> Keyword:
    def timed(
        validator: Any, keyword_value: Any, value: Any, schema: dict[str, Any]
    ) -> Iterable[ValidationError]:
        _time_left()
        return keyword(validator, keyword_value, value, schema) or ()

    return timed


_STANDARD = cast("dict[str, Keyword]", dict(Draft202012Validator.VALIDATORS))
_OURS: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "uniqueItems": _unique_items,
}
_KEYWORDS = {name: _timed(keyword) for name, keyword in (_STANDARD | _OURS).items()}
_Validator = cast("type[Draft202012Validator]", extend(Draft202012Validator, _KEYWORDS))
