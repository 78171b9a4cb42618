"""Simulate `upskill ci` on edits whose effect is known: how often is a regression caught, and at what cost?

python bench/gate.py             # 100 edits of each kind, some minutes
python bench/gate.py --edits 20  # fewer

Runs the gate itself (`Gate` in runs/running/gate.py) with a student that passes each case with a known chance. The
fixed design runs every round of all three arms.
"""

from __future__ import annotations

import argparse
import asyncio
import random

from upskill import Models, Skill, Suite, evaluate, open_store
from upskill.models import Address, Reply, Request
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.gate import ROUNDS, Gate
from upskill.skills.changes import SkillChange
from upskill.traces import Usage

CASES = 12
STUDENT = Address("simulated", "scripted", "simulated")
# How often the student passes a case with the skill as it was, by suite.
SUITES = {
    "most cases pass": [0.95] * 10 + [0.5] * 2,
    "every case passes at times": [0.7] * CASES,
    "half of the cases are safe": [1.0] * 6 + [0.6] * 3 + [0.2] * 3,
}
EDITS = {"30 points worse": -0.3, "harmless": 0.0, "20 points better": 0.2}


class Student:
    """Passes a case with the chance that the skill in its prompt names."""

    def __init__(self, chances: dict[str, list[float]], seed: str) -> None:
        self.chances = chances
        self.random = random.Random(seed)
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        system = request.messages[0].text if request.messages[0].role == "system" else ""
        version = next((name for name in self.chances if name in system), "")
        chance = (
            self.chances[version][int(request.messages[-1].text.split()[-1])] if version else 0.05
        )
        passes = self.random.random() < chance
        return Reply(
            f"{'yes' if passes else 'no'} {self.random.random()}", usage=Usage(10, 10, cost_usd=0.0)
        )

    async def close(self) -> None:
        pass


async def check(chances: list[float], effect: float, seed: str) -> tuple[str, int]:
    """The status of one edit, and how many calls it took."""
    mean = sum(chances) / len(chances)
    share = effect / mean if effect < 0 else effect / (1 - mean) if mean < 1 else 0.0
    edited = [each + share * (each if effect < 0 else 1 - each) for each in chances]
    student = Student({"Version A": chances, "Version B": edited}, seed)
    base, head = (Skill.new("drawers", "Drawers.", f"Version {version}") for version in "AB")
    cases = [
        {"prompt": f"Case {number}", "checks": [{"contains": "yes"}]} for number in range(CASES)
    ]
    suite = Suite.parse(cases)
    with open_store(None) as store:

        def plan_for(skill: Skill, _: Suite, other: Skill | None) -> Plan:
            options = PlanOptions(runs=ROUNDS, temperature=0.7, reference_skill=other, keys={})
            return make_plan(skill, suite, [STUDENT], options)

        async def measure(plan: Plan, options: RunOptions) -> Evaluation:
            models = Models(replies=store)
            models.stand_in(STUDENT, student)
            return await evaluate(plan, store=store, models=models, options=options)

        gate = Gate(plan_for, measure)
        checked = await gate.check(SkillChange("drawers", head, base, "drawers"), suite)
    return checked[0].status, student.calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=100, help="of each kind, on each suite")
    edits = parser.parse_args().edits
    fixed = 3 * CASES * ROUNDS
    print(f"{'suite':28}{'edit':18}{'blocked':>9}{'calls':>7}  of the fixed design ({fixed})")
    for suite, chances in SUITES.items():
        for edit, effect in EDITS.items():
            results = [
                asyncio.run(check(chances, effect, f"{suite} {edit} {number}"))
                for number in range(edits)
            ]
            blocked = sum(status in ("worse", "hurts", "useless") for status, _ in results)
            calls = sum(calls for _, calls in results) / edits
            print(
                f"{suite:28}{edit:18}{blocked / edits:>8.0%}{calls:>7.0f}  {calls / fixed:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
