"""Texts of others in a picture: cleaned, measured, shortened, wrapped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

import regex

from upskill.sandboxes import printable

TEXT, SMALL = 12, 11  # px; nothing is smaller
LONGEST = 2_000  # characters of a text that is kept whole in a tooltip or a description

# Widths in hundredths of an em, as DejaVu Sans has them: hardly a font is wider. What is not here gets a textLength.
_WIDTHS = {
    character: width
    for width, characters in (
        *(
            (29, "'ijlIJ"),
            (32, " ,.’‘"),
            (35, "/:;\\|f"),
            (36, "-"),
            (40, "()[]t!·"),
            (42, "r"),
            (47, '"'),
            (50, "*_`–"),
        ),
        *((53, "sz?“”"), (56, "cL"), (59, "Fkvxy•"), (62, "PTYaoe"), (64, "ESbdghnpqu$0123456789{}"), (69, "KAVBRXZ")),
        *((74, "CU"), (78, "HNDG&"), (80, "OQ"), (84, "w#+<=>^~→−≥≤±×"), (87, "M"), (95, "%"), (98, "m"), (100, "W@…")),
    )
    for character in characters
}
_BOLD = 1.22  # times as wide, at most


def clean(text: object) -> str:
    """Somebody's text as XML can hold it and a reader can see it: on one line, controls and overrides escaped."""
    shown = printable(" ".join(str(text)[:LONGEST].split()))
    shown = "".join(f"\\x{ord(one):x}" if _unfit(one) else one for one in shown)
    return "".join(_calm(cluster) for cluster in regex.findall(r"\X", shown))


def _unfit(character: str) -> bool:
    code = ord(character)
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF or (unicodedata.category(character) == "Cc")


def _calm(cluster: str) -> str:
    """A character with at most two marks above and below it: more would reach into the next line."""
    marks = [one for one in cluster if unicodedata.category(one) in ("Mn", "Me")]
    return cluster if len(marks) <= 2 else unicodedata.normalize("NFC", cluster[0] + "".join(marks[:2]))


def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """How wide a text is at most, in px."""
    clusters = text if text.isascii() else regex.findall(r"\X", text)  # an emoji may be a sequence of several
    return sum(max(map(_width, cluster)) for cluster in clusters) / 100 * size * (_BOLD if bold else 1)


def is_measured(text: str) -> bool:
    """Whether it is known how wide every character of a text is at most, whatever the reader's font."""
    return all(one in _WIDTHS for one in text)


def _width(character: str) -> int:
    if (known := _WIDTHS.get(character)) is not None:
        return known
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 130 if unicodedata.category(character) == "So" else 100  # emoji, ideographs
    return 66 if character.isalpha() else 84


def shorten(text: object, width: float, size: float = TEXT, *, bold: bool = False) -> str:
    """A text that is at most so wide, with its middle left out: names of models differ at their ends."""
    shown = clean(text)
    if text_width(shown, size, bold=bold) <= width:
        return shown
    clusters = regex.findall(r"\X", shown)
    room = width - text_width("…", size, bold=bold)
    head, tail = "", ""
    while clusters:
        at_end = len(tail) < len(head)
        piece = clusters.pop(-1 if at_end else 0)
        if text_width(head + tail + piece, size, bold=bold) > room:
            break
        head, tail = (head, piece + tail) if at_end else (head + piece, tail)
    return f"{head}…{tail}"


@dataclass(frozen=True, slots=True)
class Label:
    """What is shown of a name. `numbered`: only with a number is it another than the rest."""

    whole: str
    shown: str
    numbered: bool = False

    def __str__(self) -> str:
        return self.whole


def label_all(names: Iterable[object], width: float, size: float = TEXT, *, bold: bool = False) -> dict[str, Label]:
    """Names that are at most so wide, no two alike: whole, without what they share, or without their middles."""
    known = list(dict.fromkeys(map(str, names)))
    whole = [clean(name) for name in known]
    parts = _without_shared(whole)
    tries = [(whole, True), (parts, True), (whole, False), (parts, False)]
    for given, only_whole in tries:
        shown = [shorten(name, width, size, bold=bold) for name in given]
        if len(set(shown)) == len(shown) and (shown == given or not only_whole):
            return {name: Label(name, label) for name, label in zip(known, shown, strict=True)}
    return {
        name: Label(name, shorten(f"{number} {name}", width, size, bold=bold), numbered=True)
        for number, name in enumerate(known, 1)
    }


def _without_shared(names: list[str]) -> list[str]:
    """Without the words at the beginning and at the end that all of them have, if something is left of each."""
    words = [re.findall(r"[^/:_ -]*[/:_ -]?", name)[:-1] for name in names]
    start = _count_shared(words)
    words = [each[start:] for each in words]
    end = _count_shared([each[::-1] for each in words])
    kept = ["".join(each[: len(each) - end]) for each in words]
    return [f"{'…' if start else ''}{each}{'…' if end else ''}" for each in kept] if all(kept) else names


def _count_shared(words: list[list[str]]) -> int:
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))


def break_anywhere(text: object, width: float, size: float = TEXT) -> list[str]:
    """All of a text, in lines that are at most so wide."""
    lines = [""]
    for cluster in regex.findall(r"\X", clean(text)):
        if text_width(lines[-1] + cluster, size) > width:
            lines.append("")
        lines[-1] += cluster
    return lines


def wrap(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> list[str]:
    """The lines of a text, none wider than this."""
    lines: list[str] = []
    for word in clean(text).split(" "):
        joined = f"{lines[-1]} {word}" if lines else ""
        if joined and text_width(joined, size, bold=bold) <= width:
            lines[-1] = joined
        else:
            lines.append(shorten(word, width, size, bold=bold))
    return lines
