from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import regex

from upskill.reports.numbers import INVALID, percent
from upskill.reports.pictures.colors import style
from upskill.sandboxes import printable
from upskill.verdicts.verdict import Reason

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
        *(
            (53, "sz?“”"),
            (56, "cL"),
            (59, "Fkvxy•"),
            (62, "PTYaoe"),
            (64, "ESbdghnpqu$0123456789{}"),
            (69, "KAVBRXZ"),
        ),
        *(
            (74, "CU"),
            (78, "HNDG&"),
            (80, "OQ"),
            (84, "w#+<=>^~→−≥≤±×"),
            (87, "M"),
            (95, "%"),
            (98, "m"),
            (100, "W@…"),
        ),
    )
    for character in characters
}
_BOLD = 1.22  # times as wide, at most
MAX_LINES = 3  # of a title
MAX_LINES_OF_NAME = 6  # of one that is told below
Sign = Callable[[float, float], str]  # what is drawn around a place
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """How a picture is drawn. For a narrower place, draw it again: text in a shrunken one is unreadable."""

    width: int = 720
    heading: bool = True  # off if the page around it has one
    style: bool = (
        True  # off if the page around it has `style()`, as its Content-Security-Policy may require
    )
    baseline: str = "baseline"  # the labels of the arms
    skill: str = "with skill"
    notes: Sequence[str] = ()  # shown below, for example that a run is not finished


