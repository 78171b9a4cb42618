"""promptfoo's configurations and test files: prompts with variables, and assertions about what comes back.

Of templates, only variables are filled in: no tags, no filters.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty, short
from upskill.suites.files import Rows, decode
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import PROMPT_FIELDS, factuality, mapping_or_empty, messages_text, text_of, texts_of

MAX_COMBINATIONS = 1_000  # of values that are lists
_VARIABLE = re.compile(r"\{\{-?\s*([^{}|]+?)\s*(\|[^{}]*)?-?\}\}")
_HARMLESS = {"trim", "safe", "dump", "string", "tojson"}  # filters that leave a text as it is


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The text with its variables put in; UsageError for what takes more than that."""
    if tag := re.search(r"\{%-?\s*(\w+)", template):
        raise UsageError(
            f"its template has the tag {tag[1]!r}, and only variables are put in", "Write the prompts out."
        )

    def value(found: re.Match[str]) -> str:
        filters = {part.strip() for part in (found[2] or "").split("|") if part.strip()}
        if not filters <= _HARMLESS:
            raise UsageError(
                f"its template has the filter {sorted(filters - _HARMLESS)[0]!r}", "Write the prompts out."
            )
        here: Any = dict(values)
        for name in re.findall(r"[\w-]+", found[1]):
            inner = as_mapping(here)
            items = as_list(here)
            here = (inner or {}).get(name) if items is None else items[int(name)] if _is_index(name, items) else None
            if here is None:
                raise UsageError(f"its template asks for {found[1]!r}, and no variable is called that", "")
        return text_of(here)

    return _VARIABLE.sub(value, template)


def _is_index(name: str, items: list[Any]) -> bool:
    return name.isdecimal() and int(name) < len(items)


