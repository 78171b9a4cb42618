"""promptfoo's configurations and test files. Jinja renders their templates, which are Nunjucks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty, load_json, short
from upskill.suites.files import Rows, decode
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import (
    PROMPT_FIELDS,
    as_python,
    factuality,
    mapping_or_empty,
    messages_text,
    text_of,
    texts_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment, Template

MAX_COMBINATIONS = 1_000  # of values that are lists
_TEMPLATE = re.compile(r"\{[{%]")
_PROGRAM_ENDINGS = (".js", ".cjs", ".mjs", ".ts", ".py", ".rb", ".sh", ".exe", ".go")
_TEXT_ENDINGS = (".txt", ".md", ".json", ".yaml", ".yml", ".j2", ".njk")
_TEST_FIELDS = {"vars", "assert"}
_CONFIG_FIELDS = {
    *("prompts", "providers", "targets", "tests", "scenarios", "defaultTest", "assertionTemplates"),
    *("description", "$schema", "outputPath", "sharing", "tags"),
}


def recognizes(data: object) -> bool:
    mapping = as_mapping(data)
    if mapping is None:
        return any(map(_is_test, list_or_empty(data)))
    beside_prompts = {"tests", "scenarios", "providers", "defaultTest", "targets"} & set(mapping)
    configures = "redteam" in mapping or ("prompts" in mapping and bool(beside_prompts))
    return configures or ("providers" in mapping and "tests" in mapping) or _is_test(mapping)


def _is_test(item: object) -> bool:
    test = mapping_or_empty(item)
    if "checks" in test:
        return False
    return bool(_TEST_FIELDS & set(test)) or any(name.startswith("__expected") for name in test)


@dataclass(frozen=True, slots=True)
class _Config:
    source: Source
    prompts: list[str]
    default: dict[str, Any]
    templates: dict[str, Any]
    lost_prompts: bool  # there are some, and none of them can be read


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.data)
    if "redteam" in mapping and not {"tests", "scenarios", "defaultTest"} & set(mapping):
        raise UsageError(
            f"{source.where}: promptfoo generates these cases with a model (`redteam`)",
            "Run `promptfoo redteam generate -o cases.yaml`, and import that file.",
        )
    bare = not ({"prompts", "tests", "scenarios"} & set(mapping))
    prompts = [] if bare else list(_prompts(mapping.get("prompts"), source))
    if len(prompts) > 1:
        source.notes.leave_out(
            "prompts", f"only the first of {len(prompts)} is imported; make one suite per prompt"
        )
    providers = [
        fields for key in ("providers", "targets") for fields in list_or_empty(mapping.get(key))
    ]
    if providers or {"providers", "targets"} & set(mapping):
        source.notes.leave_out("providers", "choose students with -m")
    if any(map(_transform, map(mapping_or_empty, providers))):
        source.notes.leave_out("transform in a provider", "checks read the unchanged answer")
    if not bare:
        source.notes.keep(key for key in mapping if key not in _CONFIG_FIELDS)
    default = mapping_or_empty(_loaded(mapping.get("defaultTest"), source))
    source.notes.keep(
        f"defaultTest.{key}"
        for key in default
        if key not in _TEST_FIELDS | {"options", "description"}
    )
    templates = mapping_or_empty(mapping.get("assertionTemplates"))
    config = _Config(
        source, prompts, default, templates, bool(mapping.get("prompts")) and not prompts
    )
    tests: list[dict[str, Any]] = list(
        _tests(source.data if bare else mapping.get("tests"), source)
    )
    for item in list_or_empty(
        mapping.get("scenarios")
    ):  # every test with every set of its variables
        scenario = mapping_or_empty(item)
        for row in as_list(scenario.get("config")) or [{}]:
            variables = mapping_or_empty(mapping_or_empty(row).get("vars"))
            for test in _tests(scenario.get("tests") or [], source):
                tests.append(test | {"vars": variables | mapping_or_empty(test.get("vars"))})
    if not tests and default.get("assert"):
        tests = [{}]
    for number, test in enumerate(tests, start=1):
        yield from _read(test, number, config)


def _is_program(name: str) -> bool:
    return name.partition(":")[0].endswith(_PROGRAM_ENDINGS)


def _prompts(value: object, source: Source) -> Iterator[str]:
    """The prompts as text. Programs that generate prompts cannot be imported."""
    items = as_list(value)
    mapping = as_mapping(value)
    for item in (
        items if items is not None else list(mapping) if mapping else [value] if value else []
    ):
        fields = mapping_or_empty(item)
        named = (fields[key] for key in ("raw", "content", "id", "path") if fields.get(key))
        text = text_of(next(named, "") if fields else item)
        name = text.removeprefix("file://").partition("#")[0].strip()
        is_path = name.endswith((*_TEXT_ENDINGS, *_PROGRAM_ENDINGS)) and " " not in name
        if "\n" in name or not (text.startswith("file://") or is_path):
            yield _as_text(text)
            continue
        if _is_program(name) or text.startswith("exec:"):
            source.notes.leave_out("prompt", f"{name} is a program; write out its prompt")
            continue
        for path in source.matching(name):
            try:
                content = source.read(path)
            except UsageError as error:
                source.leave_out("prompt", error)
                continue
            parts = content.split("\n---\n") if path.endswith(".txt") else [content]
            yield from (_as_text(part) for part in parts if part.strip())


def _as_text(text: str) -> str:
    """A prompt that is a list of chat messages, as one text."""
    if text.lstrip()[:1] in "[-" and "role" in text:
        try:
            return messages_text(decode(text.encode(), "prompt"))[0] or text
        except UsageError:
            return text
    return text


def _loaded(value: object, source: Source) -> object:
    if not isinstance(value, str) or not value.startswith("file://"):
        return value
    name = value.removeprefix("file://")
    if _is_program(name):
        raise UsageError(f"{name} is a program; write out its result")
    return source.load(name.removeprefix("./"))


def _tests(value: object, source: Source) -> Iterator[dict[str, Any]]:
    items = as_list(value)
    for item in items if items is not None else [value]:
        if not isinstance(item, str):
            if (test := as_mapping(item)) is not None:
                yield test
            continue
        name = item.removeprefix("file://")
        if item.startswith(("huggingface://", "http://", "https://")) or _is_program(name):
            source.notes.leave_out(
                "tests", f"{short(item)} is a program or a URL; save its output to a file"
            )
            continue
        for path in source.matching(name) or [name]:
            try:
                yield from _tests(source.load(path), source)
            except UsageError as error:
                source.leave_out("tests", error)


def _read(test: dict[str, Any], number: int, config: _Config) -> Iterator[Draft]:
    if isinstance(config.source.data, Rows) or any(name.startswith("__") for name in test):
        test = _from_row(test)
    location, notes = place_of(number, test), config.source.notes
    try:
        variables = mapping_or_empty(config.default.get("vars")) | _variables(
            test.get("vars"), config.source
        )
    except UsageError as error:
        message = error.message.removeprefix(f"{config.source.where}: ")
        problem = UsageError(f"{config.source.where}: {location}: {message}", error.hint)
        yield Draft(location, notes, problem=problem)
        return
    lists = [as_list(value) or [value] for value in variables.values()]
    if (count := prod(map(len, lists))) > MAX_COMBINATIONS:
        notes.leave_out(
            "vars", f"only {MAX_COMBINATIONS:,} of {count:,} combinations are imported", location
        )
    for turn, chosen in enumerate(islice(product(*lists), MAX_COMBINATIONS), start=1):
        draft = Draft(location if count == 1 else f"{location}, combination {turn}", notes)
        try:
            _fill_in(draft, test, dict(zip(variables, chosen, strict=True)), config)
        except UsageError as error:
            draft.problem = UsageError(
                f"{config.source.where}: {draft.place}: {error.message}", error.hint
            )
        yield draft


def _from_row(row: dict[str, Any]) -> dict[str, Any]:
    expected = [
        value
        for name, value in row.items()
        if name.startswith("__expected") and text_of(value).strip()
    ]
    used = ("__expected", "__description", "__prefix", "__suffix")
    return {
        "vars": {name: value for name, value in row.items() if not name.startswith("__")},
        "assert": [read_expected(text_of(value)) for value in expected],
        "description": text_of(row.get("__description")),
        "options": {
            name: row[f"__{name}"] for name in ("prefix", "suffix") if row.get(f"__{name}")
        },
    } | {
        name: value
        for name, value in row.items()
        if name.startswith("__") and not name.startswith(used)
    }


def _variables(value: object, source: Source) -> dict[str, Any]:
    variables = mapping_or_empty(_loaded(value, source))
    for name, content in variables.items():
        if isinstance(content, str) and content.startswith("file://"):
            path = content.removeprefix("file://")
            if _is_program(path):
                raise UsageError(
                    f"the variable {name!r} comes from the program {path}", "Write out its value."
                )
            variables[name] = source.read(path.removeprefix("./"))
    return variables


def _fill_in(draft: Draft, test: dict[str, Any], values: dict[str, Any], config: _Config) -> None:
    values = {
        name: fill(value, values) if isinstance(value, str) else value
        for name, value in values.items()
    }
    if config.lost_prompts:
        raise UsageError("none of the prompts can be read", "Write them out as text.")
    options = mapping_or_empty(config.default.get("options")) | mapping_or_empty(
        test.get("options")
    )
    prefix, suffix = (fill(text_of(options.get(name)), values) for name in ("prefix", "suffix"))
    if "transformVars" in options:
        raise UsageError("a program changes the variables (transformVars)", "Write out the result.")
    prompt = _as_text(fill(config.prompts[0], values)) if config.prompts else _only_text(values)
    draft.prompt = f"{prefix}{prompt}{suffix}"
    transform = _transform(options)
    draft.notes.keep(
        f"options.{name}" for name in options if name not in ("prefix", "suffix", *_TRANSFORMS)
    )
    draft.nothing = "no assertions"
    for item in [
        *_asserted(test.get("assert"), draft),
        *_asserted(config.default.get("assert"), draft),
    ]:
        template = text_of(mapping_or_empty(item).get("$ref")).rpartition("/")[2]
        draft.checks += _checks_of(
            _with_values(config.templates.get(template, item), values), draft, transform
        )
    if test.get("threshold", config.default.get("threshold")) not in (None, 1):
        draft.change("threshold in a case: every check must pass")
    if description := text_of(test.get("description")).strip():
        draft.id = " ".join(description.split())[:80]
    used = {"vars", "assert", "description", "options", "threshold"}
    draft.metadata = {name: value for name, value in test.items() if name not in used and value}


def _only_text(values: dict[str, Any]) -> str:
    """The prompt of a test file on its own: its only variable, or the one named like a prompt."""
    named = [name for name in PROMPT_FIELDS if name in values]
    if named or len(values) == 1:
        return text_of(values[named[0] if named else next(iter(values))])
    raise UsageError(
        f"the prompt for the variables ({', '.join(values) or 'none'}) is not in this file",
        "Import the configuration that contains the prompts and these tests.",
    )


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Render a template with these values; UsageError if that fails."""
    if not _TEMPLATE.search(template):
        return template
    try:
        return _template(template).render(values)
    except Exception as error:  # whatever a template runs into
        raise UsageError(
            f"the template cannot be rendered: {error}", "Write out the prompt."
        ) from error


