"""The shapes in which people write a case: our own, and upstream's. Those of other tools are in `formats`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from upskill.checks import ReadText
from upskill.errors import UsageError, as_one, did_you_mean
from upskill.plain import as_mapping, short
from upskill.suites.words import typed_checks

ReadFile = Callable[[str], bytes | None]
LISTS = ("cases", "tests", "evals")  # what the list of cases may be called


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


Shape = TypeVar("Shape", bound=_Strict)


class Script(_Strict):
    """Shell that does what a right, or a wrong, student would do. What it prints is the answer."""

    run: str


def _is_answer(value: object) -> object:
    said = as_mapping(value)
    if not isinstance(value, str) and (said is None or set(said) != {"run"} or not str(said["run"]).strip()):
        raise ValueError("an answer is a text, or a script written as `run: shell`")
    return value


Answer = Annotated[str | Script, BeforeValidator(_is_answer)]


class OurCase(_Strict):
    """A task, and how a program knows that it was done."""

    id: str | int | None = Field(default=None, description="Its name in reports, unique; it also decides the split.")
    prompt: str = Field(description="What the student is asked, as a person would put it.")
    files: dict[str, str] = Field(
        default={}, description="Files by name: shown before the prompt, or put into the workspace."
    )
    checks: list[Any] = Field(default=[], description="What a right answer has; all of them must hold.")
    tags: list[str] = Field(default=[], description="Words to choose cases by.")
    held_out: bool | None = Field(
        default=None, description="Whether it is kept from the search; drawn where it is not said."
    )
    reference: str = Field(default="", description="An answer that must pass; it is tried before anything is run.")
    expected_output: str = Field(default="", description="What a good answer is like, in words, for people.")
    evidence: list[str] = Field(default=[], description="The material that it was made from.")
    output_file: str = Field(
        default="", description="What an agent leaves in this file is looked at in place of its answer."
    )
    right: list[Answer] = Field(default=[], description="More answers that must pass, put differently, or scripts.")
    wrong: list[Answer] = Field(default=[], description="Plausible answers, or scripts, that must fail.")
    max_output_tokens: int | None = Field(
        default=None, ge=1, description="How long an answer may be; one cut off has failed."
    )
    gpu: bool = Field(default=False, description="Whether its sandbox shows the NVIDIA GPU; such trials take turns.")
    metadata: dict[str, Any] = Field(default={}, description="What others say about the case; it decides nothing.")


class UpstreamCase(_Strict):
    id: str | int | None = None
    input: str
    context: dict[str, Any] | None = None
    expected: dict[str, Any] | str | list[str] | None = None
    output_file: str | None = None
    validator: str | None = None
    validator_config: dict[str, Any] | None = None
    verifiers: list[dict[str, Any]] = []
    tags: list[str] = []
    held_out: bool | None = None
    checks: list[Any] = []  # this and what follows are our own
    reference: str = ""
    evidence: list[str] = []
    right: list[Answer] = []
    wrong: list[Answer] = []
    max_output_tokens: int | None = Field(default=None, ge=1)


def from_upstream(case: UpstreamCase, place: str, warnings: list[str]) -> OurCase:
    expected = case.expected if isinstance(case.expected, dict) else {"contains": case.expected}
    checks: list[Any] = []
    for key, value in expected.items() if case.expected is not None else ():
        if key == "contains":
            if value is None or value in ("", []):
                raise UsageError(f"{place}: expected.contains is empty", "An empty text is in every answer.")
            checks.append({"contains": value})
        else:
            checks.append({key: value})
    for verifier in case.verifiers:
        found = typed_checks(verifier)
        if found.refused:
            raise UsageError(
                f"{place}: the verifier of the type {short(verifier.get('type'))}: {found.refused}",
                "Write it as a check: contains, regex, command, judge.",
            )
        checks += found.checks
        warnings += [f"{place}: {field} of a verifier is not used" for field in found.unused]
    checks += case.checks
    if case.validator:
        checks.append({case.validator: case.validator_config or {}})
    context = case.context or {}
    files = as_mapping(context.get("files") or {})
    if files is None or not all(isinstance(text, str) for text in files.values()):
        raise UsageError(f"{place}: context.files maps file names to text", 'For example {"a.txt": "text"}.')
    if unknown := set(context) - {"files"}:
        warnings.append(f"{place}: context.{sorted(unknown)[0]} is not known and not used")
    return OurCase(
        id=case.id,
        prompt=case.input,
        files=files,
        checks=checks,
        tags=case.tags,
        held_out=case.held_out,
        reference=case.reference,
        evidence=case.evidence,
        output_file=case.output_file or "",
        right=case.right,
        wrong=case.wrong,
        max_output_tokens=case.max_output_tokens,
    )


def text_reader(read_file: ReadFile | None, place: str) -> ReadText:
    """Reads text files beside the suite; what cannot be read is blamed on this place."""

    def read(name: str) -> str:
        check_path(name, place)
        data = read_file(name) if read_file else None
        if data is None:
            raise UsageError(
                f"{place}: the file {name!r} is not there",
                "Put it beside the suite, or name it from the skill's folder.",
            )
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{place}: the file {name!r} is not UTF-8 text") from error

    return read


def fit(kind: type[Shape], said: dict[str, Any], place: str) -> Shape:
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        firsts: dict[object, ErrorDetails] = {}  # each field can be wrong in several ways
        for wrong in error.errors(include_url=False):
            firsts.setdefault(wrong["loc"][:1], wrong)
        raise as_one([_refusal(kind, wrong, place) for wrong in firsts.values()]) from error


def _refusal(kind: type[BaseModel], wrong: ErrorDetails, place: str) -> UsageError:
    path = ".".join(str(part) for part in wrong["loc"])
    if wrong["type"] == "extra_forbidden":
        fields = sorted(kind.model_fields)
        hint = did_you_mean(path, fields, otherwise=f"Fields: {', '.join(fields)}.")
        return UsageError(f"{place}: no field is called {path!r}", hint)
    if wrong["type"] == "missing":
        return UsageError(f"{place}: has no {path}")
    hint = "Put it in quotes." if wrong["type"] == "string_type" else ""
    said = wrong["msg"].removeprefix("Value error, ")
    return UsageError(f"{place}: {path}: {said}, not {short(wrong['input'])}", hint)


def check_path(name: str, place: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if (
        not path.parts
        or not name.strip()
        or path.is_absolute()
        or ".." in path.parts
        or "\0" in name
        or re.match(r"^[A-Za-z]:", name)
    ):
        raise UsageError(f"{place}: {short(name)} is not a path inside the workspace", "Use a plain relative path.")