@dataclass
class Drawing:
    kind: str
    title: str
    options: PictureOptions
    height: float = 0.0
    words: list[str] = field(default_factory=list[str])  # of the description
    parts: list[str] = field(default_factory=list[str])
    numbered: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # labels, which are explained below, and names

    @property
    def width(self) -> int:
        return self.options.width

    def heading(self, document: Mapping[str, Any], subtitle: str) -> None:
        if self.options.heading:
            for line in wrap(self.title, self.width, 15, bold=True)[:MAX_LINES]:
                self.text(0, self.height + 16, line, size=15, bold=True)
                self.height += 21
            self.height += 3
        for line in wrap(subtitle, self.width):
            self.text(0, self.height + 13, line, "muted")
            self.height += 17
        if any(model["reason"] == Reason.ISOLATION for model in document["models"]):
            for line in wrap(INVALID, self.width, bold=True):
                self.text(0, self.height + 14, line, bold=True)
                self.height += 17
            self.words.append(INVALID)
        caveats = (str(line) for model in document["models"] for line in model["caveats"])
        for caveat in dict.fromkeys(caveats):
            for line in wrap(caveat, self.width):
                self.text(0, self.height + 13, line, "muted")
                self.height += 17
            self.words.append(caveat)
        self.height += 8

    def add(self, tag: str, classes: str = "", content: str = "", /, **attributes: object) -> None:
        self.parts.append(element(tag, classes, content, **attributes))

    def label(
        self, names: Iterable[object], room: float, *, bold: bool = False
    ) -> dict[str, Label]:
        """Each name, shortened to this width. Numbers are explained below."""
        labels = label_all(names, room, bold=bold)
        self.numbered |= {label.shown: label.whole for label in labels.values() if label.numbered}
        return labels

    def text(
        self,
        x: float,
        y: float,
        text: object,
        classes: str = "ink",
        *,
        size: float = TEXT,
        anchor: Anchor = "start",
        bold: bool = False,
        room: float = math.inf,
    ) -> None:
        """A text on one line, shortened to fit; its tooltip then has the full text."""
        full = clean(text)
        if isinstance(text, Label):
            fitted = text.shown
        else:
            fitted = full if math.isinf(room) else shorten(text, room, size, bold=bold)
        attributes: dict[str, object] = {"x": x, "y": y, "font_size": size}
        if anchor != "start":
            attributes["text_anchor"] = anchor
        if bold:
            attributes["font_weight"] = 600
        tooltip = element("title", "", escape(full)) if fitted != full else ""
        if is_measured(fitted):
            self.add("text", classes, tooltip + escape(fitted), **attributes)
            return
        # Its width in the reader's font is unknown, so it is forced to fit.
        width = text_width(fitted, size, bold=bold)
        attributes |= {"direction": "ltr", "unicode_bidi": "isolate"}
        attributes |= {"textLength": width, "lengthAdjust": "spacingAndGlyphs"}
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        box = {"x": left, "y": y - 1.3 * size, "width": width, "height": 1.7 * size}
        content = element("text", classes, tooltip + escape(fitted), **attributes)
        self.add("svg", "", content, **box, viewBox=" ".join(map(_number, box.values())))

    def line(
        self, x1: float, y1: float, x2: float, y2: float, classes: str, **attributes: object
    ) -> None:
        self.add("line", classes, x1=x1, y1=y1, x2=x2, y2=y2, **attributes)

    def axes(
        self,
        x: Scale,
        y: Scale,
        unit: str,
        write: Callable[[float], str] = lambda number: f"{number:,.6g}",
    ) -> None:
        """For pass rates against something."""
        left, top, bottom = x.start, y.end - 10, y.start + 10
        for tick in (0, 0.25, 0.5, 0.75, 1):
            self.line(left, y(tick), self.width, y(tick), "grid")
            self.text(left - 6, y(tick) + 4, percent(tick), "muted", size=SMALL, anchor="end")
        before = left - 20
        for tick in x.ticks(6 if self.width > 500 else 4):
            at, half = x(tick), text_width(write(tick), SMALL) / 2
            if at - half > before + 6 and at + half <= self.width + 10:
                self.line(at, top, at, bottom, "grid")
                self.text(at, bottom + 15, write(tick), "muted", size=SMALL, anchor="middle")
                before = at + half
        label = f"{unit} (logarithmic)" if x.log else unit
        self.text((left + self.width) / 2, bottom + 31, label, "muted", size=SMALL, anchor="middle")
        self.line(left, bottom, self.width, bottom, "axis")

    def _notes(self) -> None:
        for label, name in self.numbered.items():
            for line in break_anywhere(f"{label.partition(' ')[0]}: {name}", self.width, SMALL)[
                :MAX_LINES_OF_NAME
            ]:
                self.height += 15
                self.text(0, self.height, line, "muted", size=SMALL)
        for note in self.options.notes:
            for line in wrap(note, self.width, SMALL):
                self.height += 16
                self.text(0, self.height, line, "muted", size=SMALL)
                self.words.append(line)

    def svg(self) -> str:
        self._notes()
        width, height = self.width, math.ceil(self.height + 6)
        body = "".join(self.parts)
        name = f"up-{self.kind}-{hashlib.sha256(f'{width} {self.title} {body}'.encode()).hexdigest()[:8]}"
        sheet = element("style", "", style()) if self.options.style else ""
        return element(
            "svg",
            "picture",
            element("title", "", escape(clean(self.title)), id=f"{name}-title")
            + element("desc", "", escape(" ".join(map(clean, self.words))), id=f"{name}-desc")
            + sheet
            + element("rect", "paper", x=-12, y=-12, width=width + 24, height=height + 24)
            + body,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"-12 -12 {width + 24} {height + 24}",
            width=width + 24,
            height=height + 24,
            role="img",
            aria_labelledby=f"{name}-title {name}-desc",
        )


