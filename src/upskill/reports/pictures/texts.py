"""Texts of others in a picture: cleaned, measured, shortened, wrapped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import regex

from upskill.sandboxes import printable

TEXT, SMALL = 12, 11  # px; nothing is smaller
MAX_TEXT = 2_000  # characters of a text that is kept whole in a tooltip or a description

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
    one_line = printable(" ".join(str(text)[:MAX_TEXT].split()))
    escaped = "".join(f"\\x{ord(character):x}" if _is_unfit(character) else character for character in one_line)
    return "".join(map(_with_few_marks, regex.findall(r"\X", escaped)))


def _is_unfit(character: str) -> bool:
    code = ord(character)
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF or unicodedata.category(character) == "Cc"


def _with_few_marks(cluster: str) -> str:
    """A character with at most two marks above and below it: more would reach into the next line."""
    marks = [mark for mark in cluster if unicodedata.category(mark) in ("Mn", "Me")]
    return cluster if len(marks) <= 2 else unicodedata.normalize("NFC", cluster[0] + "".join(marks[:2]))


def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """How wide a text is at most, in px."""
    clusters = text if text.isascii() else regex.findall(r"\X", text)  # an emoji may be a sequence of several
    return sum(max(map(_width, cluster)) for cluster in clusters) / 100 * size * (_BOLD if bold else 1)


def is_measured(text: str) -> bool:
    """Whether it is known how wide every character of a text is at most, whatever the reader's font."""
    return all(character in _WIDTHS for character in text)


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
    """Names that are at most so wide, without their middles where they are longer; numbered where two look alike."""
    known = list(dict.fromkeys(map(str, names)))
    labels = {name: Label(name, shorten(name, width, size, bold=bold)) for name in known}
    if len({label.shown for label in labels.values()}) == len(labels):
        return labels
    return {
        name: Label(name, shorten(f"{number} {name}", width, size, bold=bold), numbered=True)
        for number, name in enumerate(known, 1)
    }


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
