"""Words of other tools: the fields they use, and the texts and checks that are meant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from upskill.plain import as_list, as_mapping

LONGEST_ANSWER = 80  # characters of an expected text that an answer can be asked to contain
PROMPT_FIELDS = ("prompt", "input", "question", "query", "task", "instruction", "user_input", "message")
EXPECTED_FIELDS = ("expected", "target", "answer", "expected_answer", "expected_output", "ideal", "reference", "output")


def text_of(value: object) -> str:
    """A value as a prompt or a check can have it."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def texts_of(value: object) -> list[str]:
    items = as_list(value)
    return [text for item in (items if items is not None else [value]) if (text := text_of(item)).strip()]


def expect(value: object) -> list[dict[str, Any]]:
    """The check for an expected answer, or for several of which one will do: a judge compares what is long."""
    texts = [text.strip() for text in texts_of(value)]
    if not texts:
        return []
    if all(len(text) <= LONGEST_ANSWER and "\n" not in text for text in texts):
        return [{"contains": texts[0]} if len(texts) == 1 else {"contains_any": texts}]
    return [{"judge": agrees(" — or: ".join(texts))}]


def agrees(text: str) -> str:
    return f"The answer agrees in substance with this: {text.strip()}"


def messages_text(value: object) -> tuple[str, bool]:
    """The prompt that chat messages make, and whether anything but text was in them."""
    messages = [message for item in as_list(value) or [] if (message := as_mapping(item))]
    whole = True
    parts: list[tuple[str, str]] = []
    for message in messages:
        content = message.get("content")
        blocks = as_list(content)
        if blocks is not None:
            maps = [as_mapping(block) or {} for block in blocks]
            whole = whole and all(isinstance(block.get("text"), str) for block in maps)
            content = "\n".join(str(block["text"]) for block in maps if isinstance(block.get("text"), str))
        parts.append((str(message.get("role", "user")), text_of(content)))
    if all(role in ("system", "user", "developer") for role, _ in parts):
        return "\n\n".join(text for _, text in parts if text.strip()), whole
    return "\n\n".join(f"{role.capitalize()}: {text}" for role, text in parts if text.strip()), whole


# What others call a check of ours, the words joined by underscores.
_KINDS = {
    "contains": "contains",
    "contains_all": "contains",
    "includes": "contains",
    "contains_any": "contains_any",
    "not_contains": "not_contains",
    "excludes": "not_contains",
    "regex": "regex",
    "matches": "regex",
    "pattern": "regex",
    "not_regex": "not_regex",
    "equals": "equals",
    "exact": "equals",
    "exact_match": "equals",
    "starts_with": "starts_with",
    "min_length": "min_length",
    "max_length": "max_length",
    "file_exists": "file_exists",
    "json_schema": "json_schema",
    "tool_called": "tool_called",
    "tool_not_called": "tool_not_called",
}
_JUDGED = {"", "judge", "llm", "llm_judge", "llm_rubric", "semantic", "manual", "qualitative", "quality", "behavior"}
_VALUES = ("values", "value", "pattern", "patterns", "text", "texts", "expected", "path", "schema", "tool")
_STATEMENTS = (
    "text",
    "statement",
    "assertion",
    "expectation",
    "description",
    "check",
    "criterion",
    "criteria",
    "pass_if",
    "requirement",
    "rubric",
    "prompt",
    "value",
)


# Fields that only name an assertion, and those that only weigh it: here every check has to hold.
_LABELS = {
    *("type", "id", "name", "title", "label", "description", "text", "comment", "note", "notes", "reason"),
    *("rationale", "explanation", "message", "error_message"),
}
_WEIGHTS = {"weight", "points", "score", "severity", "priority", "category", "tags", "metric", "required", "critical"}
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
class Typed:
    """What an assertion with a type means here."""

    checks: list[dict[str, Any]] = dataclass_field(default_factory=list[dict[str, Any]])
    refused: str = ""  # why it has no checks
    unused: tuple[str, ...] = ()  # its fields that mean nothing here, and do not change what it asserts


def typed_checks(said: dict[str, Any]) -> Typed:
    """The checks that `{type: contains, values: […]}` means. One that says more than a check of ours is refused."""
    kind = str(said.get("type", "")).lower().replace("-", "_").replace(" ", "_")
    ours = _KINDS.get(kind)
    used = next((key for key in _VALUES if said.get(key) is not None), "")
    if ours and used:
        return _typed(ours, said, used)
    used = _statement_field(said)
    if kind not in _JUDGED or not used:
        return Typed(refused="no check of ours is of this kind")
    unused = [key for key in said if key not in {used, *_LABELS} and said[key] not in (None, False, "")]
    if denied := _DENIED & set(unused):
        return Typed(refused=f"{min(denied)!r} is nothing that a judge is told; say in words what must not be")
    return Typed([{"judge": statement_of(said)}], unused=tuple(unused))


def _typed(ours: str, said: dict[str, Any], used: str) -> Typed:
    denied = False
    more: dict[str, Any] = {}
    value, flags = said[used], ""
    unused: list[str] = []
    for key, setting in said.items():
        name = key.lower()
        if key == used or name in _LABELS or setting is None:
            continue
        if name in _WEIGHTS:
            unused.append(key)
        elif name in _DENIED and isinstance(setting, bool):
            denied = denied or setting
        elif name in _CASE and isinstance(setting, bool) and (ours in _TEXTS or ours.endswith("regex")):
            more["ignore_case"] = _CASE[name] == setting
        elif name == "flags" and ours.endswith("regex") and isinstance(setting, str) and set(setting) <= set("gimsu"):
            flags = "".join(flag for flag in "ims" if flag in setting)
        else:
            return Typed(refused=f"no check of ours has its field {key!r}")
    many = ours in ("contains", "contains_any", "not_contains", "equals", "file_exists", "tool_called")
    values: list[Any] = [value] if many else as_list(value) or [value]
    if denied:
        several = len(values) > 1 or len(as_list(value) or [value]) > 1
        if ours == "not_contains" and several:
            ours = "contains_any"
        elif ours not in _OPPOSITES or (several and ours != "contains_any"):
            return Typed(refused="no check of ours says the opposite")
        else:
            ours = _OPPOSITES[ours]
    if flags:
        values = [f"(?{flags}){each}" for each in values]
    field = "pattern" if ours.endswith("regex") else "text"
    return Typed([{ours: {field: each} | more if more else each} for each in values], unused=tuple(unused))


def statement_of(said: object) -> str:
    """What an assertion says in words."""
    fields = as_mapping(said)
    return text_of(said if fields is None else fields.get(_statement_field(fields))).strip()


def _statement_field(fields: dict[str, Any]) -> str:
    return next((key for key in _STATEMENTS if text_of(fields.get(key)).strip()), "")
