"""Improving an older skill: what is known about it from before, and cases for what is asked for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import cast, get_args

from upskill.authoring.material.material import TASK, Material, Piece, PieceKind, gather
from upskill.authoring.material.source_files import read_source_files
from upskill.authoring.saving.provenance import Provenance
from upskill.authoring.search.refiners import Proposal
from upskill.authoring.writing.structured import forget_unusable_answers
from upskill.authoring.writing.summarize import DEFAULT_BUDGET, Tell
from upskill.errors import UpskillError
from upskill.models.pool import Models
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.traces.redaction.redact import redact


def add_stored_evidence(material: Material, budget: int = DEFAULT_BUDGET // 2) -> tuple[Material, dict[str, str]]:
    """The material with what the older skill was made from, and the ids that had to change.

    Of a file that is still what it was, the teacher sees all that the budget has room for; of another only what
    `skill_meta.json` kept behind the older skill's lines. New material may use the same ids; the stored ones are then
    renamed, in the older skill too.
    """
    older = material.skill
    if older is None:
        return material, {}
    provenance = Provenance.of(older)
    rows = {name: row for name, row in provenance.evidence.items() if name != TASK and row.get("text")}
    again, unread = _read_again(material, provenance, older)
    # The same piece, given anew, is not shown twice.
    given = {(piece.source, piece.excerpt): piece.id for piece in material.pieces}
    again = [piece for piece in again if (piece.source, piece.excerpt) not in given]
    taken = {piece.id for piece in material.pieces}
    renamed: dict[str, str] = {}
    for name, row in rows.items():
        new = given.get((row.get("from", ""), row["text"])) or (
            _free_id(name, {*taken, *rows}) if name in taken else ""
        )
        if new and new != name:
            renamed[name] = new
    known = {(row.get("from", ""), row["text"]): renamed.get(name, name) for name, row in rows.items()}
    ids: dict[str, str] = {}
    for piece in again:
        free = known.get((piece.source, piece.excerpt)) or _free_id(piece.id, {*taken, *rows, *known.values()})
        taken.add(free)
        ids[piece.id] = free
    whole = [replace(piece, id=ids[piece.id], based_on=_rename(piece.based_on, ids)) for piece in again]
    parts = [
        Piece(renamed.get(name, name), _kind(row.get("kind", "")), redact(row["text"]), row.get("from", ""))
        for name, row in rows.items()
        if renamed.get(name, name) not in taken
    ]
    cited = set(known.values())
    room = budget - material.tokens - sum(piece.tokens for piece in parts)
    shown = _choose(whole, cited, material.task, room)
    left_out = [*material.left_out, *unread]
    if len(shown) < len(whole):
        left_out.append(
            f"{len(whole) - len(shown)} of {len(whole)} pieces of the older material, for which there is no room"
        )
    if renamed:
        older = replace(
            provenance,
            sources={line: _rename(ids, renamed) for line, ids in provenance.sources.items()},
            evidence={renamed.get(name, name): row for name, row in provenance.evidence.items()},
        ).add_to(older)
    stored = frozenset(piece.id for piece in (*parts, *shown)) | cited
    pieces = (*material.pieces, *parts, *shown)
    return replace(material, skill=older, pieces=pieces, stored=stored, left_out=tuple(left_out)), renamed


def _read_again(material: Material, provenance: Provenance, older: Skill) -> tuple[list[Piece], list[str]]:
    """The pieces of the files that the older skill was made from, and what cannot be read of them, in words."""
    given = {file.name for file in material.files}
    pieces: list[Piece] = []
    unread: list[str] = []
    files = read_source_files(provenance.metadata)
    for file in files:
        if (found := file.find(older.folder)) is not None:
            try:
                more = gather("", sources=[f"{file.kind}:{found}"]).pieces
            except UpskillError as error:
                unread.append(f"the rest of {file.path}: {error.message}")
            else:
                prefix = f"f{len(pieces)}-" if pieces else ""
                pieces += [
                    replace(
                        piece, id=f"{prefix}{piece.id}", based_on=tuple(f"{prefix}{name}" for name in piece.based_on)
                    )
                    for piece in more
                ]
        elif file.name not in given:
            changed = any(place.is_file() for place in file.places(older.folder))
            why = "it has changed since" if changed else "it is not there any more"
            unread.append(_only_cited(file.path, why))
    recorded = given | {file.name for file in files}
    kept = {row.get("from", "") for row in provenance.evidence.values() if row.get("kind") in ("document", "step")}
    unread += [_only_cited(name, "where it lies is not known") for name in sorted(kept - recorded - {""})]
    return pieces, unread


def _only_cited(name: str, why: str) -> str:
    return (
        f"the rest of {name} ({why}): only what the older lines cite is shown; give it again with --from to show it all"
    )


def _choose(pieces: list[Piece], cited: set[str], request: str, room: int) -> list[Piece]:
    """The pieces that fit, in their order: those that older lines cite, then those that say most of the request."""
    asked = _words(request)

    def rank(piece: Piece) -> tuple[bool, int]:
        return piece.id not in cited, -len(asked & _words(piece.text))

    chosen: set[str] = set()
    for piece in sorted(pieces, key=rank):
        if piece.tokens <= room:
            chosen.add(piece.id)
            room -= piece.tokens
    return [piece for piece in pieces if piece.id in chosen]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]{4,}", text.casefold()))


def rename_evidence(suite: Suite, renamed: Mapping[str, str]) -> Suite:
    """The suite with the ids that its cases cite changed alike."""
    return replace(suite, cases=tuple(replace(case, evidence=_rename(case.evidence, renamed)) for case in suite.cases))


async def add_requested_cases(
    suite: Suite, write: Callable[..., Awaitable[Suite]], models: Models, tell: Tell
) -> Suite:
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


def store_unproven(
    store: Store, search: str, skill: Skill, proposal: Proposal | None = None, request: str = ""
) -> None:
    """Store a draft that nobody evaluates, or an older skill and what was made of it."""
    decision = {"search_decision": "unproven" if proposal is None else "first draft"}
    first = store.add_candidate(search, skill, None, None, "not evaluated: --no-eval", decision)
    if proposal is not None:
        verdict = {"search_decision": "unproven", "proposal": proposal.plain()}
        note = f"not evaluated: --no-eval; asked for: {request}"
        store.add_candidate(search, proposal.skill, first.number, None, note, verdict)


def _kind(name: str) -> PieceKind:
    return cast("PieceKind", name) if name in get_args(PieceKind) else "note"


def _rename(ids: tuple[str, ...], renamed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renamed.get(name, name) for name in ids)


def _free_id(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"old-{name}"
    return name
