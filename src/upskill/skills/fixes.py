"""Fixes of a SKILL.md that need no understanding of it; whatever its fields say stays as it was."""

from __future__ import annotations

import re
from typing import Any

from upskill.errors import UsageError
from upskill.skills import frontmatter

_OPENING = re.compile(r"---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.M)
_NAME = re.compile(r"^name:.*$", re.M)


def fix_manifest(data: bytes, folder: str) -> bytes:
    """The file without a byte order mark, in Unix lines, with clean frontmatter, its folder's name and a last newline.

    A fix that would change any other field, or whose result nobody could read, is left out.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    if "\0" in text:
        return data
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    if opening and closing:
        head, body = text[opening.end() : closing.start()], text[closing.end() :]
        text = f"---\n{_fix_head(head, folder)}---{body}"
    return (text if text.endswith("\n") else f"{text}\n").encode()


def _fix_head(head: str, folder: str) -> str:
    fields = _read(head)
    for step in (_untab, _strip_lines, frontmatter.quote_colons):
        changed = step(head)
        after = _read(changed)
        if after is not None and (fields is None or fields == after):
            head, fields = changed, after
    is_name = not [*frontmatter.name_problems(folder, folder)]
    if fields is not None and is_name and [*frontmatter.name_problems(fields.get("name"), folder)]:
        line = f"name: {folder}"
        named = _NAME.sub(line, head, count=1) if "name" in fields else f"{line}\n{head}"
        if _read(named) == {**fields, "name": folder}:
            return named
    return head


def _untab(head: str) -> str:
    """Two spaces for each tab that indents: YAML allows none there."""
    return re.sub(r"^[ ]*\t[ \t]*", lambda indent: indent[0].replace("\t", "  "), head, flags=re.M)


def _strip_lines(head: str) -> str:
    return re.sub(r"[ \t]+$", "", head, flags=re.M)


def _read(head: str) -> dict[str, Any] | None:
    try:
        return frontmatter.parse(head, "", [])
    except UsageError:
        return None
