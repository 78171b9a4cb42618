"""Create: have a teacher write a Suite for a Skill, and keep only the cases that can tell knowing from not knowing."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from upskill.errors import UpskillError, UsageError
from upskill.gate import try_case
from upskill.models import Message, Model, Request
from upskill.plain import as_list, as_mapping
from upskill.skill import Skill
from upskill.suite import Case, Suite

ROUNDS = 3  # the first asking and two more for replacements
KINDS = ("contains", "contains_any", "not_contains", "equals", "starts_with", "regex", "not_regex", "max_length")


def _schema(count: int) -> dict[str, Any]:
    text = {"type": "string", "maxLength": 600}
    check: dict[str, Any] = {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(KINDS)},
            "texts": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 6},
            "number": {"type": "integer"},
        },
        "required": ["kind", "texts", "number"],
        "additionalProperties": False,
    }
    case: dict[str, Any] = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "maxLength": 60},
            "prompt": text,
            "checks": {"type": "array", "items": check, "minItems": 1, "maxItems": 5},
            "reference": text,
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 3},
        },
        "required": ["id", "prompt", "checks", "reference", "tags"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"cases": {"type": "array", "items": case, "minItems": 1, "maxItems": count}},
        "required": ["cases"],
        "additionalProperties": False,
    }


async def write_suite(
    skill: Skill, model: Model, *, count: int = 12, tell: Callable[[str], None] = lambda _: None
) -> Suite:
    """Cases for a skill, each of which passed the gate; those that did not are asked for again at most twice."""
    kept: dict[str, Case] = {}
    refused: list[str] = []
    for number in range(ROUNDS):
        wanted = count - len(kept)
        if not wanted:
            break
        for item in await _ask(skill, model, wanted, refused if number else []):
            case, why = await _admit(item, skill, kept)
            if case is not None and len(kept) < count:
                kept[case.id] = case
            elif why:
                refused.append(why)
    if len(kept) < max(3, count // 2):
        last = f"; the last one refused: {refused[-1]}" if refused else ""
        raise UpskillError(
            f"only {len(kept)} of {count} generated test cases can be used{last}",
            "Name a stronger model with --test-gen-model, or write the cases yourself and give them with --tests.",
        )
    if refused:
        tell(f"Refused {len(refused)} generated cases that knowing nothing would pass or that broke a rule.")
    return Suite(tuple(kept.values()), "generated")


async def _ask(skill: Skill, model: Model, count: int, refused: list[str]) -> list[Any]:
    system = resources.files("upskill.prompts").joinpath("write_suite.md").read_text(encoding="utf-8")
    shown = {"name": skill.name, "description": skill.description, "body": skill.body}
    text = json.dumps(shown, ensure_ascii=False)
    if refused:
        text += "\n\nThese cases were refused; write others:\n" + "\n".join(f"- {why}" for why in refused[-20:])
    reply = await model.reply(
        Request(
            (Message("system", system.replace("{count}", str(count))), Message("user", text)),
            max_output_tokens=400 * count + 2000,
            schema=_schema(count),
        )
    )
    try:
        said = as_mapping(json.loads(reply.text)) or {}
    except ValueError:
        return []
    return as_list(said.get("cases")) or []


async def _admit(item: Any, skill: Skill, kept: dict[str, Case]) -> tuple[Case | None, str]:
    """The case when it may be used, else why not."""
    said = as_mapping(item)
    if said is None:
        return None, "a case that is not an object"
    said["checks"] = [_check(check) for check in as_list(said.get("checks")) or []]
    try:
        case = Suite.parse([said], "a generated case").cases[0]
    except UsageError as error:
        return None, error.message
    if case.id in kept:
        return None, f"the id {case.id!r} is there already"
    leaks = await try_case(case, skill)
    return (None, str(leaks[0])) if leaks else (case, "")


def _check(said: Any) -> dict[str, Any]:
    check = as_mapping(said) or {}
    kind, texts = str(check.get("kind")), as_list(check.get("texts")) or []
    if kind == "max_length":
        return {kind: check.get("number")}
    if kind in ("contains", "contains_any", "not_contains"):
        return {kind: texts}
    return {kind: texts[0] if texts else ""}
