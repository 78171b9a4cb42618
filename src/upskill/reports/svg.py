"""`svg`: pictures of a verb's JSON document, each one function on a small helper."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any, Literal, Protocol

from upskill.reports.numbers import INVALID, format_cell, interval_in_points, percent
from upskill.reports.report import Rate, Report
from upskill.sandboxes import printable
from upskill.verdicts.line import decision_in_words, signed_points
from upskill.verdicts.verdict import Reason

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
    "without": ("#e69f00", "#e69f00"),
    "with": ("#0072b2", "#56b4e9"),
    "hurts": ("#d55e00", "#ff7f3f"),
    "own": ("#a6dba0", "#2d6a3a"),
    "own-pale": ("#d9f0d3", "#2f4f36"),
    "taken": ("#c2a5cf", "#6a4577"),
    "taken-pale": ("#e7d4e8", "#4d3a55"),
    "nothing": ("#eeeeee", "#3d434b"),
}


def _style() -> str:
    rules = [f"text{{font:{TEXT}px system-ui,'DejaVu Sans',sans-serif}}", ".bold{font-weight:600}"]
    for index, scheme in enumerate(("light", "dark")):
        colors = "".join(
            f".{name}{{fill:{both[index]};stroke:{both[index]}}}" for name, both in COLORS.items()
        )
        colors += "text{stroke:none!important}"
        hollow = COLORS["paper"][index]
        colors += f"circle.without,rect.without,circle.soft{{fill:{hollow}}}"
        rules.append(
            colors if scheme == "light" else f"@media(prefers-color-scheme:dark){{{colors}}}"
        )
    return "".join(rules)


@dataclass
class Picture:
    """A drawing that grows downwards. What it shows is also said in words, for who cannot see it."""

    title: str
    subtitle: str = ""
    width: int = WIDTH
    height: float = 0.0
    parts: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

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
        whole = clean(text)
        shown = shorten(whole, room)
        tooltip = "" if shown == whole else f"<title>{escape(whole)}</title>"
        self.add("text", tone, tooltip + escape(shown), x=x, y=y, text_anchor=anchor)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, tone: str = "line", width: int = 1
    ) -> None:
        self.add("line", tone, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=width)

    def circle(self, x: float, y: float, tone: str = "ink") -> None:
        self.add("circle", tone, cx=x, cy=y, r=4.5, stroke_width=2)

    def rect(self, x: float, y: float, width: float, height: float, tone: str) -> None:
        self.add("rect", tone, x=x, y=y, width=width, height=height)

    def paragraph(self, text: str, tone: str = "soft") -> None:
        for line in wrap(clean(text), int(self.width / LETTER)):
            self.height += ROW
            self.text(0, self.height - 5, line, tone)

    def row(self, name: str, value: str, tone: str = "ink") -> None:
        """A name and its value on one line, or on two where there is no room."""
        room = self.width - width_of(value) - 12
        if room < width_of(clean(name)) and room < self.width / 2:
            self.height += ROW
            self.text(0, self.height - 5, name, tone, room=self.width)
            name = ""
        self.height += ROW
        self.text(0, self.height - 5, name, tone, room=room)
        self.text(self.width, self.height - 5, value, "soft", "end")
        self.words.append(f"{name} {value}.".lstrip())

    def legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Tones and what they stand for."""
        for tone, text in entries:
            self.height += ROW
            self.circle(8, self.height - 9, tone)
            self.text(20, self.height - 5, text, "soft", room=self.width - 20)

    def caveats(self, models: Iterable[Document], notes: Iterable[str]) -> None:
        lines = dict.fromkeys(notes)
        for model in models:
            if model["reason"] == Reason.ISOLATION:
                lines[INVALID] = None
            lines |= dict.fromkeys(model["caveats"])
        for line in lines:
            self.paragraph(line)
            self.words.append(line)

    def svg(self) -> str:
        width, height = self.width + 24, math.ceil(self.height) + 24
        description = escape(clean(" ".join(self.words)))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="up-picture"'
            f' viewBox="-12 -12 {width} {height}" width="{width}" height="{height}"'
            f' role="img"><title>{escape(clean(self.title))}</title><desc>{description}</desc>'
            f'<style>{_style()}</style><rect class="paper" x="-12" y="-12" width="{width}" height="{height}"/>'
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def clean(text: str) -> str:
    """On one line, in characters that XML can hold."""
    line = printable(" ".join(str(text).split()))
    return "".join(
        letter if unicodedata.category(letter) not in ("Cc", "Cn", "Cs") else "\ufffd"
        for letter in line
    )


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


def lift(document: Document, width: int = WIDTH, notes: Sequence[str] = ()) -> str:
    title = f"Lift of {document['skill']['name']}"
    return lift_by_group(title, {"": document["models"]}, width, notes)


