"""The shapes in which people write a case: our own, and upstream's. Those of other tools are in `formats`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from shlex import quote
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from upskill.agents.mcp import SERVER_NAME, McpServer
from upskill.checks import ReadText, explain_refusal
from upskill.checks.workspace import expect_inside
from upskill.errors import UsageError, as_one
from upskill.plain import as_list, as_mapping, short

MAX_ANSWER = 80  # characters of an expected text that an answer can be asked to contain
PROMPT_FIELDS = (
    "prompt",
    "input",
    "question",
    "query",
    "task",
    "instruction",
    "user_input",
    "message",
)
EXPECTED_FIELDS = (
    "expected",
    "target",
    "answer",
    "expected_answer",
    "expected_output",
    "ideal",
    "reference",
    "output",
)


def mapping_or_empty(value: object) -> dict[str, Any]:
    """The value with text keys if it is a mapping, otherwise an empty one."""
    return as_mapping(value) or {}


def text_of(value: object) -> str:
    """A value as a prompt or a check can have it."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def texts_of(value: object) -> list[str]:
    items = as_list(value)
    return [
        text
        for item in (items if items is not None else [value])
        if (text := text_of(item)).strip()
    ]


def check_expected(value: object) -> list[dict[str, Any]]:
    """The check for an expected answer, or for several of which one will do: a judge compares what is long."""
    texts = [text.strip() for text in texts_of(value)]
    if not texts:
        return []
    if all(len(text) <= MAX_ANSWER and "\n" not in text for text in texts):
        return [{"contains": texts[0]} if len(texts) == 1 else {"contains_any": texts}]
    return [{"judge": factuality(" — or: ".join(texts))}]


def factuality(text: str) -> str:
    return f"The answer agrees in substance with this: {text.strip()}"


def meets(criteria: str) -> str:
    """What a judge affirms where another tool has a rubric."""
    return f"The answer meets these criteria: {criteria.strip()}" if criteria.strip() else ""


def messages_text(value: object) -> tuple[str, bool]:
    """The prompt that a text or chat messages make, and whether it is all they have."""
    if isinstance(value, str):
        return value, True
    only_text = True
    parts: list[tuple[str, str]] = []
    for message in filter(None, map(as_mapping, as_list(value) or [])):
        content = message.get("content")
        if (blocks := as_list(content)) is not None:
            texts = [mapping_or_empty(block).get("text") for block in blocks]
            only_text = only_text and all(isinstance(text, str) for text in texts)
            content = "\n".join(text for text in texts if isinstance(text, str))
        parts.append((str(message.get("role", "user")), text_of(content)))
    parts = [(role, text) for role, text in parts if text.strip()]
    if all(role in ("system", "user", "developer") for role, _ in parts):
        return "\n\n".join(text for _, text in parts), only_text
    return "\n\n".join(f"{role.capitalize()}: {text}" for role, text in parts), only_text


# What others call a check of ours, the words joined by underscores.
_KINDS = {
    **dict.fromkeys(("contains", "contains_all", "includes", "output_contains"), "contains"),
    **dict.fromkeys(("not_contains", "excludes", "output_not_contains"), "not_contains"),
    **dict.fromkeys(("regex", "matches", "pattern", "output_matches"), "regex"),
    **dict.fromkeys(("not_regex", "not_matches", "output_not_matches"), "not_regex"),
    **dict.fromkeys(("equals", "exact", "exact_match"), "equals"),
    **{name: name for name in ("contains_any", "starts_with", "min_length", "max_length")},
    **{name: name for name in ("file_exists", "json_schema", "tool_called", "tool_not_called")},
}
_JUDGED = {
    *(
        "",
        "judge",
        "llm",
        "llm_judge",
        "llm_rubric",
        "semantic",
        "manual",
        "qualitative",
        "quality",
        "behavior",
    ),
    *(
        "string_match",
        "text_match",
    ),  # of words that only a person can tell from the statement around them
}
_VALUES = (
    "values",
    "value",
    "pattern",
    "patterns",
    "text",
    "texts",
    "expected",
    "path",
    "schema",
    "tool",
)
_STATEMENTS = (
    *(
        "text",
        "statement",
        "assertion",
        "expectation",
        "description",
        "check",
        "criterion",
        "criteria",
    ),
    *("pass_if", "requirement", "rubric", "prompt", "value"),
)
# Fields that only name an assertion, and those that only weigh it: here every check has to hold.
_LABELS = {
    *(
        "type",
        "id",
        "name",
        "title",
        "label",
        "description",
        "text",
        "comment",
        "note",
        "notes",
        "reason",
    ),
    *("rationale", "explanation", "message", "error_message"),
}
_WEIGHTS = {
    "weight",
    "points",
    "score",
    "severity",
    "priority",
    "category",
    "tags",
    "metric",
    "required",
    "critical",
}
_DENIED = {"negate", "negated", "not", "invert"}
_CASE = {  # and what a true one says of `ignore_case`
    **dict.fromkeys(("ignore_case", "ignorecase", "case_insensitive", "caseinsensitive"), True),
    **dict.fromkeys(("case_sensitive", "casesensitive"), False),
}
_OPPOSITES = {
    "contains": "not_contains",
    "contains_any": "not_contains",
    "not_contains": "contains",
    "regex": "not_regex",
    "not_regex": "regex",
    "tool_called": "tool_not_called",
    "tool_not_called": "tool_called",
}
_TEXTS = ("contains", "contains_any", "not_contains", "equals", "starts_with")


