"""Notes on material that is too long for one prompt, each citing the pieces behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from upskill.authoring.material.material import OWN_KNOWLEDGE, TASK, Material, Piece, chunks, quote
from upskill.authoring.writing.grounding import uncovered_by
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    StructuredRequest,
    Tell,
    ask,
    list_schema,
    no_message,
    read_ids,
    read_items,
    text_schema,
    together,
)
from upskill.errors import UpskillError
from upskill.models import Address, Model
from upskill.models.embedded.local_models import LOCAL_MODELS, find_local_model
from upskill.plain import object_schema

DEFAULT_BUDGET = 60_000  # tokens of material in one prompt, where nothing is known about the model
MAX_LOCAL_TOKENS = 2_048  # of an embedded model: it would hold more, but reads for minutes
MAX_ROUNDS = 4  # of notes on notes


def material_budget(address: Address) -> int:
    if address.provider == "local" and (address.model in LOCAL_MODELS or not address.model):
        return min(MAX_LOCAL_TOKENS, find_local_model(address.model).context // 4)
    return DEFAULT_BUDGET


async def summarize(
    material: Material, model: Model, *, budget: int = DEFAULT_BUDGET, tell: Tell = no_message
) -> Material:
    """The same material if it fits the budget, else notes on all of it."""
    if material.tokens <= budget:
        return material
    noted = material
    for _ in range(MAX_ROUNDS):
        if noted.tokens <= budget:
            break
        parts = chunks(noted.pieces, budget)
        tell(f"The material has about {noted.tokens:,} tokens: reading it in {len(parts)} parts.")
        requests = [
            _take_notes(noted, part, f"{number} of {len(parts)}", model, budget // len(parts))
            for number, part in enumerate(parts, 1)
        ]
        pieces: list[Piece] = []
        for notes in await together(*requests):
            for text, ids in notes:
                pieces.append(Piece(f"n{len(pieces) + 1}", "note", text, based_on=ids))
        if not pieces:
            raise UpskillError(
                "the teacher found nothing worth noting in the material", "Choose a stronger model."
            )
        noted = replace(noted, pieces=tuple(pieces))
    if noted.tokens > budget:
        raise UpskillError(
            f"the notes on the material still have about {noted.tokens:,} tokens, but only {budget:,} fit",
            "Pass less material, or choose a teacher with a larger context.",
        )
    known = {piece.id for piece in material.pieces}
    unused = known.difference(*(piece.based_on for piece in noted.pieces))
    if not unused:
        return noted
    left_out = f"{len(unused):,} of {len(known):,} pieces of the material: the teacher made no note of them"
    tell(f"Left out: {left_out}.")
    return replace(noted, left_out=(*material.left_out, left_out))


async def _take_notes(
    material: Material, part: list[Piece], number: str, model: Model, budget: int
) -> list[tuple[str, tuple[str, ...]]]:
    """Each note with the ids of the pieces behind it."""
    # All notes together have to fit into the same budget, with some to spare.
    most = max(3, min(60, budget // 60))
    note = object_schema({"text": text_schema(400), "evidence": list_schema(text_schema(20), 12)})
    task = json.dumps(material.task, ensure_ascii=False)
    request = StructuredRequest(
        f"reading part {number} of the material",
        read_prompt("map_evidence", notes=most),
        f"The task, as a JSON string:\n{task}\n\nPart {number} of the material:\n{quote(part)}",
        object_schema({"notes": list_schema(note, most)}),
        150 * most + 500,
        title="1-notes",
    )
    known = Material("", tuple(part))

    async def read(
        answer: dict[str, Any],
    ) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]]:
        notes: list[tuple[str, tuple[str, ...]]] = []
        wrong: list[str] = []
        for item in read_items(answer.get("notes")):
            text = str(item.get("text", "")).strip()
            ids = known.resolve_citations(read_ids(item.get("evidence")))
            if not {*ids} - {TASK, OWN_KNOWLEDGE}:
                wrong.append(f"the note {text[:60]!r} cites no piece of this part")
            elif missing := uncovered_by(text, ids, known):
                things = ", ".join(missing[:5])
                wrong.append(f"the note {text[:60]!r} says {things}, which is not in its pieces")
            elif text:
                notes.append((text, ids))
        return notes, wrong

    return await ask(model, request, read)
