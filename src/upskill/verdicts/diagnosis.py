"""A diagnosis of each case after a run: whether it can show a lift at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from upskill.verdicts.arms import by_arm
from upskill.verdicts.outcome import Outcome

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
    tally: dict[str, dict[str, list[int]]] = {}
    for name, arm in by_arm(outcomes).items():
        if name in (baseline, skill):
            for trial in arm.trials.values():
                passed = tally.setdefault(trial.case, {baseline: [0, 0], skill: [0, 0]})[name]
                if trial.passed is not None:
                    passed[0] += bool(trial.passed)
                    passed[1] += 1
    return tuple(_diagnosis(case, *tally[case][baseline], *tally[case][skill]) for case in sorted(tally))


def _diagnosis(case: str, passed: int, tried: int, passed_with: int, tried_with: int) -> CaseDiagnosis:
    if not (tried and tried_with):
        rates = passed / tried if tried else None, passed_with / tried_with if tried_with else None
        return CaseDiagnosis(case, *rates, 0, ("unscored",))
    before, after = passed / tried, passed_with / tried_with
    found: list[CaseProblem] = []
    if before == after == 1:
        found.append("saturated")
    elif before == after == 0:
        found.append("dead")
    else:
        if before == 1:
            found.append("baseline passes")
        if after < before:
            found.append("hurt")
        if 0 < before < 1 or 0 < after < 1:
            found.append("flaky")
    return CaseDiagnosis(case, before, after, min(tried, tried_with), tuple(found))
