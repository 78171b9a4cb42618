"""A diagnosis of each case after a run: whether it can show a lift at all.

One run says what happened, not what the case is like: a case is "hurt" only when an exact test of its pairs says so,
and "flaky" only when an arm passed and failed twice each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from upskill.plain import counted
from upskill.verdicts.arms import ArmOutcomes, by_arm
from upskill.verdicts.outcome import Outcome

ENOUGH_DRAWS = 3  # in each arm, before "always" and "never" are said of a case
HURT_P_VALUE = 0.05

CaseProblem = Literal[
    "always passes", "never passes", "baseline passes", "hurt", "flaky", "unscored"
]

# What is said of the cases, and what to do about them.
_WORDS: Mapping[CaseProblem, tuple[str, str]] = {
    "always passes": (
        "always passed in both arms",
        "A case like this cannot show a lift: make it harder or drop it.",
    ),
    "never passes": (
        "never passed in either arm",
        "Make sure that the checks can be met and that the skill covers what they ask for.",
    ),
    "baseline passes": (
        "always passed in the baseline",
        "A case like this can only show harm.",
    ),
    "hurt": (
        "passed less often with the skill",
        "Read both answers: the skill may mislead here.",
    ),
    "flaky": (
        "passed at least twice and failed at least twice in one arm",
        "Tighten the task, or repeat it up to about five times. Beyond that, only more cases help.",
    ),
    "unscored": ("got no grade in one of the arms", "Fix the errors."),
}


@dataclass(frozen=True, slots=True)
class CaseDiagnosis:
    """What is wrong with one case, judged by its graded trials in both arms."""

    case: str
    problems: tuple[CaseProblem, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        return tuple(_WORDS[problem][1] for problem in self.problems)


def describe_problem(problem: CaseProblem, cases: Sequence[str], *, limit: int = 3) -> str:
    words, advice = _WORDS[problem]
    names = ", ".join(cases[:limit]) + (", …" if len(cases) > limit else "")
    return f"{counted(len(cases), 'case')} {words}: {names}. {advice}"


def diagnose(outcomes: Iterable[Outcome]) -> tuple[CaseDiagnosis, ...]:
    arms = by_arm(outcomes)
    before = _by_case(arms.get("baseline"))
    after = _by_case(arms.get("skill"))
    return tuple(
        CaseDiagnosis(case, tuple(_find_problems(before.get(case, {}), after.get(case, {}))))
        for case in sorted(before.keys() | after.keys())
    )


def _by_case(arm: ArmOutcomes | None) -> dict[str, dict[int, bool]]:
    """By case and draw, whether it passed; a case without a grade has no draws."""
    draws: dict[str, dict[int, bool]] = {}
    for (case, seed), trial in arm.trials.items() if arm else ():
        of_case = draws.setdefault(case, {})
        if trial.passed is not None:
            of_case[seed] = trial.passed
    return draws


def _find_problems(before: Mapping[int, bool], after: Mapping[int, bool]) -> list[CaseProblem]:
    if not before or not after:
        return ["unscored"]
    problems: list[CaseProblem] = []
    if min(len(before), len(after)) >= ENOUGH_DRAWS:
        if all(before.values()):
            problems.append("always passes" if all(after.values()) else "baseline passes")
        elif not any((*before.values(), *after.values())):
            problems.append("never passes")
    if _is_hurt(before, after):
        problems.append("hurt")
    for arm in (before, after):
        passed = sum(arm.values())
        if min(passed, len(arm) - passed) >= 2 and "flaky" not in problems:
            problems.append("flaky")
    return problems


def _is_hurt(before: Mapping[int, bool], after: Mapping[int, bool]) -> bool:
    """Whether its pairs were lost so often that chance would do it in one case of twenty: the exact sign test."""
    pairs = [(before[seed], after[seed]) for seed in before.keys() & after.keys()]
    lost = sum(old and not new for old, new in pairs)
    won = sum(new and not old for old, new in pairs)
    changed = lost + won
    if lost <= won:  # chance does it in one of two; the sum below is a long one with many draws
        return False
    ways = sum(math.comb(changed, more) for more in range(lost, changed + 1))
    return ways / 2**changed <= HURT_P_VALUE
