"""Stopping early on the embedded model: how soon a skill that helps is recognised, and how often one that does not.

python bench/stopping.py                       both parts, about half an hour on two cores
python bench/stopping.py --repetitions 2       a shorter look
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path

from upskill import Models, Skill, Suite, evaluate, make_plan, open_store
from upskill.runs.planning.plan import PlanOptions
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.skills.placebo import placebo

EXAMPLES = Path(__file__).parent.parent / "examples"


async def run(
    skill: Skill, suite: Suite, rounds: int, seed: int, folder: Path, limit: int | None = None
) -> Evaluation:
    plan = make_plan(
        skill,
        suite,
        ["local:smollm2-135m"],
        options=PlanOptions(runs=rounds, seed=seed, temperature=0.7, max_output_tokens=limit),
    )
    with open_store(folder) as store:
        return await evaluate(
            plan,
            store=store,
            models=Models(replies=store),
            options=RunOptions(until_decided=True),
        )


def report(name: str, evaluation: Evaluation, fixed: int, seconds: float) -> None:
    verdict = evaluation.verdicts[0]
    low, high = verdict.interval or (0.0, 0.0)
    trials = len(evaluation.outcomes)
    print(
        f"{name}: {verdict.decision} after {trials} trials of {fixed} ({trials / fixed:.0%}), "
        f"lift {100 * (verdict.lift or 0):+.0f} ({100 * low:+.0f} to {100 * high:+.0f}), {seconds:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=20, help="of the run with a placebo")
    parser.add_argument("--rounds", type=int, default=2, help="at most, in each of these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        skill = Skill.load(EXAMPLES / "kernel-builder-cuda-kernels")
        suite = Suite.of(skill)
        assert suite is not None
        started = time.monotonic()
        found = asyncio.run(run(skill, suite, 5, 0, Path(folder)))
        report(skill.name, found, len(found.plan), time.monotonic() - started)

        # The answers of this suite are a few words, and 24 tokens hold them: a repetition takes half the time.
        skill = Skill.load(EXAMPLES / "tern-deploy")
        suite = Suite.of(skill)
        assert suite is not None
        empty = placebo(skill)
        decisions: Counter[str] = Counter()
        for number in range(options.repetitions):
            started = time.monotonic()
            found = asyncio.run(
                run(empty, suite, options.rounds, 1000 * (number + 1), Path(folder), 24)
            )
            decisions[found.verdicts[0].decision] += 1
            report(f"placebo {number + 1}", found, len(found.plan), time.monotonic() - started)
        print(
            "placebo:",
            ", ".join(f"{decision} {count}" for decision, count in decisions.most_common()),
        )


if __name__ == "__main__":
    main()
