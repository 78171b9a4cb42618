"""Simulate `upskill challenge`: does it find planted wrong facts, and nothing else?

python bench/challenge.py               # 100 challenges, seconds
python bench/challenge.py --runs 20     # fewer
python bench/challenge.py --known 0.65  # the student knows what the skill gets wrong in 65 % of the trials only

Each challenge has three proposals about facts that the skill has wrong, among 30 worthless ones: the student knows
them with and without the skill, never, only with the skill, or guesses. A trial comes out the other way with a chance
of 5 to 10 %.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from upskill.experiments.counterexamples import Challenge
from upskill.verdicts.outcome import Outcome

WRONG, WORTHLESS = 3, 30
# How often the student is right without the skill, and with it.
KINDS = ((1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.8, 0.7))


async def challenge(seed: int, known: float = 1.0) -> tuple[set[str], Challenge]:
    chance = random.Random(seed)
    noise = chance.uniform(0.05, 0.10)
    rates = {f"wrong-{number}": (known, 0.0) for number in range(WRONG)}
    rates |= {f"worthless-{number}": chance.choice(KINDS) for number in range(WORTHLESS)}
    names = [*rates]
    chance.shuffle(names)

    async def measure(cases: Sequence[str], seeds: range) -> list[Outcome]:
        trials = [
            (case, arm, each, (chance.random() < rates[case][side]) != (chance.random() < noise))
            for case in cases
            for each in seeds
            for side, arm in enumerate(("baseline", "skill"))
        ]
        return [
            Outcome("simulated", case, arm, each, passed, 0, 0, 0.0)
            for case, arm, each, passed in trials
        ]

    trying = Challenge(tuple(names), measure)
    await trying.run()
    return {case for _, case in trying.shown}, trying


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument(
        "--known",
        type=float,
        default=1.0,
        help="how often a student knows what the skill gets wrong",
    )
    arguments = parser.parse_args()
    runs = arguments.runs
    counts, trials = Counter[str](), 0
    for seed in range(arguments.seed, arguments.seed + runs):
        shown, trying = asyncio.run(challenge(seed, arguments.known))
        planted = {f"wrong-{number}" for number in range(WRONG)}
        counts["exactly the three wrong facts are found"] += shown == planted
        counts["a wrong fact is missed"] += bool(planted - shown)
        counts["anything else is accused"] += bool(shown - planted)
        trials += trying.trials
        counts["wrong facts missed"] += len(planted - shown)
    for name, count in counts.items():
        print(f"{name}: {count} of {runs}")
    print(f"{trials / runs:,.0f} trials a challenge")


if __name__ == "__main__":
    main()
