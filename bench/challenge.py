"""Simulate `upskill challenge`: does it find planted wrong facts, and nothing else? And are loopholes in checks closed?

python bench/challenge.py               # 100 challenges and an attacked suite, seconds
python bench/challenge.py --runs 20     # fewer
python bench/challenge.py --known 0.65  # the student knows what the skill gets wrong in 65 % of the trials only

Each challenge has three proposals about facts that the skill has wrong, among 30 worthless ones: the student knows
them with and without the skill, never, only with the skill, or guesses. A trial comes out the other way with a chance
of 5 to 10 %. All right answers to a proposal are the same text, and so are all wrong ones. The attacked suite has ten
cases whose checks pass a wrong answer or fail a right one. The attacker finds two of them a round, also claims what is
not so, and its first fix of a case fails a right answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill import Suite
from upskill.experiments.attacks import Attacked, attack_checks
from upskill.experiments.counterexamples import Challenge
from upskill.models import Reply, Request
from upskill.suites.quality import CaseProbe, SandboxOpener
from upskill.traces import Usage
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
            Outcome("simulated", case, arm, each, passed, 0, 0, 0.0, answer=1 + passed)
            for case, arm, each, passed in trials
        ]

    trying = Challenge(tuple(names), measure)
    await trying.run()
    return {case for _, case in trying.shown}, trying


# ------------------------------------------------------------------------------------------------ attacks on checks


@dataclass(frozen=True)
class Loophole:
    """A case, an answer that its checks judge wrongly, and checks that do not."""

    prompt: str
    reference: str
    checks: list[dict[str, Any]]
    kind: str
    answer: str
    right: tuple[str, ...]  # that pass, and must go on to pass
    fixed: list[dict[str, Any]]


def written(kind: str, *texts: str) -> dict[str, Any]:
    return {"kind": kind, "texts": list(texts), "number": 0, "exact": False}


def loopholes() -> list[Loophole]:
    wrong = [
        Loophole(
            prompt=f"Write the command that sends {name} to the yard.",
            reference=f"ship --to {name}",
            checks=[{"contains": ["ship", name]}],
            kind="wrong",
            answer=f"ship --from {name}",
            right=(f"Run `ship --to {name}`.", f"ship --to={name}"),
            fixed=[written("regex", rf"ship\b[^\n]*--to[ =]{name}\b")],
        )
        for name in ("birch", "cedar", "maple", "alder", "rowan")
    ]
    right = [
        Loophole(
            prompt=f"After how many days does a {name} ticket close?",
            reference=f"{days} days",
            checks=[{"contains": f"{days} days"}],
            kind="right",
            answer=f"{days} d",
            right=(f"It closes after {days} days.", f"{days} days, always"),
            fixed=[written("regex", rf"(?<!\d){days}\s*d")],
        )
        for name, days in (("red", 14), ("blue", 21), ("green", 35), ("black", 42), ("white", 63))
    ]
    return [*wrong, *right]


@dataclass
class Attacker:
    """Attacks, judges and fixes from what is planted."""

    holes: dict[str, Loophole]
    asked_to_fix: set[str] = field(default_factory=set[str])

    async def reply(self, request: Request) -> Reply:
        system, user = (message.text for message in request.messages[:2])
        cases = [json.loads(line) for line in user.split("\n") if '"id"' in line]
        if system.startswith("You attack"):
            said: dict[str, Any] = {"attacks": self.attack(cases)}
        elif system.startswith("You say"):
            said = {"judged": [self.judge(case) for case in cases]}
        else:
            said = {"cases": [self.fix(case) for case in cases]}
        return Reply(json.dumps(said), Usage(0, 0))

    def attack(self, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        attacks: list[dict[str, Any]] = []
        for case in cases:
            hole = self.holes[case["id"]]
            if hole.answer not in case["tried"] and len(attacks) < 2:
                attacks.append(
                    {
                        "case": case["id"],
                        "wrong": [f"{hole.right[0]} "],
                        "right": [],
                        hole.kind: [hole.answer],
                    }
                )
        return attacks

    def judge(self, case: dict[str, Any]) -> dict[str, Any]:
        hole = self.holes[case["id"]]
        good = {*hole.right, hole.reference, *([hole.answer] if hole.kind == "right" else [])}
        names = {
            is_right: [
                n for n, text in case["answers"].items() if (text.strip() in good) == is_right
            ]
            for is_right in (True, False)
        }
        return {"case": case["id"], "right": names[True], "wrong": names[False]}

    def fix(self, case: dict[str, Any]) -> dict[str, Any]:
        hole = self.holes[case["id"]]
        too_narrow = [written("equals", hole.reference)]
        first = case["id"] not in self.asked_to_fix
        self.asked_to_fix.add(case["id"])
        return {"id": case["id"], "checks": too_narrow if first else hole.fixed, "disputed": []}


async def attack() -> tuple[Attacked, int, int]:
    """With how many loopholes are left, and how many right answers fail that passed."""
    holes = {f"case-{number}": hole for number, hole in enumerate(loopholes())}
    cases = [
        {
            "id": name,
            "prompt": hole.prompt,
            "checks": hole.checks,
            "reference": hole.reference,
            "right": list(hole.right),
        }
        for name, hole in holes.items()
    ]
    attacked = await attack_checks(Suite.parse({"cases": cases}), Attacker(holes), rounds=10)  # type: ignore[arg-type]
    left = broken = 0
    for case in attacked.suite.cases:
        hole, probe = holes[case.id], CaseProbe(case, SandboxOpener())
        left += (await probe.failure(hole.answer) is None) == (hole.kind == "wrong")
        broken += sum(
            [await probe.failure(each) is not None for each in (hole.reference, *hole.right)]
        )
    return attacked, left, broken


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
    attacked, left, broken = asyncio.run(attack())
    print(
        f"of 10 loopholes in checks, {left} are left after {attacked.rounds} rounds; {broken} right answers newly fail"
    )


if __name__ == "__main__":
    main()