@lru_cache(maxsize=256)
def _template(text: str) -> Template:
    return _environment().from_string(text)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import StrictUndefined, Undefined  # noqa: PLC0415 - few suites have templates
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Missing(
        StrictUndefined
    ):  # false in a condition, as for Nunjucks; an error where its text is asked for
        __slots__ = ()
        __bool__ = Undefined.__bool__

    def as_text(value: object) -> object:
        return value if isinstance(value, Undefined) else text_of(value)

    environment = ImmutableSandboxedEnvironment(
        undefined=Missing, keep_trailing_newline=True, finalize=as_text
    )
    environment.filters |= dict.fromkeys(("dump", "tojson"), _to_json)
    return environment


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _with_values(assertion: object, values: dict[str, Any]) -> object:
    fields = as_mapping(assertion)
    if fields is None or fields.get("type") in (
        "javascript",
        "python",
        "not-javascript",
        "not-python",
    ):
        return assertion
    value = fields.get("value")
    if isinstance(value, str) and "{{" in value:
        return fields | {"value": fill(value, values)}
    if (items := as_list(value)) is not None:
        return fields | {
            "value": [fill(item, values) if isinstance(item, str) else item for item in items]
        }
    inner = as_list(fields.get("assert"))
    return fields | {"assert": [_with_values(item, values) for item in inner]} if inner else fields


