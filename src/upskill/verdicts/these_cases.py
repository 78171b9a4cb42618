"""The lift on exactly these cases: repeats are the sample, and nothing is claimed about other cases.

Each arm's number of passes is taken for one binomial. Cases of different difficulty make it vary less than that, never
more, so the interval is valid for them too. It inverts Farrington and Manning's score test exactly: a lift is ruled
out when, whatever the pass rate of the baseline, so high a score has at most the chance of the tail (Chan and Zhang).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from upskill.verdicts.statistics import CaseGroups, Estimate, Floats

MAX_DRAWS = 1_000  # of an arm that are told apart, which makes an interval of about 9 points
GRID_ALLOWANCE = 0.99  # of the tail: the least favorable rate may lie between two that are tried
_STEPS = 13  # of halving: a bound is exact to a hundredth of a point
_RATES = (
    np.sin(np.linspace(0.0, 0.5 * math.pi, 41)) ** 2
)  # of the baseline that are tried; dense at both ends


def lift_on_these_cases(
    before: Floats,
    after: Floats,
    draws: tuple[Floats, Floats],
    units: list[str],
    *,
    level: float = 0.95,
) -> Estimate:
    """From the results of each pair in both arms. Every unit weighs the same, as in `paired_lift`.

    `draws` says for each pair how much of an independent draw it is in each arm: 1, or less where answers are copies.
    """
    groups = CaseGroups.of(units)
    rates = [float(np.mean(np.sort(groups.means(arm)))) for arm in (before, after)]
    before_draws, after_draws = (_size(groups.sums(arm)) for arm in draws)
    value, tail = rates[1] - rates[0], 0.5 * (1.0 - level)
    low = _lower_bound(rates[0], rates[1], before_draws, after_draws, tail)
    high = -_lower_bound(rates[1], rates[0], after_draws, before_draws, tail)
    return Estimate(value, min(low, value), max(high, value), level)


def _size(draws: Floats) -> int:
    """Draws in all. Units with few of them weigh as much as those with many, so they set the limit."""
    harmonic = len(draws) / float(np.sum(1.0 / draws))
    return max(
        1, min(MAX_DRAWS, math.floor(len(draws) * min(harmonic, 2.0 * float(draws.min())) + 1e-9))
    )


def _lower_bound(
    baseline: float, skill: float, baseline_draws: int, skill_draws: int, tail: float
) -> float:
    """Rates that are no whole number of passes are rounded against the skill."""
    passed_before = math.ceil(baseline * baseline_draws - 1e-9)
    passed_after = math.floor(skill * skill_draws + 1e-9)
    return _exact_lower_bound(passed_before, passed_after, baseline_draws, skill_draws, tail)


@lru_cache(maxsize=4096)
def _exact_lower_bound(
    before: int, after: int, before_draws: int, after_draws: int, tail: float
) -> float:
    sizes = before_draws, after_draws

    def excluded(lift: float) -> bool:
        seen = float(score(np.array([float(before)]), np.array([float(after)]), sizes, lift)[0])
        return chance_of_score(seen, sizes, lift) <= GRID_ALLOWANCE * tail

    value = after / after_draws - before / before_draws
    low, high = (0.0, value) if value > 0 and excluded(0.0) else (-1.0, min(value, 0.0))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excluded(middle) else (low, middle)
    return low


def chance_of_score(seen: float, sizes: tuple[int, int], lift: float) -> float:
    """The chance of a score at least as high as this one if the lift is `lift`, at the least favorable baseline."""
    before_draws, after_draws = sizes
    baselines = np.arange(before_draws + 1.0)
    # For each number of baseline passes, the fewest with the skill that have such a score: it rises with them.
    too_few, enough = np.full(before_draws + 1, -1), np.full(before_draws + 1, after_draws + 1)
    while (enough - too_few > 1).any():
        middle = (too_few + enough) // 2
        high = (
            score(baselines, np.maximum(middle, 0).astype(np.float64), sizes, lift) >= seen - 1e-9
        ) & (middle >= 0)
        too_few, enough = np.where(high, too_few, middle), np.where(high, middle, enough)
    start, end = max(0.0, -lift), min(1.0, 1.0 - lift)
    rates = start + (end - start) * _RATES
    at_least = np.zeros((len(rates), after_draws + 2))
    at_least[:, :-1] = _binomial(after_draws, rates + lift)[:, ::-1].cumsum(axis=1)[:, ::-1]
    return float((_binomial(before_draws, rates) * at_least[:, enough]).sum(axis=1).max())


def score(before: Floats, after: Floats, sizes: tuple[int, int], lift: float) -> Floats:
    """How far the lift seen is from `lift`, over its error at the likeliest rates that differ by `lift`."""
    baseline, skill, ratio = before / sizes[0], after / sizes[1], sizes[0] / sizes[1]
    # The likelihood equation is cubic in the rate with the skill; this is the root between 0 and 1.
    third = 3.0 * (1.0 + ratio)
    square = -(1.0 + ratio + skill + ratio * baseline + lift * (ratio + 2.0)) / third
    linear = (lift**2 + lift * (2.0 * skill + ratio + 1.0) + skill + ratio * baseline) / third
    constant = -skill * lift * (1.0 + lift) / third
    shift = square**3 - 1.5 * square * linear + 1.5 * constant
    radius = np.where(shift < 0, -1.0, 1.0) * np.sqrt(np.maximum(square**2 - linear, 1e-24))
    angle = (math.pi + np.arccos(np.clip(shift / radius**3, -1.0, 1.0))) / 3.0
    with_skill = np.clip(
        2.0 * radius * np.cos(angle) - square, max(0.0, lift), min(1.0, 1.0 + lift)
    )
    without = with_skill - lift
    variance = with_skill * (1.0 - with_skill) / sizes[1] + without * (1.0 - without) / sizes[0]
    return (skill - baseline - lift) / np.sqrt(np.maximum(variance, 1e-12))


@lru_cache(maxsize=16)
def _log_choose(trials: int) -> Floats:
    logs = np.array([math.lgamma(k + 1.0) for k in range(trials + 1)])
    return logs[-1] - logs - logs[::-1]


def _binomial(trials: int, rates: Floats) -> Floats:
    """The chance of each number of passes: a row for each rate."""
    rate, passes = np.clip(rates, 1e-15, 1.0 - 1e-15)[:, np.newaxis], np.arange(trials + 1)
    return np.exp(_log_choose(trials) + passes * np.log(rate) + (trials - passes) * np.log1p(-rate))
