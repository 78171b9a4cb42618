from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import cast, get_args

from upskill.authoring.material.material import (
    MAX_EXCERPT,
    TASK,
    Material,
    Piece,
    PieceKind,
    gather,
)
from upskill.authoring.saving.provenance import Provenance
from upskill.authoring.search.refiners import Proposal
from upskill.authoring.writing.summarize import DEFAULT_BUDGET
from upskill.errors import UpskillError
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.traces import Trace
from upskill.traces.formats import read_trace
from upskill.traces.redaction.redact import redact

COMPARED = MAX_EXCERPT - 100  # characters of a piece: dates may take the rest

_Content = tuple[str, str]  # where a piece is from, and its beginning
_SESSION_PIECE = re.compile(r"(?:r(\d+)-)?([sqh])\d+")  # its id, with the number of the session
_DATES = re.compile(r'"(?:session": "[^"]*"|also in sessions": \[[^\]]*\]), ')


def add_stored_evidence(material: Material, budget: int = DEFAULT_BUDGET // 2) -> Material:
    """Add what the older skill was made from, within the budget; for changed files, only what `skill_meta.json` has.

    Older sessions are read together with the new ones, so that what is later holds.
    """
    older = material.skill
    if older is None:
        return material
    provenance = Provenance.of(older)
    rows = {
        name: row for name, row in provenance.evidence.items() if name != TASK and row.get("text")
    }
    used = set(rows)
    unclaimed: dict[_Content, list[str]] = {}
    for name, row in rows.items():
        unclaimed.setdefault((row.get("from", ""), _undated(row["text"])), []).append(name)

    def claim_id(piece: Piece) -> str:
        stored = unclaimed.get((piece.source, _undated(piece.text)))
        name = stored.pop(0) if stored else _free_id(piece.id, used)
        used.add(name)
        return name

    def add_new(pieces: Iterable[Piece], known: Iterable[Piece] = ()) -> list[Piece]:
        """The pieces that are not shown already, with ids of their own."""
        before = {(piece.source, piece.excerpt): piece.id for piece in known}
        repeated = {
            piece.id: name
            for piece in pieces
            if (name := before.get((piece.source, piece.excerpt)))
        }
        ids = repeated | {piece.id: claim_id(piece) for piece in pieces if piece.id not in repeated}
        return [
            replace(
                piece,
                id=ids[piece.id],
                based_on=tuple(ids.get(name, name) for name in piece.based_on),
            )
            for piece in pieces
            if piece.id not in repeated
        ]

    given_files = {file.name for file in material.files}
    new_sources = {trace.source for trace in material.traces}
    traces, documents, left_out = _read_sources(provenance, older, given_files)
    left_out = [*material.left_out, *left_out]
    if traces:
        sessions = gather("", sources=[*traces, *material.traces])
        others = (piece for piece in material.pieces if not _SESSION_PIECE.fullmatch(piece.id))
        pieces = (*others, *sessions.pieces)
        material = replace(
            material, pieces=pieces, traces=sessions.traces, overruled=sessions.overruled
        )
    old_sessions = {
        number
        for number, trace in enumerate(material.traces, start=1)
        if trace.source not in new_sources
    }
    new_pieces, read_again = list[Piece](), list[Piece]()
    ids: dict[str, str] = {}
    for before, piece in zip(material.pieces, add_new(material.pieces), strict=True):
        session = _SESSION_PIECE.fullmatch(before.id)
        is_old = session and session[2] != "h" and int(session[1] or 1) in old_sessions
        (read_again if is_old else new_pieces).append(piece)
        ids[before.id] = piece.id
    overruled = tuple(
        replace(each, message_ids=tuple(ids.get(name, name) for name in each.message_ids))
        for each in material.overruled
    )
    for parts in documents:
        read_again += add_new(parts, new_pieces)
    recorded = given_files | {file.name for file in provenance.source_files}
    origins = {
        row.get("from", "")
        for row in provenance.evidence.values()
        if row.get("kind") in ("document", "step")
    }
    left_out += [
        _only_cited(name, "its location is unknown") for name in sorted(origins - recorded - {""})
    ]
    excerpts = [
        Piece(
            name,
            _kind(rows[name].get("kind", "")),
            redact(rows[name]["text"]),
            rows[name].get("from", ""),
        )
        for name in chain.from_iterable(unclaimed.values())
    ]
    room = budget - sum(piece.tokens for piece in (*new_pieces, *excerpts))
    chosen = _choose(read_again, set(rows), material.task, room)
    if len(chosen) < len(read_again):
        missing = len(read_again) - len(chosen)
        left_out.append(
            f"{missing} of {len(read_again)} pieces of the older material, which did not fit"
        )
    return replace(
        material,
        pieces=(*new_pieces, *excerpts, *chosen),
        stored=frozenset([*rows, *(piece.id for piece in chosen)]),
        left_out=tuple(left_out),
        overruled=overruled,
    )


def _read_sources(
    provenance: Provenance, older: Skill, given_files: set[str]
) -> tuple[list[Trace], list[Sequence[Piece]], list[str]]:
    """The sessions and documents that are what they were, and what cannot be read again."""
    traces: list[Trace] = []
    documents: list[Sequence[Piece]] = []
    left_out: list[str] = []
    for file in provenance.source_files:
        if (path := file.find(older.folder)) is not None:
            try:
                if file.kind == "trace":
                    traces.append(read_trace(path))
                else:
                    documents.append(gather("", sources=[f"doc:{path}"]).pieces)
            except UpskillError as error:
                left_out.append(f"the rest of {file.path}: {error.message}")
        elif file.name not in given_files:
            changed = any(path.is_file() for path in file.places(older.folder))
            left_out.append(
                _only_cited(file.path, "it has changed since" if changed else "it no longer exists")
            )
    return traces, documents, left_out


def _undated(text: str) -> str:
    """The beginning, which is the same whether a session was read alone or with others."""
    return _DATES.sub("", text)[:COMPARED]


def _only_cited(name: str, why: str) -> str:
    cited = "only what the older lines cite is shown"
    return f"the rest of {name} ({why}): {cited}; pass it again with --from to show it all"


def _choose(pieces: list[Piece], cited: set[str], request: str, room: int) -> list[Piece]:
    """The pieces that fit, in their order: first those that older lines cite, then those closest to the request."""
    requested = _long_words(request)
    chosen: set[str] = set()
    for piece in sorted(
        pieces, key=lambda piece: (piece.id not in cited, -len(requested & _long_words(piece.text)))
    ):
        if piece.tokens <= room:
            chosen.add(piece.id)
            room -= piece.tokens
    return [piece for piece in pieces if piece.id in chosen]


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]{4,}", text.casefold()))


def store_unproven(
    store: Store, search: str, skill: Skill, proposal: Proposal | None = None, request: str = ""
) -> None:
    decision = {"search_decision": "unproven" if proposal is None else "older version"}
    first = store.add_candidate(search, skill, None, None, "not evaluated: --no-eval", decision)
    if proposal is not None:
        verdict = {"search_decision": "unproven", "proposal": proposal.to_dict()}
        note = f"not evaluated: --no-eval; asked for: {request}"
        store.add_candidate(search, proposal.skill, first.number, None, note, verdict)


def _kind(name: str) -> PieceKind:
    return cast("PieceKind", name) if name in get_args(PieceKind) else "note"


def _free_id(name: str, used: set[str]) -> str:
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in used)
