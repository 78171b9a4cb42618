"""`svg`: pictures of a verb's JSON document, each one function on a small helper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from upskill.reports.numbers import format_cell, percent, points
from upskill.reports.report import Measure, Rate, Report
from upskill.sandboxes import printable
from upskill.verdicts.line import decision_in_words, signed_points

WIDTH = 720  # px
NARROW = 330  # for a phone
TEXT = 13  # px; nothing is smaller
LETTER = 8.4  # px, of a wide one
ROW = 20  # px
Document = Mapping[str, Any]

# Light and dark. Arms have Okabe and Ito's colors, which anyone can tell apart; a value or an outline says the same.
COLORS = {
    "paper": ("#ffffff", "#121418"),
    "ink": ("#1b1c20", "#e8eaee"),
    "soft": ("#555b66", "#a5adb9"),
    "line": ("#d9dce1", "#363b44"),
    "baseline": ("#e69f00", "#e69f00"),
    "skill": ("#0072b2", "#56b4e9"),
    "own": ("#a6dba0", "#2d6a3a"),
    "taken": ("#c2a5cf", "#6a4577"),
    "nothing": ("#eeeeee", "#3d434b"),
}
ARMS = {"baseline": "without the skill", "skill": "with the skill"}


def _rules(scheme: int) -> str:
    rules = [f".baseline{{fill:{COLORS['paper'][scheme]}!important}}"]
    for name, colors in COLORS.items():
        rules.append(f".{name}{{fill:{colors[scheme]};stroke:{colors[scheme]}}}")
    return "".join(rules)


STYLE = (
    f"text{{font:{TEXT}px system-ui,'DejaVu Sans',sans-serif;stroke:none!important}}.bold{{font-weight:600}}"
    f"{_rules(0)}@media(prefers-color-scheme:dark){{{_rules(1)}}}"
)


@dataclass
class Picture:
    """A drawing that grows downwards."""

    title: str
    subtitle: str
    width: int = WIDTH
    height: float = 0.0
    parts: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.paragraph(self.title, "ink bold")
        self.paragraph(self.subtitle)
        self.height += 8

    def text(self, x: float, y: float, text: str, tone: str = "ink", anchor: str = "start") -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text class="{tone}" {place}>{escape(clean(text))}</text>')

    def line(
        self, x1: float, y1: float, x2: float, y2: float, tone: str = "line", width: int = 1
    ) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f'<line class="{tone}" {ends} stroke-width="{width}"/>')

    def circle(self, x: float, y: float, tone: str = "ink") -> None:
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="4.5" stroke-width="2"'
        self.parts.append(f'<circle class="{tone}" {place}/>')

    def paragraph(self, text: str, tone: str = "soft", room: float | None = None) -> None:
        letters = int((room or self.width) / LETTER)
        for line in Text(clean(text)).wrap(Console(), letters):
            self.height += ROW
            self.text(0, self.height - 5, line.plain, tone)

    def place(self, drawn: str) -> None:
        """Something that is drawn in percent of the width."""
        self.parts.append(f'<svg y="{self.height:.1f}" width="{self.width}">{drawn}</svg>')
        self.height += 1.4 * ROW

    def legend(self, tones: Mapping[str, str]) -> None:
        """What they stand for."""
        for tone, text in tones.items():
            self.height += ROW
            self.circle(8, self.height - 9, tone)
            self.text(20, self.height - 5, text, "soft")

    def svg(self) -> str:
        width, height = self.width + 24, math.ceil(self.height) + 24
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="up-picture"'
            f' viewBox="-12 -12 {width} {height}" width="{width}" height="{height}">'
            f"<title>{escape(clean(self.title))}</title><style>{STYLE}</style>"
            f'<rect class="paper" x="-12" y="-12" width="{width}" height="{height}"/>'
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True)
class Scale:
    """Places numbers between a start and an end."""

    low: float
    high: float
    start: float
    end: float
    step: float = 0.25  # between ticks

    @classmethod
    def around(cls, measures: Iterable[Measure]) -> Scale:
        """In percent of a width, from one tick to another, with zero and these intervals on it."""
        ends = [0.0, 0.01]
        for measure in measures:
            bounds = (measure.value, measure.low, measure.high)
            ends += [bound for bound in bounds if bound is not None]
        low, high = math.floor(min(ends) / cls.step), math.ceil(max(ends) / cls.step)
        return cls(low * cls.step, high * cls.step, 3, 97)

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        steps = round((self.high - self.low) / self.step)
        return [self.low + number * self.step for number in range(steps + 1)]


def draw_axis(scale: Scale, write: Callable[[float], str]) -> str:
    """Ticks in percent of the width, for pictures and pages."""
    drawn = ""
    for tick in scale.ticks():
        place = f'x="{scale(tick):.1f}%" y="12" text-anchor="middle"'
        drawn += f'<text class="soft" {place}>{write(tick)}</text>'
    return drawn


def draw_interval(measure: Measure, scale: Scale) -> str:
    """Likewise, 20 px high."""
    zero, value = scale(0), scale(measure.value or 0)
    drawn = '<line class="line" x1="0" x2="100%" y1="10" y2="10"/>'
    drawn += (
        f'<line class="soft" x1="{zero:.1f}%" x2="{zero:.1f}%" y1="0" y2="20" stroke-width="2"/>'
    )
    if measure.low is not None and measure.high is not None:
        ends = f'x1="{scale(measure.low):.1f}%" x2="{scale(measure.high):.1f}%"'
        drawn += f'<line class="ink" {ends} y1="10" y2="10" stroke-width="4"/>'
    return f'{drawn}<circle class="ink" cx="{value:.1f}%" cy="10" r="5"/>'


def clean(text: str) -> str:
    """On one line, in characters that XML can hold."""
    return printable(" ".join(text.split()))


# A run
# ------------------------------------------------------------------------------------------------


def lift(document: Document) -> Picture:
    subtitle = "Points of pass rate that the skill adds, with their interval"
    picture = Picture(f"Lift of {document['skill']['name']}", subtitle)
    models: Sequence[Document] = document["models"]
    measures = [Measure(model["lift"], *(model["interval"] or ())) for model in models]
    scale = Scale.around(measures)
    for model, measure in zip(models, measures, strict=True):
        value = format_cell(measure, "points")
        picture.paragraph(f"{model['model']} {decision_in_words(model)}: {value}", "ink")
        if measure.value is not None:
            picture.place(draw_interval(measure, scale))
    picture.place(draw_axis(scale, signed_points))
    return picture


def pass_rates(document: Document) -> Picture:
    title = f"Pass rates of {document['skill']['name']}"
    picture = Picture(title, "Share of trials that passed")
    picture.legend(ARMS)
    for model in document["models"]:
        picture.height += 8
        picture.paragraph(f"{model['model']}: {points(model['lift'])}", "ink bold")
        for name in ARMS:
            rate = Rate.of_arm(model[name])
            end = (picture.width - 130) * (rate.share or 0)
            y = picture.height + 10
            picture.line(0, y, end, y, name, 12)
            picture.text(end + 8, y + 5, format_cell(rate))
            picture.height += ROW
    return picture


def tokens(document: Document, width: int = WIDTH) -> Picture:
    """Tokens per task against the pass rate; a line leads from each model without the skill to it with the skill."""
    title = f"Tokens and pass rate of {document['skill']['name']}"
    picture = Picture(title, "Tokens per task against the share that passed", width)
    rows: dict[str, list[_Point]] = {}
    for model in document["models"]:
        for name in ARMS:
            arm: Document = model[name]
            if scored := arm["passed"] + arm["failed"]:
                used = (arm["input_tokens"] + arm["output_tokens"]) / scored
                point = (used, Measure(arm["pass_rate"]), name)
                rows.setdefault(model["model"], []).append(point)
    _plot(picture, rows)
    picture.legend(ARMS)
    return picture


def for_page(report: Report) -> Iterator[tuple[str, str]]:
    """Tokens against pass rate, wide and narrow, where a page has two models or more to compare."""
    data = report.data
    if isinstance(data, Mapping) and "suite" in data and len(data.get("models", ())) > 1:
        yield tokens(data).svg(), tokens(data, NARROW).svg()


PICTURES: Mapping[str, Callable[[Document], Picture]] = {
    "lift": lift,
    "pass-rates": pass_rates,
    "tokens": tokens,
}


# Against pass rate
# ------------------------------------------------------------------------------------------------


_Point = tuple[float, Measure, str]  # tokens, pass rate, tone


def _plot(picture: Picture, rows: Mapping[str, Sequence[_Point]]) -> None:
    """Each row's points joined, numbered, and told below."""
    top = picture.height + 16
    bottom = top + 228
    most = max([1.0, *(point[0] for row in rows.values() for point in row)])
    digit = 10 ** math.floor(math.log10(most))
    end = digit * math.ceil(most / digit)
    x = Scale(0, end, 44, picture.width - 24, end / 4)
    y = Scale(0, 1, bottom, top)
    for tick in y.ticks():
        picture.line(44, y(tick), picture.width, y(tick))
        picture.text(38, y(tick) + 4, percent(tick), "soft", "end")
    for tick in x.ticks():
        picture.text(x(tick), bottom + 22, f"{tick:,.6g}", "soft", "middle")
    picture.height = bottom + 28
    labels: list[tuple[float, float]] = []
    for number, (name, row) in enumerate(rows.items(), start=1):
        places = [(x(used), y(rate.value or 0)) for used, rate, _ in row]
        for one, other in pairwise(places):
            picture.line(*one, *other, "soft")
        for place, (_, rate, tone) in zip(places, row, strict=True):
            for bound in (rate.low, rate.high):
                if bound is not None:
                    picture.line(*place, place[0], y(bound), "soft")
            picture.circle(*place, tone)
        told = [f"{percent(rate.value or 0)} at {used:,.0f}" for used, rate, _ in row]
        picture.paragraph(f"{number}  {name}: {' → '.join(told)}", "ink")
        left, top = places[-1]
        while any(abs(left - at) < 16 and abs(top - other) < 14 for at, other in labels):
            top += 14
        labels.append((left, top))
        picture.text(left + 8, top - 6, str(number))
    picture.height += 6