def combinations(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A list of values stands for as many cases: every combination of them, up to the limit."""
    for chosen in islice(product(*_lists(values)), MAX_COMBINATIONS):
        yield dict(zip(values, chosen, strict=True))


def count(values: Mapping[str, Any]) -> int:
    """How many combinations there are, beyond the limit too."""
    return prod(map(len, _lists(values)))


def _lists(values: Mapping[str, Any]) -> list[list[Any]]:
    return [items if (items := as_list(value)) else [value] for value in values.values()]


Leave = Callable[[str, str], None]  # what is left out, and why
_RUN_BY_PROMPTFOO = {
    "javascript": "runs a program of its own; say it with `contains`, `regex` or a `python` check",
    "python": "runs a program of its own; make it a `python` check: `def check(answer, workspace, trace)`",
    "ruby": "runs a program of its own; make it a `python` or `command` check",
    "webhook": "asks a server; make it a `python` or `command` check",
}
_MEASURED = {
    "cost": "is reported for every run; `--require` can ask for it",
    "latency": "is reported for every run",
    "perplexity": "cannot be told of most models",
}
_GRADED = {"llm-rubric", "model-graded-closedqa", "g-eval", "agent-rubric", "search-rubric"}
_BESIDE = {"weight", "threshold", "metric", "provider", "transform", "rubricPrompt", "config", "contextTransform"}


def checks_of(said: object, leave_out: Leave, change: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The checks of one assertion; what has no counterpart is told."""
    assertion = as_mapping(said)
    if assertion is None:
        leave_out("assertion", f"{text_of(said)[:60]!r} is not one")
        return
    kind = text_of(assertion.get("type")).strip()
    if kind == "assert-set":
        change("assert-set: all of its assertions must hold")
        for item in asserted(assertion.get("assert"), leave_out):
            yield from checks_of(item, leave_out, change)
        return
    if more := sorted(set(assertion) - {"type", "value", "description"} - _BESIDE):
        leave_out(kind or "an assertion without a type", f"no check of ours has its field {more[0]!r}")
        return
    for key in sorted(_BESIDE & set(assertion)):
        if key != "metric" and assertion[key] not in (None, 1):
            change(f"{key} of an assertion: every check has to hold, as it is")
    yield from _check(kind, assertion.get("value"), leave_out, change)


def asserted(said: object, leave_out: Leave) -> list[Any]:
    """The assertions that stand in `assert`."""
    items = as_list(said)
    if items is None and said:
        leave_out("assert", f"reads {said}; write out what it says" if isinstance(said, str) else "is not a list")
    return items or []


def _check(kind: str, value: object, leave_out: Leave, change: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    denied = kind.startswith("not-")
    name = kind.removeprefix("not-")
    why = _RUN_BY_PROMPTFOO.get(name) or _MEASURED.get(name)
    if why is None and isinstance(value, str) and value.startswith("file://"):
        why = f"reads {value.removeprefix('file://')}; write out what it says"
    if why is None and name in _GRADED and not denied:
        change(f"{kind}: a judge finds whether it is true (--judge)")
        yield from ({"judge": text} for text in texts_of(value))
    elif why is None and name == "factuality" and not denied:
        change(f"{kind}: a judge finds whether the answer agrees with it (--judge)")
        yield {"judge": factuality(text_of(value))}
    elif why is None and (check := _search(name, value, denied=denied) or _form(name, value, denied=denied)):
        if "json_schema" in check:
            change(f"{kind}: JSON in the one fenced block of an answer will do, too")
        yield check
    else:
        leave_out(kind or "an assertion without a type", why or "no check of ours says the same")


def _search(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    """Those that look for texts or a pattern."""
    blind = name.startswith("icontains")
    texts = texts_of(value)
    if name.endswith(("-all", "-any")) and isinstance(value, str):
        texts = [text.strip() for text in value.split(",") if text.strip()]
    words: dict[str, Any] = {"text": texts[0] if len(texts) == 1 else texts}
    words |= {} if blind else {"ignore_case": False}
    short: Any = words["text"] if blind else words
    match name.removeprefix("i") if blind else name:
        case "contains":
            return {"not_contains" if denied else "contains": short}
        case "contains-all" if not denied or len(texts) == 1:
            return {"not_contains" if denied else "contains": short}
        case "contains-any":
            return {"not_contains" if denied else "contains_any": short}
        case "regex":
            return {"not_regex" if denied else "regex": {"pattern": _as_python(text_of(value)), "multiline": False}}
        case _:
            return None


def _form(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    """Those that look at the whole answer."""
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
            return {"tool_not_called" if denied else "tool_called": tools[0] if len(tools) == 1 else tools}
        case _:
            return None


def _schema(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UsageError(f"is-json: its schema is not JSON: {error}", "Write it as YAML.") from error
    return as_mapping(value) or {"type": ["object", "array", "string", "number", "boolean", "null"]}


# The beginning of a named group or a reference to one; what is escaped or in a class before it is passed over.
_GROUP = re.compile(r"\\k<(\w+)>|\\.|\[(?:\\.|[^\]\\])*\]|\(\?<(?![=!])", re.DOTALL)


def _as_python(pattern: str) -> str:
    """A pattern of JavaScript: `(?<name>` and `/…/i` are written differently in Python."""
    flags = ""
    if whole := re.fullmatch(r"/(.+)/([gimsuy]*)", pattern, re.DOTALL):
        pattern, flags = whole[1], "".join(flag for flag in "ims" if flag in whole[2])
    pattern = _GROUP.sub(
        lambda found: "(?P<" if found[0] == "(?<" else f"(?P={found[1]})" if found[1] else found[0], pattern
    )
    return f"(?{flags}){pattern}" if flags else pattern


def read_expected(said: str) -> dict[str, Any]:
    """The assertion in a cell of a CSV file: `contains: x`, `llm-rubric(0.8): x`, or the answer itself."""
    said = said.strip()
    if found := re.match(r"(?i)(grade|fn|eval|file)://?|(grade|fn|eval):", said):
        kind = "llm-rubric" if found[0].lower().startswith("grade") else "javascript"
        return {"type": kind, "value": said[found.end() :].strip()}
    if found := re.match(r"(not-)?((?:trajectory:)?[a-z][a-z0-9-]*)(?:\(([\d.]+)\))?(?::\s*|$)", said):
        kind = f"{found[1] or ''}{found[2]}"
        if found[2] in _ASSERTION_TYPES or found[2].startswith(_LIKE_A_NAME):
            value: Any = said[found.end() :].strip()
            return {"type": kind, "value": value or None} | ({"threshold": float(found[3])} if found[3] else {})
    return {"type": "equals", "value": said}


_ASSERTION_TYPES = {
    *(f"{letter}contains{end}" for letter in ("", "i") for end in ("", "-all", "-any")),
    *(_RUN_BY_PROMPTFOO | _MEASURED),
    *_GRADED,
    *("factuality", "equals", "starts-with", "regex", "is-json", "contains-json", "is-sql", "is-xml", "is-html"),
    *("similar", "levenshtein", "rouge-n", "bleu", "gleu", "meteor", "answer-relevance", "conversation-relevance"),
    *("moderation", "guardrails", "classifier", "pi", "select-best", "max-score", "finish-reason", "perplexity-score"),
    *("tool-call-f1", "skill-used", "word-count", "human", "min-length", "max-length"),
}
_LIKE_A_NAME = ("is-", "contains-", "icontains-", "context-", "trace-", "trajectory:", "model-graded-")


_PROGRAM_ENDINGS = (".js", ".cjs", ".mjs", ".ts", ".py", ".rb", ".sh", ".exe", ".go")
_TEST_FIELDS = {"vars", "assert"}
_CONFIG_FIELDS = {
    *("prompts", "providers", "targets", "tests", "scenarios", "defaultTest", "assertionTemplates"),
    *("description", "$schema", "outputPath", "sharing", "tags"),
}


def recognizes(said: object) -> bool:
    mapping = as_mapping(said)
    if mapping is not None:
        whole = "prompts" in mapping and bool(
            {"tests", "scenarios", "providers", "defaultTest", "targets"} & set(mapping)
        )
        return whole or ("providers" in mapping and "tests" in mapping) or _is_test(mapping)
    items = list_or_empty(said)
    return bool(items) and any(_is_test(item) for item in items)


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
    mapping = mapping_or_empty(source.said)
    bare = not ({"prompts", "tests", "scenarios"} & set(mapping))
    prompts = [] if bare else list(_prompts(mapping.get("prompts"), source))
    if len(prompts) > 1:
        source.notes.leave_out("prompts", f"only the first of {len(prompts)} is taken; each makes a suite of its own")
    if {"providers", "targets"} & set(mapping):
        source.notes.leave_out("providers", "students are named with -m")
    if not bare:
        source.notes.keep(key for key in mapping if key not in _CONFIG_FIELDS)
    lost = bool(mapping.get("prompts")) and not prompts
    default = mapping_or_empty(_loaded(mapping.get("defaultTest"), source))
    config = _Config(source, prompts, default, mapping_or_empty(mapping.get("assertionTemplates")), lost)
    source.notes.keep(f"defaultTest.{key}" for key in default if key not in _TEST_FIELDS | {"options", "description"})
    found = [*_tests(source.said if bare else mapping.get("tests"), source), *_scenarios(mapping, source)]
    if not found and default.get("assert"):
        found: list[dict[str, Any]] = [{}]
    for number, test in enumerate(found, start=1):
        yield from _read(test, number, config)


def _prompts(said: object, source: Source) -> Iterator[str]:
    """The prompts as text. A program that makes them cannot be carried over."""
    items = as_list(said)
    mapping = as_mapping(said)
    for item in items if items is not None else list(mapping) if mapping else [said] if said else []:
        fields = mapping_or_empty(item)
        text = text_of(fields.get("raw") or fields.get("content") or fields.get("id") or fields.get("path") or "")
        text = text_of(item) if not fields else text
        name = text.removeprefix("file://").partition("#")[0].strip()
        if "\n" in name or not (text.startswith("file://") or _is_path(name)):
            yield _as_text(text)
            continue
        if name.partition(":")[0].endswith(_PROGRAM_ENDINGS) or text.startswith("exec:"):
            source.notes.leave_out("prompt", f"{name} is a program; write its prompt out")
            continue
        for path in _matching(name, source):
            try:
                content = source.read(path)
            except UsageError as error:
                source.notes.leave_out("prompt", error.message.removeprefix(f"{source.where}: "))
                continue
            parts = content.split("\n---\n") if path.endswith(".txt") else [content]
            yield from (_as_text(part) for part in parts if part.strip())


def _is_path(name: str) -> bool:
    return (
        name.endswith((".txt", ".md", ".json", ".yaml", ".yml", ".j2", ".njk", *_PROGRAM_ENDINGS)) and " " not in name
    )


def _as_text(text: str) -> str:
    """A prompt that is a list of chat messages, as one text."""
    if text.lstrip()[:1] in "[-" and "role" in text:
        try:
            said, _ = messages_text(decode(text.encode(), "prompt"))
        except UsageError:
            return text
        return said or text
    return text


def _matching(name: str, source: Source) -> list[str]:
    if "*" not in name:
        return [name.removeprefix("./")]
    folder = name.removeprefix("./").partition("*")[0].rpartition("/")[0]
    return [path for path in source.below(folder or ".") if fnmatch.fnmatch(path, name.removeprefix("./"))]


def _loaded(said: object, source: Source) -> object:
    """What a `file://` stands for, or what was said."""
    if not isinstance(said, str) or not said.startswith("file://"):
        return said
    name = said.removeprefix("file://")
    if name.partition(":")[0].endswith(_PROGRAM_ENDINGS):
        raise UsageError(f"{name} is a program; write out what it makes")
    return decode(source.read(name.removeprefix("./")).encode(), name)


def _tests(said: object, source: Source) -> Iterator[dict[str, Any]]:
    """The tests, also those in files that are named in their place."""
    items = as_list(said)
    for item in items if items is not None else [said]:
        if not isinstance(item, str):
            if (test := as_mapping(item)) is not None:
                yield test
            continue
        name = item.removeprefix("file://")
        if item.startswith(("huggingface://", "http://", "https://")) or name.partition(":")[0].endswith(
            _PROGRAM_ENDINGS
        ):
            source.notes.leave_out("tests", f"{short(item)} is a program or a place on the network; save what it gives")
            continue
        for path in _matching(name, source) or [name]:
            try:
                yield from _tests(decode(source.read(path).encode(), path), source)
            except UsageError as error:
                source.notes.leave_out("tests", error.message.removeprefix(f"{source.where}: "))


def _scenarios(config: dict[str, Any], source: Source) -> Iterator[dict[str, Any]]:
    """Every test of a scenario with every set of its variables."""
    for item in list_or_empty(config.get("scenarios")):
        scenario = mapping_or_empty(item)
        for given in as_list(scenario.get("config")) or [{}]:
            variables = mapping_or_empty(mapping_or_empty(given).get("vars"))
            for test in _tests(scenario.get("tests") or [], source):
                yield test | {"vars": variables | (mapping_or_empty(test.get("vars")))}


def _read(test: dict[str, Any], number: int, config: _Config) -> Iterator[Draft]:
    test = _row(test) if isinstance(config.source.said, Rows) or any(k.startswith("__") for k in test) else test
    try:
        variables = mapping_or_empty(config.default.get("vars")) | _variables(test.get("vars"), config.source)
    except UsageError as error:
        yield Draft(place_of(number, test), problem=error)
        return
    sets = list(combinations(variables)) or [{}]
    name = place_of(number, test)
    if (all_sets := count(variables)) > MAX_COMBINATIONS:
        config.source.notes.leave_out("vars", f"only {MAX_COMBINATIONS:,} of {all_sets:,} combinations are taken", name)
    for turn, values in enumerate(sets, start=1):
        draft = Draft(name if len(sets) == 1 else f"{name}, combination {turn}")
        try:
            _fill_in(draft, test, values, config)
        except UsageError as error:
            draft.problem = UsageError(f"{config.source.where}: {draft.place}: {error.message}", error.hint)
        yield draft


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a CSV file as a test."""
    expected = [value for name, value in row.items() if name.startswith("__expected") and text_of(value).strip()]
    used = ("__expected", "__description", "__prefix", "__suffix")
    return {
        "vars": {name: value for name, value in row.items() if not name.startswith("__")},
        "assert": [read_expected(text_of(value)) for value in expected],
        "description": text_of(row.get("__description")),
        "options": {name: row[f"__{name}"] for name in ("prefix", "suffix") if row.get(f"__{name}")},
    } | {name: value for name, value in row.items() if name.startswith("__") and not name.startswith(used)}


def _variables(said: object, source: Source) -> dict[str, Any]:
    found = mapping_or_empty(_loaded(said, source))
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("file://"):
            path = value.removeprefix("file://")
            if path.partition(":")[0].endswith(_PROGRAM_ENDINGS):
                raise UsageError(f"the variable {name!r} comes from the program {path}", "Write its value out.")
            found[name] = source.read(path.removeprefix("./"))
    return found


def _fill_in(draft: Draft, test: dict[str, Any], values: dict[str, Any], config: _Config) -> None:
    values = {
        name: fill(value, values) if isinstance(value, str) and re.search(r"\{[{%]", value) else value
        for name, value in values.items()
    }
    if config.lost_prompts:
        raise UsageError("none of its prompts can be read", "Write them out as text.")
    draft.prompt = fill(config.prompts[0], values) if config.prompts else _only_text(values)
    notes = config.source.notes
    options = mapping_or_empty(config.default.get("options")) | (mapping_or_empty(test.get("options")))
    prefix, suffix = (fill(text_of(options.get(name)), values) for name in ("prefix", "suffix"))
    draft.prompt = f"{prefix}{draft.prompt}{suffix}"
    if "transform" in options:
        notes.change("transform: checks look at the answer as it is", draft.place)
    notes.keep(f"options.{name}" for name in options if name not in ("prefix", "suffix", "transform"))
    refused: list[str] = []

    def leave_out(what: str, why: str) -> None:
        refused.append(f"{what} {why}")
        notes.leave_out(what, why, draft.place)

    for item in [*asserted(test.get("assert"), leave_out), *asserted(config.default.get("assert"), leave_out)]:
        said = _with_values(_resolved(item, config.templates), values)
        draft.checks += checks_of(said, leave_out, lambda what: notes.change(what, draft.place))
    draft.nothing = f"no assertion of it can be carried over: {refused[0]}" if refused else "asserts nothing"
    if description := text_of(test.get("description")).strip():
        draft.id = " ".join(description.split())[:80]
    draft.metadata = {
        name: value
        for name, value in test.items()
        if name not in {"vars", "assert", "description", "options"} and value
    }


def _resolved(item: object, templates: dict[str, Any]) -> object:
    """An assertion, or the template that it refers to."""
    fields = mapping_or_empty(item)
    name = text_of(fields.get("$ref")).rpartition("/")[2]
    return templates.get(name, item) if name else item


def _with_values(said: object, values: dict[str, Any]) -> object:
    """An assertion with the variables put into its value."""
    fields = as_mapping(said)
    if fields is None or fields.get("type") in ("javascript", "python", "not-javascript", "not-python"):
        return said
    value = fields.get("value")
    if isinstance(value, str) and "{{" in value:
        return fields | {"value": fill(value, values)}
    items = as_list(value)
    if items is not None:
        return fields | {"value": [fill(item, values) if isinstance(item, str) else item for item in items]}
    inner = as_list(fields.get("assert"))
    return fields | {"assert": [_with_values(item, values) for item in inner]} if inner else fields


def _only_text(values: dict[str, Any]) -> str:
    """The prompt of a test file on its own: its one variable, or the one that is called like a prompt."""
    named = [name for name in PROMPT_FIELDS if name in values]
    if named or len(values) == 1:
        return text_of(values[named[0] if named else next(iter(values))])
    raise UsageError(
        f"the prompt that its variables ({', '.join(values) or 'none'}) go into is not in this file",
        "Import the configuration that names the prompts and these tests.",
    )


FORMAT = Format("promptfoo", recognizes, cases)
