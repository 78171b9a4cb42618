"""Markdown: which lines are in a block of code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

_CODE = re.compile(r"`[^`\n]+`")


def blank_code(text: str) -> str:
    """The text with spaces in place of all code, so that every line stays where it is."""
    lines = read_fences(
        text.split("\n"), deepest=3
    )  # what is further in may be shown as something else than code
    visible = (line if kind == "text" else " " * len(line) for line, kind in lines)
    return _CODE.sub(lambda code: " " * len(code[0]), "\n".join(visible))


_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<rest>.*)")

LineKind = Literal["text", "fence", "code"]


def read_fences(lines: Iterable[str], *, deepest: int = 1000) -> Iterator[tuple[str, LineKind]]:
    """A block ends with a fence of its kind, as long and bare, or with the text; `deepest` bounds a fence's indent."""
    fence = ""
    for line in lines:
        fence_line = _FENCE.fullmatch(line.rstrip())
        if fence_line and len(fence_line["indent"].expandtabs(4)) > deepest:
            fence_line = None
        if fence:
            is_end = (
                fence_line is not None
                and fence_line["mark"].startswith(fence)
                and not fence_line["rest"]
            )
            yield line, "fence" if is_end else "code"
            fence = "" if is_end else fence
        elif fence_line and not (fence_line["mark"][0] == "`" and "`" in fence_line["rest"]):
            fence = fence_line["mark"]
            yield line, "fence"
        else:
            yield line, "text"