def front(document: Document) -> str:
    """Versions of a skill by tokens and pass rate: of `upskill distill --json`."""
    subtitle = "Tokens of the skill against its pass rate on the train cases, with the 95% interval"
    picture = Picture(f"Versions of {document['skill']}", subtitle)
    rows: dict[str, list[_Point]] = {}
    for version in document["front"]:
        rate = version["pass_rate"]
        measure = Measure(rate["value"], *rate["interval"])
        tone = "baseline" if version["version"] == "whole" else "skill"
        name = f"{version['version']}, {version['model']}"
        rows[name] = [(version["tokens"], measure, tone)]
    _plot(picture, rows)
    return picture.svg()


def shadow_map(document: Document) -> str:
    """Whose requests (rows) opened which skill (columns): one student of `upskill matrix --json`."""
    subtitle = "Share of each skill's requests (rows) that each skill gets (columns), in %"
    picture = Picture(f"Who gets whose requests: {document['student']}", subtitle)
    skills: Sequence[Document] = document["skills"]
    columns = [*(skill["name"] for skill in skills), "none"]
    left = 0.36 * WIDTH
    step = min(64.0, (WIDTH - left) / len(columns))
    for number, column in enumerate(columns):
        head = "none" if column == "none" else str(number + 1)
        picture.text(left + number * step, picture.height + 14, head, "soft")
    picture.height += ROW
    for number, skill in enumerate(skills, start=1):
        y = picture.height + 12
        picture.paragraph(f"{number} {skill['name']}", "ink", left - 10)
        picture.height += 4
        opened: Mapping[str, float] = skill["opened"]
        shares = {**opened, "none": 1 - sum(opened.values())}
        if not skill["requests"]:
            shares = {}
            picture.text(left, y + 4, "has no requests of its own", "soft")
        for index, column in enumerate(columns):
            share = shares.get(column, 0)
            if share >= 0.005:
                x = left + index * step
                tone = {skill["name"]: "own", "none": "nothing"}.get(column, "taken")
                picture.line(x, y, x + (step - 4) * share, y, tone, 20)
                picture.text(x + 2, y + 4, f"{100 * share:.0f}")
    picture.legend({"own": "its own", "taken": "taken by another", "nothing": "nothing was opened"})
    for each in document["conflicts"]:
        others = ", ".join(each["others"])
        picture.paragraph(f"Shown by a test: {others} takes requests of {each['skill']}.", "ink")
    return picture.svg()
