"""Notes on material that is too long for one prompt, each citing the pieces behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from upskill.authoring.material.material import OWN_KNOWLEDGE, TASK, Material, Piece, chunks, quote
from upskill.authoring.writing.grounding import uncovered_by
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    StructuredRequest,
    ask,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.errors import Paused, UpskillError
from upskill.models import Address, Model
from upskill.models.embedded.local_models import LOCAL_MODELS, find_local_model
from upskill.plain import dict_or_empty, list_or_empty, object_schema

DEFAULT_BUDGET = 60_000  # tokens of material in one prompt, where nothing is known about the model
MAX_LOCAL_TOKENS = 2_048  # of an embedded model: it would hold more, but reads for minutes
SMALL_BUDGET = 4_000  # a model with less than this is a small one, and gets simpler schemas
MAX_ROUNDS = 4  # of notes on notes

Tell = Callable[[str], None]
Note = tuple[str, tuple[str, ...]]  # its text, and the ids of the pieces behind it


def no_message(_: str) -> None:
    """The default `tell`: nobody is listening."""


def material_budget(address: Address) -> int:
    if address.provider == "local" and (address.model in LOCAL_MODELS or not address.model):
        return min(MAX_LOCAL_TOKENS, find_local_model(address.model).context // 4)
    return DEFAULT_BUDGET


async def summarize(
    material: Material, model: Model, *, budget: int = DEFAULT_BUDGET, tell: Tell = no_message
) -> Material:
    """The same material if it fits the budget, else notes on all of it."""
    original = material
    for _ in range(MAX_ROUNDS):
        if material.tokens <= budget:
            break
        parts = chunks(material.pieces, budget)
        tell(
            f"The material has about {material.tokens:,} tokens: reading it in {len(parts)} parts."
        )
        requests = [
            _take_notes(material, part, number, len(parts), model, budget)
            for number, part in enumerate(parts, 1)
        ]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        failed = [error for error in answers if isinstance(error, BaseException)]
        if wrong := next((error for error in failed if not isinstance(error, Paused)), None):
            raise wrong
        if failed:
            raise Paused(
                file for error in failed if isinstance(error, Paused) for file in error.files
            )
        notes = [note for answer in answers if isinstance(answer, list) for note in answer]
        if not notes:
            raise UpskillError(
                "the teacher found nothing worth noting in the material", "Choose a stronger model."
            )
        pieces = [
            Piece(f"n{number}", "note", text, based_on=ids)
            for number, (text, ids) in enumerate(notes, start=1)
        ]
        material = replace(material, pieces=tuple(pieces))
    if material.tokens > budget:
        raise UpskillError(
            f"the notes on the material still have about {material.tokens:,} tokens, but only {budget:,} fit",
            "Pass less material, or choose a teacher with a larger context.",
        )
    if material is original:
        return material
    used = {name for piece in material.pieces for name in piece.based_on}
    unused = len(original.pieces) - len(used & {piece.id for piece in original.pieces})
    left_out = f"{unused:,} of {len(original.pieces):,} pieces of the material: the teacher made no note of them"
    if unused:
        tell(f"Left out: {left_out}.")
    return replace(material, left_out=(*material.left_out, *([left_out] if unused else [])))


async def _take_notes(
    material: Material, part: list[Piece], number: int, total: int, model: Model, budget: int
) -> list[Note]:
    # All notes together have to fit into the same budget, with some to spare.
    most = max(3, min(60, budget // (60 * total)))
    note = object_schema({"text": text_schema(400), "evidence": list_schema(text_schema(20), 12)})
    schema = object_schema({"notes": list_schema(note, most)})
    task = json.dumps(material.task, ensure_ascii=False)
    request = StructuredRequest(
        f"reading part {number} of the material",
        read_prompt("map_evidence", notes=most),
        f"The task, as a JSON string:\n{task}\n\nPart {number} of {total} of the material:\n{quote(part)}",
        schema,
        150 * most + 500,
        title="1-notes",
    )
    known, small = Material("", tuple(part)), budget < SMALL_BUDGET

    def read(answer: dict[str, Any], last: bool) -> list[Note]:
        items = [dict_or_empty(item) for item in list_or_empty(answer.get("notes"))]
        notes = [
            (
                str(item.get("text", "")).strip(),
                known.resolve_citations(read_ids(item.get("evidence"))),
            )
            for item in items
        ]
        bare = [text for text, ids in notes if text and not set(ids) - {TASK, OWN_KNOWLEDGE}]
        if bare and not last:
            raise InvalidAnswer(
                "; ".join(f"the note {text[:60]!r} cites no piece of this part" for text in bare)
            )
        wrong = [
            (text, missing)
            for text, ids in notes
            if ids and (missing := uncovered_by(text, ids, known))
        ]
        if wrong and not last and not small:
            says = (
                f"the note {text[:60]!r} says {', '.join(missing[:5])}" for text, missing in wrong
            )
            raise InvalidAnswer("; ".join(f"{each}, which is not in its pieces" for each in says))
        dropped = [] if small else [text for text, _ in wrong]
        return [(text, ids) for text, ids in notes if text and ids and text not in dropped]

    return await ask(model, request, read)
