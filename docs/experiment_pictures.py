"""The pictures of docs/how-to/distill.md, score.md and challenge.md.

They are drawn from what is recorded in docs/pictures: front.json is `distill --json` of a scripted student, score.json
`tests --score --json` of examples/tern-deploy with five more cases, challenge.json the first run of bench/challenge.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from upskill.reports.numbers import percent
from upskill.reports.svg import ROW, Picture, Scale, front

PICTURES = Path(__file__).resolve().parent / "pictures"
LEFT = 400  # px: how wide the name of a row is


def drawn() -> dict[str, str]:
    draw = {"front": front, "score": rules, "challenge": proposals}
    return {
        f"{name}.svg": make(json.loads((PICTURES / f"{name}.json").read_text()))
        for name, make in draw.items()
    }


def rules(score: dict[str, Any]) -> str:
    """Which case mentions which rule, before and after `--fix`."""
    picture = Picture(
        f"Which cases mention the rules of {score['skill']}",
        f"A row per rule, a column per case; the last {len(score['new'])} are from --fix",
    )
    width = (picture.width - LEFT) / len(score["cases"])
    for rule in score["rules"]:
        text = rule["text"].removeprefix("- ").replace("`", "")
        is_missed = {*rule["shared_by"]} <= {*score["new"]}
        tone = "ink bold" if is_missed else "ink"
        y = picture.height + ROW / 2
        picture.paragraph(text, tone, LEFT - 10)
        for case in rule["shared_by"]:
            x = LEFT + score["cases"].index(case) * width + 1
            shade = "taken" if case in score["new"] else "own"
            picture.line(x, y, x + width - 2, y, shade, ROW - 2)
    picture.legend({"own": "mentions it", "taken": "new case that mentions it"})
    picture.paragraph("Bold: no case mentioned it before.")
    return picture.svg()


def proposals(challenge: dict[str, Any]) -> str:
    """How often each proposal passes without the skill and with it."""
    picture = Picture(
        "Three counterexamples among 33 proposals",
        "How often each proposal passes with the skill (upwards) and without it",
    )
    top, bottom = picture.height + 10, picture.height + 220
    x, y = Scale(0, 1, 56, picture.width - 12), Scale(0, 1, bottom - 8, top + 8)
    for tick in (0, 0.25, 0.5, 0.75, 1):
        picture.line(48, y(tick), picture.width, y(tick))
        picture.text(40, y(tick) + 4, percent(tick), "soft", "end")
        picture.text(x(tick), bottom + 16, percent(tick), "soft", "middle")
    for each in challenge["proposals"]:
        tone = "skill" if each["status"] == "counterexample" else "baseline"
        picture.circle(x(each["without"]), y(each["with"]), tone)
    picture.height = bottom + 20
    picture.paragraph("Pass rate without the skill")
    picture.legend({"skill": "counterexample", "baseline": "given up: no clear loss"})
    return picture.svg()
