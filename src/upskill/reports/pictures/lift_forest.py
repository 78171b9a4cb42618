"""`lift_forest`: the lift of each model with its interval, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from upskill.plain import counted
from upskill.reports.numbers import interval_in_points, points
from upskill.reports.pictures.scales import Scale
from upskill.reports.pictures.svg import Drawing, PictureOptions, legend, mark
from upskill.reports.pictures.texts import SMALL, text_width

NARROW = 600  # px; below it a row takes two lines


def lift_forest(document: Mapping[str, Any], options: PictureOptions | None = None) -> str:
    """The lift of every model with its interval and decision. A model without a pair has none, and says so."""
    options = options or PictureOptions()
    models: list[dict[str, Any]] = document["models"]
    drawing = Drawing("forest", f"Lift of {document['skill']['name']}", options)
    levels = sorted({f"{100 * model['level']:.4g}%" for model in models})
    drawing.heading(document, f"Points of pass rate that the skill adds, with the {_any(levels)} interval")
    _Rows(drawing, models).draw()
    found = dict.fromkeys(model["decision"] for model in models)
    legend(drawing, [(decision, partial(mark, decision)) for decision in found])
    return drawing.svg()


def _any(levels: list[str]) -> str:
    return levels[0] if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"


class _Rows:
    def __init__(self, drawing: Drawing, models: list[dict[str, Any]]) -> None:
        self.drawing, self.models = drawing, models
        self.narrow = drawing.width < NARROW
        values = [self._value(model) for model in models]
        self.right = max((text_width(value) for value in values), default=0) + 14
        names = max((text_width(str(model["model"])) for model in models), default=0)
        self.left = 12 if self.narrow else min(names + 16, 0.38 * drawing.width)
        self.step = 44 if self.narrow else 28
        ends = [*(bound for model in models for bound in _bounds(model)), 0.0, 0.1]
        low, high = min(ends), max(ends)
        room = 0.06 * (high - low)
        start, end = self.left, drawing.width - (12 if self.narrow else self.right)
        self.scale = Scale(100 * max(-1, low - room), 100 * min(1, high + room), start, end)

    @staticmethod
    def _value(model: Mapping[str, Any]) -> str:
        if model["lift"] is None:
            return f"no lift: {counted(model['pairs'], 'pair')}"
        interval = interval_in_points(model["interval"])
        return f"{points(model['lift'])} ({interval}), {counted(model['pairs'], 'pair')}"

    def draw(self) -> None:
        drawing, scale = self.drawing, self.scale
        top = drawing.height
        bottom = top + self.step * len(self.models) + 4
        before = -1e9
        for tick in scale.ticks(8 if drawing.width > 500 else 4):
            x = scale(tick)
            for row in range(len(self.models)):  # in two lines, the upper one is for words
                upper, lower = top + self.step * row, top + self.step * (row + 1)
                start = upper + 21 if self.narrow else upper
                drawing.line(x, start, x, lower, "grid" if tick else "axis", stroke_width=1 if tick else 1.5)
            words = f"{tick:+.4g}" if tick else "0"
            half = text_width(words, SMALL) / 2
            if x - half > before + 4 and x + half <= drawing.width + 12:
                drawing.text(x, bottom + 15, words, "muted", size=SMALL, anchor="middle")
                before = x + half
        for model in self.models:
            self._row(model)
        drawing.height = bottom + 20

    def _row(self, model: Mapping[str, Any]) -> None:
        drawing, scale = self.drawing, self.scale
        words = self._value(model)
        drawing.words.append(f"{model['model']}: {model['decision']}, {words}.")
        y = drawing.height + self.step - (10 if self.narrow else self.step / 2)
        if self.narrow:
            room = drawing.width - text_width(words) - 14
            drawing.text(0, y - 16, model["model"], room=room)
            drawing.text(drawing.width, y - 16, words, "muted", anchor="end")
        else:
            drawing.text(0, y + 4, model["model"], room=self.left - 12)
            drawing.text(drawing.width - self.right + 14, y + 4, words, "muted")
        drawing.height += self.step
        if model["lift"] is None:
            return
        low, high = _bounds(model)
        kind = "hurts" if model["decision"] == "hurts" else "helps" if model["decision"] == "helps" else "axis"
        if model["decision"] == "saves":
            kind = "saves"
        if model["interval"] is not None:
            drawing.line(scale(100 * low), y, scale(100 * high), y, kind, stroke_width=2)
            for end in (low, high):
                drawing.line(scale(100 * end), y - 4, scale(100 * end), y + 4, kind, stroke_width=2)
        drawing.parts.append(mark(model["decision"], scale(100 * model["lift"]), y))


def _bounds(model: Mapping[str, Any]) -> list[float]:
    """Both ends of the interval; of one that is open or missing, the lift itself."""
    if model["lift"] is None:
        return []
    return [model["lift"] if bound is None else bound for bound in model["interval"] or (None, None)]