_REFUSED = {
    "javascript": "runs its own program; use `contains`, `regex` or a `python` check",
    "python": "runs its own program; use a `python` check: `def check(answer, workspace, trace)`",
    "ruby": "runs its own program; use a `python` or `command` check",
    "webhook": "calls a server; use a `python` or `command` check",
    "cost": "reported for every run; set a limit with `--require`",
    "latency": "reported for every run",
    "perplexity": "most models do not report it",
}
_GRADED = {"llm-rubric", "model-graded-closedqa", "g-eval", "agent-rubric", "search-rubric"}
_BESIDE = {
    "weight",
    "threshold",
    "metric",
    "provider",
    "rubricPrompt",
    "config",
    "contextTransform",
}
_TRANSFORMS = ("transform", "postprocess")  # the second is the older name
_ASSERTION_TYPES = {
    *(f"{letter}contains{end}" for letter in ("", "i") for end in ("", "-all", "-any")),
    *_REFUSED,
    *_GRADED,
    *(
        "factuality",
        "equals",
        "starts-with",
        "regex",
        "is-json",
        "contains-json",
        "is-sql",
        "is-xml",
        "is-html",
    ),
    *(
        "similar",
        "levenshtein",
        "rouge-n",
        "bleu",
        "gleu",
        "meteor",
        "answer-relevance",
        "conversation-relevance",
    ),
    *(
        "moderation",
        "guardrails",
        "classifier",
        "pi",
        "select-best",
        "max-score",
        "finish-reason",
        "perplexity-score",
    ),
    *("tool-call-f1", "skill-used", "word-count", "human", "min-length", "max-length"),
}
_LIKE_A_TYPE = (
    "is-",
    "contains-",
    "icontains-",
    "context-",
    "trace-",
    "trajectory:",
    "model-graded-",
)


