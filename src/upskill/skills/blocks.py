"""Blocks: the parts of a skill that can be taken out or rewritten one by one.

A block is a paragraph, a list item, a row of a table, a block of code, or a whole file of `references/`. The items of a
nested list are blocks by themselves. Headings and table heads are no blocks: they go when nothing below them is left.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from markdown_it import MarkdownIt

from upskill.errors import UsageError
from upskill.skills.files import MANIFEST, decode_text, find_manifest
from upskill.skills.skill import Skill, estimate_tokens

Kind = Literal["paragraph", "item", "row", "code", "file"]
# Parts by Markdown token. Tokens of other kinds are paragraphs, except for what holds parts.
_PARTS = {
    "heading_open": "heading",
    "fence": "code",
    "list_item_open": "item",
    "thead_open": "head",
    "tr_open": "row",
}
_HOLDERS = frozenset(("bullet_list_open", "ordered_list_open", "table_open", "tbody_open"))


@dataclass(frozen=True, slots=True)
class Block:
    kind: Kind
    text: str
    path: str = MANIFEST
    lines: tuple[int, int] = (0, 0)  # of its file: the first, from 1, and the last
    section: str = ""  # the heading above it

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)

    @property
    def title(self) -> str:
        """Its beginning, on one line."""
        first = self.path if self.kind == "file" else " ".join(self.text.split())
        return first if len(first) <= 60 else f"{first[:59]}…"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lines": list(self.lines), "tokens": self.tokens}


def blocks_of(skill: Skill) -> list[Block]:
    blocks = [*_body_blocks(skill.body, _lines_above(skill))]
    for file in skill.files:
        if file.path.startswith("references/") and not file.link:
            with suppress(UsageError):  # a picture, say
                blocks.append(Block("file", decode_text(file, file.path), file.path))
    return blocks


def _lines_above(skill: Skill) -> int:
    """How many lines of its file are above the body."""
    text = decode_text(find_manifest(skill.files, skill.name), MANIFEST)
    return text.rstrip().count("\n") - skill.body.count("\n")


def edit_blocks(skill: Skill, texts: Mapping[Block, str]) -> Skill:
    """The skill with other texts in place of these blocks; a block with an empty text is gone."""
    lines, above = skill.body.split("\n"), _lines_above(skill)
    body = sorted((block.lines, text) for block, text in texts.items() if block.kind != "file")
    for (start, end), text in reversed(body):
        lines[start - above - 1 : end - above] = text.split("\n") if text else []
    edited = skill.with_body(_tidy("\n".join(lines))) if body else skill
    for block, text in texts.items():
        if block.kind == "file":
            edited = (
                edited.with_file(block.path, text.encode())
                if text
                else edited.without_file(block.path)
            )
    return edited


def without_blocks(skill: Skill, blocks: Collection[Block]) -> Skill:
    return edit_blocks(skill, dict.fromkeys(blocks, ""))


def _body_blocks(body: str, above: int) -> Iterator[Block]:
    lines, section = body.split("\n"), ""
    for kind, start, end, _ in _parts(body):
        if kind == "heading":
            section = lines[start].strip("# ")
        elif kind != "head":
            yield Block(
                kind,
                "\n".join(lines[start:end]),
                MANIFEST,
                (above + start + 1, above + end),
                section,
            )


def _parts(body: str) -> Iterator[tuple[Any, int, int, int]]:
    """What each run of lines is, without the blank lines between, and how deep a heading is; other parts are deeper."""
    lines, done = body.split("\n"), 0
    tokens = MarkdownIt().enable("table").disable("reference").parse(body)
    items = [token.map for token in tokens if token.type == "list_item_open" and token.map]
    starts = sorted(start for start, _ in items)
    holders = {
        (start, end)
        for start, end in items
        if bisect_right(starts, start) < bisect_left(starts, end)
    }
    for token in tokens:
        is_holder = token.type in _HOLDERS or (
            token.type == "list_item_open" and tuple(token.map or ()) in holders
        )
        if token.map and not is_holder and token.map[0] >= done:
            is_lead = token.type == "paragraph_open" and token.map[0] in starts
            kind, (start, done) = (
                _PARTS.get(token.type, "item" if is_lead else "paragraph"),
                token.map,
            )
            done += kind == "head"  # the line below it
            end = next(line for line in range(done, start, -1) if lines[line - 1].strip())
            yield kind, start, end, int(token.tag[1:]) if kind == "heading" else 7


def _tidy(body: str) -> str:
    """Drop headings and table heads with nothing below them, and blank lines that follow each other."""
    lines, parts = body.split("\n"), [*_parts(body)]
    gone, following = set[int](), ("", 0)  # what comes next and stays: its kind, and how deep it is
    for kind, start, end, depth in reversed(parts):
        if (kind == "heading" and following[1] <= depth) or (
            kind == "head" and following[0] != "row"
        ):
            gone.update(range(start, end))
        else:
            following = kind, depth
    inside = {
        line for _, start, end, _ in parts for line in range(start, end)
    }  # blank lines there belong to a block
    kept = [(line, number in inside) for number, line in enumerate(lines) if number not in gone]
    pairs = pairwise([("", False), *kept])
    return "\n".join(
        line
        for (before, _), (line, is_inside) in pairs
        if is_inside or line.strip() or before.strip()
    )
