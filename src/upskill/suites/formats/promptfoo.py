"""promptfoo's configurations and test files: prompts with variables, and assertions about what comes back."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, dict_or_empty, short
from upskill.suites.files import Rows, decode
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.formats.assertions import asserted, checks_of, read_expected
from upskill.suites.formats.templates import MOST_COMBINATIONS, combinations, count, fill
from upskill.suites.words import PROMPT_FIELDS, messages_text, text_of

_PROGRAMS = (".js", ".cjs", ".mjs", ".ts", ".py", ".rb", ".sh", ".exe", ".go")
_TEST_FIELDS = {"vars", "assert"}
_KNOWN = {
    *("prompts", "providers", "targets", "tests", "scenarios", "defaultTest", "assertionTemplates"),
    *("description", "$schema", "outputPath", "sharing", "tags"),
}


def recognises(said: object) -> bool:
    mapping = as_mapping(said)
    if mapping is not None:
        whole = "prompts" in mapping and bool(
            {"tests", "scenarios", "providers", "defaultTest", "targets"} & set(mapping)
        )
        return whole or ("providers" in mapping and "tests" in mapping) or _is_test(mapping)
    items = as_list(said) or []
    return bool(items) and any(_is_test(item) for item in items)


def _is_test(item: object) -> bool:
    test = as_mapping(item) or {}
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
    mapping = as_mapping(source.said) or {}
    bare = not ({"prompts", "tests", "scenarios"} & set(mapping))
    prompts = [] if bare else list(_prompts(mapping.get("prompts"), source))
    if len(prompts) > 1:
        source.notes.leave_out("prompts", f"only the first of {len(prompts)} is taken; each makes a suite of its own")
    if {"providers", "targets"} & set(mapping):
        source.notes.leave_out("providers", "students are named with -m")
    if not bare:
        source.notes.keep(key for key in mapping if key not in _KNOWN)
    lost = bool(mapping.get("prompts")) and not prompts
    default = as_mapping(_loaded(mapping.get("defaultTest"), source)) or {}
    config = _Config(source, prompts, default, as_mapping(mapping.get("assertionTemplates")) or {}, lost)
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
        fields = as_mapping(item) or {}
        text = text_of(fields.get("raw") or fields.get("content") or fields.get("id") or fields.get("path") or "")
        text = text_of(item) if not fields else text
        name = text.removeprefix("file://").partition("#")[0].strip()
        if "\n" in name or not (text.startswith("file://") or _is_path(name)):
            yield _as_text(text)
            continue
        if name.partition(":")[0].endswith(_PROGRAMS) or text.startswith("exec:"):
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
    return name.endswith((".txt", ".md", ".json", ".yaml", ".yml", ".j2", ".njk", *_PROGRAMS)) and " " not in name


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
    if name.partition(":")[0].endswith(_PROGRAMS):
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
        if item.startswith(("huggingface://", "http://", "https://")) or name.partition(":")[0].endswith(_PROGRAMS):
            source.notes.leave_out("tests", f"{short(item)} is a program or a place on the network; save what it gives")
            continue
        for path in _matching(name, source) or [name]:
            try:
                yield from _tests(decode(source.read(path).encode(), path), source)
            except UsageError as error:
                source.notes.leave_out("tests", error.message.removeprefix(f"{source.where}: "))


def _scenarios(config: dict[str, Any], source: Source) -> Iterator[dict[str, Any]]:
    """Every test of a scenario with every set of its variables."""
    for item in as_list(config.get("scenarios")) or []:
        scenario = as_mapping(item) or {}
        for given in as_list(scenario.get("config")) or [{}]:
            variables = dict_or_empty(dict_or_empty(given).get("vars"))
            for test in _tests(scenario.get("tests") or [], source):
                yield test | {"vars": variables | (as_mapping(test.get("vars")) or {})}


def _read(test: dict[str, Any], number: int, config: _Config) -> Iterator[Draft]:
    test = _row(test) if isinstance(config.source.said, Rows) or any(k.startswith("__") for k in test) else test
    try:
        variables = (as_mapping(config.default.get("vars")) or {}) | _variables(test.get("vars"), config.source)
    except UsageError as error:
        yield Draft(place_of(number, test), problem=error)
        return
    sets = list(combinations(variables)) or [{}]
    name = place_of(number, test)
    if (all_sets := count(variables)) > MOST_COMBINATIONS:
        config.source.notes.leave_out(
            "vars", f"only {MOST_COMBINATIONS:,} of {all_sets:,} combinations are taken", name
        )
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
    found = as_mapping(_loaded(said, source)) or {}
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("file://"):
            path = value.removeprefix("file://")
            if path.partition(":")[0].endswith(_PROGRAMS):
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
    options = (as_mapping(config.default.get("options")) or {}) | (as_mapping(test.get("options")) or {})
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
    fields = as_mapping(item) or {}
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


FORMAT = Format("promptfoo", recognises, cases)