def lift_by_group(
    title: str,
    groups: Mapping[str, Sequence[Document]],
    width: int = WIDTH,
    notes: Sequence[str] = (),
) -> str:
    picture = Picture(title, "Points of pass rate that the skill adds, with their interval", width)
    models = [model for group in groups.values() for model in group]
    ends = [0.0, 0.1]
    for model in models:
        if model["lift"] is not None:
            ends += _ends(model)
    scale = Scale(min(ends), max(ends), 8.0, width - 8.0)
    for name, group in groups.items():
        picture.paragraph(name, "ink bold")
        for model in group:
            _draw_lift(picture, model, scale)
    for tick in scale.ticks():
        picture.text(scale(tick), picture.height + 14, signed_points(tick), "soft", "middle")
    picture.height += ROW
    picture.caveats(models, notes)
    return picture.svg()


def _draw_lift(picture: Picture, model: Document, scale: Scale) -> None:
    if model["lift"] is None:
        picture.row(model["model"], f"{decision_in_words(model)}: no lift")
        return
    low, high = _ends(model)
    interval = f" ({interval_in_points((low, high))})" if model["interval"] else ""
    value = f"{decision_in_words(model)}: {signed_points(model['lift'])}{interval}"
    picture.row(model["model"], value)
    y = picture.height + 10
    picture.line(0, y, picture.width, y)
    picture.line(scale(0), y - 8, scale(0), y + 8, "soft", 2)
    tone = {"helps": "with", "saves": "with", "hurts": "hurts"}.get(model["decision"], "soft")
    picture.line(scale(low), y, scale(high), y, tone, 4)
    picture.circle(scale(model["lift"]), y, tone)
    picture.height += 28


def _ends(model: Document) -> tuple[float, float]:
    """Of its interval; the lift itself where there is none."""
    low, high = model["interval"] or (None, None)
    return model["lift"] if low is None else low, model["lift"] if high is None else high


def pass_rates(document: Document, width: int = WIDTH, notes: Sequence[str] = ()) -> str:
    picture = Picture(
        f"Pass rates of {document['skill']['name']}", "Share of trials that passed", width
    )
    picture.legend([("without", "without the skill"), ("with", "with the skill")])
    picture.height += 8
    scale = Scale(0, 1, 0, width - 130.0)
    for model in document["models"]:
        points = "no lift" if model["lift"] is None else f"{signed_points(model['lift'])} points"
        picture.row(model["model"], points, "ink bold")
        for arm, tone in (("baseline", "without"), ("skill", "with")):
            rate = model[arm]["pass_rate"]
            counts = Rate(model[arm]["passed"], model[arm]["passed"] + model[arm]["failed"], rate)
            value = format_cell(counts) if counts.of else "not scored"
            picture.rect(0, picture.height + 2, scale(rate or 0), 14, tone)
            picture.text(scale(rate or 0) + 8, picture.height + 14, value)
            picture.words.append(f"{tone} the skill {value}.")
            picture.height += ROW
        picture.height += 8
    picture.caveats(document["models"], notes)
    return picture.svg()


def tokens(document: Document, width: int = WIDTH, notes: Sequence[str] = ()) -> str:
    """Tokens per task against the pass rate; a line leads from each model without the skill to it with the skill."""
    title = f"Tokens and pass rate of {document['skill']['name']}"
    plot = _Plot(Picture(title, "Tokens per task against the share that passed", width))
    points: dict[str, list[_Point]] = {}
    for model in document["models"]:
        for arm, tone in (("baseline", "without"), ("skill", "with")):
            scored = model[arm]["passed"] + model[arm]["failed"]
            if scored:
                used = (model[arm]["input_tokens"] + model[arm]["output_tokens"]) / scored
                point = _Point(used, model[arm]["pass_rate"], tone)
                points.setdefault(model["model"], []).append(point)
    plot.draw(points, "tokens per task")
    plot.picture.legend([("without", "without the skill"), ("with", "with the skill")])
    plot.picture.caveats(document["models"], notes)
    return plot.picture.svg()


def for_page(report: Report) -> Iterator[tuple[str, str]]:
    """Tokens against pass rate, wide and narrow, where a page has two models or more to compare."""
    data = report.data
    models: Sequence[Document] = data.get("models", ()) if isinstance(data, Mapping) else ()
    graded = [model for model in models if "baseline" in model and "skill" in model]
    if len(graded) > 1 and isinstance(data, Mapping) and "skill" in data:
        yield tokens(data), tokens(data, NARROW)


class Draw(Protocol):
    def __call__(self, document: Document, width: int = ..., notes: Sequence[str] = ...) -> str: ...


PICTURES: Mapping[str, Draw] = {
    "lift": lift,
    "pass-rates": pass_rates,
    "tokens": tokens,
}


def picture_named(name: str) -> Draw:
    """Which picture a file asks for by its name: the lift, unless it says rates or tokens."""
    asked = name.lower()
    if "rates" in asked:
        return pass_rates
    return tokens if "tokens" in asked else lift


# Against pass rate
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    x: float
    rate: float
    tone: str
    interval: tuple[float, float] | None = None


