from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upskill.reports.numbers import percent, points
from upskill.reports.pictures.svg import (
    SMALL,
    TEXT,
    Drawing,
    Label,
    PictureOptions,
    Scale,
    clean,
    legend,
    swatch,
    text_width,
)

BAR = 15  # px


def pass_rates(document: Mapping[str, Any], options: PictureOptions | None = None) -> str:
    options = options or PictureOptions()
    models: list[dict[str, Any]] = document["models"]
    name = document["skill"]["name"]
    drawing = Drawing("bars", f"Pass rates of {name}, beside the {options.baseline}", options)
    drawing.heading(document, "Share of trials that passed")
    legend(
        drawing, [(options.baseline, swatch("bar-baseline")), (options.skill, swatch("bar-skill"))]
    )
    drawing.height += 4
    room = max(
        (text_width(_value(model[arm])) for model in models for arm in ("baseline", "skill")),
        default=0,
    )
    names = max((text_width(clean(model["model"]), bold=True) for model in models), default=0)
    beside = drawing.width >= 600
    lifts = max((text_width(_lift(model)) for model in models), default=0)
    left = min(max(names, lifts) + 16, 0.38 * drawing.width) if beside else 0.0
    scale = Scale(0, 1, left, drawing.width - room - 10)
    labels = drawing.label(
        (model["model"] for model in models),
        left - 14 if beside else drawing.width - lifts - 12,
        bold=True,
    )
    top = drawing.height
    bottom = top + len(models) * _step(beside=beside)
    for tick in (0, 0.25, 0.5, 0.75, 1):
        for row in range(len(models)):
            start = top + row * _step(beside=beside) + (4 if beside else 22)
            drawing.line(
                scale(tick), start, scale(tick), start + 2 * BAR + 5, "grid" if tick else "axis"
            )
        if scale(1) - scale(0) > 180 or tick in (0, 1):
            anchor = "start" if not beside and not tick else "middle"
            drawing.text(
                scale(tick), bottom + 14, percent(tick), "muted", size=SMALL, anchor=anchor
            )
    for model in models:
        _group(drawing, model, labels[str(model["model"])], scale, beside=beside)
    drawing.height = bottom + 20
    return drawing.svg()


def _step(*, beside: bool) -> float:
    return 2 * BAR + 20 + (0 if beside else 20)


def _value(arm: Mapping[str, Any]) -> str:
    scored = arm["passed"] + arm["failed"]
    return f"{percent(arm['pass_rate'])} ({arm['passed']}/{scored})" if scored else "not scored"


def _lift(model: Mapping[str, Any]) -> str:
    return "no lift" if model["lift"] is None else points(model["lift"])


def _group(
    drawing: Drawing, model: Mapping[str, Any], label: Label, scale: Scale, *, beside: bool
) -> None:
    top, lift = drawing.height, _lift(model)
    if beside:
        y = top + 10
        drawing.text(0, y + BAR - 2, label, bold=True)
        drawing.text(0, y + BAR + 14, lift, "muted", size=SMALL)
    else:
        y = top + 24
        drawing.text(drawing.width, y - 6, lift, "muted", anchor="end")
        drawing.text(0, y - 6, label, bold=True)
    rates: list[str] = []
    for arm, name in (("baseline", drawing.options.baseline), ("skill", drawing.options.skill)):
        rate = model[arm]["pass_rate"]
        value = _value(model[arm])
        if rate:
            drawing.add(
                "rect",
                f"bar-{arm}",
                x=scale(0),
                y=y + 1.5,
                width=scale(rate) - scale(0),
                height=BAR - 3,
                stroke_width=1.5,
            )
        drawing.text(scale(rate or 0) + 8, y + BAR - 3, value, size=TEXT)
        rates.append(f"{name} {value}")
        y += BAR + 1
    drawing.words.append(f"{model['model']}: {', '.join(rates)}, {lift}.")
    drawing.height = top + _step(beside=beside)
