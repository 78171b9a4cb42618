"""Simulate `upskill recheck` on libraries whose truth is known: how many decisions are wrong, and at what cost?

python bench/recheck.py                # 10 libraries of 40 skills, some minutes
python bench/recheck.py --libraries 2  # fewer

Runs the recheck itself (`Recheck` in runs/running/recheck.py) with a student that passes each case with a known chance.
The fixed design runs every round of both arms of all skills.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from dataclasses import replace

from upskill import Models, Skill, Suite, evaluate, open_store
from upskill.models import Address, Reply, Request
from upskill.models.ledger import Ceilings, Ledger, MeteredModel
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.recheck import ROUNDS, Recheck, Rechecked
from upskill.traces import Usage

CASES = 12
STUDENT = Address("simulated", "scripted", "simulated")
# The truth about a skill, and how often the student passes a case without and with it.
LIBRARY = (
    *(("keep", 0.05, 0.9),) * 6,
    *(("keep", 0.3, 0.7),) * 7,
    *(("keep", 0.6, 0.9),) * 7,
    *(("retire", 0.97, 0.97),) * 6,
    *(("retire", 0.9, 0.92),) * 4,
    *(("repair", 0.9, 0.5),) * 3,
    *(("repair", 0.7, 0.4),) * 2,
    *(("undecided", 0.5, 0.55),) * 5,  # in every round together, chance moves this lift by as much
)
assert len(LIBRARY) == 40


class Student:
    """Passes a case with the chance that belongs to the skill, with it in the prompt or without."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        number = int(request.messages[-1].text.split()[1])
        _, without, with_it = LIBRARY[number]
        has_skill = (
            request.messages[0].role == "system"
            and "The manual of drawer" in request.messages[0].text
        )
        passes = self.random.random() < (with_it if has_skill else without)
        usage = Usage(400 if has_skill else 50, 10, cost_usd=0.0)
        return Reply(f"{'yes' if passes else 'no'} {self.random.random()}", usage=usage)

    async def close(self) -> None:
        pass


def plan_of(number: int) -> tuple[Skill, Plan]:
    skill = Skill.new(f"drawer-{number}", "Drawers.", f"The manual of drawer {number}.")
    prompts = [f"Drawer {number} case {case}" for case in range(CASES)]
    suite = Suite.parse([{"prompt": prompt, "checks": [{"contains": "yes"}]} for prompt in prompts])
    return skill, make_plan(
        skill, suite, [STUDENT], PlanOptions(runs=ROUNDS, temperature=0.7, keys={})
    )


async def recheck(seed: int, ceiling: int | None) -> tuple[list[str], int]:
    """The status of every skill, and how many calls it took."""
    student = Student(seed)
    with open_store(None) as store:
        models = Models(replies=store)
        models.stand_in(STUDENT, MeteredModel(student, Ledger(Ceilings(calls=ceiling)), "student"))

        async def measure(plan: Plan, options: RunOptions) -> Evaluation:
            return await evaluate(
                plan, store=store, models=models, options=replace(options, partial=True)
            )

        library = [Rechecked(*plan_of(number)) for number in range(len(LIBRARY))]
        async with models:
            await Recheck(store, measure).run(library)
    return [each.status for each in library], student.calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=int, default=10)
    parser.add_argument("--ceiling", type=int, help="calls of a library")
    arguments = parser.parse_args()
    fixed = 2 * CASES * ROUNDS * len(LIBRARY)
    seen: Counter[tuple[str, str]] = Counter()
    calls = 0
    for seed in range(
        100, 100 + arguments.libraries
    ):  # not those on which the constants of the recheck were chosen
        statuses, spent = asyncio.run(recheck(seed, arguments.ceiling))
        calls += spent
        truths = [truth for truth, *_ in LIBRARY]
        seen.update(zip(truths, statuses, strict=True))
        wrong = sum(
            status not in (truth, "undecided")
            for truth, status in zip(truths, statuses, strict=True)
        )
        print(
            f"library {seed}: {dict(Counter(statuses))}, {wrong} false, {spent:,} calls", flush=True
        )
    columns = ("keep", "retire", "repair", "undecided")
    print(f"\n{'truth':12}" + "".join(f"{status:>11}" for status in columns))
    for truth in columns:
        print(f"{truth:12}" + "".join(f"{seen[truth, status]:>11}" for status in columns))
    made = sum(count for (_, status), count in seen.items() if status != "undecided")
    false = sum(
        count for (truth, status), count in seen.items() if status not in (truth, "undecided")
    )
    print(f"\nfalse: {false} of {made} decisions ({false / made:.1%}); ", end="")
    print(f"{calls / arguments.libraries / fixed:.0%} of the {fixed:,} calls of the fixed design")


if __name__ == "__main__":
    main()
