"""Simulate how `generate` ends when its sources say nothing useful: how often does the skill `help` all the same?

python bench/generate.py            # the table of docs/simulations.md
python bench/generate.py --write    # put it there

The student answers 12 shown and 12 fresh cases. No text of the skill helps on average: each one only moves the chance
of each case a little. The revision is kept unless it passes fewer of the shown cases; then the fresh ones decide, with
the verdict of `upskill.verdicts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from upskill import Outcome
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.interval import Floats
from upskill.verdicts.verdict import VerdictOptions

DOCS = Path(__file__).resolve().parent.parent / "docs" / "simulations.md"
BEGIN, END = "<!-- generate: begin -->", "<!-- generate: end -->"
SHOWN, FRESH, RUNS, SEED = 12, 12, 200, 47
# By world: how likely a case is passed without the skill, and how far a text moves that, in log-odds.
WORLDS: dict[str, tuple[tuple[float, ...], float]] = {
    "every case passes 2 times in 100": ((0.02,), 0.0),
    "one in five": ((0.2,), 0.0),
    "half": ((0.5,), 0.0),
    "easy and hard cases": ((0.05, 0.2, 0.5, 0.8), 0.0),
    "half, and each text moves each case a little": ((0.5,), 0.75),
    "easy and hard cases, and each text moves them": ((0.05, 0.2, 0.5, 0.8), 0.75),
}


def shift(rates: Floats, spread: float, rng: np.random.Generator) -> Floats:
    """The chances with one text of the skill."""
    odds = np.log(rates / (1 - rates)) + rng.normal(0.0, spread, len(rates))
    return 1 / (1 + np.exp(-odds))


def helps(rates: Sequence[float], spread: float, draws: int, rng: np.random.Generator) -> bool:
    """One whole run of `generate`."""
    base = np.resize(np.array(rates), SHOWN + FRESH)
    texts = [shift(base, spread, rng) for _ in ("the first draft", "its revision")]
    passes = [(rng.random((draws, SHOWN)) < text[:SHOWN]).sum() for text in texts]
    kept = texts[1] if passes[1] >= passes[0] else texts[0]
    rows: list[Outcome] = []
    for arm, chances in (("baseline", base), ("skill", kept)):
        passed = rng.random((draws, FRESH)) < chances[SHOWN:]
        for (draw, case), each in np.ndenumerate(passed):
            rows.append(Outcome("student", f"case-{case}", arm, draw, bool(each), 0, 0, 0.0))
    exact = frozenset(["student"] if draws == 1 else [])
    verdict = compute_verdict(rows, VerdictOptions(exact=exact))
    return verdict.decision == "helps"


def simulate() -> str:
    lines = ["| without the skill | an exact student | three draws a case |", "|---|---|---|"]
    for world, (rates, spread) in WORLDS.items():
        counts: list[int] = []
        for draws in (1, 3):
            rng = np.random.default_rng([SEED, draws])
            counts.append(sum(helps(rates, spread, draws, rng) for _ in range(RUNS)))
        lines.append(f"| {world} | {counts[0]} | {counts[1]} |")
    told = f"{RUNS} whole runs a cell, with {SHOWN} shown and {FRESH} fresh cases: how many end with `helps`."
    return "\n".join([*lines, "", told])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    found = simulate()
    print(found)
    if parser.parse_args().write:
        text = DOCS.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        DOCS.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
