"""`pareto`: what a task takes against how often it passes, and the front that nothing beats on both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from upskill.reports.numbers import dollars, percent
from upskill.reports.pictures.svg import Drawing, PictureOptions, Scale, circle, dot, element, legend
from upskill.reports.pictures.texts import SMALL, shorten, text_width

MAX_LABELED = 60  # points
SAME = 6  # px: points that are no further apart share a label
LABEL = 13.0  # px: how high one is
DISTANCES = (0, 10, 20, 32, 46, 62, 80, 100, 124, 150)  # px, of a label from its point

Unit = Literal["cost", "tokens"]


@dataclass(frozen=True, slots=True)
class _Point:
    number: int  # of the model, from 1
    model: str
    arm: str
    price: float  # tokens or dollars of a task
    rate: float


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


def pareto(document: Mapping[str, Any], options: PictureOptions | None = None, *, by: Unit | None = None) -> str:
    """Where `by` is left out, it is cost if every price is known and something was paid."""
    options = options or PictureOptions()
    models: list[dict[str, Any]] = document["models"]
    passed = [model[arm] for model in models for arm in ("baseline", "skill") if model[arm]["passed"]]
    prices = [price_of_task(arm, "cost") for arm in passed]
    by = by or ("cost" if any(prices) and None not in prices else "tokens")
    drawing = Drawing("pareto", f"{by.capitalize()} and pass rate of {document['skill']['name']}", options)
    drawing.heading(document, f"{'Dollars' if by == 'cost' else 'Tokens'} per task against the share that passed")
    points = list(_points(models, by))
    if points:
        _Plot(drawing, points, by).draw()
    else:
        drawing.text(0, drawing.height + 14, "No model has a scored trial with a known price.", "muted")
        drawing.height += 24
    _table(drawing, models, by)
    return drawing.svg()


def price_of_task(arm: Mapping[str, Any], by: Unit) -> float | None:
    """Tokens or dollars of one scored trial; None where there is none, or a price is not known."""
    scored = arm["passed"] + arm["failed"]
    total = arm["cost_usd"] if by == "cost" else arm["input_tokens"] + arm["output_tokens"]
    return None if total is None or not scored else total / scored


def _points(models: Sequence[Mapping[str, Any]], by: Unit) -> Iterator[_Point]:
    for number, model in enumerate(models, 1):
        for arm in ("baseline", "skill"):
            price, rate = price_of_task(model[arm], by), model[arm]["pass_rate"]
            if price is not None and rate is not None:
                yield _Point(number, str(model["model"]), arm, price, rate)


def _front_of(points: Sequence[_Point]) -> list[_Point]:
    """Those that no other beats on both, cheapest first."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.price, -point.rate, point.model, point.arm)):
        if not front or point.rate > front[-1].rate:
            front.append(point)
    return front