def _asserted(value: object, draft: Draft) -> list[Any]:
    items = as_list(value)
    if items is None and value:
        why = f"reads {value}; write out its content" if isinstance(value, str) else "not a list"
        draft.leave_out("assert", why)
    return items or []


def _transform(fields: dict[str, Any]) -> str:
    """The program that transforms an answer before the assertions, on one line; empty without one."""
    program = next((text_of(fields[name]) for name in _TRANSFORMS if fields.get(name)), "")
    return " ".join(program.split())


def _checks_of(item: object, draft: Draft, transform: str) -> Iterator[dict[str, Any]]:
    """The checks of one assertion; what has no counterpart is left out with a note."""
    assertion = as_mapping(item)
    if assertion is None:
        draft.leave_out("assertion", f"{text_of(item)[:60]!r} is not an assertion")
        return
    kind = text_of(assertion.get("type")).strip()
    name = kind or "an assertion without a type"
    transform = _transform(assertion) or transform
    inside = "assert" if kind == "assert-set" else "value"
    if more := set(assertion) - {"type", "description", inside, *_BESIDE, *_TRANSFORMS}:
        draft.refuse(name, more)
    elif assertion.get("weight") == 0:
        draft.leave_out(name, "its weight is 0, so it has no effect")
    elif kind == "assert-set" and assertion.get("threshold") not in (None, 1):
        draft.leave_out(
            name, "only some of its assertions must pass, but in upskill every check must"
        )
    elif kind == "assert-set":
        for inner in _asserted(assertion.get("assert"), draft):
            yield from _checks_of(inner, draft, transform)
    elif transform and kind not in _REFUSED:
        draft.leave_out(name, f"checks the output of `{transform[:60]}`, not the answer")
    else:
        for key in sorted(_BESIDE & set(assertion)):
            if key != "metric" and assertion[key] not in (None, 1):
                draft.change(f"{key} in an assertion: every check must pass")
        yield from _typed_checks(kind, assertion.get("value"), draft)