@dataclass(frozen=True, slots=True)
class TypedChecks:
    """What an assertion with a type means here."""

    checks: list[dict[str, Any]] = dataclass_field(default_factory=list[dict[str, Any]])
    refused: str = ""  # why it has no checks
    unused: tuple[
        str, ...
    ] = ()  # its fields that mean nothing here, and do not change what it asserts


def typed_checks(assertion: dict[str, Any]) -> TypedChecks:
    """The checks that `{type: contains, values: […]}` means. One that says more than our checks can is rejected."""
    kind = str(assertion.get("type", "")).lower().replace("-", "_").replace(" ", "_")
    ours = _KINDS.get(kind)
    used = next((key for key in _VALUES if assertion.get(key) is not None), "")
    if "*" in text_of(assertion.get("path")):
        return TypedChecks(refused="upskill looks at files by name, not by pattern")
    if ours and used:
        return _typed(ours, assertion, used)
    path, value = text_of(assertion.get("path")), text_of(assertion.get("value"))
    if kind == "file_contains" and set(assertion) - _LABELS == {"path", "value"}:
        return TypedChecks([{kind: {"path": path, "text": value}}])
    if kind == "file_not_contains" and set(assertion) - _LABELS == {"path", "value"}:
        return TypedChecks([{"file_matches": {"path": path, "pattern": absent(re.escape(value))}}])
    if kind == "file_not_exists" and set(assertion) - _LABELS == {"path"}:
        return TypedChecks([{"command": f"test ! -e {quote(path)}"}])
    used = _statement_field(assertion)
    if kind not in _JUDGED or not used:
        return TypedChecks(refused="upskill has no check of this type")
    unused = [
        key
        for key in assertion
        if key not in {used, *_LABELS} and assertion[key] not in (None, False, "")
    ]
    if denied := _DENIED & set(unused):
        return TypedChecks(
            refused=f"a judge does not see {min(denied)!r}; say in words what must not be there"
        )
    return TypedChecks([{"judge": statement_of(assertion)}], unused=tuple(unused))


def _typed(ours: str, assertion: dict[str, Any], used: str) -> TypedChecks:
    denied = False
    options: dict[str, Any] = {}
    value, flags = assertion[used], ""
    unused: list[str] = []
    is_regex = ours.endswith("regex")
    for key, setting in assertion.items():
        name = key.lower()
        if key == used or name in _LABELS or setting is None:
            continue
        if name in _WEIGHTS:
            unused.append(key)
        elif name in _DENIED and isinstance(setting, bool):
            denied = denied or setting
        elif name in _CASE and isinstance(setting, bool) and (ours in _TEXTS or is_regex):
            options["ignore_case"] = _CASE[name] == setting
        elif name == "multiline" and isinstance(setting, bool) and is_regex:
            options[name] = setting
        elif (
            name == "flags"
            and is_regex
            and isinstance(setting, str)
            and set(setting) <= set("gimsu")
        ):
            flags = "".join(flag for flag in "ims" if flag in setting)
        else:
            return TypedChecks(refused=f"upskill has no check with the field {key!r}")
    takes_list = ours in (
        "contains",
        "contains_any",
        "not_contains",
        "equals",
        "file_exists",
        "tool_called",
    )
    values: list[Any] = [value] if takes_list else as_list(value) or [value]
    several = len(as_list(value) or [value]) > 1
    if denied and ours == "not_contains" and several:
        ours = "contains_any"
    elif denied and (ours not in _OPPOSITES or (several and ours != "contains_any")):
        return TypedChecks(refused="upskill has no check for the opposite")
    elif denied:
        ours = _OPPOSITES[ours]
    if flags:
        values = [f"(?{flags}){pattern}" for pattern in values]
    field = "pattern" if is_regex else "text"
    checks = [{ours: {field: each} | options if options else each} for each in values]
    return TypedChecks(checks, unused=tuple(unused))


