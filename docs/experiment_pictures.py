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
ROW, LEFT = 17, 300  # px: how high a row is, and how wide its name


def drawn() -> dict[str, str]:
    draw = {"front": front, "score": rules, "challenge": proposals}
    return {f"{name}.svg": make(json.loads((PICTURES / f"{name}.json").read_text())) for name, make in draw.items()}


def rules(score: dict[str, Any]) -> str:
    """Which case notices which rule."""
    drawing = Drawing("score", f"Which cases notice the rules of {score['skill']}", PictureOptions())
    drawing.heading({"models": []}, "A row per rule, a column per case; local is the student")
    cases = list(dict.fromkeys(case for rule in score["rules"] for case in (*rule["cases"], *rule["shared_by"])))
    width = min(ROW, (drawing.width - LEFT) / len(cases))
    for rule in score["rules"]:
        text = rule["text"].removeprefix("- ").replace("`", "")
        is_missed = rule["status"] == "unnoticed"
        drawing.text(0, drawing.height + 12, text, "ink", size=SMALL, bold=is_missed, room=LEFT - 10)
        noticed = "heat-4" if rule["noticed_by"] == "loss" else "heat-3"
        for column, case in enumerate(cases):
            kind = noticed if case in rule["cases"] else "heat-2" if case in rule["shared_by"] else ""
            if kind:
                at = {"x": LEFT + column * width + 1, "y": drawing.height + 1, "width": width - 2, "height": ROW - 3}
                drawing.add("rect", kind, **at)
        drawing.words.append(f"{text}: {rule['status']}, by {', '.join(rule['cases']) or 'no case'}.")
        drawing.height += ROW
    drawing.height += 4
    shades = {
        "heat-4": "fails without it",
        "heat-3": "fails if it is reversed",
        "heat-2": "mentions it, but never fails",
    }
    legend(drawing, [(words, swatch(shade)) for shade, words in shades.items()])
    drawing.height += 14
    drawing.text(0, drawing.height, "Bold: no case notices it.", "muted", size=SMALL)
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
