"""Checks that the answer, or a file, is JSON of a given shape."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import AfterValidator, Field
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from upskill.checks import Check, Evidence, Finding
from upskill.checks.patterns import compiles
from upskill.checks.timed_schema import misfit
from upskill.checks.workspace import Path, SandboxCheck, read_left
from upskill.plain import as_list, as_mapping

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def _is_a_schema(wanted: dict[str, Any]) -> dict[str, Any]:
    if not wanted:
        raise ValueError("is empty, which decides nothing")
    try:
        Draft202012Validator.check_schema(wanted)
    except SchemaError as error:
        raise ValueError(f"not a JSON schema: {error.message}") from error
    except RecursionError as error:
        raise ValueError("not a JSON schema: it is nested too deeply") from error
    if (lost := _lost_reference(wanted)) is not None:
        raise ValueError(f"not a JSON schema: {lost!r} leads nowhere")
    _check_patterns(wanted)
    return wanted


Schema = Annotated[dict[str, Any], AfterValidator(_is_a_schema)]


class JsonSchema(Check):
    """Passes when the answer, or the one fenced block in it, is JSON that fits this JSON schema."""

    wanted: Schema = Field(alias="schema")

    async def run(self, evidence: Evidence) -> Finding:
        answer = evidence.answer.strip()
        fenced = _FENCED.findall(answer)
        return await _compare("the answer", fenced[0] if len(fenced) == 1 else answer, self.wanted)


class FileJsonSchema(SandboxCheck):
    """Passes when this file, as the agent left it, is JSON that fits this JSON schema."""

    path: Path
    wanted: Schema = Field(alias="schema")

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.path)
        return content if isinstance(content, Finding) else await _compare(self.path, content, self.wanted)


async def _compare(what: str, text: str, wanted: dict[str, Any]) -> Finding:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Finding(False, f"{what} is not JSON: {error}")
    try:
        problem = await asyncio.to_thread(misfit, wanted, value)
    except (RecursionError, OverflowError) as error:  # the value's doing: the schema was tried when it was read
        return Finding(False, f"{what}'s JSON cannot be held against the schema: {error}")
    if problem:
        return Finding(False, f"{what}'s JSON does not fit at {problem}")
    return Finding(True, f"{what} is JSON that fits the schema")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value that JSON has")


def _lost_reference(schema: dict[str, Any]) -> str | None:
    """The first `$ref` that leads out of the schema or to nothing in it."""
    resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return reference
    return None


def _check_patterns(schema: dict[str, Any]) -> None:
    """Refuse patterns that cannot be looked for within a time limit."""
    parts = list(_mappings(schema))
    for part in parts:
        if isinstance(part.get("pattern"), str):
            compiles(part["pattern"])
        for pattern in as_mapping(part.get("patternProperties")) or {}:
            compiles(pattern)
    if {"patternProperties", "unevaluatedProperties"} <= {name for part in parts for name in part}:
        raise ValueError("patternProperties with unevaluatedProperties may take for ever; use additionalProperties")


def _references(schema: object) -> Iterator[str]:
    return (part["$ref"] for part in _mappings(schema, whole=False) if isinstance(part.get("$ref"), str))


def _mappings(schema: object, *, whole: bool = True) -> Iterator[dict[str, Any]]:
    """Every object in a schema; unless the whole is asked for, without those that have an address of their own."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        mapping = as_mapping(value)
        if mapping and "$id" in mapping and not whole:  # references below count from there; jsonschema follows them
            continue
        if mapping:
            yield mapping
        waiting += mapping.values() if mapping else as_list(value) or []
