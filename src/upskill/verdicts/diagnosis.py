"""A diagnosis of each case after a run: whether it can show a lift at all.

A word about a single case needs evidence of its own. One run says what happened, not what the case is like: it is
"hurt" only when an exact test of its pairs says so, and "flaky" only when an arm passed and failed twice each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from upskill.verdicts.arms import by_arm
from upskill.verdicts.outcome import Outcome

ENOUGH_RUNS = 3  # in each arm, before "always" and "never" are said of a case

CaseProblem = Literal["saturated", "dead", "baseline passes", "hurt", "flaky", "unscored"]

_ADVICE: dict[CaseProblem, str] = {
    "saturated": "passes with and without the skill: make it harder or drop it, it can show no lift",
    "dead": "never passes: see whether its checks can be met at all, or whether the skill lacks what it asks for",
    "baseline passes": "passes without the skill every time: it can only show harm",
    "hurt": "passes less often with the skill: read both answers, the skill may mislead here",
    "flaky": "passes now and then in the same arm: tighten the task or run it more often",
    "unscored": "never scored in both arms: repair what errors",
}
_ADVICE_BASELINE_IS_SKILL: dict[CaseProblem, str] = {  # where the baseline is an older skill
    "saturated": "passes with either skill: make it harder or drop it, it can show no lift",
    "baseline passes": "passes with the older skill every time: it can only show harm",
    "hurt": "passes less often than with the older skill: read both answers, this one may mislead here",
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
        return tuple(advice_for(kind) for kind in self.problems)


def advice_for(problem: CaseProblem, *, baseline_is_skill: bool = False) -> str:
    """What to do about it; `baseline_is_skill`: the baseline is an older skill."""
    return _ADVICE_BASELINE_IS_SKILL.get(problem, _ADVICE[problem]) if baseline_is_skill else _ADVICE[problem]


def diagnose(
    outcomes: Iterable[Outcome], *, baseline: str = "baseline", skill: str = "skill"
) -> tuple[CaseDiagnosis, ...]:
    """Every case in the outcomes of one model, in the order of their ids."""
    arms = by_arm(outcomes)
    scores: dict[str, tuple[dict[int, bool], dict[int, bool]]] = {}
    for place, name in enumerate((baseline, skill)):
        for (case, seed), trial in arms[name].trials.items() if name in arms else ():
            of_arm = scores.setdefault(case, ({}, {}))[place]
            if trial.passed is not None:
                of_arm[seed] = trial.passed
    return tuple(_diagnosis(case, *scores[case]) for case in sorted(scores))


def _diagnosis(case: str, before: dict[int, bool], after: dict[int, bool]) -> CaseDiagnosis:
    rate, rate_with = _rate(before), _rate(after)
    runs = min(len(before), len(after))
    if rate is None or rate_with is None:
        return CaseDiagnosis(case, rate, rate_with, 0, ("unscored",))
    found: list[CaseProblem] = []
    if runs >= ENOUGH_RUNS:
        if rate == rate_with == 1:
            found.append("saturated")
        elif rate == rate_with == 0:
            found.append("dead")
        elif rate == 1:
            found.append("baseline passes")
    if _is_hurt(before, after):
        found.append("hurt")
    if any(min(sum(arm.values()), len(arm) - sum(arm.values())) >= 2 for arm in (before, after)):
        found.append("flaky")
    return CaseDiagnosis(case, rate, rate_with, runs, tuple(found))


def _rate(scores: dict[int, bool]) -> float | None:
    return sum(scores.values()) / len(scores) if scores else None


def _is_hurt(before: dict[int, bool], after: dict[int, bool]) -> bool:
    """Whether its pairs were lost so often that chance would do it in one case of twenty: the exact sign test."""
    pairs = [(before[seed], after[seed]) for seed in before.keys() & after.keys()]
    lost, won = sum(one and not two for one, two in pairs), sum(two and not one for one, two in pairs)
    return sum(math.comb(lost + won, more) for more in range(lost, lost + won + 1)) / 2 ** (lost + won) <= 0.05
