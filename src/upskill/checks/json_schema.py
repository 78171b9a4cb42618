"""A check that the answer is JSON of a given shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field, field_validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from upskill.checks import Check, Evidence, Finding
from upskill.plain import as_list, as_mapping

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


class JsonSchema(Check):
    """Passes when the answer, or the one fenced block in it, is JSON that fits this JSON schema."""

    wanted: dict[str, Any] = Field(alias="schema")

    @field_validator("wanted")
    @classmethod
    def _is_a_schema(cls, wanted: dict[str, Any]) -> dict[str, Any]:
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
        return wanted

    async def look(self, evidence: Evidence) -> Finding:
        answer = evidence.trace.answer.strip()
        fenced = _FENCED.findall(answer)
        try:
            value = json.loads(fenced[0] if len(fenced) == 1 else answer, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            return Finding(False, f"the answer is not JSON: {error}")
        # An empty registry: nothing is fetched from the addresses that a schema names.
        validator = Draft202012Validator(self.wanted, registry=Registry[Any]())
        problem = next(iter(validator.iter_errors(value)), None)
        if problem is None:
            return Finding(True, "the answer is JSON that fits the schema")
        return Finding(False, f"the answer's JSON does not fit at {problem.json_path}: {problem.message[:200]}")


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


def _references(schema: object) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        mapping = as_mapping(value)
        if mapping and "$id" in mapping:  # references below count from there; jsonschema follows them
            continue
        if mapping and isinstance(mapping.get("$ref"), str):
            yield mapping["$ref"]
        waiting += mapping.values() if mapping else as_list(value) or []