# Fields about what an agent does.
ACTING = {
    **dict.fromkeys(("expect_tools", "required_tools"), "tool_called"),
    **dict.fromkeys(("reject_tools", "forbidden_tools"), "tool_not_called"),
    **dict.fromkeys(("max_turns", "max_iterations"), "max_turns"),
}


def acting_checks(field: str, value: object) -> list[dict[str, Any]]:
    if ACTING.get(field) == "max_turns":
        return [{"max_turns": value}] if isinstance(value, int) else []
    return [{ACTING[field]: tool} for tool in texts_of(value)] if field in ACTING else []


def statement_of(assertion: object) -> str:
    """What an assertion says in words."""
    fields = as_mapping(assertion)
    return text_of(assertion if fields is None else fields.get(_statement_field(fields))).strip()


def _statement_field(fields: dict[str, Any]) -> str:
    return next((key for key in _STATEMENTS if text_of(fields.get(key)).strip()), "")


# The beginning of a named group or a reference to one; what is escaped or in a class before it is passed over.
_GROUP = re.compile(r"\\k<(\w+)>|\\.|\[(?:\\.|[^\]\\])*\]|\(\?<(?![=!])", re.DOTALL)


def as_python(pattern: str, flags: str = "") -> str:
    """A pattern of JavaScript: `(?<name>` and `/…/i` are written differently in Python."""
    if literal := re.fullmatch(r"/(.+)/([gimsuy]*)", pattern, re.DOTALL):
        pattern, flags = literal[1], literal[2]
    pattern = _GROUP.sub(
        lambda group: "(?P<" if group[0] == "(?<" else f"(?P={group[1]})" if group[1] else group[0],
        pattern,
    )
    flags = "".join(flag for flag in "ims" if flag in flags)
    return f"(?{flags}){pattern}" if flags else pattern


def absent(pattern: str) -> str:
    """A pattern for texts in which this one is not found."""
    flags = pattern[: pattern.index(")") + 1] if re.match(r"\(\?[a-z]+\)", pattern) else ""
    return rf"{flags}\A(?![\s\S]*?(?:{pattern.removeprefix(flags)}))"


ReadFile = Callable[[str], bytes | None]
LISTS = ("cases", "tests", "evals")  # what the list of cases may be called


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


Shape = TypeVar("Shape", bound=Strict)


class Script(Strict):
    """Shell that does what a right, or a wrong, student would do. What it prints is the answer."""

    run: str


def _is_answer(value: object) -> object:
    script = mapping_or_empty(value)
    if not isinstance(value, str) and (set(script) != {"run"} or not str(script["run"]).strip()):
        raise ValueError("an answer must be text, or a script written as `run: COMMAND`")
    return value


Answer = Annotated[str | Script, BeforeValidator(_is_answer)]


# By the name that stands before their tools.
Servers = dict[Annotated[str, Field(pattern=SERVER_NAME, max_length=32)], McpServer]


