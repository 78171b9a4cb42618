"""Queries for a skill that has none, written by a model: requests that need the skill, and near-misses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from upskill.authoring.saving.output import write_file
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import InvalidAnswer, StructuredRequest, ask
from upskill.models import Model
from upskill.plain import as_list, object_schema
from upskill.skills import Skill
from upskill.suites.queries import PATHS_IN_SKILL, Queries, Query
from upskill.traces.redaction.redact import redact

MAX_BODY = 6_000  # characters of the body that a model is shown


async def write_queries(skill: Skill, model: Model, *, count: int = 20, distractors: Sequence[Skill] = ()) -> Queries:
    """Have a model write queries: half on which the skill should fire, half near-misses."""
    half = max(2, (count + 1) // 2)
    items = {"type": "array", "items": {"type": "string", "maxLength": 600}, "minItems": half, "maxItems": half}
    request = StructuredRequest(
        "writing queries",
        read_prompt("write_queries", half=half),
        json.dumps(describe_skill(skill, distractors), ensure_ascii=False),
        object_schema({"should_trigger": items, "should_not_trigger": items}),
        max_output_tokens=2 * half * 150 + 1000,
    )

    def read(answer: dict[str, Any], last: bool) -> Queries:
        return _read_queries(answer, skill, half, last=last)

    return await ask(model, request, read)


def save_queries(skill: Skill, queries: Queries) -> tuple[Skill, Queries]:
    """Add the queries to the skill's folder; returns both as they are then read."""
    assert skill.folder is not None
    file = skill.folder / PATHS_IN_SKILL[0]
    write_file(file, json.dumps(queries.plain(), indent=2, ensure_ascii=False) + "\n")
    return Skill.load(skill.folder), Queries.load(file)


def describe_skill(skill: Skill, distractors: Sequence[Skill]) -> dict[str, Any]:
    """What a model is told about a skill whose description is at stake."""
    body = redact(skill.body)
    return {
        "name": skill.name,
        "description": skill.description,
        "body": body if len(body) <= MAX_BODY else f"{body[:MAX_BODY]} …",
        "beside": [{"name": other.name, "description": other.description} for other in distractors],
    }


def _read_queries(answer: dict[str, Any], skill: Skill, half: int, *, last: bool) -> Queries:
    """The queries, once each. Faulty ones are sent back to the model; on its last attempt they are left out."""
    kept: dict[str, Query] = {}
    wrong: list[str] = []
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        for item in as_list(answer.get(field)) or []:
            text = " ".join(item.split()) if isinstance(item, str) else ""
            if not text:
                wrong.append(f"{field} has an empty request")
            elif text.casefold() in kept:
                wrong.append(f"{text[:60]!r} is there twice")
            elif "-" in skill.name and skill.name in text.lower():
                wrong.append(f"{text[:60]!r} names the skill")
            else:
                kept[text.casefold()] = Query(text, should)
    least = max(2, half - half // 5) if last else half
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        usable = sum(query.should_trigger is should for query in kept.values())
        if usable < least:
            wrong.append(f"{field} has {usable} requests that can be used, and should have {half}")
            if last:
                raise InvalidAnswer("; ".join(wrong))
    if wrong and not last:
        raise InvalidAnswer("; ".join(wrong[:8]))
    return Queries(tuple(kept.values()), "generated")
