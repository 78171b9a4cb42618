"""What a skill was made from, kept in its folder as `evals/material.jsonl`: no secrets, and never installed or packed.

A row is a piece: `{"id", "kind", "from", "text"}`. With `sha256` in place of the text, the piece is known and not kept
(the examples of this repository are like that); with `"part": true`, the text is only its beginning.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any, cast, get_args

from upskill.authoring.material.material import TASK, Material, Piece, PieceKind
from upskill.authoring.saving.provenance import MATERIAL, OWN_KNOWLEDGE, Provenance
from upskill.plain import counted, dict_or_empty, load_json
from upskill.skills import Skill
from upskill.traces.redaction.redact import redact


def add_material(skill: Skill, material: Material) -> Skill:
    rows = [_to_row(piece, is_part=piece.id in material.partial) for piece in material.pieces]
    if not rows:
        return skill
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    return skill.with_file(MATERIAL, ("\n".join(lines) + "\n").encode())


def _to_row(piece: Piece, *, is_part: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": piece.id,
        "kind": piece.kind,
        "from": piece.source,
        "text": piece.text,
    }
    return row | ({"part": True} if is_part else {})


def with_stored(material: Material) -> Material:
    """With the pieces that the older skill was made from. New pieces get other ids, unless they are the same."""
    older = material.skill
    if older is None:
        return material
    stored, partial, left_out = _read_stored(older)
    known = {(piece.source, piece.text): piece.id for piece in stored}
    used = {piece.id for piece in stored}
    ids: dict[str, str] = {}
    for piece in material.pieces:
        ids[piece.id] = known.get((piece.source, piece.text)) or _free_id(piece.id, used)
        used.add(ids[piece.id])
    new = [
        replace(piece, id=ids[piece.id])
        for piece in material.pieces
        if (piece.source, piece.text) not in known
    ]
    return replace(
        material,
        pieces=(*stored, *new),
        partial=partial,
        left_out=(*material.left_out, *left_out),
    )


def _read_stored(skill: Skill) -> tuple[list[Piece], frozenset[str], list[str]]:
    """The pieces, the ids of those of which only the beginning is known, and what is not known at all, in words."""
    data = skill.read(MATERIAL) or b""
    rows = [dict_or_empty(load_json(line)) for line in data.decode().splitlines() if line.strip()]
    by_id = {str(row.get("id")): row for row in rows}
    # What the lines of the skill cite is kept beside them too, up to a length.
    for name, cited in Provenance.of(skill).evidence.items():
        if name not in (TASK, OWN_KNOWLEDGE) and "text" not in by_id.get(name, {}):
            by_id[name] = {**cited, "id": name, "part": True}
    pieces: list[Piece] = []
    for name, row in by_id.items():
        if text := row.get("text"):
            kind = row["kind"] if row.get("kind") in get_args(PieceKind) else "note"
            source = str(row.get("from", ""))
            pieces.append(Piece(name, cast("PieceKind", kind), redact(str(text)), source))
    partial = frozenset(name for name, row in by_id.items() if row.get("part"))
    left_out: list[str] = []
    if missing := len(by_id) - len(pieces):
        left_out.append(
            f"{counted(missing, 'piece')} of the older material, of which only hashes are stored:"
            " pass it again with --from"
        )
    if partial and not rows:
        left_out.append(
            f"the rest of what {skill.name} was made from, as only what its lines cite is stored:"
            " pass it again with --from to show it all"
        )
    return pieces, partial, left_out


def _free_id(name: str, used: set[str]) -> str:
    if name not in used:
        return name
    return next(free for number in count(2) if (free := f"{name}-{number}") not in used)