class OurCase(Strict):
    """A task, and how a program can tell that it was done."""

    id: str | int | None = Field(
        default=None, description="Unique name in reports; it also decides the split."
    )
    prompt: str = Field(description="The question or task, as a person would put it.")
    files: dict[str, str] = Field(
        default={},
        description="Files by name: shown before the prompt, or placed in the workspace.",
    )
    tests: dict[str, str] | list[str] = Field(
        default={},
        description="Files that decide, by name, or names of `files`: laid anew for each check.",
    )
    outputs: list[str] | None = Field(
        default=None,
        min_length=1,
        description="What the student delivers, as paths and patterns; nothing else of it is graded.",
    )
    checks: list[Any] = Field(
        default=[], description="Checks on the answer; all of them must pass."
    )
    tags: list[str] = Field(default=[], description="Labels to select cases by.")
    group: str = Field(
        default="", description="Cases with the same group count as one for tasks like these."
    )
    held_out: bool | None = Field(
        default=None,
        description="Whether to hold it out of the search; if not set, its id decides.",
    )
    reference: str = Field(
        default="", description="An answer that must pass; it is checked before any run."
    )
    expected_output: str = Field(
        default="", description="A good answer described in words, for people."
    )
    evidence: list[str] = Field(default=[], description="The material it was made from.")
    output_file: str = Field(
        default="",
        description="A file that the agent writes; checks read it instead of the answer.",
    )
    right: list[Answer] = Field(
        default=[], description="More answers, phrased differently, or scripts that must pass."
    )
    wrong: list[Answer] = Field(
        default=[], description="Plausible answers, or scripts, that must fail."
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Token limit for an answer; an answer that is cut off fails.",
    )
    max_words: int | None = Field(
        default=None,
        ge=1,
        description="Length that the prompt asks for, in words; embedded models get twice the room.",
    )
    gpu: bool = Field(
        default=False,
        description="Whether its sandbox sees the NVIDIA GPU; these trials take turns.",
    )
    mcp_servers: Servers = Field(
        default={}, description="MCP servers that the agent gets in every arm, by name."
    )
    metadata: dict[str, Any] = Field(
        default={}, description="Any other data about the case; it has no effect."
    )


class OurSuite(Strict):
    """A suite file; what a skill or another tool says beside the cases is allowed."""

    cases: list[Any]
    checks: list[Any] = []
    max_output_tokens: int | None = Field(default=None, ge=1)
    mcp_servers: Servers = {}
    skill_name: Any = None
    name: Any = None
    description: Any = None
    version: Any = None
    metadata: Any = None


class UpstreamCase(Strict):
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


def from_upstream(case: UpstreamCase, where: str, warnings: list[str]) -> OurCase:
    expected = case.expected if isinstance(case.expected, dict) else {"contains": case.expected}
    checks: list[Any] = []
    for key, value in expected.items() if case.expected is not None else ():
        if key == "contains" and value in (None, "", []):
            raise UsageError(
                f"{where}: expected.contains is empty", "Every answer contains an empty string."
            )
        checks.append({key: value})
    for verifier in case.verifiers:
        typed = typed_checks(verifier)
        if typed.refused:
            raise UsageError(
                f"{where}: verifier of type {short(verifier.get('type'))}: {typed.refused}",
                "Write it as a check: contains, regex, command or judge.",
            )
        checks += typed.checks
        warnings += [f"{where}: {field} in a verifier is not used" for field in typed.unused]
    checks += case.checks
    if case.validator:
        checks.append({case.validator: case.validator_config or {}})
    context = case.context or {}
    files = as_mapping(context.get("files") or {})
    if files is None or not all(isinstance(text, str) for text in files.values()):
        raise UsageError(
            f"{where}: context.files must map file names to text", 'For example {"a.txt": "text"}.'
        )
    if unknown := set(context) - {"files"}:
        warnings.append(f"{where}: unknown field context.{sorted(unknown)[0]}, not used")
    fields: dict[str, Any] = {name: value for name, value in case if name in OurCase.model_fields}
    fields |= {
        "prompt": case.input,
        "files": files,
        "checks": checks,
        "output_file": case.output_file or "",
    }
    return OurCase(**fields)


def text_reader(read_file: ReadFile | None, where: str) -> ReadText:
    """Reads text files next to the suite; errors name this place."""

    def read(name: str) -> str:
        check_path(name, where)
        data = read_file(name) if read_file else None
        if data is None:
            raise UsageError(
                f"{where}: file {name!r} not found",
                "Put it next to the suite, or write its path relative to the skill's folder.",
            )
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}: the file {name!r} is not UTF-8 text") from error

    return read


def fit(kind: type[Shape], fields: dict[str, Any], where: str) -> Shape:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        firsts: dict[object, ErrorDetails] = {}  # each field can be wrong in several ways
        # A field that is not there first: it is most likely the missing one, spelled wrong.
        for wrong in sorted(
            error.errors(include_url=False), key=lambda wrong: wrong["type"] != "extra_forbidden"
        ):
            firsts.setdefault(wrong["loc"][:1], wrong)
        known = sorted(kind.model_fields)
        raise as_one(
            [explain_refusal(wrong, where, ": ", known) for wrong in firsts.values()]
        ) from error


def check_path(name: str, where: str) -> None:
    try:
        expect_inside(name)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
