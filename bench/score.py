"""Simulate `upskill tests SKILL --score` on students whose truth is known: which untested rules does it find?

python bench/score.py               # 100 suites, about a minute
python bench/score.py --suites 20   # fewer

Each skill has 18 rules. Two or three of them have no case, and no other case needs them. The student knows two rules
without the skill, and some cases need two rules. Each suite has a chance of 5 to 10 % that a trial comes out the other
way.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from upskill import Evaluation, Plan, PlanOptions, RunOptions, Skill, Suite, make_plan
from upskill.experiments.ablation import Blocks
from upskill.experiments.engine import Engine
from upskill.experiments.mutation import Score, Scoring
from upskill.models.pool import Models
from upskill.runs.stores import open_store
from upskill.verdicts.outcome import Outcome

RULES = 18
FACT = re.compile(r"drawer (\w+) is `(\w+)`")


@dataclass
class World:
    skill: Skill
    suite: Suite
    needs: dict[str, list[str]]  # by case: the drawers whose code it needs
    codes: dict[str, str]
    known: set[str]  # without the skill
    untested: set[str]
    noise: float
    chance: random.Random

    @classmethod
    def make(cls, seed: int) -> World:
        chance = random.Random(seed)
        names = [f"d{number}{chance.choice('abcdef')}" for number in range(RULES)]
        codes = {name: f"c{chance.getrandbits(24):06x}" for name in names}
        untested = set(chance.sample(names, chance.choice((2, 3))))
        tested = [name for name in names if name not in untested]
        needs = {f"case-{name}": [name] for name in tested}
        for case in chance.sample([*needs], 3):
            needs[case] = [*needs[case], chance.choice(tested)]
        lines = "\n".join(
            f"- The code of drawer {name} is `{code}`." for name, code in codes.items()
        )
        skill = Skill.new("drawers", "Codes of drawers.", f"# Drawers\n\n{lines}\n")
        cases = [
            {
                "id": case,
                "prompt": f"What is the code of {' and '.join(names)}?",
                "checks": [{"contains": [codes[name] for name in names]}],
            }
            for case, names in needs.items()
        ]
        known = set(chance.sample(tested, 2))
        return cls(
            skill,
            Suite.parse({"cases": cases}),
            needs,
            codes,
            known,
            untested,
            chance.uniform(0.05, 0.1),
            chance,
        )

    def answer(self, skill: Skill, case: str, seed: int) -> Outcome:
        said = dict(FACT.findall(skill.body))
        facts = {
            name: said.get(name, self.codes[name] if name in self.known else "")
            for name in self.needs[case]
        }
        knows = all(fact == self.codes[name] for name, fact in facts.items())
        passed = knows != (self.chance.random() < self.noise)
        return Outcome("simulated", case, "skill", seed, passed, 0, 0, 0.0)

    async def score(self) -> Score:
        plan = make_plan(
            self.skill, self.suite, ["openai:simulated"], PlanOptions(baseline=False, runs=2)
        )
        with open_store(None) as store:
            scoring = Scoring(plan, Engine(store, Models(), _run_nothing))

            async def measure(removed: Blocks, cases: Sequence[str], seeds: range) -> list[Outcome]:
                version = scoring.version(removed)
                return [self.answer(version, case, seed) for case in cases for seed in seeds]

            scoring.mutation.measure = measure
            return await scoring.run()


async def _run_nothing(plan: Plan, options: RunOptions) -> Evaluation:
    raise AssertionError("the student answers here")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suites", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first suite")
    arguments = parser.parse_args()
    suites = arguments.suites
    counts, trials = Counter[str](), 0
    for seed in range(arguments.seed, arguments.seed + suites):
        world = World.make(seed)
        score = asyncio.run(world.score())
        drawer = {each.block: FACT.findall(each.block.text)[0][0] for each in score.rules}
        uncovered = {drawer[rule.block] for rule in score.uncovered}
        static = {drawer[each.block] for each in score.rules if each.is_untestable}
        undecided = {drawer[each.block] for each in score.rules if each.status == "undecided"}
        counts["without a model, exactly the untested rules are named"] += static == world.untested
        counts["a gutted skill is noticed"] += bool(score.gutted_noticed)
        counts["all untested rules are found"] += world.untested <= uncovered
        counts["a tested rule is called untested"] += bool(uncovered - world.untested)
        counts["a rule stays undecided"] += bool(undecided)
        trials += score.trials
    for name, count in counts.items():
        print(f"{name}: {count} of {suites}")
    one_by_one = RULES * (RULES - 2.5) * 8
    print(
        f"{trials / suites:,.0f} trials a suite, {trials / suites / one_by_one:.0%} of one rule after the other"
    )


if __name__ == "__main__":
    main()
