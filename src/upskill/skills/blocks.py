"""Blocks: the parts of a skill that can be taken out or rewritten one by one.

A block is a paragraph, a list item with what is nested in it, a row of a table, a block of code, or a whole file of
`references/`. Headings and table heads are no blocks: they go when nothing below them is left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from upskill.skills.files import MANIFEST, decode_text
from upskill.skills.markdown import read_fences
from upskill.skills.skill import Skill, estimate_tokens

Kind = Literal["paragraph", "item", "row", "code", "file"]
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")


@dataclass(frozen=True, slots=True)
class Block:
    kind: Kind
    text: str
    path: str = MANIFEST
    lines: tuple[int, int] = (0, 0)  # of the body; the second is the first that is not in it
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
    files = [file for file in skill.files if file.path.startswith("references/") and not file.link]
    return [*_body_blocks(skill.body), *(Block("file", decode_text(file, file.path), file.path) for file in files)]


def edit_blocks(skill: Skill, texts: Mapping[Block, str]) -> Skill:
    """The skill with other texts in place of these blocks; a block with an empty text is gone."""
    lines = skill.body.split("\n")
    body = sorted((block.lines, text) for block, text in texts.items() if block.kind != "file")
    for (start, end), text in reversed(body):
        lines[start:end] = text.split("\n") if text else []
    edited = skill.with_body(_tidy("\n".join(lines))) if body else skill
    for block, text in texts.items():
        if block.kind == "file":
            edited = edited.with_file(block.path, text.encode()) if text else edited.without_file(block.path)
    return edited


def without_blocks(skill: Skill, blocks: Collection[Block]) -> Skill:
    return edit_blocks(skill, dict.fromkeys(blocks, ""))


def _body_blocks(body: str) -> Iterator[Block]:
    lines, section = body.split("\n"), ""
    for kind, start, end in _parts(lines):
        if kind == "heading":
            heading = _HEADING.match(lines[start])
            section = heading[2] if heading else section
        elif kind != "table head":
            yield Block(kind, "\n".join(lines[start:end]), MANIFEST, (start, end), section)


def _parts(lines: list[str]) -> Iterator[tuple[Kind | Literal["heading", "table head"], int, int]]:
    """What each run of lines is, without the blank lines between."""
    kinds = [kind for _, kind in read_fences(lines, deepest=3)]
    at, total = 0, len(lines)
    while at < total:
        start, line = at, lines[at]
        at += 1
        if not line.strip():
            continue
        if kinds[start] == "fence":
            while at < total and kinds[at] == "code":
                at += 1
            at = min(at + 1, total)
            yield "code", start, at
        elif _HEADING.match(line):
            yield "heading", start, at
        elif item := _ITEM.match(line):
            indent = len(item[1])
            while at < total and _belongs_to_item(lines, at, indent):
                at += 1
            yield "item", start, _last_text(lines, start, at)
        elif at < total and "|" in line and _TABLE_RULE.fullmatch(lines[at]):
            at += 1
            yield "table head", start, at
            while at < total and "|" in lines[at]:
                at += 1
                yield "row", at - 1, at
        else:
            while at < total and lines[at].strip() and kinds[at] == "text" and not _starts_block(lines[at]):
                at += 1
            yield "paragraph", start, at


def _belongs_to_item(lines: list[str], at: int, indent: int) -> bool:
    following = next((line for line in lines[at:] if line.strip()), "")
    deeper = len(following) - len(following.lstrip()) > indent
    is_lazy = bool(lines[at].strip()) and not _starts_block(lines[at]) and not lines[at].startswith(("```", "~~~"))
    return deeper or is_lazy


def _starts_block(line: str) -> bool:
    return bool(_HEADING.match(line) or _ITEM.match(line))


def _last_text(lines: list[str], start: int, end: int) -> int:
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return end


def _tidy(body: str) -> str:
    """Drop headings and table heads with nothing below them, and blank lines that follow each other."""
    lines = body.split("\n")
    parts = [*_parts(lines)]
    gone, following = set[int](), ("", 0)  # what comes next and stays: its kind, and how deep a heading it is
    for kind, start, end in reversed(parts):
        heading = _HEADING.match(lines[start]) if kind == "heading" else None
        depth = len(heading[1]) if heading else 7  # deeper than any heading
        if (kind == "heading" and following[1] <= depth) or (kind == "table head" and following[0] != "row"):
            gone.update(range(start, end))
        else:
            following = kind, depth
    inside = {line for _, start, end in parts for line in range(start, end)}  # blank lines there belong to a block
    kept = [(line, number in inside) for number, line in enumerate(lines) if number not in gone]
    pairs = pairwise([("", False), *kept])
    return "\n".join(line for (before, _), (line, is_inside) in pairs if is_inside or line.strip() or before.strip())
