"""Words of other tools: the fields they use, and the texts and checks that are meant."""

from __future__ import annotations

import json
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


def typed_checks(said: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The checks that `{type: contains, values: […]}` means; None where we have none of that type."""
    kind = str(said.get("type", "")).lower().replace("-", "_").replace(" ", "_")
    ours = _KINDS.get(kind)
    value = next((said[key] for key in _VALUES if said.get(key) is not None), None)
    if ours and value is not None:
        many = ours in ("contains", "contains_any", "not_contains", "equals", "file_exists", "tool_called")
        values: list[Any] = [value] if many else as_list(value) or [value]
        return [{ours: each} for each in values]
    return [{"judge": statement}] if kind in _JUDGED and (statement := statement_of(said)) else None


def statement_of(said: object) -> str:
    """What an assertion says in words."""
    fields = as_mapping(said)
    if fields is None:
        return text_of(said).strip()
    return next((text for key in _STATEMENTS if (text := text_of(fields.get(key)).strip())), "")
