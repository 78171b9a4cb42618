"""The two pictures of the tutorial: how often each tier of a kernel passes, and how fast the known-good kernels are.

Both are drawn from what is recorded in examples/h100-kernels: evals/recorded/results.json and the README's table.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from upskill.reports.svg import LETTER, Picture, Scale, pass_rates

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
    picture = pass_rates(document)
    if note:
        picture.paragraph(note)
    return picture.svg()


def speeds(table: list[tuple[str, ...]]) -> str:
    """Each kernel's speed beside eager and compiled PyTorch, with the intervals that were measured."""
    notes = (
        ["* without an interval: measured by an earlier script."]
        if any(row[1] for row in table)
        else []
    )
    picture = Picture(
        "Speed of the known-good kernels beside PyTorch",
        "Times as fast, by the ratio of medians, with the 95% interval (hardly wider than the marks)",
    )
    left = LETTER * max(len(f"{row[0]} *") for row in table) + 14
    scale = Scale(math.log(TICKS[0]), math.log(TICKS[-1]), left, picture.width - 16)
    top, bottom = picture.height, picture.height + ROW * len(table)
    for tick in TICKS:
        x = scale(math.log(tick))
        picture.line(x, top, x, bottom, "soft" if tick == 1 else "line")
        picture.text(x, bottom + 16, f"{tick:g}×", "soft", "middle")
    for name, star, *figures in table:
        middle = picture.height + ROW / 2
        picture.text(0, middle + 5, f"{name}{star}")
        for (ratio, low, high), tone, y in (
            (figures[:3], "baseline", middle - 4),
            (figures[3:], "skill", middle + 4),
        ):
            if low:
                picture.line(
                    scale(math.log(float(low))), y, scale(math.log(float(high))), y, "soft"
                )
            picture.circle(scale(math.log(float(ratio))), y, tone)
        picture.height += ROW
    picture.height = bottom + 22
    picture.legend({"baseline": "as PyTorch eager", "skill": "as torch.compile"})
    for note in notes:
        picture.paragraph(note)
    return picture.svg()