def element(tag: str, classes: str = "", content: str = "", /, **attributes: object) -> str:
    """One element; its content is SVG already. `font_size=12` is written `font-size="12"`."""
    if classes:
        attributes["class"] = " ".join(f"up-{name}" for name in classes.split())
    written = "".join(
        f' {name.replace("_", "-")}="{escape(_number(value) if isinstance(value, float) else str(value))}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def circle(x: float, y: float, r: float, classes: str) -> str:
    return element("circle", classes, cx=x, cy=y, r=r, stroke_width=2.0)


# decision -> the corners of its mark; the others are circles, and a square
CORNERS = {"hurts": ((0, -1), (1, 0), (0, 1), (-1, 0)), "saves": ((0, -1), (1, 0.8), (-1, 0.8))}


def mark(decision: str, x: float, y: float) -> str:
    r = 5.0
    if decision in CORNERS:
        points = " ".join(
            f"{_number(x + r * dx)},{_number(y + r * dy)}" for dx, dy in CORNERS[decision]
        )
        return element("polygon", decision, points=points, stroke_width=1)
    if decision == "no effect":
        return element(
            "rect", "no-effect", x=x - r, y=y - r, width=2 * r, height=2 * r, stroke_width=1.5
        )
    return circle(x, y, r, "helps" if decision == "helps" else "undecided")


def swatch(classes: str) -> Sign:
    return lambda x, y: element("rect", classes, x=x - 6, y=y - 5, width=12, height=11)


def dot(classes: str) -> Sign:
    return lambda x, y: circle(x, y, 4.5, classes)


def legend(drawing: Drawing, entries: Sequence[tuple[str, Sign]]) -> None:
    x = 0.0
    drawing.height += 8
    for text, draw in entries:
        width = 18 + text_width(text, SMALL) + 16
        if x and x + width > drawing.width:
            x = 0.0
            drawing.height += 18
        drawing.parts.append(draw(x + 7, drawing.height + 8))
        drawing.text(x + 18, drawing.height + 12, text, "muted", size=SMALL)
        x += width
    drawing.height += 18


@dataclass(frozen=True, slots=True)
class Scale:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (
            math.log10(number) if self.log else number for number in (self.low, self.high, value)
        )
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        if self.log:
            powers = range(
                math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1
            )
            for steps in ((1, 2, 5), (1, 3), (1,)):
                ticks = [step * 10.0**power for power in powers for step in steps]
                ticks = [
                    value
                    for value in ticks
                    if self.low <= value * 1.000001 and value <= self.high * 1.000001
                ]
                if len(ticks) <= most + 1:
                    return ticks
            return ticks[:: math.ceil(len(ticks) / most)]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        # The smallest step of 1, 2, 2.5 or 5 times a power of ten that makes at most so many.
        step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999999)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def clean(text: object) -> str:
    """Text on one line that XML can hold and a reader can see, with controls and overrides escaped."""
    one_line = printable(" ".join(str(text)[:MAX_TEXT].split()))
    escaped = "".join(
        f"\\x{ord(character):x}" if _is_unfit(character) else character for character in one_line
    )
    return "".join(map(_with_few_marks, regex.findall(r"\X", escaped)))


def _is_unfit(character: str) -> bool:
    code = ord(character)
    return (
        code & 0xFFFE == 0xFFFE
        or 0xFDD0 <= code <= 0xFDEF
        or unicodedata.category(character) == "Cc"
    )


def _with_few_marks(cluster: str) -> str:
    """A character with at most two marks above and below it: more would overlap the next line."""
    marks = [mark for mark in cluster if unicodedata.category(mark) in ("Mn", "Me")]
    return (
        cluster
        if len(marks) <= 2
        else unicodedata.normalize("NFC", cluster[0] + "".join(marks[:2]))
    )


def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    clusters = (
        text if text.isascii() else regex.findall(r"\X", text)
    )  # an emoji may be a sequence of several
    return (
        sum(max(map(_width, cluster)) for cluster in clusters) / 100 * size * (_BOLD if bold else 1)
    )


def is_measured(text: str) -> bool:
    """Whether the maximum width of every character is known, whatever the reader's font."""
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
    """A text of at most this width, cut in the middle: names of models differ at their ends."""
    full = clean(text)
    if text_width(full, size, bold=bold) <= width:
        return full
    clusters = regex.findall(r"\X", full)
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
    """The label of a name. `numbered`: only its number makes it unique."""

    whole: str
    shown: str
    numbered: bool = False

    def __str__(self) -> str:
        return self.whole


def label_all(names: Iterable[object], width: float, *, bold: bool = False) -> dict[str, Label]:
    """Names of at most this width, cut in the middle if longer; numbered if two look alike."""
    known = list(dict.fromkeys(map(str, names)))
    labels = {name: Label(name, shorten(name, width, bold=bold)) for name in known}
    if len({label.shown for label in labels.values()}) == len(labels):
        return labels
    return {
        name: Label(name, shorten(f"{number} {name}", width, bold=bold), numbered=True)
        for number, name in enumerate(known, 1)
    }


def break_anywhere(text: object, width: float, size: float = TEXT) -> list[str]:
    lines = [""]
    for cluster in regex.findall(r"\X", clean(text)):
        if text_width(lines[-1] + cluster, size) > width:
            lines.append("")
        lines[-1] += cluster
    return lines


def wrap(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> list[str]:
    lines: list[str] = []
    for word in clean(text).split(" "):
        joined = f"{lines[-1]} {word}" if lines else ""
        if joined and text_width(joined, size, bold=bold) <= width:
            lines[-1] = joined
        else:
            lines.append(shorten(word, width, size, bold=bold))
    return lines
