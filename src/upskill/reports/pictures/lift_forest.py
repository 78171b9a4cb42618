from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from upskill.plain import counted
from upskill.reports.numbers import interval_in_points
from upskill.reports.pictures.svg import (
    SMALL,
    Drawing,
    PictureOptions,
    Scale,
    clean,
    legend,
    mark,
    text_width,
)
from upskill.verdicts.line import decision_in_words, signed_points

NARROW = 600  # px; below it a row takes two lines
HEAD = 26  # px: how high the heading of a group is

Model = Mapping[str, Any]  # as `--json` has it under `models`


def lift_forest(document: Mapping[str, Any], options: PictureOptions | None = None) -> str:
    return lift_by_group(
        f"Lift of {document['skill']['name']}", [("", document["models"])], options
    )


def lift_by_group(
    title: str, groups: Sequence[tuple[str, Sequence[Model]]], options: PictureOptions | None = None
) -> str:
    options = options or PictureOptions()
    models = [model for _, group in groups for model in group]
    drawing = Drawing("forest", title, options)
    levels = sorted({f"{100 * model['level']:.4g}%" for model in models}) or ["95%"]
    interval = levels[0] if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"
    adds = f"that the skill adds to the {options.baseline}"
    drawing.heading({"models": models}, f"Points of pass rate {adds}, with the {interval} interval")
    _Forest(drawing, models).draw(groups)
    decisions = dict.fromkeys(model["decision"] for model in models)
    legend(drawing, [(decision, partial(mark, decision)) for decision in decisions])
    return drawing.svg()


def _value(model: Model) -> str:
    pairs = counted(model["pairs"], "pair")
    decision = decision_in_words(model)
    if model["lift"] is None:
        return f"{decision}: no lift, {pairs}"
    interval = "" if model["interval"] is None else f" ({interval_in_points(_ends(model))})"
    return f"{decision}: {signed_points(model['lift'])}{interval}, {pairs}"


def _ends(model: Model) -> tuple[float, float]:
    """Both ends of the interval; of one that is open or missing, the lift itself."""
    low, high = model["interval"] or (None, None)
    return model["lift"] if low is None else low, model["lift"] if high is None else high


class _Forest:
    def __init__(self, drawing: Drawing, models: Sequence[Model]) -> None:
        self.drawing = drawing
        self.narrow = drawing.width < NARROW
        self.right = max((text_width(_value(model)) for model in models), default=0) + 14
        names = max((text_width(clean(model["model"])) for model in models), default=0)
        self.left = 12 if self.narrow else min(names + 16, 0.38 * drawing.width)
        self.labels = drawing.label(
            (model["model"] for model in models), drawing.width if self.narrow else self.left - 12
        )
        # In a narrow picture names stand beside the values, or above them where one of them is too long for that.
        self.above = self.narrow and names + self.right > drawing.width
        self.step = 26 if not self.narrow else 60 if self.above else 44
        ends = [end for model in models if model["lift"] is not None for end in _ends(model)]
        low, high = min([*ends, 0.0]), max([*ends, 0.1])
        room = 0.06 * (high - low)
        start, end = self.left, drawing.width - (12 if self.narrow else self.right)
        self.scale = Scale(100 * max(-1, low - room), 100 * min(1, high + room), start, end)
        self.ticks = self.scale.ticks(max(3, int((end - start) / 38))) if ends else []

    def draw(self, groups: Sequence[tuple[str, Sequence[Model]]]) -> None:
        drawing, scale = self.drawing, self.scale
        for name, models in groups:
            if name:
                drawing.height += HEAD
                drawing.text(0, drawing.height - 6, name, bold=True, room=drawing.width)
                drawing.words.append(f"{name}.")
            for model in models:
                self._row(model)
        before = -1e9
        for tick in self.ticks:
            label, x = f"{tick:+.4g}" if tick else "0", scale(tick)
            half = text_width(label, SMALL) / 2
            if x - half > before + 4 and x + half <= drawing.width + 12:
                drawing.text(x, drawing.height + 15, label, "muted", size=SMALL, anchor="middle")
                before = x + half
        drawing.height += 20

    def _row(self, model: Model) -> None:
        drawing, scale, value = self.drawing, self.scale, _value(model)
        bottom = drawing.height + self.step
        top = bottom - (23 if self.narrow else self.step)
        drawing.words.append(f"{model['model']}: {value}.")
        for tick in self.ticks:
            x = scale(tick)
            drawing.line(
                x, top, x, bottom, "grid" if tick else "axis", stroke_width=1 if tick else 1.5
            )
        y = drawing.height + self.step - (10 if self.narrow else self.step / 2)
        if self.narrow:
            drawing.text(0, y - (32 if self.above else 16), self.labels[str(model["model"])])
            drawing.text(drawing.width, y - 16, value, "muted", anchor="end")
        else:
            drawing.text(0, y + 4, self.labels[str(model["model"])])
            drawing.text(drawing.width - self.right + 14, y + 4, value, "muted")
        drawing.height = bottom
        if model["lift"] is None:
            return
        if model["interval"] is not None:
            decision, (low, high) = model["decision"], _ends(model)
            kind = decision if decision in ("helps", "hurts", "saves") else "axis"
            drawing.line(scale(100 * low), y, scale(100 * high), y, kind, stroke_width=2)
            for end in (low, high):
                drawing.line(scale(100 * end), y - 4, scale(100 * end), y + 4, kind, stroke_width=2)
        drawing.parts.append(mark(model["decision"], scale(100 * model["lift"]), y))