@dataclass
class _Plot:
    picture: Picture
    plot_height: int = 240

    def draw(self, points: Mapping[str, Sequence[_Point]], unit: str) -> None:
        """Each name's points joined, numbered, and told below."""
        picture = self.picture
        top = picture.height + 10
        bottom = top + self.plot_height
        most = max((point.x for each in points.values() for point in each), default=1) or 1
        x = Scale(0, 1.1 * most, 44, picture.width)
        y = Scale(0, 1, bottom - 6, top + 6)
        for tick in y.ticks(4):
            picture.line(44, y(tick), picture.width, y(tick))
            picture.text(38, y(tick) + 4, percent(tick), "soft", "end")
        for tick in x.ticks(4 if picture.width > 500 else 2):
            picture.text(x(tick), bottom + 16, f"{tick:,.6g}", "soft", "middle")
        picture.text(picture.width, bottom + 34, unit, "soft", "end")
        picture.height = bottom + 40
        labels: list[tuple[float, float]] = []
        for number, (name, row) in enumerate(points.items(), start=1):
            for one, other in pairwise(row):
                picture.line(x(one.x), y(one.rate), x(other.x), y(other.rate), "soft")
            for point in row:
                if point.interval:
                    low, high = point.interval
                    picture.line(x(point.x), y(low), x(point.x), y(high), "soft")
                picture.circle(x(point.x), y(point.rate), point.tone)
            label = (x(row[-1].x) + 8, y(row[-1].rate) - 6)
            while any(
                abs(label[0] - at) < 16 and abs(label[1] - other) < 14 for at, other in labels
            ):
                label = (label[0], label[1] + 14)
            labels.append(label)
            picture.text(*label, str(number))
            values = " → ".join(f"{percent(point.rate)} at {point.x:,.0f}" for point in row)
            picture.row(f"{number}  {name}", values)
        picture.height += 6


def front(document: Document, width: int = WIDTH) -> str:
    """Versions of a skill by tokens and pass rate: of `upskill distill --json`."""
    subtitle = "Tokens of the skill against its pass rate on the train cases, with the 95% interval"
    plot = _Plot(Picture(f"Versions of {document['skill']}", subtitle, width))
    points: dict[str, list[_Point]] = {}
    for version in document["front"]:
        rate = version["pass_rate"]
        tone = "without" if version["version"] == "whole" else "with"
        point = _Point(version["tokens"], rate["value"], tone, tuple(rate["interval"]))
        points[f"{version['version']}, {version['model']}"] = [point]
    plot.draw(points, "tokens")
    return plot.picture.svg()


MOSTLY = 0.4  # of a skill's requests: the darker shade


def shadow_map(document: Document, width: int = WIDTH) -> str:
    """Whose requests (rows) opened which skill (columns): one student of `upskill matrix --json`."""
    subtitle = "Share of each skill's requests (rows) that each skill gets (columns), in %"
    picture = Picture(f"Who gets whose requests: {document['student']}", subtitle, width)
    names = [skill["name"] for skill in document["skills"]]
    conflicts = {(each["skill"], *each["others"]) for each in document["conflicts"]}
    left = 0.36 * width
    step = min(64.0, (width - left) / (len(names) + 1))
    for index, head in enumerate([*range(1, len(names) + 1), "none"]):
        picture.text(left + (index + 0.5) * step, picture.height + 14, str(head), "soft", "middle")
    picture.height += ROW
    for number, skill in enumerate(document["skills"], start=1):
        name = skill["name"]
        y = picture.height
        picture.text(0, y + 15, f"{number} {name}", room=left - 10)
        picture.height += 24
        if not skill["requests"]:
            picture.text(left, y + 15, "has no requests of its own", "soft")
            continue
        shares = dict[str, float](skill["opened"])
        shares["none"] = max(0.0, 1.0 - sum(shares.values()))
        for index, other in enumerate([*names, "none"]):
            share = shares.get(other, 0.0)
            x = left + index * step
            if share >= 0.005:
                tone = "nothing" if other == "none" else "own" if other == name else "taken"
                is_pale = share < MOSTLY and tone != "nothing"
                picture.rect(x + 1, y + 1, step - 2, 22, f"{tone}-pale" if is_pale else tone)
                picture.text(x + step / 2, y + 16, f"{100 * share:.0f}", "ink", "middle")
            if (name, other) in conflicts:
                for edge in (y + 1, y + 23):
                    picture.line(x + 1, edge, x + step - 1, edge, "ink", 2)
                picture.words.append(f"{other} takes requests of {name}: {percent(share)}.")
        picture.words.append(f"{name}: {percent(shares.get(name, 0.0))} reach it.")
    picture.height += 4
    picture.legend(
        [("own", "its own"), ("taken", "taken by another"), ("nothing", "nothing was opened")]
    )
    picture.paragraph("Between two lines: shown by a test, alone against beside it.")
    return picture.svg()
