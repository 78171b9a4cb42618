"""Measure how many greedy answers an edit without content flips, and what `ci` makes of it.

python bench/flips.py            # ten edits on three suites: 800 answers of the embedded model
python bench/flips.py --edits 2  # fewer

Each edit changes the text of a skill and nothing that it says: a friendly line, another heading, an empty section.
The embedded model answers every case with the skill before and after, and rule 11 judges the edit, as `ci` does.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from upskill import Skill, Suite, evaluate, open_store
from upskill.runs.planning.plan import PlanOptions, make_plan
from upskill.runs.running.evaluate import RunOptions
from upskill.skills.starter import skill_files
from upskill.verdicts.gate import MARKS, Mark, judge_edit, turned_cases

EXAMPLES = Path(__file__).parents[1] / "examples"
SUITES = ("the skill of `init`", "kernel-builder-cuda-kernels", "tern-deploy")
EDITS: tuple[Callable[[str], str], ...] = (
    lambda body: f"{body.rstrip()}\n\nBe kind.\n",
    lambda body: f"{body.rstrip()}\n\nAnswer with care.\n",
    lambda body: f"Thank you for reading this first.\n\n{body.lstrip()}",
    lambda body: f"{body.rstrip()}\n\n## Notes\n\nNothing here yet.\n",
    lambda body: body.replace("\n- ", "\n* "),
    lambda body: body.replace("# ", "# About ", 1),
    lambda body: f"{body.rstrip()}\n\nLast reviewed in March.\n",
    lambda body: f"<!-- Maintained by the platform team. -->\n{body.lstrip()}",
    lambda body: body.replace(". ", ".  "),
    lambda body: f"{body.rstrip()}\n\nQuestions? Ask the people who wrote this page.\n",
)


async def measure(name: str, edits: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = EXAMPLES / name
        if not source.is_dir():
            source = Path(folder) / "kiln"
            for path, text in skill_files("kiln", "./kiln", "").items():
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                (source / path).write_text(text, encoding="utf-8")
        base = Skill.load(source)
        suite = Suite.of(base)
        assert suite is not None
        marks = Counter[Mark]()
        lost = gained = 0
        with open_store(str(Path(folder) / "runs")) as store:
            for edit in EDITS[:edits]:
                head = Skill.new(base.name, base.description, edit(base.body))
                plan = make_plan(head, suite, ["local"], PlanOptions(reference_skill=base, keys={}))
                options = RunOptions(purpose="gate")
                evaluation = await evaluate(plan, store=store, options=options)
                (verdict,) = evaluation.verdicts
                before, after = turned_cases(evaluation.outcomes)
                lost += len(before)
                gained += len(after)
                mark = judge_edit(verdict, evaluation.outcomes, rounds=1).mark
                marks[mark] += 1
                print(f"  {MARKS[mark]} {len(before)} lost, {len(after)} gained", flush=True)
    answers = edits * len(suite.cases)
    counts = ", ".join(f"{MARKS[mark]} {number}" for mark, number in marks.items())
    flips = (lost + gained) / answers
    print(f"{name}: {lost} lost and {gained} gained of {answers} answers ({flips:.1%}); {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=len(EDITS))
    edits = parser.parse_args().edits
    for name in SUITES:
        asyncio.run(measure(name, edits))


if __name__ == "__main__":
    main()
