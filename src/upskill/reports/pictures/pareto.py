from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from upskill.reports.numbers import dollars, percent
from upskill.reports.pictures.svg import (
    SMALL,
    Drawing,
    PictureOptions,
    Scale,
    circle,
    dot,
    element,
    legend,
    text_width,
)

MAX_LABELED = 60  # points
LABEL = 13.0  # px: how high one is
DISTANCES = (0, 10, 20, 32, 46, 62, 80, 100, 124, 150)  # px, of a label from its point

Unit = Literal["cost", "tokens"]
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class _Point:
    number: int  # of the model, from 1
    model: str
    arm: str
    price: float  # tokens or dollars per task
    rate: float


def pareto(
    document: Mapping[str, Any], options: PictureOptions | None = None, *, by: Unit | None = None
) -> str:
    """`by` defaults to cost if every price is known and something was paid."""
    options = options or PictureOptions()
    models: list[dict[str, Any]] = document["models"]
    passed = [
        model[arm] for model in models for arm in ("baseline", "skill") if model[arm]["passed"]
    ]
    prices = [price_of_task(arm, "cost") for arm in passed]
    by = by or ("cost" if any(prices) and None not in prices else "tokens")
    drawing = Drawing(
        "pareto", f"{by.capitalize()} and pass rate of {document['skill']['name']}", options
    )
    drawing.heading(
        document,
        f"{'Dollars' if by == 'cost' else 'Tokens'} per task against the share that passed",
    )
    points = list(_points(models, by))
    if points:
        _Plot(drawing, points, by).draw()
    else:
        drawing.text(
            0, drawing.height + 14, "No model has a scored trial with a known price.", "muted"
        )
        drawing.height += 24
    _table(drawing, models, by)
    return drawing.svg()


def price_of_task(arm: Mapping[str, Any], by: Unit) -> float | None:
    """Tokens or dollars of one scored trial; None if there is none or a price is unknown."""
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
    """The points that no other beats on both axes, cheapest first."""
    front: list[_Point] = []
    for point in sorted(
        points, key=lambda point: (point.price, -point.rate, point.model, point.arm)
    ):
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
        self.occupied: list[Box] = []

    def at(self, point: _Point) -> tuple[float, float]:
        return self.x(point.price), self.y(point.rate)

    def draw(self) -> None:
        drawing = self.drawing
        if self.by == "tokens":
            drawing.axes(self.x, self.y, "tokens per task")
        else:
            drawing.axes(
                self.x,
                self.y,
                "dollars per task",
                lambda cost: f"${cost:,.9f}".rstrip("0").rstrip("."),
            )
        front = _front_of(self.points)
        steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in map(self.at, front))
        path = f"M{self.at(front[0])[0]:.1f} {self.bottom:.1f}{steps}H{drawing.width}"
        drawing.add("path", "front", d=path, fill="none", stroke_dasharray="2 3", stroke_width=1)
        by_model: dict[int, dict[str, _Point]] = {}
        for point in self.points:
            by_model.setdefault(point.number, {})[point.arm] = point
            x, y = self.at(point)
            self.occupied.append((x - 6, y - 6, x + 6, y + 6))
        for arms in by_model.values():
            if len(arms) == 2:
                self._arrow(self.at(arms["baseline"]), self.at(arms["skill"]))
        for point in self.points:
            drawing.parts.append(circle(*self.at(point), 4.5, f"mark-{point.arm}"))
        for arms in list(by_model.values())[:MAX_LABELED] if len(by_model) > 1 else ():
            self._label(arms.get("skill") or arms["baseline"])
        names = [
            f"{point.model} {drawing.options.skill if point.arm == 'skill' else drawing.options.baseline}"
            for point in front
        ]
        drawing.words.append(f"On the front, cheapest first: {', '.join(names)}.")
        drawing.height = self.bottom + 36
        entries = [
            (drawing.options.baseline, dot("mark-baseline")),
            (drawing.options.skill, dot("mark-skill")),
            ("front: nothing cheaper passes as often", _dash),
        ]
        legend(drawing, entries)

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

    def _label(self, point: _Point) -> None:
        """The number beside a point, or as near as possible with a line to it."""
        number, (x, y) = str(point.number), self.at(point)
        width = text_width(number, SMALL) + 2
        for distance in DISTANCES:
            free = (box for box in _boxes_around(x, y, width, 9 + distance) if self._is_free(box))
            if (box := next(free, None)) is not None:
                self.occupied.append(box)
                if distance > 10:
                    self.drawing.line(
                        x, y, min(max(x, box[0]), box[2]), (box[1] + box[3]) / 2, "axis"
                    )
                self.drawing.text(box[0] + 1, box[1] + 10.5, number, "ink halo", size=SMALL)
                return

    def _is_free(self, box: Box) -> bool:
        left, top, right, bottom = box
        inside = (
            self.left < left
            and right <= self.drawing.width
            and self.top - 6 <= top
            and bottom < self.bottom
        )
        return inside and not any(
            left < other[2] and other[0] < right and top < other[3] and other[1] < bottom
            for other in self.occupied
        )


def _boxes_around(x: float, y: float, width: float, distance: float) -> Iterator[Box]:
    for dx, dy in ((0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)):
        left = x + dx * distance - (width if dx < 0 else 0 if dx else width / 2)
        top = y + dy * distance - (LABEL if dy < 0 else 0 if dy else LABEL / 2)
        yield left, top, left + width, top + LABEL


def _dash(x: float, y: float) -> str:
    return element("line", "front", x1=x - 7, y1=y, x2=x + 7, y2=y, stroke_dasharray="2 3")


def _table(drawing: Drawing, models: Sequence[Mapping[str, Any]], by: Unit) -> None:
    drawing.height += 8
    for number, model in enumerate(models, 1):
        arms = [_value(arm, by) for arm in (model["baseline"], model["skill"])]
        value = " → ".join(arms)
        drawing.words.append(
            f"{model['model']}: {drawing.options.baseline} {arms[0]}, {drawing.options.skill} {arms[1]}."
        )
        drawing.height += 17
        narrow = drawing.width < 480
        room = drawing.width if narrow else drawing.width - text_width(value, SMALL) - 12
        label = f"{number} {model['model']}" if len(models) > 1 else str(model["model"])
        drawing.text(0, drawing.height, label, size=SMALL, room=room)
        if narrow:
            drawing.height += 15
        drawing.text(drawing.width, drawing.height, value, "muted", size=SMALL, anchor="end")


def _value(arm: Mapping[str, Any], by: Unit) -> str:
    price, rate = price_of_task(arm, by), percent(arm["pass_rate"])
    if arm["pass_rate"] is None:
        return "not scored"
    if price is None:
        return f"{rate}, price unknown"
    if by == "cost":
        return f"{rate} at {dollars(price)}" if price else f"{rate}, free"
    return f"{rate} at {price:,.0f} tokens"
