from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upskill.reports.numbers import percent
from upskill.reports.pictures.svg import (
    SMALL,
    Drawing,
    PictureOptions,
    clean,
    legend,
    swatch,
    text_width,
)

ROW = 21  # px, how high a row is
MOSTLY = 0.4  # of a skill's requests: the darker shade


def shadow_map(document: Mapping[str, Any], options: PictureOptions | None = None) -> str:
    """Whose requests (rows) opened which skill (columns): one student of `upskill matrix --json`."""
    drawing = Drawing(
        "shadow-map", f"Who gets whose requests: {document['student']}", options or PictureOptions()
    )
    drawing.heading(
        {"models": []},
        "Share of each skill's requests (rows) that each skill gets (columns), in %, with all of them installed",
    )
    names = [skill["name"] for skill in document["skills"]]
    rows = [skill for skill in document["skills"] if skill["requests"]]
    conflicts = {(each["skill"], *each["others"]) for each in document["conflicts"]}
    labels = {name: f"{number} {name}" for number, name in enumerate(names, 1)}
    widest = max(text_width(clean(label), SMALL) for label in labels.values())
    left = min(widest + 12, 0.4 * drawing.width)
    width = min(64.0, (drawing.width - left) / (len(names) + 1))
    for index, head in enumerate([*map(str, range(1, len(names) + 1)), "none"]):
        middle = left + (index + 0.5) * width
        drawing.text(
            middle, drawing.height + 12, head, "muted", size=SMALL, anchor="middle", room=width
        )
    drawing.height += 18
    for row in rows:
        y, name, opened = drawing.height, row["name"], dict[str, float](row["opened"])
        drawing.text(0, y + 14, labels.pop(name), size=SMALL, room=left - 10)
        opened["none"] = max(0.0, 1.0 - sum(opened.values()))
        for index, other in enumerate([*names, "none"]):
            x, share = left + index * width, opened.get(other, 0.0)
            at = {"x": x + 1, "y": y + 1, "width": width - 2, "height": ROW - 2}
            drawing.add("rect", _shade(share, own=other == name, nobody=other == "none"), **at)
            if share >= 0.005:
                value = f"{100 * share:.0f}"
                drawing.text(
                    x + width / 2, y + 14.5, value, "heat-ink", size=SMALL, anchor="middle"
                )
            if (name, other) in conflicts:
                drawing.add("rect", "front", **at, fill="none", stroke_width=2)
                drawing.words.append(f"{other} takes requests of {name}: {percent(share)}.")
        drawing.words.append(f"{name}: {percent(opened.get(name, 0.0))} reach it.")
        drawing.height += ROW
    for label in labels.values():
        drawing.text(
            0, drawing.height + 14, f"{label}: has no requests of its own", "muted", size=SMALL
        )
        drawing.height += ROW
    shades = {"heat-4": "its own", "heat-0": "taken by another", "heat-2": "nothing was opened"}
    legend(drawing, [(words, swatch(shade)) for shade, words in shades.items()])
    drawing.height += 14
    note = "Outlined: shown by a test, alone against beside it. Light shades are below 40%."
    drawing.text(0, drawing.height, note, "muted", size=SMALL, room=drawing.width)
    return drawing.svg()


def _shade(share: float, *, own: bool, nobody: bool) -> str:
    if own:
        return "heat-4" if share >= MOSTLY else "heat-3"
    if share < 0.005 or nobody:
        return "heat-2" if share >= 0.005 else "paper"
    return "heat-0" if share >= MOSTLY else "heat-1"
