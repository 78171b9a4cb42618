"""A Check looks at the evidence of one trial and returns a Finding: passed or failed, with a reason.

A check's fields are what a suite file may say; its first field is the short form: `- contains: hello`. Kinds:
`contains`, `contains_any`, `not_contains`, `equals`, `regex`, `not_regex`, `starts_with`, `min_length`,
`max_length`, `json_schema`, `judge` (a model grades a statement).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from upskill.errors import UsageError
from upskill.models import Reply, Request
from upskill.plain import as_mapping, short
from upskill.registry import Registry
from upskill.traces import Trace

CHECKS = Registry(
    "check",
    "upskill.checks",
    {
        "contains": "upskill.checks.contains:Contains",
        "contains_any": "upskill.checks.contains:ContainsAny",
        "not_contains": "upskill.checks.contains:NotContains",
        "equals": "upskill.checks.equals:Equals",
        "starts_with": "upskill.checks.equals:StartsWith",
        "regex": "upskill.checks.regex:Regex",
        "not_regex": "upskill.checks.regex:NotRegex",
        "min_length": "upskill.checks.length:MinLength",
        "max_length": "upskill.checks.length:MaxLength",
        "json_schema": "upskill.checks.json_schema:JsonSchema",
        "judge": "upskill.checks.judge:Judge",
    },
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial left behind for checks to look at. `ask` reaches the judge model, where one was named."""

    trace: Trace
    prompt: str = ""
    ask: Callable[[Request], Awaitable[Reply]] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    passed: bool
    reason: str


class Check(BaseModel, ABC):
    """Something that can be said of a trial. Its fields are what a suite file may say about it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    needs_judge: ClassVar[bool] = False

    @abstractmethod
    async def look(self, evidence: Evidence) -> Finding: ...


@dataclass(frozen=True, slots=True)
class Named:
    """A check under the name it was called by in the suite, and the words it was called with."""

    name: str
    written: Any
    check: Check


def read_check(written: object, where: str) -> Named:
    """A check from its line in a suite: `{"contains": "hello"}` or `{"contains": {"text": "hello"}}`."""
    line = as_mapping(written)
    if line is None or len(line) != 1:
        raise UsageError(f"{where}: a check is one `name: value`, not {short(written)}", "For example: contains: hello")
    ((name, value),) = line.items()
    try:
        kind: type[Check] = CHECKS.load(name)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from error
    names = {info.alias or field: field for field, info in kind.model_fields.items()}
    first = next(iter(names))
    given = as_mapping(value)
    fields = given if given and first in given and set(given) <= set(names) else {first: value}
    try:
        return Named(name, value, kind.model_validate(fields))
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        place = ".".join([name, *(str(part) for part in first_error["loc"] if isinstance(part, str))])
        said = first_error["msg"].removeprefix("Value error, ")
        raise UsageError(f"{where}: {place}: {said}") from error
