"""A Check looks at the evidence of one trial and returns a Finding: passed or failed, with a reason.

A check's fields are what a suite file may say; the first is the short form: `- contains: hello`. Checks run in suite
order, so that `extract` can put code into a file for those that follow.

Kinds: `answer` (its text), `json_schema`, `command_line`, `judge` (a model grades it), `files`, `extract` (code into
a file), `programs` (run on what was delivered), `kernel` (CUDA, in tiers), `tools` (what was done). They share `texts`,
`workspace` (where they look and work) and `room` (what comes there).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from upskill.errors import UsageError, did_you_mean
from upskill.models import Reply, Request
from upskill.plain import as_mapping, short
from upskill.registry import Registry
from upskill.sandboxes import Sandbox
from upskill.traces import Trace

CHECKS = Registry(
    "check",
    "upskill.checks",
    {
        "contains": "upskill.checks.answer:Contains",
        "contains_any": "upskill.checks.answer:ContainsAny",
        "not_contains": "upskill.checks.answer:NotContains",
        "equals": "upskill.checks.answer:Equals",
        "starts_with": "upskill.checks.answer:StartsWith",
        "regex": "upskill.checks.answer:Regex",
        "not_regex": "upskill.checks.answer:NotRegex",
        "min_length": "upskill.checks.answer:MinLength",
        "max_length": "upskill.checks.answer:MaxLength",
        "json_schema": "upskill.checks.json_schema:JsonSchema",
        "command_line": "upskill.checks.command_line:CommandLine",
        "judge": "upskill.checks.judge:Judge",
        "file_exists": "upskill.checks.files:FileExists",
        "file_contains": "upskill.checks.files:FileContains",
        "file_matches": "upskill.checks.files:FileMatches",
        "file_json_schema": "upskill.checks.json_schema:FileJsonSchema",
        "extract": "upskill.checks.extract:Extract",
        "compiles": "upskill.checks.programs.compiles:Compiles",
        "command": "upskill.checks.programs.command:Command",
        "python": "upskill.checks.programs.python:PythonCheck",
        "kernel": "upskill.checks.kernel.tiers:KernelTiers",
        "kernel_compiles": "upskill.checks.kernel.tiers:KernelCompiles",
        "kernel_resources": "upskill.checks.kernel.tiers:KernelResources",
        "kernel_project": "upskill.checks.kernel.project:KernelProject",
        "kernel_correct": "upskill.checks.kernel.tiers:KernelCorrect",
        "kernel_faster": "upskill.checks.kernel.tiers:KernelFaster",
        "tool_called": "upskill.checks.tools:ToolCalled",
        "tool_not_called": "upskill.checks.tools:ToolNotCalled",
        "max_turns": "upskill.checks.tools:MaxTurns",
        "skill_activated": "upskill.checks.tools:SkillActivated",
        "resource_read": "upskill.checks.tools:ResourceRead",
    },
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What checks look at. `ask` reaches the judge model, if one was named; `sandbox` is the room."""

    trace: Trace
    prompt: str = ""
    ask: Callable[[Request], Awaitable[Reply]] | None = None
    sandbox: Sandbox | None = None
    skill: str = ""  # the name of the skill that could be opened; empty where none was on offer
    canary: str = ""  # the word in its body that nothing else has
    reference: str = ""  # the answer that the case itself gives
    output: str | None = None  # what an agent left in the file that the case names for it
    check_files: str = ""  # the folder in the room with the check's own files
    in_own_workspace: bool = (
        False  # graded in all that the student left, and not in what it delivers
    )
    skill_body: str = ""  # what the skill of the trial says; empty without one

    @property
    def answer(self) -> str:
        """The output file if there is one, else what was said last."""
        return self.trace.answer if self.output is None else self.output


@dataclass(frozen=True, slots=True)
class Finding:
    passed: bool
    reason: str
    decides: bool = (
        True  # False: reported beside the outcome, like an answer that is right but verbose
    )
    broke: bool = False  # the check crashed on what it looked at


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("empty, so it can never fail")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]  # the text that a check looks for


ReadText = Callable[
    [str], str
]  # the text of a file beside the suite; UsageError where there is none


class SuiteLine(BaseModel, ABC):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, strict=True, defer_build=True
    )

    @classmethod
    def resolve(cls, config: dict[str, Any], read: ReadText) -> dict[str, Any]:
        """The fields with the text of the files that they name, which is stored as a part of the case."""
        return config


