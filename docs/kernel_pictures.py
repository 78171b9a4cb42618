"""The two pictures of the tutorial: how often each tier of a kernel passes, and how fast the known-good kernels are.

Both are drawn from what is recorded in examples/h100-kernels: evals/recorded/results.json and the README's table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from upskill.reports.pictures import PictureOptions, pass_rates
from upskill.reports.pictures.svg import SMALL, Drawing, Scale, circle, dot, legend, text_width

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "h100-kernels"
CALLED = {
    "handoff:frontier": "capable model",
    "local:qwen2.5-coder-0.5b": "0.5B",
    "local:qwen2.5-coder-1.5b": "1.5B",
}
TIERS = {"compiles": "without_gpu", "resources": "without_gpu", "correct": "gpu", "faster": "gpu"}
NUMBER = r"([\d.]+)(?: \[([\d.]+), ([\d.]+)\])?"
SPEED = re.compile(
    rf"^\| ([a-z0-9-]+)( \*)? \| [\d.]+ \| \d+ % \| {NUMBER} \| {NUMBER} \|$", re.MULTILINE
)
ROW = 22  # px
TICKS = (0.5, 1, 2, 4, 8, 16)


def drawn() -> dict[str, str]:
    results = json.loads(
        (EXAMPLE / "evals" / "recorded" / "results.json").read_text(encoding="utf-8")
    )
    table = SPEED.findall((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    return {"kernel-tiers.svg": tiers(results), "kernel-speed.svg": speeds(table)}


def tiers(results: dict[str, Any]) -> str:
    """Two bars for each student and tier."""
    arms: dict[tuple[str, str], dict[str, Any]] = {}
    for tier, where in TIERS.items():
        for graded in results.get(where, {}).values():
            for row in graded["checks"]:
                if row["check"] == f"kernel_{tier}":
                    scored = {"passed": row["passed"], "failed": row["trials"] - row["passed"]}
                    arms.setdefault((row["model"], tier), {})[row["arm"]] = scored | {
                        "pass_rate": row["rate"]
                    }
    models: list[dict[str, Any]] = [
        {
            "model": f"{CALLED.get(model, model)}: {tier}",
            "lift": both["skill"]["pass_rate"] - both["baseline"]["pass_rate"],
            "reason": "",
            "caveats": [],
            **both,
        }
        for (model, tier), both in sorted(arms.items(), key=lambda pair: pair[0][0])
    ]
    note = (
        ""
        if "gpu" in results
        else "The tiers that take a GPU, correct and faster, are not graded yet."
    )
    document: dict[str, Any] = {"skill": {"name": "h100-kernels"}, "models": models}
    return pass_rates(document, PictureOptions(notes=[note] if note else []))


def speeds(table: list[tuple[str, ...]]) -> str:
    """Each kernel's speed beside eager and compiled PyTorch, with the intervals that were measured."""
    notes = (
        ["* without an interval: measured by an earlier script."]
        if any(row[1] for row in table)
        else []
    )
    drawing = Drawing(
        "speeds", "Speed of the known-good kernels beside PyTorch", PictureOptions(notes=notes)
    )
    shown = "Times as fast, by the ratio of medians, with the 95% interval (hardly wider than the marks)"
    drawing.heading({"models": []}, shown)
    left = max(text_width(f"{row[0]} *") for row in table) + 14
    scale = Scale(TICKS[0], TICKS[-1], left, drawing.width - 16, log=True)
    top, bottom = drawing.height, drawing.height + ROW * len(table)
    for tick in TICKS:
        x = scale(tick)
        drawing.line(x, top, x, bottom, "axis" if tick == 1 else "grid")
        drawing.text(x, bottom + 14, f"{tick:g}×", "muted", size=SMALL, anchor="middle")
    for name, star, *figures in table:
        middle = drawing.height + ROW / 2
        drawing.text(0, middle + 4, f"{name}{star}")
        for (ratio, low, high), classes in zip(
            (figures[:3], figures[3:]), ("bar-baseline", "bar-skill"), strict=True
        ):
            y = middle + (-4 if classes == "bar-baseline" else 4)
            if low:
                drawing.line(scale(float(low)), y, scale(float(high)), y, "axis")
            drawing.parts.append(circle(scale(float(ratio)), y, 3.5, classes))
        drawing.words.append(
            f"{name}: {figures[0]} times as fast as eager, {figures[3]} as torch.compile."
        )
        drawing.height += ROW
    drawing.height = bottom + 22
    legend(
        drawing, [("as PyTorch eager", dot("bar-baseline")), ("as torch.compile", dot("bar-skill"))]
    )
    return drawing.svg()
