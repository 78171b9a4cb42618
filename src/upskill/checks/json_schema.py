"""A check that the answer is JSON of a given shape."""

from __future__ import annotations

import json
import re
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field, field_validator

from upskill.checks import Check, Evidence, Finding

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


class JsonSchema(Check):
    """Passes when the answer, or the one fenced block in it, is JSON that fits this JSON schema."""

    wanted: dict[str, Any] = Field(alias="schema", min_length=1)

    @field_validator("wanted")
    @classmethod
    def _is_a_schema(cls, wanted: dict[str, Any]) -> dict[str, Any]:
        try:
            Draft202012Validator.check_schema(wanted)
        except SchemaError as error:
            raise ValueError(f"not a JSON schema: {error.message}") from error
        return wanted

    async def look(self, evidence: Evidence) -> Finding:
        answer = evidence.trace.answer.strip()
        fenced = _FENCED.findall(answer)
        try:
            value = json.loads(fenced[0] if len(fenced) == 1 else answer)
        except (ValueError, RecursionError) as error:
            return Finding(False, f"the answer is not JSON: {error}")
        problem = next(iter(Draft202012Validator(self.wanted).iter_errors(value)), None)
        if problem is None:
            return Finding(True, "the answer is JSON that fits the schema")
        return Finding(False, f"the answer's JSON does not fit at {problem.json_path}: {problem.message[:200]}")
