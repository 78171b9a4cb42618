"""How often checks are wrong about an answer: right ones that fail, wrong ones that pass.

The cases are written as a test writer hands them in (`tests/fixtures/answers/cases.yaml`), taken through the same code
and the same gate, and held against two sets of hand-written answers that none of them has seen.

python bench/answers.py            both rates, and every answer that was judged wrongly
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from upskill import Skill, Suite
from upskill.authoring.writing.suite_writer import as_suite_case
from upskill.suites import Case
from upskill.suites.quality import CaseProbe, SandboxOpener, WeakCase, probe_case

FOLDER = Path(__file__).parent.parent / "tests" / "fixtures" / "answers"
MOST_RIGHT_FAIL, MOST_WRONG_PASS = 0.03, 0.10


@dataclass(frozen=True)
class Measured:
    refused: list[WeakCase]  # cases that the gate does not let through
    right: int
    wrong: int
    right_failed: list[tuple[str, str, str]]  # case, answer, why
    wrong_passed: list[tuple[str, str]]

    @property
    def holds(self) -> bool:
        right, wrong = len(self.right_failed) / self.right, len(self.wrong_passed) / self.wrong
        return not self.refused and right <= MOST_RIGHT_FAIL and wrong <= MOST_WRONG_PASS


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def read_cases() -> tuple[Skill, list[Case]]:
    """The cases, and a skill that says all they ask for."""
    written = read("cases")
    lines = [f"- {one['prompt']} {one['reference']}" for one in written]
    skill = Skill.new(
        "house-rules", "How things are done here. Use when anything is done here.", "\n".join(lines)
    )
    return skill, list(Suite.parse([as_suite_case(one, skill) for one in written], "answers").cases)


async def measure() -> Measured:
    skill, cases = read_cases()
    right, wrong = read("right"), read("wrong")
    found = Measured([], sum(map(len, right.values())), sum(map(len, wrong.values())), [], [])
    for case in cases:
        found.refused.extend(await probe_case(case, skill, others=cases))
        case_probe = CaseProbe(case, SandboxOpener(), skill.body)
        for answer in right[case.id]:
            if (why := await case_probe.failure(answer)) is not None:
                found.right_failed.append((case.id, answer, why))
        for answer in wrong[case.id]:
            if await case_probe.failure(answer) is None:
                found.wrong_passed.append((case.id, answer))
    return found


def main() -> None:
    found = asyncio.run(measure())
    for weak in found.refused:
        print(f"refused: {weak}")
    for case, answer, why in found.right_failed:
        print(f"right and failed: {case}: {answer!r}: {why}")
    for case, answer in found.wrong_passed:
        print(f"wrong and passed: {case}: {answer!r}")
    failed, passed = len(found.right_failed), len(found.wrong_passed)
    print(
        f"{failed} of {found.right} right answers fail: {failed / found.right:.1%} (wanted: at most 3 %)"
    )
    print(
        f"{passed} of {found.wrong} wrong answers pass: {passed / found.wrong:.1%} (wanted: at most 10 %)"
    )
    sys.exit(0 if found.holds else 1)


if __name__ == "__main__":
    main()
