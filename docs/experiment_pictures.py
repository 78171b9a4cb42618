"""The pictures of docs/how-to/distill.md, score.md and challenge.md.

They are drawn from what is recorded in docs/pictures: front.json is `distill --json` of a scripted student, score.json
`tests --score --json` of examples/tern-deploy with five more cases, challenge.json the first run of bench/challenge.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from upskill.reports.numbers import percent
from upskill.reports.pictures import PictureOptions, front
from upskill.reports.pictures.svg import SMALL, Drawing, Scale, circle, dot, legend, swatch

PICTURES = Path(__file__).resolve().parent / "pictures"
ROW, LEFT = 15, 370  # px: how high a row is, and how wide its name


def drawn() -> dict[str, str]:
    draw = {"front": front, "score": rules, "challenge": proposals}
    return {
        f"{name}.svg": make(json.loads((PICTURES / f"{name}.json").read_text()))
        for name, make in draw.items()
    }


def rules(score: dict[str, Any]) -> str:
    """Which case mentions which rule, before and after `--fix`."""
    drawing = Drawing(
        "score", f"Which cases mention the rules of {score['skill']}", PictureOptions()
    )
    drawing.heading(
        {"models": []},
        f"A row per rule, a column per case; the last {len(score['new'])} are from --fix",
    )
    width = (drawing.width - LEFT) / len(score["cases"])
    for rule in score["rules"]:
        text = rule["text"].removeprefix("- ").replace("`", "")
        is_missed = {*rule["shared_by"]} <= {*score["new"]}
        drawing.text(0, drawing.height + 12, text, size=SMALL, bold=is_missed, room=LEFT - 10)
        for case in rule["shared_by"]:
            x = LEFT + score["cases"].index(case) * width + 1
            shade = "heat-0" if case in score["new"] else "heat-4"
            drawing.add("rect", shade, x=x, y=drawing.height + 1, width=width - 2, height=ROW - 2)
        drawing.words.append(f"{text}: mentioned by {', '.join(rule['shared_by'])}.")
        drawing.height += ROW
    legend(
        drawing,
        [("mentions it", swatch("heat-4")), ("new case that mentions it", swatch("heat-0"))],
    )
    drawing.height += 14
    drawing.text(0, drawing.height, "Bold: no case mentioned it before.", "muted", size=SMALL)
    return drawing.svg()


def proposals(challenge: dict[str, Any]) -> str:
    """How often each proposal passes without the skill and with it."""
    drawing = Drawing("challenge", "Three counterexamples among 33 proposals", PictureOptions())
    drawing.heading(
        {"models": []}, "How often each proposal passes with the skill (upwards) and without it"
    )
    top, bottom = drawing.height + 8, drawing.height + 220
    x, y = Scale(0, 1, 44.0, drawing.width - 12), Scale(0, 1, bottom - 10, top + 10)
    drawing.axes(x, y, "pass rate without the skill", percent)
    for each in challenge["proposals"]:
        mark = "mark-skill" if each["status"] == "counterexample" else "mark-baseline"
        drawing.parts.append(circle(x(each["without"]), y(each["with"]), 4.5, mark))
        rates = f"{percent(each['without'])} without the skill and {percent(each['with'])} with it"
        drawing.words.append(
            f"{each['id']}: {rates}, {each['status']} after {each['rounds']} rounds."
        )
    drawing.height = bottom + 40
    legend(
        drawing,
        [("counterexample", dot("mark-skill")), ("given up: no clear loss", dot("mark-baseline"))],
    )
    return drawing.svg()
