"""The pictures of docs/how-to/distill.md, score.md and challenge.md.

They are drawn from what the commands printed with --json: in docs/pictures, front.json is of a scripted student,
score.json and challenge.json of the embedded 0.5B model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from upskill.reports.pictures import PictureOptions, front, pass_rates
from upskill.reports.pictures.svg import SMALL, Drawing, legend, swatch

PICTURES = Path(__file__).resolve().parent / "pictures"
ROW, LEFT = 15, 370  # px: how high a row is, and how wide its name


def drawn() -> dict[str, str]:
    draw = {"front": front, "score": rules, "challenge": proposals}
    return {f"{name}.svg": make(json.loads((PICTURES / f"{name}.json").read_text())) for name, make in draw.items()}


def rules(score: dict[str, Any]) -> str:
    """Which case mentions which rule, before and after `--fix`."""
    drawing = Drawing("score", f"Which cases mention the rules of {score['skill']}", PictureOptions())
    drawing.heading({"models": []}, f"A row per rule, a column per case; the last {len(score['new'])} are from --fix")
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
    legend(drawing, [("mentions it", swatch("heat-4")), ("new case that mentions it", swatch("heat-0"))])
    drawing.height += 14
    drawing.text(0, drawing.height, "Bold: no case mentioned it before.", "muted", size=SMALL)
    return drawing.svg()


def proposals(challenge: dict[str, Any]) -> str:
    """How often each proposal passes without the skill and with it."""
    rows: list[dict[str, Any]] = []
    for each in challenge["proposals"]:
        ((without, with_it),) = [(rates["without"], rates["with"]) for rates in each["pass_rates"].values()]
        mark = "✗ " if each["status"] == "counterexample" else ""
        arms = {"baseline": arm(without, each["rounds"]), "skill": arm(with_it, each["rounds"])}
        rows.append({"model": f"{mark}{each['id']}", "lift": with_it - without, "reason": "", **arms})
    notes = ["✗: a counterexample. The student passes without the skill and fails with it, and a test shows that."]
    return pass_rates({"skill": {"name": challenge["skill"]}, "models": rows}, PictureOptions(notes=notes))


def arm(rate: float, rounds: int) -> dict[str, Any]:
    passed = round(rate * rounds)
    return {"passed": passed, "failed": rounds - passed, "pass_rate": rate}
