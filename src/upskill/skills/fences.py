"""Which lines of a Markdown text are in a fenced block of code, judged as CommonMark does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<rest>.*)")

LineKind = Literal["text", "fence", "code"]


def read_fences(lines: Iterable[str], *, deepest: int = 1000) -> Iterator[tuple[str, LineKind]]:
    """Each line, and what it is.

    A block ends with a fence of its own kind that is as long and has nothing after it, or with the text. `deepest` is
    how far in a fence may be: 3 spaces on its own, any number in a list.
    """
    fence = ""
    for line in lines:
        found = _FENCE.fullmatch(line.rstrip())
        if found and len(found["indent"].expandtabs(4)) > deepest:
            found = None
        if fence:
            is_end = found is not None and found["mark"].startswith(fence) and not found["rest"]
            yield line, "fence" if is_end else "code"
            fence = "" if is_end else fence
        elif found and not (found["mark"][0] == "`" and "`" in found["rest"]):
            fence = found["mark"]
            yield line, "fence"
        else:
            yield line, "text"
