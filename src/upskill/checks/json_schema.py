"""Checks that the answer, or a file, is JSON of a given shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import AfterValidator, Field

from upskill.checks import Check, Evidence, Finding
from upskill.checks.workspace import FileCheck
from upskill.errors import CheckError
from upskill.plain import as_list, as_mapping, describe_json_error, load_json
from upskill.worker import work

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
    for part in _mappings(schema):
        for reference in (part.get("$ref"), part.get("$dynamicRef")):
            if isinstance(reference, str) and not _exists(reference, schema):
                raise ValueError(
                    f"not a valid JSON Schema: `$ref` points to {reference!r}, which does not exist"
                )
    return schema


def _exists(reference: str, schema: Any) -> bool:
    """In the schema itself: nothing is fetched from elsewhere. An anchor is looked for when it is followed."""
    try:
        for name in reference.split("/")[1:]:
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            items = as_list(schema)
            schema = schema[key] if items is None else items[int(key)]
    except (LookupError, TypeError, ValueError):
        return False
    return reference.startswith("#")


def _mappings(schema: object) -> Iterator[dict[str, Any]]:
    """Every object in a schema."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        mapping = as_mapping(value)
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
        problem = await work(find_problem, text, schema)
    except TimeoutError as error:
        raise CheckError(f"checking it against the schema took {error}") from None
    if problem:
        return Finding(False, what + problem)
    return Finding(True, f"{what} is JSON that matches the schema")


def find_problem(text: str, schema: dict[str, Any]) -> str:
    """Why a text is not JSON that fits a schema; empty when it is."""
    try:
        value = load_json(text)
    except ValueError as error:
        return f" is not JSON: {describe_json_error(error)}"
    # Where a schema names its draft, jsonschema would go on with a validator of another one.
    own_draft = {name: part for name, part in schema.items() if name != "$schema"}
    try:
        problem = next(Draft202012Validator(own_draft).iter_errors(value), None)
    except (RecursionError, OverflowError, LookupError) as error:
        return f"'s JSON cannot be checked against the schema: {error}"
    if problem is None:
        return ""
    return f"'s JSON does not match the schema at {problem.json_path}: {problem.message[:200]}"
