"""Improving an older skill: what is known about it from before, and cases for what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast, get_args

from upskill.authoring.material import TASK, Material, Piece, PieceKind
from upskill.authoring.provenance import Provenance
from upskill.authoring.structured import forget_unusable_answers
from upskill.authoring.summarize import Tell
from upskill.errors import UpskillError
from upskill.models import Models
from upskill.suites import Case, Suite
from upskill.traces.redact import redact


class WriteCases(Protocol):
    async def __call__(self, *, existing: Sequence[Case]) -> Suite: ...


def add_stored_evidence(material: Material) -> tuple[Material, dict[str, str]]:
    """The material with what `skill_meta.json` kept behind the older skill's lines, and the ids that had to change.

    New material may use the same ids; the stored ones are then renamed, in the older skill too.
    """
    older = material.skill
    if older is None:
        return material, {}
    provenance = Provenance.of(older)
    taken = {piece.id for piece in material.pieces}
    rows = {name: row for name, row in provenance.evidence.items() if name != TASK and row.get("text")}
    renamed = {name: _free_id(name, {*taken, *rows}) for name in rows if name in taken}
    pieces = [
        Piece(renamed.get(name, name), _kind(row.get("kind", "")), redact(row["text"]), row.get("from", ""))
        for name, row in rows.items()
    ]
    if renamed:
        older = replace(
            provenance,
            sources={line: _rename(ids, renamed) for line, ids in provenance.sources.items()},
            evidence={renamed.get(name, name): row for name, row in provenance.evidence.items()},
        ).add_to(older)
    stored = frozenset(piece.id for piece in pieces)
    return replace(material, skill=older, pieces=(*material.pieces, *pieces), stored=stored), renamed


def rename_evidence(suite: Suite, renamed: Mapping[str, str]) -> Suite:
    """The suite with the ids that its cases cite changed alike."""
    return replace(suite, cases=tuple(replace(case, evidence=_rename(case.evidence, renamed)) for case in suite.cases))


async def add_requested_cases(suite: Suite, write: WriteCases, models: Models, tell: Tell) -> Suite:
    """The older suite with cases for what is asked for; without any where none could be written, which is told."""
    tell("Generating test cases for the request...")
    try:
        async with forget_unusable_answers(models):
            found = await write(existing=suite.cases)
    except UpskillError as error:
        if type(error) is not UpskillError:
            raise
        tell(f"No new cases for the request, so the older ones decide alone: {error.message}.")
        return suite
    return replace(suite, cases=(*suite.cases, *found.cases))


def _kind(name: str) -> PieceKind:
    return cast("PieceKind", name) if name in get_args(PieceKind) else "note"


def _rename(ids: tuple[str, ...], renamed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renamed.get(name, name) for name in ids)


def _free_id(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"old-{name}"
    return name
