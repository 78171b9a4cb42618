"""Simulate the search of `upskill matrix` on students whose truth is known: whom does it accuse, and at what cost?

python bench/matrix.py                  # 100 searches, a few seconds
python bench/matrix.py --seed 1000      # others
python bench/matrix.py --weak           # every skill activates in only 60 to 70 % of its trials

12 skills with 8 requests each. One takes half of the requests of another, two take from each other, and one activates
in only 60 % of its trials even when it is alone. In 5 % of trials the student opens any other skill, or none.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from upskill.experiments.shadowing import FIRST_ROUNDS, Asked, Names, Shadowing

SKILLS = tuple(f"skill-{number:02}" for number in range(12))
QUERIES = 8
NOISE = 0.05


@dataclass
class Student:
    chance: random.Random
    takes: dict[
        tuple[str, str], float
    ]  # of a skill's requests, how many another takes; in whole requests
    silences: dict[tuple[str, str], float] = field(
        default_factory=dict[tuple[str, str], float]
    )  # nothing is opened
    weak: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # how often it activates at all
    noise: float = NOISE

    async def measure(
        self, skill: str, others: Names, queries: Sequence[str], seeds: range
    ) -> list[Asked]:
        return [
            Asked(query, seed, self._open(skill, others, query))
            for query in queries
            for seed in seeds
        ]

    def _open(self, skill: str, others: Names, query: str) -> tuple[str, ...]:
        if self.chance.random() < self.noise:
            other = self.chance.choice(["", *sorted(others)])
            return (other,) if other else ()
        number = int(query.rpartition("-")[2]) + 0.5
        for other in sorted(others):
            if number < QUERIES * self.takes.get((skill, other), 0.0):
                return (other,)
            if number < QUERIES * self.silences.get((skill, other), 0.0):
                return ()
        return (skill,) if self.chance.random() < self.weak.get(skill, 1.0) else ()


def conflicts(chance: random.Random) -> tuple[dict[tuple[str, str], float], str]:
    """One skill that takes from another, two that take from each other, and one that is weak."""
    taker, owner, one, two, weak = chance.sample(SKILLS, 5)
    return {(owner, taker): 0.5, (one, two): 0.5, (two, one): 0.5}, weak


async def search(
    seed: int, kind: str, *, all_weak: bool = False
) -> tuple[set[tuple[str, str]], Shadowing]:
    chance = random.Random(seed)
    planted, weak = conflicts(chance)
    takes, silences = (planted if kind == each else {} for each in ("takes", "silences"))
    rates = {skill: chance.uniform(0.6, 0.7) for skill in SKILLS} if all_weak else {weak: 0.6}
    student = Student(chance, takes, silences, rates)
    queries = {skill: tuple(f"{skill}-{number}" for number in range(QUERIES)) for skill in SKILLS}
    shadowing = Shadowing(SKILLS, queries, student.measure)
    await shadowing.run()
    return set(planted), shadowing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weak", action="store_true")
    arguments = parser.parse_args()
    pairs = len(SKILLS) * (len(SKILLS) - 1)
    for kind, words in (("takes", "another is opened"), ("silences", "nothing is opened")):
        counts, trials, most, tried = Counter[str](), 0, 0, 0
        for seed in range(arguments.seed, arguments.seed + arguments.searches):
            planted, shadowing = asyncio.run(search(seed, kind, all_weak=arguments.weak))
            accused = {(each.skill, *sorted(each.others)) for each in shadowing.shown}
            counts["both conflicts are found"] += planted <= accused
            counts["nobody else is accused"] += accused <= planted
            counts["both"] += accused == planted
            trials += shadowing.trials
            most = max(most, shadowing.trials)
            tried += len(shadowing.catalogs)
        print(f"{words} where a request is lost:")
        for name in ("both conflicts are found", "nobody else is accused", "both"):
            print(f"  {name}: {counts[name]} of {arguments.searches}")
        every = pairs * QUERIES * FIRST_ROUNDS
        share, at_most = trials / arguments.searches / every, most / every
        print(
            f"  trials: {trials / arguments.searches:,.0f}, {share:.0%} of every pair with {FIRST_ROUNDS} repeats"
            f" (at most {at_most:.0%})"
        )
        print(f"  sets of installed skills: {tried / arguments.searches:.0f}, for {pairs} pairs")


if __name__ == "__main__":
    main()
