"""Queries for a skill that has none, written by a model: requests that need the skill, and near-misses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import InvalidAnswer, StructuredRequest, ask, list_schema, text_schema
from upskill.models import Model
from upskill.plain import as_list, object_schema
from upskill.skills import Skill
from upskill.suites.queries import Queries, Query
from upskill.traces.redaction.redact import redact

MAX_BODY = 6_000  # characters of the body that a model is shown


async def write_queries(skill: Skill, model: Model, *, count: int = 20, distractors: Sequence[Skill] = ()) -> Queries:
    """Have a model write queries: half that should trigger the skill, half near-misses."""
    half = max(2, (count + 1) // 2)
    items = list_schema(text_schema(600), half, half)
    request = StructuredRequest(
        "writing queries",
        read_prompt("write_queries", half=half),
        json.dumps(describe_skill(skill, distractors), ensure_ascii=False),
        object_schema({"should_trigger": items, "should_not_trigger": items}),
        max_output_tokens=2 * half * 150 + 1000,
    )

    return await ask(model, request, lambda answer, last: _read_queries(answer, skill, half, last=last))


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
    usable: dict[str, Query] = {}
    wrong: list[str] = []
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        for item in as_list(answer.get(field)) or []:
            text = " ".join(item.split()) if isinstance(item, str) else ""
            if not text:
                wrong.append(f"{field} has an empty request")
            elif text.casefold() in usable:
                wrong.append(f"{text[:60]!r} is there twice")
            elif "-" in skill.name and skill.name in text.lower():
                wrong.append(f"{text[:60]!r} names the skill")
            else:
                usable[text.casefold()] = Query(text, should)
    least = max(2, half - half // 5) if last else half
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        count = sum(query.should_trigger is should for query in usable.values())
        if count < least:
            wrong.append(f"{field} has {count} requests that can be used, and should have {half}")
            if last:
                raise InvalidAnswer("; ".join(wrong))
    if wrong and not last:
        raise InvalidAnswer("; ".join(wrong[:8]))
    return Queries(tuple(usable.values()), "generated")