class CheckBlock(SuiteLine):
    """A line that stands for several checks."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Mapping[str, Any]]:
        """Those checks, as a suite would write them."""


class Check(SuiteLine):
    reads_answer: ClassVar[bool] = (
        True  # False: another answer to the same case would be found the same
    )
    needs_gpu: ClassVar[bool] = False
    revision: ClassVar[int] = (
        0  # raised when the same words in a suite come to mean something else; part of keys
    )

    @property
    def asks(self) -> int:
        """How often it asks the judge."""
        return 0

    @property
    def needs_judge(self) -> bool:
        return self.asks > 0

    @property
    def prompts(self) -> Sequence[str]:
        """What the judge is told before it sees anything of the case; part of a trial's key."""
        return ()

    @property
    def needs_sandbox(self) -> bool:
        """Whether it runs something, or looks at files that the agent left."""
        return False

    @property
    def needs_reference(self) -> bool:
        return False

    @property
    def decides(self) -> bool:
        """Whether the outcome of a trial depends on it; False for what only an arm with a skill can do."""
        return True

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the workspace that it looks at, which a student delivers."""
        return ()

    @property
    def own_files(self) -> Mapping[str, str]:
        """The grader's files, by their name in `$CHECK`."""
        return {}

    @property
    def program(self) -> str:
        """What it runs, as text; to warn of files that it uses and a student may change."""
        return ""

    def expect_tools(self) -> None:
        """MissingTool where this machine cannot run it: asked before anything is paid for."""

    @abstractmethod
    async def run(self, evidence: Evidence) -> Finding: ...


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """A check under its name in the suite, with its config there."""

    name: str
    config: Any
    check: Check


def _outputs_instead(name: str, config: Mapping[str, Any]) -> str:
    del name
    return (
        f"Write this beside the checks of the case: outputs: {json.dumps(config['keeps'])}. What it"
        " lists comes from the student, and everything else is as the case brought it."
    )


def _answer_alone_instead(name: str, config: Mapping[str, Any]) -> str:
    plain = {field: value for field, value in config.items() if field != "asserted"}
    lines = f"Write this, which looks for the text and nothing else: {json.dumps({name: plain})}."
    if name in ("contains", "contains_any"):
        alone = json.dumps({"equals": plain.get("text")})
        lines += f" Better, if one text is the answer: ask for it alone, and write: {alone}."
    return lines


# Fields that checks had, and what to write instead.
RETIRED: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "keeps": _outputs_instead,
    "asserted": _answer_alone_instead,
}


def _nothing_beside(name: str) -> str:
    raise UsageError(f"the file {name!r} does not exist", "Put it next to the suite.")


def read_checks(line: object, where: str, read: ReadText = _nothing_beside) -> list[SuiteCheck]:
    """The checks that a line stands for: `{"contains": "hello"}` or `{"contains": {"text": "hello"}}`."""
    mapping = as_mapping(line)
    if mapping is None or len(mapping) != 1:
        raise UsageError(
            f"{where}: a check must be a single `name: value`, not {short(line)}",
            "For example: contains: hello",
        )
    ((name, value),) = mapping.items()
    try:
        kind: type[Check | CheckBlock] = CHECKS.load(name)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from error
    fields = {info.alias or field: info for field, info in kind.model_fields.items()}
    first, info = next(iter(fields.items()))
    config = as_mapping(value)
    if config is None or (
        get_origin(info.annotation) is dict and not (first in config and set(config) <= set(fields))
    ):
        config = {first: value}  # the short form
    for retired, instead in RETIRED.items():
        if retired in config:
            raise UsageError(f"{where}: {name}: `{retired}` is no more", instead(name, config))
    try:
        resolved = kind.resolve(config, read)
    except UsageError as error:
        if error.message.startswith(where):
            raise
        raise UsageError(f"{where}: {name}: {error.message}", error.hint) from error
    try:
        check = kind.model_validate(resolved)
    except ValidationError as error:
        # A field that is not there first: it is most likely the missing one, spelled wrong.
        details = sorted(
            error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden"
        )
        raise explain_refusal(details[0], f"{where}: {name}", ".", fields) from error
    if isinstance(check, Check):
        return [SuiteCheck(name, value if resolved is config else resolved, check)]
    return [each for part in check.parts for each in read_checks(part, where, read)]


def explain_refusal(
    error: ErrorDetails, where: str, separator: str, fields: Iterable[str]
) -> UsageError:
    path = ".".join(str(part) for part in error["loc"] if isinstance(part, str))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(path, fields, otherwise=f"Fields: {', '.join(fields)}.")
        return UsageError(f"{where}: unknown field {path!r}", hint)
    if error["type"] == "missing":
        return UsageError(f"{where}: no {path}", f"Fields: {', '.join(fields)}.")
    where = f"{where}{separator}{path}" if path else where
    if error["type"] == "value_error":
        return UsageError(f"{where}: {error['msg'].removeprefix('Value error, ')}")
    hint = (
        "Put it in quotes." if error["type"] == "string_type" and error["input"] is not None else ""
    )
    return UsageError(f"{where}: {error['msg']}, not {short(error['input'])}", hint)