class _Plot:
    def __init__(self, drawing: Drawing, points: Sequence[_Point], by: Unit) -> None:
        self.drawing, self.points, self.by = drawing, points, by
        self.left, self.top = 44.0, drawing.height + 6
        self.bottom = self.top + min(320, max(220, 0.5 * drawing.width))
        prices = [point.price for point in points]
        low, high = min(prices), max(prices)
        log = low > 0 and high / low > 15
        if log:
            low, high = low / 1.4, high * 1.4
        else:
            low, high = 0.0, high * 1.1 or 1.0
        self.x = Scale(low, high, self.left, drawing.width - 12, log)
        self.y = Scale(0, 1, self.bottom - 10, self.top + 10)
        self.taken: list[_Box] = []

    def at(self, point: _Point) -> tuple[float, float]:
        return self.x(point.price), self.y(point.rate)

    def draw(self) -> None:
        drawing = self.drawing
        self._axes()
        front = _front_of(self.points)
        steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in map(self.at, front))
        path = f"M{self.at(front[0])[0]:.1f} {self.bottom:.1f}{steps}H{drawing.width}"
        drawing.add("path", "front", d=path, fill="none", stroke_dasharray="2 3", stroke_width=1)
        by_model: dict[int, dict[str, _Point]] = {}
        for point in self.points:
            by_model.setdefault(point.number, {})[point.arm] = point
            x, y = self.at(point)
            self.taken.append(_Box(x - 6, y - 6, 12, 12))
        for arms in by_model.values():
            if len(arms) == 2:
                self._arrow(self.at(arms["baseline"]), self.at(arms["skill"]))
        for point in self.points:
            drawing.parts.append(circle(*self.at(point), 4.5, f"mark-{point.arm}"))
        labeled = [arms.get("skill") or arms["baseline"] for arms in by_model.values()][:MAX_LABELED]
        for group in self._together(labeled):
            self._label(group[0], ", ".join(str(point.number) for point in group))
        names = [
            f"{point.model} {drawing.options.skill if point.arm == 'skill' else drawing.options.baseline}"
            for point in front
        ]
        drawing.words.append(f"On the front, cheapest first: {', '.join(names)}.")
        drawing.height = self.bottom + 36
        entries = [
            (drawing.options.baseline, dot("mark-baseline")),
            (drawing.options.skill, dot("mark-skill")),
            ("front: nothing is cheaper and passes as often", _dash),
        ]
        legend(drawing, entries)

    def _together(self, points: Sequence[_Point]) -> list[list[_Point]]:
        """Points that lie on each other, as one group: it gets one label."""
        groups: list[list[_Point]] = []
        for point in points:
            near = (group for group in groups if math.dist(self.at(group[0]), self.at(point)) < SAME)
            if (group := next(near, None)) is None:
                groups.append([point])
            else:
                group.append(point)
        return groups

    def _axes(self) -> None:
        drawing = self.drawing
        for tick in (0, 0.25, 0.5, 0.75, 1):
            drawing.line(self.left, self.y(tick), drawing.width, self.y(tick), "grid")
            drawing.text(self.left - 6, self.y(tick) + 4, percent(tick), "muted", size=SMALL, anchor="end")
        before = self.left - 20
        for tick in self.x.ticks(6 if drawing.width > 500 else 4):
            words = f"{tick:,.6g}" if self.by == "tokens" else f"${tick:,.9f}".rstrip("0").rstrip(".")
            x, half = self.x(tick), text_width(words, SMALL) / 2
            if x - half > before + 6 and x + half <= drawing.width + 10:
                drawing.line(x, self.top, x, self.bottom, "grid")
                drawing.text(x, self.bottom + 15, words, "muted", size=SMALL, anchor="middle")
                before = x + half
        unit = "dollars per task" if self.by == "cost" else "tokens per task"
        words = f"{unit} (logarithmic)" if self.x.log else unit
        drawing.text((self.left + drawing.width) / 2, self.bottom + 31, words, "muted", size=SMALL, anchor="middle")
        drawing.line(self.left, self.bottom, drawing.width, self.bottom, "axis")

    def _arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        (x1, y1), (x2, y2) = start, end
        length = math.hypot(x2 - x1, y2 - y1)
        if length < 16:
            return
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        x2, y2 = x2 - 7 * dx, y2 - 7 * dy
        self.drawing.line(x1 + 6 * dx, y1 + 6 * dy, x2, y2, "axis", stroke_width=1.2)
        head = f"M{x2 - 6 * dx - 3 * dy:.1f} {y2 - 6 * dy + 3 * dx:.1f}L{x2:.1f} {y2:.1f}"
        head += f"L{x2 - 6 * dx + 3 * dy:.1f} {y2 - 6 * dy - 3 * dx:.1f}"
        self.drawing.add("path", "axis", d=head, fill="none", stroke_width=1.2)

    def _label(self, point: _Point, label: str) -> None:
        """Beside its point, or as near as there is room for it, with a line that leads to it then."""
        shown = shorten(label, 190, SMALL)
        for distance in DISTANCES:
            boxes = self._places(point, text_width(shown, SMALL) + 2, distance)
            if (box := next(filter(self._is_free, boxes), None)) is None:
                continue
            self.taken.append(box)
            if distance > 10:
                x, y = self.at(point)
                self.drawing.line(x, y, min(max(x, box.x), box.x + box.width), box.y + box.height / 2, "axis")
            self.drawing.text(box.x + 1, box.y + 10.5, shown, "ink halo", size=SMALL)
            return

    def _places(self, point: _Point, width: float, distance: float) -> Iterator[_Box]:
        x, y = self.at(point)
        for dx, dy in ((0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            left = x + dx * (9 + distance) - (width if dx < 0 else 0 if dx else width / 2)
            top = y + dy * (9 + distance) - (LABEL if dy < 0 else 0 if dy else LABEL / 2)
            yield _Box(min(left, self.drawing.width - width) if not dx else left, top, width, LABEL)

    def _is_free(self, box: _Box) -> bool:
        inside = box.x > self.left and box.x + box.width <= self.drawing.width
        inside = inside and self.top - 6 <= box.y and box.y + box.height < self.bottom
        return inside and not any(box.overlaps(other) for other in self.taken)


def _dash(x: float, y: float) -> str:
    return element("line", "front", x1=x - 7, y1=y, x2=x + 7, y2=y, stroke_dasharray="2 3")


def _table(drawing: Drawing, models: Sequence[Mapping[str, Any]], by: Unit) -> None:
    """Every value in words."""
    drawing.height += 8
    for number, model in enumerate(models, 1):
        arms = [_value(arm, by) for arm in (model["baseline"], model["skill"])]
        words = " → ".join(arms)
        drawing.words.append(
            f"{model['model']}: {drawing.options.baseline} {arms[0]}, {drawing.options.skill} {arms[1]}."
        )
        drawing.height += 17
        narrow = drawing.width < 480
        room = drawing.width if narrow else drawing.width - text_width(words, SMALL) - 12
        drawing.text(0, drawing.height, f"{number} {model['model']}", size=SMALL, room=room)
        if narrow:
            drawing.height += 15
        drawing.text(drawing.width, drawing.height, words, "muted", size=SMALL, anchor="end")


def _value(arm: Mapping[str, Any], by: Unit) -> str:
    price, rate = price_of_task(arm, by), percent(arm["pass_rate"])
    if arm["pass_rate"] is None:
        return "not scored"
    if price is None:
        return f"{rate}, price unknown"
    if by == "cost":
        return f"{rate} at {dollars(price)}" if price else f"{rate}, free"
    return f"{rate} at {price:,.0f} tokens"
