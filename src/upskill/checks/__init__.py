"""A Check looks at the evidence of one trial and returns a Finding: passed or failed, with a reason.

A check's fields are what a suite file may say; its first field is the short form: `- contains: hello`. Kinds:
`contains`, `contains_any`, `not_contains`, `equals`, `regex`, `not_regex`, `starts_with`, `min_length`,
`max_length`, `json_schema`, `judge` (a model grades a statement).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from upskill.errors import UsageError, did_you_mean
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


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty, which decides nothing")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]  # the text that a check looks for


class Check(BaseModel, ABC):
    """Something that can be said of a trial. Its fields are what a suite file may say about it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)
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
    names = {info.alias or field: info for field, info in kind.model_fields.items()}
    first, info = next(iter(names.items()))
    given = as_mapping(value)
    if given is None or (get_origin(info.annotation) is dict and not (first in given and set(given) <= set(names))):
        given = {first: value}  # the short form
    try:
        return Named(name, value, kind.model_validate(given))
    except ValidationError as error:
        # A field that is not there first: it is most likely the missing one, spelled wrong.
        found = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        raise _refused(found[0], f"{where}: {name}", list(names)) from error


def _refused(error: ErrorDetails, place: str, names: list[str]) -> UsageError:
    path = ".".join(str(part) for part in error["loc"] if isinstance(part, str))
    if error["type"] == "extra_forbidden":
        return UsageError(f"{place}: no field is called {path!r}", did_you_mean(path, names))
    if error["type"] == "missing":
        return UsageError(f"{place}: has no {path}", f"Fields: {', '.join(names)}.")
    if error["type"] == "value_error":
        return UsageError(f"{place}.{path}: {error['msg'].removeprefix('Value error, ')}")
    hint = "Put it in quotes." if error["type"] == "string_type" and error["input"] is not None else ""
    return UsageError(f"{place}.{path}: {error['msg']}, not {short(error['input'])}", hint)
