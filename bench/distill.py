"""Simulate the search of `upskill distill` on students whose truth is known: what does it drop, and at what cost?

python bench/distill.py                 # 100 searches, under a minute
python bench/distill.py --searches 20   # fewer
python bench/distill.py --large         # a skill of 199 blocks: what the search takes
python bench/distill.py --broken 9      # the harmful line breaks nine of the cases
python bench/distill.py --wording       # the same text always gets the same answer, and 5 % of these come out wrong

Each of 12 cases needs one line of the skill. A section of 5 blocks is useless, and one line breaks 3 cases. Each search
has a chance of 5 to 10 % that a trial comes out the other way. The blocks come in
another order each time; the useless section stays together.

Of the 36 cases of the large skill, some fail anyway. Each of the others needs one block, or one of two.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from upskill.experiments.ablation import NOTHING, REFERENCE_ROUNDS, Ablation, Blocks
from upskill.verdicts.outcome import Outcome

CASES, BROKEN, USELESS = 12, 3, 5
MODEL = "simulated"
EACH = 20  # searches in which each block is tested
LARGE_BLOCKS, LARGE_CASES = 199, 36


@dataclass(frozen=True)
class Line:
    section: str
    needed_by: str = ""
    harmful: bool = False


def skill(chance: random.Random) -> list[Line]:
    lines = [Line(f"rules {number // 4}", f"case-{number}") for number in range(CASES)]
    lines.insert(chance.randrange(CASES + 1), Line("rules 1", harmful=True))
    at = chance.randrange(len(lines) + 1)
    return [*lines[:at], *[Line("history")] * USELESS, *lines[at:]]


@dataclass
class Student:
    lines: Sequence[Line]
    noise: float
    chance: random.Random
    harmed: Collection[str] = ()
    by_wording: bool = False

    async def measure(self, removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
        left = [line for number, line in enumerate(self.lines) if number not in removed]
        known = {line.needed_by for line in left}
        is_harmed = any(line.harmful for line in left)
        return [
            self._try(
                case, seed, case in known and not (is_harmed and case in self.harmed), removed
            )
            for case in cases
            for seed in seeds
        ]

    def _try(self, case: str, seed: int, knows: bool, removed: Blocks) -> Outcome:
        chance = (
            random.Random(f"{self.noise} {case} {sorted(removed)}")
            if self.by_wording
            else self.chance
        )
        passed = knows != (chance.random() < (0.05 if self.by_wording else self.noise))
        return Outcome(MODEL, case, "skill", seed, passed, 0, 0, 0.0)


def begin(
    seed: int, broken: int = BROKEN, *, by_wording: bool = False
) -> tuple[list[Line], Ablation]:
    chance = random.Random(seed)
    lines = skill(chance)
    harmed = {f"case-{number}" for number in range(broken)}
    student = Student(lines, chance.uniform(0.05, 0.10), chance, harmed, by_wording)
    cases = tuple(f"case-{number}" for number in range(CASES))
    rounds = 1 if by_wording else 0  # what such a student shows once is the truth
    return lines, Ablation([line.section for line in lines], cases, student.measure, rounds=rounds)


def begin_large(seed: int) -> Ablation:
    chance = random.Random(seed)
    cases = tuple(f"case-{number}" for number in range(LARGE_CASES))
    needed = {
        case: {*chance.sample(range(LARGE_BLOCKS), chance.choice((1, 1, 2)))} for case in cases
    }
    rates = {case: chance.choice((0.0, 0.0, 0.55, 0.75, 0.95)) for case in cases}

    async def measure(removed: Blocks, asked: Sequence[str], seeds: range) -> list[Outcome]:
        trials = [(case, seed, is_passed(case, removed)) for case in asked for seed in seeds]
        return [
            Outcome(MODEL, case, "skill", seed, passed, 0, 0, 0.0) for case, seed, passed in trials
        ]

    def is_passed(case: str, removed: Blocks) -> bool:
        return chance.random() < (0.05 if needed[case] <= removed else rates[case])

    return Ablation([f"section {number // 8}" for number in range(LARGE_BLOCKS)], cases, measure)


async def search_large(seed: int) -> tuple[Ablation, int]:
    ablation = begin_large(seed)
    await ablation.search()
    searching = ablation.trials
    await ablation.confirm()
    return ablation, searching


def measure_large(searches: int) -> None:
    found = [asyncio.run(search_large(seed)) for seed in range(searches)]
    looking = sum(searching for _, searching in found) / searches
    trials = sum(ablation.trials for ablation, _ in found) / searches
    dropped = sum(len(ablation.dropped) for ablation, _ in found) / searches
    print(f"the search: {looking:,.0f} trials; with the final test: {trials:,.0f}")
    print(f"{dropped:.0f} of {LARGE_BLOCKS} blocks are left out")
    print(f"shown not to be worse: {sum(ablation.accepted for ablation, _ in found)} of {searches}")


async def search(seed: int, broken: int, *, by_wording: bool) -> tuple[list[Line], Ablation, int]:
    lines, ablation = begin(seed, broken, by_wording=by_wording)
    await ablation.search()
    searching = ablation.trials
    await ablation.confirm()
    return lines, ablation, searching


async def test_each_block(seed: int) -> int:
    """How many trials it takes to test each block by itself as the result of a search is tested."""
    lines, ablation = begin(seed)
    ablation.models = [MODEL]
    await ablation.extend(NOTHING, ablation.cases, REFERENCE_ROUNDS)
    for number in range(len(lines)):
        ablation.confirmations = 0
        await ablation.is_good_enough(frozenset({number}))
    return ablation.trials


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first search")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--broken", type=int, default=BROKEN)
    parser.add_argument("--wording", action="store_true")
    arguments = parser.parse_args()
    searches = arguments.searches
    if arguments.large:
        measure_large(searches)
        return
    counts, trials, searching = Counter[str](), 0, 0
    for seed in range(arguments.seed, arguments.seed + searches):
        lines, ablation, before = asyncio.run(
            search(seed, arguments.broken, by_wording=arguments.wording)
        )
        left_out = ablation.dropped if ablation.accepted else frozenset[int]()
        useless = {number for number, line in enumerate(lines) if line.section == "history"}
        harmful = next(number for number, line in enumerate(lines) if line.harmful)
        counts["the useless section is dropped"] += useless <= left_out
        counts["the harmful line is dropped and named"] += bool(
            harmful in left_out and ablation.harmful.get(harmful)
        )
        counts["a useful line is dropped"] += bool(left_out - useless - {harmful})
        counts["a harmless line is named as harmful"] += any(
            shown for block, shown in ablation.harmful.items() if block != harmful
        )
        trials += ablation.trials
        searching += before
    for name, count in counts.items():
        print(f"{name}: {count} of {searches}")
    looking, final = searching / searches, (trials - searching) / searches
    one_by_one = (CASES + 2 + USELESS) * CASES * REFERENCE_ROUNDS  # and the whole skill
    each = sum(asyncio.run(test_each_block(seed)) for seed in range(EACH)) / EACH
    print(f"the search: {looking:,.0f} trials")
    print(
        f"  {looking / one_by_one:.0%} of one block after the other with {REFERENCE_ROUNDS} repeats ({one_by_one:,})"
    )
    print(f"with the final test: {looking + final:,.0f} trials")
    print(
        f"  {(looking + final) / (one_by_one + final):.0%} of one block after the other and the same final test"
    )
    print(
        f"  {(looking + final) / each:.0%} of testing each block that way ({each:,.0f}, in {EACH} searches)"
    )


if __name__ == "__main__":
    main()
