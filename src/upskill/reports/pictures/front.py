from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upskill.reports.numbers import percent
from upskill.reports.pictures.svg import SMALL, Drawing, PictureOptions, Scale, circle

HEIGHT = 220  # px, of the plot


def front(document: Mapping[str, Any], options: PictureOptions | None = None) -> str:
    """Versions of a skill by tokens and pass rate, with their intervals: the document of `upskill distill --json`."""
    drawing = Drawing("front", f"Versions of {document['skill']}", options or PictureOptions())
    drawing.heading(
        {"models": []},
        "Tokens of the skill against its pass rate on the train cases, with the 95% interval",
    )
    points: list[dict[str, Any]] = document["front"]
    top, bottom, left = drawing.height + 8, drawing.height + HEIGHT, 44.0
    x = Scale(
        0, max((point["tokens"] for point in points), default=1) * 1.15, left, drawing.width - 12
    )
    y = Scale(0, 1, bottom - 10, top + 10)
    drawing.axes(x, y, "tokens")
    drawing.height = bottom + 40
    models = list(dict.fromkeys(point["model"] for point in points))
    for number, point in enumerate(points, start=1):
        low, high = point["pass_rate"]["interval"]
        at, rate = (
            x(point["tokens"]) + 7 * models.index(point["model"]),
            point["pass_rate"]["value"],
        )
        drawing.line(at, y(low), at, y(high), "axis", stroke_width=1.5)
        is_whole = point["version"] == "whole"
        drawing.parts.append(
            circle(at, y(rate), 4.5, "mark-baseline" if is_whole else "mark-skill")
        )
        drawing.text(at + 7, y(rate) - 5, str(number), "muted", size=SMALL)
        drawing.height += 17
        name = f"{number}  {point['version']}, {point['model']}"
        value = f"{percent(rate)} ({percent(low)} to {percent(high)}) at {point['tokens']:,} tokens"
        drawing.text(0, drawing.height, name, size=SMALL, room=drawing.width / 2)
        drawing.text(drawing.width, drawing.height, value, "muted", size=SMALL, anchor="end")
        drawing.words.append(f"{name}: {value}.")
    drawing.height += 8
    return drawing.svg()
