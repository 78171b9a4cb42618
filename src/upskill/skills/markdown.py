"""Markdown: which lines are in a block of code, and text that a model reads and a person does not see."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

MAX_SHOWN = 60  # letters of what is hidden
# What is invisible, and what it is called. Joiners are part of many scripts and of emoji, so only those between ASCII
# letters count, and selectors only where several follow each other.
INVISIBLE = {
    "invisible tag characters": r"[\U000e0000-\U000e007f]+",
    "characters that turn the direction of text": r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+",
    "invisible characters": (
        r"(?:[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]"
        r"|(?<=[\x00-\x7f])[\u200c\u200d]+(?=[\x00-\x7f])|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,})+"
    ),
    "control characters": r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]+",
}
HIDDEN = (
    re.compile(r"<!--(?P<text>.*?)(?:-->|\Z)", re.S),
    re.compile(r"^[ ]{0,3}\[(?://|comment|_|#)\]:\s*(?:#|<>)\s*[(\"'](?P<text>.*?)[)\"']\s*$", re.M | re.I),
    re.compile(
        r"<(?P<tag>\w+)\b[^>]{0,300}?(?:\shidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)[^>]{0,300}>"
        r"(?P<text>.{0,2000}?)</(?P=tag)>",
        re.S | re.I,
    ),
)
_CODE = re.compile(r"`[^`\n]+`")
_PATTERNS = {what: re.compile(pattern) for what, pattern in INVISIBLE.items()}


def invisible_characters(text: str) -> Iterator[str]:
    """Each kind of invisible character in a text: how many, where the first is, and what tag characters spell."""
    for what, pattern in _PATTERNS.items():
        if matches := list(pattern.finditer(text)):
            letters = "".join(match[0] for match in matches)
            codes = ", ".join(f"{count} × U+{ord(letter):04X}" for letter, count in Counter(letters).most_common(3))
            spelt = "".join(chr(ord(letter) & 0x7F) for letter in letters) if "tag" in what else ""
            detail = f"that spell {_shorten(spelt)}" if spelt.isprintable() and spelt else f"({codes})"
            yield f"line {_line(text, matches[0].start())}: {what} {detail}"


def hidden_comments(text: str) -> Iterator[str]:
    """Comments and hidden elements outside of code: a rendered page does not show them, a model reads them."""
    text = blank_code(text)
    for pattern in HIDDEN:
        for match in pattern.finditer(text):
            if hidden := " ".join(match["text"].split()):
                yield f"line {_line(text, match.start())}: text that a rendered page does not show: {_shorten(hidden)}"


def blank_code(text: str) -> str:
    """The text with spaces in place of all code, so that every line stays where it is."""
    lines = read_fences(text.split("\n"), deepest=3)  # what is further in may be shown as something else than code
    visible = (line if kind == "text" else " " * len(line) for line, kind in lines)
    return _CODE.sub(lambda code: " " * len(code[0]), "\n".join(visible))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _shorten(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")


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
            is_end = fence_line is not None and fence_line["mark"].startswith(fence) and not fence_line["rest"]
            yield line, "fence" if is_end else "code"
            fence = "" if is_end else fence
        elif fence_line and not (fence_line["mark"][0] == "`" and "`" in fence_line["rest"]):
            fence = fence_line["mark"]
            yield line, "fence"
        else:
            yield line, "text"
