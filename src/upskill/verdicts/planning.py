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
    longest_run,
    t_quantile,
    unseen_weight,
)


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
        variance = max(0.0, of_baseline + of_skill - 2.0 * correlation * math.sqrt(of_baseline * of_skill))
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


def power(lift: float, cases: int, runs: int, variance: VarianceComponents, *, level: float = 0.95) -> float:
    """Chance that the interval of `paired_lift` excludes zero on the right side, if the lift is really this."""
    if cases < 2:
        return 0.0
    error = variance.error(cases, runs)
    if error == 0.0:
        return 1.0 if lift else 0.0
    needed = max(
        error * t_quantile(0.5 + 0.5 * level, cases - 1),
        _clear_of_the_unseen(cases, error * math.sqrt(cases), unseen_weight(runs), 0.5 * (1.0 - level)),
    )
    return NORMAL.cdf((abs(lift) - needed) / error)


_TYPICAL = [NORMAL.inv_cdf((k + 0.5) / 9) for k in range(9)]  # nine cases that stand for all, by their spread


@lru_cache(maxsize=256)
def _clear_of_the_unseen(cases: int, spread: float, weight: float, tail: float) -> float:
    """The smallest mean of so many cases, spread like this, at which `unseen_bound` is above zero."""
    counts = np.full((1, len(_TYPICAL)), cases / len(_TYPICAL))
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        values = np.clip(middle + spread * np.array(_TYPICAL), -1.0, 1.0)
        low, high = (low, middle) if chance_of_less(values, counts, weight, 0.0)[0] < tail else (middle, high)
    return high


def cases_needed(
    lift: float,
    runs: int,
    variance: VarianceComponents,
    *,
    chance: float = 0.8,
    level: float = 0.95,
    limit: int = 1_000_000,
) -> int | None:
    if lift == 0.0:
        return None
    return _smallest(lambda cases: power(lift, cases, runs, variance, level=level) >= chance, limit)


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
    """How much more evidence would settle it, if what was seen so far is typical."""
    values = np.asarray(differences, dtype=np.float64).reshape(-1)
    groups = CaseGroups.of(cases)
    count, runs = max(1, len(groups)), max(1.0, groups.runs)
    means = groups.means(values)
    between, within = _components(values, groups) if values.size else (0.0, 1.0)
    odd = len(means) - float(longest_run(np.sort(means)[np.newaxis, :])[0]) if len(means) else 0.0
    mean = abs(float(means.mean())) if len(means) else 0.0

    def missing(more_cases: int, more_runs: int) -> bool:
        total, each = count + more_cases, runs + more_runs
        units, varied = float(total), between + within / each
        extra = max(each**-1.5, 1.0 / (1.0 + odd * total / count))  # as in studentized_bounds
        if anytime == "suite":  # where a pair is a unit, whatever its case
            units, varied, extra = total * each, between + within, 1.0
        if units < 2:
            return True
        weight = units + 2.0 * extra
        centre = mean * units / weight
        error = math.sqrt((((varied + mean**2) * units + 2.0 * extra) / weight - centre**2) / weight)
        critical = t_quantile(0.5 + 0.5 * level, int(units) - 1)
        if anytime is not None:  # the price of a mixture of bets: half a logarithm of what was bet on
            critical = max(critical, math.sqrt(2.0 * math.log(2.0 / (1.0 - level)) + math.log(units)))
        if centre <= critical * error and centre + critical * error > margin:
            return True
        return anytime is None and _hides_much(means, total, varied, each, margin, 0.5 * (1.0 - level))

    by_cases = _smallest(lambda n: not missing(n, 0), 1_000_000)
    by_runs = _smallest(lambda n: not missing(0, n), 10_000)
    more_cases = by_cases if by_cases is not None else 1_000_000
    pairs = more_cases * math.ceil(runs - 1e-9)
    if by_runs is not None:
        pairs = min(pairs, by_runs * count)
    return EvidenceNeeded(pairs, by_runs, more_cases)


def _hides_much(means: Floats, cases: int, variance: float, runs: float, margin: float, tail: float) -> bool:
    """Whether so many cases, spread like these, may still hide either answer, as `unseen_bound` sees it."""
    if not len(means):
        return True
    mean, spread = float(means.mean()), float(means.var())
    values: Floats = mean + (means - mean) * math.sqrt(min(1.0, variance / spread) if spread else 1.0)
    support, tally = np.unique(np.round(values if mean >= 0 else -values, 9), return_counts=True)
    counts, weight = tally[np.newaxis, :] * cases / len(means), unseen_weight(runs)
    if chance_of_less(support, counts, weight, 0.0)[0] < tail:
        return False
    return not chance_of_less(-support, counts, weight, -margin)[0] < tail


def _smallest(holds: Callable[[int], bool], most: int) -> int | None:
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
