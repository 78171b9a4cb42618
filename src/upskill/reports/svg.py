"""`svg`: pictures of a verb's JSON document, each one function on a small helper."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any, Literal

from upskill.reports.numbers import format_cell, percent
from upskill.reports.report import Measure, Rate, Report
from upskill.sandboxes import printable
from upskill.verdicts.line import decision_in_words, signed_points

WIDTH = 720  # px
NARROW = 330  # for a phone
TEXT = 13  # px; nothing is smaller
LETTER = 8.4  # px, of a wide one
ROW = 20  # px
MIN_SPAN = 0.2  # of a scale, so that small differences look small
Document = Mapping[str, Any]

# Light and dark. Arms have Okabe and Ito's colors, which anyone can tell apart; a value or an outline says the same.
COLORS = {
    "paper": ("#ffffff", "#121418"),
    "ink": ("#1b1c20", "#e8eaee"),
    "soft": ("#555b66", "#a5adb9"),
    "line": ("#d9dce1", "#363b44"),
    "without": ("#e69f00", "#e69f00"),
    "with": ("#0072b2", "#56b4e9"),
    "hurts": ("#d55e00", "#ff7f3f"),
    "own": ("#a6dba0", "#2d6a3a"),
    "taken": ("#c2a5cf", "#6a4577"),
    "nothing": ("#eeeeee", "#3d434b"),
}
TONES = {"helps": "with", "saves": "with", "hurts": "hurts"}
ARMS = {"baseline": "without", "skill": "with"}
LEGEND = (("without", "without the skill"), ("with", "with the skill"))


def _style() -> str:
    light, dark = (_colors(scheme) for scheme in (0, 1))
    text = f"text{{font:{TEXT}px system-ui,'DejaVu Sans',sans-serif;stroke:none!important}}"
    return f"{text}.bold{{font-weight:600}}{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _colors(scheme: int) -> str:
    rules = [
        f".{name}{{fill:{colors[scheme]};stroke:{colors[scheme]}}}"
        for name, colors in COLORS.items()
    ]
    hollow = f"circle.without,rect.without,circle.soft{{fill:{COLORS['paper'][scheme]}}}"
    return f"{''.join(rules)}{hollow}"


@dataclass
class Picture:
    """A drawing that grows downwards."""

    title: str
    subtitle: str = ""
    width: int = WIDTH
    height: float = 0.0
    parts: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.paragraph(self.title, "ink bold")
        self.paragraph(self.subtitle)
        self.height += 8

    def add(self, tag: str, tone: str, content: str = "", **attributes: float | str) -> None:
        written = "".join(
            f' {name.replace("_", "-")}="{escape(f"{value:.1f}" if isinstance(value, float) else str(value))}"'
            for name, value in attributes.items()
        )
        self.parts.append(f'<{tag} class="{tone}"{written}>{content}</{tag}>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        tone: str = "ink",
        anchor: Literal["start", "middle", "end"] = "start",
        room: float = math.inf,
    ) -> None:
        """One line; what is longer than its room is cut in the middle, as names of models differ at their ends."""
        self.add("text", tone, escape(shorten(clean(text), room)), x=x, y=y, text_anchor=anchor)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, tone: str = "line", width: int = 1
    ) -> None:
        self.add("line", tone, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=width)

    def circle(self, x: float, y: float, tone: str = "ink") -> None:
        self.add("circle", tone, cx=x, cy=y, r=4.5, stroke_width=2)

    def rect(
        self, x: float, y: float, width: float, height: float, tone: str, opacity: float = 1.0
    ) -> None:
        self.add("rect", tone, x=x, y=y, width=width, height=height, opacity=opacity)

    def paragraph(self, text: str, tone: str = "soft") -> None:
        for line in wrap(clean(text), int(self.width / LETTER)):
            self.height += ROW
            self.text(0, self.height - 5, line, tone)

    def row(self, name: str, value: str, tone: str = "ink") -> None:
        """A name and its value on one line, or on two where there is no room."""
        self.height += ROW
        self.text(0, self.height - 5, name, tone, room=self.width)
        if width_of(clean(name)) + width_of(value) + 12 > self.width:
            self.height += ROW
        self.text(self.width, self.height - 5, value, "soft", "end")

    def legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Tones and what they stand for."""
        for tone, text in entries:
            self.height += ROW
            self.circle(8, self.height - 9, tone)
            self.text(20, self.height - 5, text, "soft", room=self.width - 20)

    def svg(self) -> str:
        width, height = self.width + 24, math.ceil(self.height) + 24
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="up-picture"'
            f' viewBox="-12 -12 {width} {height}" width="{width}" height="{height}">'
            f"<title>{escape(clean(self.title))}</title><style>{_style()}</style>"
            f'<rect class="paper" x="-12" y="-12" width="{width}" height="{height}"/>'
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, measures: Iterable[Measure], start: float, end: float) -> Scale:
        """From one tick to another, with zero and these intervals on it."""
        ends = [0.0]
        for measure in measures:
            bounds = (measure.value, measure.low, measure.high)
            ends += [bound for bound in bounds if bound is not None]
        low = min(ends)
        high = max(*ends, low + MIN_SPAN)
        step = cls(low, high, start, end).step()
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(first * step, last * step, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def step(self, most: int = 4) -> float:
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        return next(step * power for step in (1, 2.5, 5, 10) if step * power >= rough * 0.999)

    def ticks(self, most: int = 4) -> list[float]:
        step = self.step(most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def clean(text: str) -> str:
    """On one line, in characters that XML can hold."""
    line = printable(" ".join(text.split()))
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def width_of(text: str) -> float:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return LETTER * (len(text) + wide)


def shorten(text: str, room: float) -> str:
    if width_of(text) <= room:
        return text
    half = max(1, int(room / width_of(text) * len(text) - 1) // 2)
    return f"{text[:half]}…{text[-half:]}"


# A run
# ------------------------------------------------------------------------------------------------


def lift(document: Document, width: int = WIDTH) -> Picture:
    subtitle = "Points of pass rate that the skill adds, with their interval"
    picture = Picture(f"Lift of {document['skill']['name']}", subtitle, width)
    models: Sequence[Document] = document["models"]
    measures = [Measure(model["lift"], *(model["interval"] or ())) for model in models]
    scale = Scale.around(measures, 8.0, width - 8.0)
    for model, measure in zip(models, measures, strict=True):
        value = "no lift" if measure.value is None else format_cell(measure, "points")
        picture.row(model["model"], f"{decision_in_words(model)}: {value}")
        if measure.value is not None:
            _draw_interval(picture, scale, measure, TONES.get(model["decision"], "soft"))
    for tick in scale.ticks():
        picture.text(scale(tick), picture.height + 14, signed_points(tick), "soft", "middle")
    picture.height += ROW
    return picture


def _draw_interval(picture: Picture, scale: Scale, measure: Measure, tone: str) -> None:
    y = picture.height + 10
    picture.line(0, y, picture.width, y)
    picture.line(scale(0), y - 8, scale(0), y + 8, "soft", 2)
    if measure.low is not None and measure.high is not None:
        picture.line(scale(measure.low), y, scale(measure.high), y, tone, 4)
    picture.circle(scale(measure.value or 0), y, tone)
    picture.height += 28


def pass_rates(document: Document, width: int = WIDTH) -> Picture:
    title = f"Pass rates of {document['skill']['name']}"
    picture = Picture(title, "Share of trials that passed", width)
    picture.legend(LEGEND)
    picture.height += 8
    scale = Scale(0, 1, 0, width - 130.0)
    for model in document["models"]:
        points = "no lift" if model["lift"] is None else f"{signed_points(model['lift'])} points"
        picture.row(model["model"], points, "ink bold")
        for arm, tone in ARMS.items():
            rate = Rate(model[arm]["passed"], _scored(model[arm]), model[arm]["pass_rate"])
            end = scale(rate.share or 0)
            picture.rect(0, picture.height + 2, end, 14, tone)
            value = format_cell(rate) if rate.of else "not scored"
            picture.text(end + 8, picture.height + 14, value)
            picture.height += ROW
        picture.height += 8
    return picture


def tokens(document: Document, width: int = WIDTH) -> Picture:
    """Tokens per task against the pass rate; a line leads from each model without the skill to it with the skill."""
    title = f"Tokens and pass rate of {document['skill']['name']}"
    picture = Picture(title, "Tokens per task against the share that passed", width)
    points: dict[str, list[_Point]] = {}
    for model in document["models"]:
        for name, tone in ARMS.items():
            arm: Document = model[name]
            if scored := _scored(arm):
                used = (arm["input_tokens"] + arm["output_tokens"]) / scored
                point = _Point(used, arm["pass_rate"], tone)
                points.setdefault(model["model"], []).append(point)
    _plot(picture, points, "tokens per task")
    picture.legend(LEGEND)
    return picture


def _scored(arm: Document) -> int:
    return arm["passed"] + arm["failed"]


def for_page(report: Report) -> Iterator[tuple[str, str]]:
    """Tokens against pass rate, wide and narrow, where a page has two models or more to compare."""
    data = report.data
    if isinstance(data, Mapping) and "suite" in data and len(data.get("models", ())) > 1:
        yield tokens(data).svg(), tokens(data, NARROW).svg()


PICTURES: Mapping[str, Callable[..., Picture]] = {
    "lift": lift,
    "pass-rates": pass_rates,
    "tokens": tokens,
}


# Against pass rate
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    x: float
    rate: float
    tone: str
    interval: tuple[float, float] | None = None


def _plot(picture: Picture, points: Mapping[str, Sequence[_Point]], unit: str) -> None:
    """Each name's points joined, numbered, and told below."""
    top = picture.height + 16
    bottom = top + 228
    most = max((point.x for each in points.values() for point in each), default=1) or 1
    x = Scale(0, 1.1 * most, 44, picture.width)
    y = Scale(0, 1, bottom, top)
    for tick in y.ticks():
        picture.line(44, y(tick), picture.width, y(tick))
        picture.text(38, y(tick) + 4, percent(tick), "soft", "end")
    for tick in x.ticks(4 if picture.width > NARROW else 2):
        picture.text(x(tick), bottom + 22, f"{tick:,.6g}", "soft", "middle")
    picture.text(picture.width, bottom + 40, unit, "soft", "end")
    picture.height = bottom + 46
    labels: list[tuple[float, float]] = []
    for number, (name, row) in enumerate(points.items(), start=1):
        for one, other in pairwise(row):
            picture.line(x(one.x), y(one.rate), x(other.x), y(other.rate), "soft")
        for point in row:
            if point.interval:
                low, high = point.interval
                picture.line(x(point.x), y(low), x(point.x), y(high), "soft")
            picture.circle(x(point.x), y(point.rate), point.tone)
        label_x, label_y = x(row[-1].x) + 8, y(row[-1].rate) - 6
        while any(abs(label_x - at) < 16 and abs(label_y - other) < 14 for at, other in labels):
            label_y += 14
        labels.append((label_x, label_y))
        picture.text(label_x, label_y, str(number))
        values = " → ".join(f"{percent(point.rate)} at {point.x:,.0f}" for point in row)
        picture.row(f"{number}  {name}", values)
    picture.height += 6


def front(document: Document) -> str:
    """Versions of a skill by tokens and pass rate: of `upskill distill --json`."""
    subtitle = "Tokens of the skill against its pass rate on the train cases, with the 95% interval"
    picture = Picture(f"Versions of {document['skill']}", subtitle)
    points: dict[str, list[_Point]] = {}
    for version in document["front"]:
        rate = version["pass_rate"]
        tone = "without" if version["version"] == "whole" else "with"
        point = _Point(version["tokens"], rate["value"], tone, tuple(rate["interval"]))
        points[f"{version['version']}, {version['model']}"] = [point]
    _plot(picture, points, "tokens")
    return picture.svg()


def shadow_map(document: Document) -> str:
    """Whose requests (rows) opened which skill (columns): one student of `upskill matrix --json`."""
    subtitle = "Share of each skill's requests (rows) that each skill gets (columns), in %"
    picture = Picture(f"Who gets whose requests: {document['student']}", subtitle)
    names = [skill["name"] for skill in document["skills"]]
    left = 0.36 * WIDTH
    step = min(64.0, (WIDTH - left) / (len(names) + 1))
    for index, head in enumerate([*range(1, len(names) + 1), "none"]):
        picture.text(left + (index + 0.5) * step, picture.height + 14, str(head), "soft", "middle")
    picture.height += ROW
    for number, skill in enumerate(document["skills"], start=1):
        name, y = skill["name"], picture.height
        picture.text(0, y + 15, f"{number} {name}", room=left - 10)
        picture.height += 24
        if not skill["requests"]:
            picture.text(left, y + 15, "has no requests of its own", "soft")
            continue
        shares = dict[str, float](skill["opened"])
        shares["none"] = 1.0 - sum(shares.values())
        for index, other in enumerate([*names, "none"]):
            share = shares.get(other, 0.0)
            if share >= 0.005:
                x = left + index * step
                tone = "nothing" if other == "none" else "own" if other == name else "taken"
                picture.rect(x + 1, y + 1, step - 2, 22, tone, opacity=0.3 + 0.7 * share)
                picture.text(x + step / 2, y + 16, f"{100 * share:.0f}", "ink", "middle")
    picture.height += 4
    picture.legend(
        [("own", "its own"), ("taken", "taken by another"), ("nothing", "nothing was opened")]
    )
    for each in document["conflicts"]:
        others = ", ".join(each["others"])
        picture.paragraph(f"Shown by a test: {others} takes requests of {each['skill']}.", "ink")
    return picture.svg()
