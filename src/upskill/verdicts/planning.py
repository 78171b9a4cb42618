"""How much evidence it takes: the power of a plan, and what an undecided lift still needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from upskill.verdicts.outcome import Scope
from upskill.verdicts.statistics import (
    NORMAL,
    CaseGroups,
    Floats,
    chance_of_less,
    t_quantile,
    unseen_weight,
)

MAX_CASES, MAX_RUNS = 1_000_000, 10_000  # that are counted up to


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """How differences vary: `between` cases and, for a single pair, `within` a case. Both are variances."""

    between: float
    within: float

    @classmethod
    def assumed(
        cls, baseline: float, lift: float, *, between_sd: float = 0.25, correlation: float = 0.3
    ) -> VarianceComponents:
        """From a baseline pass rate, the standard deviation of the lift over cases, and the correlation of a pair."""
        skill = min(1.0, max(0.0, baseline + lift))
        of_baseline, of_skill = baseline * (1.0 - baseline), skill * (1.0 - skill)
        variance = max(
            0.0, of_baseline + of_skill - 2.0 * correlation * math.sqrt(of_baseline * of_skill)
        )
        between = min(between_sd**2, variance)
        return cls(between, variance - between)

    @classmethod
    def measured(cls, differences: ArrayLike, cases: ArrayLike) -> VarianceComponents:
        """From pairs already seen, by analysis of variance; never less than one odd pair more would show.

        Assumes one variance within all cases. With one pair a case the two cannot be told apart, and everything
        counts as between cases: more runs are then never promised to help.
        """
        values = np.asarray(differences, dtype=np.float64).reshape(-1)
        if not values.size:
            return cls(0.0, 1.0)
        between, within = _components(values, CaseGroups.of(cases))
        short = max(0.0, 2.0 / (values.size + 2.0) - between - within)
        return cls(between + short, within)

    def error(self, cases: float, runs: float) -> float:
        """Standard error of the lift over so many cases with so many pairs each. Assumes independent cases."""
        return math.sqrt((self.between + self.within / runs) / cases)


def _components(values: Floats, groups: CaseGroups) -> tuple[float, float]:
    means = groups.means(values)
    spare = values.size - len(groups)
    within = float(((values - means[groups.codes]) ** 2).sum()) / spare if spare else 0.0
    of_means = float(np.var(means, ddof=1)) if len(groups) > 1 else 0.0
    return max(0.0, of_means - within * float(np.mean(1.0 / groups.counts))), within


def power(
    lift: float,
    cases: int,
    runs: float,
    variance: VarianceComponents,
    *,
    level: float = 0.95,
    anytime: Scope | None = None,
) -> float:
    """Chance that the interval excludes zero on the right side, if the lift is really this."""
    units, error = float(cases), variance.error(cases, runs)
    if anytime == "suite":  # where a pair is a unit, whatever its case
        units, error = cases * runs, variance.error(cases * runs, 1)
    if units < 2:
        return 0.0
    if error == 0.0:
        return 1.0 if lift else 0.0
    needed = error * t_quantile(0.5 + 0.5 * level, int(units) - 1)
    if anytime is None:
        needed = max(
            needed, _clear_of_the_unseen(cases, error * math.sqrt(cases), runs, 0.5 * (1.0 - level))
        )
    else:  # the price of a mixture of bets: half a logarithm of what was bet on
        needed = max(
            needed, error * math.sqrt(2.0 * math.log(2.0 / (1.0 - level)) + math.log(units))
        )
    return NORMAL.cdf((abs(lift) - needed) / error)


# Nine cases that stand for all, by their spread.
_TYPICAL = np.array([NORMAL.inv_cdf((k + 0.5) / 9) for k in range(9)])


@lru_cache(maxsize=256)
def _clear_of_the_unseen(cases: int, spread: float, runs: float, tail: float) -> float:
    """The smallest mean of so many cases, spread like this, at which `unseen_bound` is above zero."""
    counts = np.full((1, len(_TYPICAL)), cases / len(_TYPICAL))
    weight = unseen_weight(spread * _TYPICAL[np.newaxis, :], runs)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        values = np.clip(middle + spread * _TYPICAL, -1.0, 1.0)
        low, high = (
            (low, middle)
            if chance_of_less(values, counts, weight, 0.0)[0] < tail
            else (middle, high)
        )
    return high


POWER = 0.8  # the chance of a decision that a plan or a piece of advice aims at


def cases_needed(
    lift: float,
    runs: float,
    variance: VarianceComponents,
    *,
    chance: float = POWER,
    level: float = 0.95,
    anytime: Scope | None = None,
) -> int | None:
    """None: a million would not do."""
    if lift == 0.0:
        return None
    return smallest(
        lambda cases: power(lift, cases, runs, variance, level=level, anytime=anytime) >= chance,
        MAX_CASES,
    )


@dataclass(frozen=True, slots=True)
class EvidenceNeeded:
    """What would settle an undecided lift: `pairs` is the cheaper of more runs of these cases and more cases."""

    pairs: int
    runs: int | None  # further runs of every case; None where no number of them would do
    cases: int  # or further cases, each run as often as those before


def evidence_needed(
    differences: ArrayLike,
    cases: ArrayLike,
    *,
    margin: float = 0.05,
    level: float = 0.95,
    anytime: Scope | None = None,
) -> EvidenceNeeded:
    """How much more evidence would settle it with a chance of `POWER`, if the lift and its spread are those seen.

    It is settled when the interval excludes zero, or everything beyond the margin.
    """
    groups = CaseGroups.of(cases)
    count, runs = max(1, len(groups)), max(1.0, groups.runs)
    lift = abs(float(groups.means(differences).mean())) if len(groups) else 0.0
    distance = max(lift, margin - lift)
    variance = VarianceComponents.measured(differences, cases)

    def enough(more_runs: int) -> bool:
        return (
            power(distance, count, runs + more_runs, variance, level=level, anytime=anytime)
            >= POWER
        )

    in_all = cases_needed(distance, runs, variance, level=level, anytime=anytime) or MAX_CASES
    more_cases, more_runs = max(1, in_all - count), smallest(enough, MAX_RUNS)
    pairs = more_cases * math.ceil(runs - 1e-9)
    return EvidenceNeeded(
        pairs if more_runs is None else min(pairs, more_runs * count), more_runs, more_cases
    )


def smallest(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest n from 1 on for which something that stays true has become true."""
    if not holds(most):
        return None
    low, high = 0, 1
    while not holds(high):
        low, high = high, min(most, high * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
