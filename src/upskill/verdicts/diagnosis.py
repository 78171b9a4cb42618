"""A diagnosis of each case after a run: whether it can show a lift at all.

One run says what happened, not what the case is like: a case is "hurt" only when an exact test of its pairs says so,
and "flaky" only when an arm passed and failed twice each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from upskill.plain import counted
from upskill.verdicts.arms import by_arm
from upskill.verdicts.outcome import Outcome

ENOUGH_RUNS = 3  # in each arm, before "always" and "never" are said of a case

CaseProblem = Literal[
    "always passes", "never passes", "baseline passes", "hurt", "flaky", "unscored"
]

# For one case, and for several.
_WORDS: dict[CaseProblem, tuple[str, str]] = {
    "always passes": ("always passes, {with_and_without}", "always pass, {with_and_without}"),
    "never passes": ("never passes, {with_or_without}", "never pass, {with_or_without}"),
    "baseline passes": ("passes every time {without}", "pass every time {without}"),
    "hurt": (
        "passes less often with the skill{than_without}",
        "pass less often with the skill{than_without}",
    ),
    "flaky": (
        "passes at least twice and fails at least twice in one arm",
        "pass at least twice and fail at least twice in one arm",
    ),
    "unscored": ("was never scored in both arms", "were never scored in both arms"),
}
_ADVICE: dict[CaseProblem, str] = {
    "always passes": "A case like this cannot show a lift: make it harder or drop it.",
    "never passes": "Make sure that the checks can be met and that the skill covers what they ask for.",
    "baseline passes": "A case like this can only show harm.",
    "hurt": "Read both answers: the skill may mislead here.",
    "flaky": "Tighten the task, or repeat it up to about five times. Beyond that, only more cases help.",
    "unscored": "Fix the errors.",
}
_ARMS = {
    "with_and_without": "with and without the skill",
    "with_or_without": "with or without the skill",
    "without": "without the skill",
    "than_without": "",
}
_ARMS_WITH_REFERENCE = {
    "with_and_without": "with either skill",
    "with_or_without": "with either skill",
    "without": "with the reference skill",
    "than_without": " than with the reference skill",
}


@dataclass(frozen=True, slots=True)
class CaseDiagnosis:
    """What is wrong with one case, judged by its scored trials in both arms."""

    case: str
    baseline_rate: float | None
    skill_rate: float | None
    runs: int  # scored trials, in the arm with fewer
    problems: tuple[CaseProblem, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        return tuple(_ADVICE[kind] for kind in self.problems)


def describe_problem(
    problem: CaseProblem, cases: Sequence[str], *, has_reference: bool = False, limit: int = 3
) -> str:
    singular, plural = _WORDS[problem]
    predicate = (singular if len(cases) == 1 else plural).format_map(
        _ARMS_WITH_REFERENCE if has_reference else _ARMS
    )
    names = ", ".join(cases[:limit]) + (", …" if len(cases) > limit else "")
    return f"{counted(len(cases), 'case')} {predicate}: {names}. {_ADVICE[problem]}"


def diagnose(
    outcomes: Iterable[Outcome], *, baseline: str = "baseline", skill: str = "skill"
) -> tuple[CaseDiagnosis, ...]:
    arms = by_arm(outcomes)
    scores: dict[str, tuple[dict[int, bool], dict[int, bool]]] = {}
    for index, name in enumerate((baseline, skill)):
        for (case, seed), trial in arms[name].trials.items() if name in arms else ():
            of_arm = scores.setdefault(case, ({}, {}))[index]
            if trial.passed is not None:
                of_arm[seed] = trial.passed
    return tuple(_diagnosis(case, *scores[case]) for case in sorted(scores))


def _diagnosis(case: str, before: dict[int, bool], after: dict[int, bool]) -> CaseDiagnosis:
    rate, rate_with = _rate(before), _rate(after)
    runs = min(len(before), len(after))
    if rate is None or rate_with is None:
        return CaseDiagnosis(case, rate, rate_with, 0, ("unscored",))
    problems: list[CaseProblem] = []
    if runs >= ENOUGH_RUNS:
        if rate == rate_with == 1:
            problems.append("always passes")
        elif rate == rate_with == 0:
            problems.append("never passes")
        elif rate == 1:
            problems.append("baseline passes")
    if _is_hurt(before, after):
        problems.append("hurt")
    if any(min(sum(arm.values()), len(arm) - sum(arm.values())) >= 2 for arm in (before, after)):
        problems.append("flaky")
    return CaseDiagnosis(case, rate, rate_with, runs, tuple(problems))


def _rate(scores: dict[int, bool]) -> float | None:
    return sum(scores.values()) / len(scores) if scores else None


def _is_hurt(before: dict[int, bool], after: dict[int, bool]) -> bool:
    """Whether its pairs were lost so often that chance would do it in one case of twenty: the exact sign test."""
    pairs = [(before[seed], after[seed]) for seed in before.keys() & after.keys()]
    lost, won = (
        sum(old and not new for old, new in pairs),
        sum(new and not old for old, new in pairs),
    )
    if lost <= won:  # chance does it in one of two; the sum below is a long one with many runs
        return False
    return (
        sum(math.comb(lost + won, more) for more in range(lost, lost + won + 1)) / 2 ** (lost + won)
        <= 0.05
    )