def _typed_checks(kind: str, value: object, draft: Draft) -> Iterator[dict[str, Any]]:
    denied = kind.startswith("not-")
    name = kind.removeprefix("not-")
    why = _REFUSED.get(name, "")
    if not why and isinstance(value, str) and value.startswith("file://"):
        why = f"reads {value.removeprefix('file://')}; write out its content"
    if not why and name in _GRADED and not denied:
        draft.change(f"{kind}: a judge checks it (--judge)")
        yield from ({"judge": text} for text in texts_of(value))
    elif not why and name == "factuality" and not denied:
        draft.change(f"{kind}: a judge checks whether the answer agrees with it (--judge)")
        yield {"judge": factuality(text_of(value))}
    elif not why and (
        check := _search(name, value, denied=denied) or _form(name, value, denied=denied)
    ):
        if "json_schema" in check:
            draft.change(f"{kind}: also accepts JSON in the answer's only fenced block")
        yield check
    else:
        draft.leave_out(
            kind or "an assertion without a type", why or "upskill has no equivalent check"
        )


def _search(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    if name == "regex":
        return {
            "not_regex" if denied else "regex": {
                "pattern": as_python(text_of(value)),
                "multiline": False,
            }
        }
    texts = texts_of(value)
    if name.endswith(("-all", "-any")) and isinstance(value, str):
        texts = [text.strip() for text in value.split(",") if text.strip()]
    text = texts[0] if len(texts) == 1 else texts
    searched = text if name.startswith("icontains") else {"text": text, "ignore_case": False}
    match name.removeprefix("i"):
        case "contains":
            return {"not_contains" if denied else "contains": searched}
        case "contains-all" if not denied or len(texts) == 1:
            return {"not_contains" if denied else "contains": searched}
        case "contains-any":
            return {"not_contains" if denied else "contains_any": searched}
        case _:
            return None


def _form(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    text = text_of(value).strip()
    match name:
        case "equals" if denied:
            return {"not_regex": {"pattern": rf"\A\s*{re.escape(text)}\s*\Z", "multiline": False}}
        case "equals" if isinstance(value, dict | list):
            return {"json_schema": {"schema": {"const": value}}}
        case "equals":
            return {"equals": {"text": text, "exact": True}}
        case "starts-with" if denied:
            return {"not_regex": {"pattern": rf"\A\s*{re.escape(text)}", "multiline": False}}
        case "starts-with":
            return {"starts_with": {"text": text, "exact": True}}
        case "is-json" | "contains-json" if not denied:
            return {"json_schema": {"schema": _schema(value)}}
        case "min-length" if text.isdecimal() and not denied:
            return {"min_length": int(text)}
        case "max-length" if text.isdecimal() and not denied:
            return {"max_length": {"characters": int(text), "brief": True}}
        case "trajectory:tool-used":
            fields = mapping_or_empty(value)
            tools = texts_of(fields.get("name") or fields.get("pattern") or value)
            return {
                "tool_not_called" if denied else "tool_called": tools[0]
                if len(tools) == 1
                else tools
            }
        case _:
            return None


def _schema(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = load_json(value)
        except ValueError as error:
            raise UsageError(
                f"is-json: the schema is not valid JSON: {error}", "Write it in YAML."
            ) from error
    return as_mapping(value) or {"type": ["object", "array", "string", "number", "boolean", "null"]}


def read_expected(cell: str) -> dict[str, Any]:
    """The assertion in a cell of a CSV file: `contains: x`, `llm-rubric(0.8): x`, or the answer itself."""
    cell = cell.strip()
    if scheme := re.match(r"(?i)(grade|fn|eval|file)://?|(grade|fn|eval):", cell):
        kind = "llm-rubric" if scheme[0].lower().startswith("grade") else "javascript"
        return {"type": kind, "value": cell[scheme.end() :].strip()}
    if typed := re.match(
        r"(not-)?((?:trajectory:)?[a-z][a-z0-9-]*)(?:\(([\d.]+)\))?(?::\s*|$)", cell
    ):
        kind = f"{typed[1] or ''}{typed[2]}"
        if typed[2] in _ASSERTION_TYPES or typed[2].startswith(_LIKE_A_TYPE):
            value: Any = cell[typed.end() :].strip()
            return {"type": kind, "value": value or None} | (
                {"threshold": float(typed[3])} if typed[3] else {}
            )
    return {"type": "equals", "value": cell}


FORMAT = Format("promptfoo", recognizes, cases)
