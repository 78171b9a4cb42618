"""Answers to test cases by somebody who has not seen their checks, and what becomes of cases that judge them otherwise.

The answers stay with their case, so a fixed one is tried on the same ones: a round costs one call for all cases in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    NoUsableAnswer,
    StructuredRequest,
    ask,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.models import Model
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.suites import Case

FRESH_ANSWERS = 5  # right ones, and wrong ones, for each case
MIN_ANSWERS = 2  # of each that a case keeps, after those that its writer disputes
MAX_BATCH = 24  # cases that are answered in one call


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """A case as it was written, the answers to it by name (r1, w1, …), and what the checks get wrong about them."""

    fields: Mapping[str, Any]
    answers: Mapping[str, str]
    case: Case | None = None  # None: what was written cannot be read
    problems: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # by name of an answer, or of a probe

    def named(self, letter: str) -> list[str]:
        return [text for name, text in self.answers.items() if name.startswith(letter)]

    @property
    def has_enough(self) -> bool:
        return all(len(set(self.named(letter))) >= MIN_ANSWERS for letter in "rw")


async def write_answers(
    model: Model, cases: Sequence[Case], about: str
) -> dict[str, dict[str, str]]:
    """For the id of each case its answers by name."""
    answers: dict[str, dict[str, str]] = {}
    for start in range(0, len(cases), MAX_BATCH):
        answers |= await _write_batch(model, cases[start : start + MAX_BATCH], about)
    return answers


async def _write_batch(
    model: Model, cases: Sequence[Case], about: str
) -> dict[str, dict[str, str]]:
    ids = [case.id for case in cases]
    questions = [json.dumps(_question(case), ensure_ascii=False) for case in cases]
    each = list_schema(text_schema(2000), FRESH_ANSWERS, FRESH_ANSWERS)
    item = object_schema({"case": {"type": "string", "enum": ids}, "right": each, "wrong": each})
    request = StructuredRequest(
        "writing fresh answers",
        read_prompt("write_answers", count=FRESH_ANSWERS),
        f"{about}\n\nThe questions:\n" + "\n".join(questions),
        object_schema({"answers": list_schema(item, len(cases), len(cases))}),
        max_output_tokens=600 * len(cases) + 1600,
    )

    def read(said: dict[str, Any], last: bool) -> dict[str, dict[str, str]]:
        items = {
            str(item.get("case")): item
            for item in map(dict_or_empty, list_or_empty(said.get("answers")))
        }
        if not isinstance(said.get("answers"), list) or (items and items.keys().isdisjoint(ids)):
            raise InvalidAnswer("it has no list `answers` with these cases")
        missing = [each for each in ids if each not in items]
        if missing and not (last and items):
            raise InvalidAnswer(f"it has no answers to {', '.join(missing[:3])}")
        return {each: _name_answers(items.get(each, {})) for each in ids}

    return await ask(model, request, read)


def _question(case: Case) -> dict[str, Any]:
    acts = {"acts": True, "files": dict(case.files)} if case.needs_sandbox else {}
    return {"id": case.id, "prompt": case.prompt, **acts}


def _name_answers(item: Mapping[str, Any]) -> dict[str, str]:
    """r1, r2, … for the right ones and w1, w2, … for the wrong ones."""
    return {
        f"{kind[0]}{number}": str(text)
        for kind in ("right", "wrong")
        for number, text in enumerate(list_or_empty(item.get(kind)), start=1)
        if str(text).strip()
    }


async def fix(
    model: Model,
    cases: Mapping[str, AnsweredCase],
    material: str,
    kinds: str,
    check: Mapping[str, Any],
) -> dict[str, AnsweredCase]:
    """The cases whose checks were changed or whose answers are disputed, still to be tried."""
    lines = [
        json.dumps(
            {
                "id": name,
                **({"files": files} if (files := each.fields.get("files")) else {}),
                "prompt": each.case.prompt if each.case else each.fields.get("prompt"),
                "reference": each.fields.get("reference"),
                "checks": each.fields.get("checks"),
                "answers": dict(each.answers),
                "problems": dict(each.problems),
            },
            ensure_ascii=False,
        )
        for name, each in cases.items()
    ]
    fields = {
        "id": {"type": "string", "enum": list(cases)},
        "checks": list_schema(check, 5, 1),
        "disputed": list_schema(text_schema(3), 2 * FRESH_ANSWERS),
    }
    request = StructuredRequest(
        "fixing test cases",
        read_prompt("fix_checks", fewest=MIN_ANSWERS, kinds=kinds),
        "\n\n".join([*([material] if material else []), "\n".join(lines)]),
        object_schema({"cases": list_schema(object_schema(fields), len(cases), 1)}),
        max_output_tokens=500 * len(cases) + 2000,
    )
    try:
        items = await ask(model, request, lambda said, _: list_or_empty(said.get("cases")))
    except NoUsableAnswer:
        items = []
    fixed: dict[str, AnsweredCase] = {}
    for item in items:
        written = dict_or_empty(item)
        if (before := cases.get(name := str(written.get("id")))) is None:
            continue
        # Only what is judged otherwise can be disputed.
        disputed = {*read_ids(written.get("disputed"))} & {*before.problems}
        answers = {key: text for key, text in before.answers.items() if key not in disputed}
        after = {**before.fields, "checks": written.get("checks")}
        if after != before.fields or disputed:
            fixed[name] = AnsweredCase(after, answers)
    return fixed
