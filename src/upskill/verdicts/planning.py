"""What a suite can show, before it is run: the chance of a decision, and how many cases would do.

By simulation, with a fixed seed: cases differ in difficulty (a standard deviation of 1.5 in log-odds) and in what the
skill does for them (0.75), as in `docs/simulations.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE
from upskill.verdicts.interval import (
    NORMAL,
    SEED,
    Floats,
    chance_of_less,
    mean_share,
    paired_lift,
    studentized_bounds,
    unseen_weight,
)

MAX_CASES_TO_ADD = 40  # more are not worth writing for one verdict
POWER = 0.8
SUITES = 800  # so a chance is right within 4 points
SUITES_TO_ADD = 200  # for how many cases to add, which is worked out with many verdicts
DIFFICULTY_SPREAD, EFFECT_SPREAD = 1.5, 0.75  # standard deviations, in log-odds
_QUANTILES = np.array([NORMAL.inv_cdf((k + 0.5) / 200) for k in range(200)])


@dataclass(frozen=True, slots=True)
class Chances:
    """Of `helps`, if the true lift is this."""

    tasks: float  # about tasks like these
    these: float  # about these cases
    either: float


@lru_cache(maxsize=256)
def chance_to_show(
    lift: float,
    cases: int,
    draws: int,
    *,
    baseline: float = 0.2,
    exact: bool = False,
    level: float = LEVEL_OF_TASKS,
    suites: int = SUITES,
) -> Chances:
    """`level` is the one at which the cases count as units: higher where several models share the error."""
    rng = np.random.default_rng((SEED, cases, draws))
    before, after = _rates(rng, (suites, cases), baseline, lift)
    shape = (suites, cases, draws)
    differences = (rng.random(shape) < after[:, :, None]).astype(np.float64)
    differences -= rng.random(shape) < before[:, :, None]
    tasks = shows_a_gain(differences.mean(axis=2), draws, level)
    these = tasks
    if not exact:
        these = shows_a_gain(differences.reshape(suites, -1), 1, max(level, LEVEL_OF_THESE))
    return Chances(float(tasks.mean()), float(these.mean()), float((tasks | these).mean()))


def _rates(
    rng: np.random.Generator, shape: tuple[int, int], baseline: float, lift: float
) -> tuple[Floats, Floats]:
    """Pass rates of cases without and with the skill, whose means are the baseline and the baseline plus the lift."""
    baseline = min(0.98, max(0.02, baseline))
    goal = min(0.98, baseline + lift)
    wide = float(np.hypot(DIFFICULTY_SPREAD, EFFECT_SPREAD))
    start = _center(baseline, DIFFICULTY_SPREAD)
    shift = _center(goal, wide) - start
    difficulty = start + DIFFICULTY_SPREAD * rng.standard_normal(shape)
    effect = shift + EFFECT_SPREAD * rng.standard_normal(shape)
    return _expit(difficulty), _expit(difficulty + effect)


def _center(mean: float, spread: float) -> float:
    """The log-odds around which rates with this spread have this mean."""
    low, high = -12.0, 12.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if float(_expit(middle + spread * _QUANTILES).mean()) < mean:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _expit(log_odds: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-log_odds))


def shows_a_gain(
    means: Floats, draws: int, level: float, *, resamples: int = 1_000
) -> NDArray[np.bool_]:
    """Whether `paired_lift` lies above zero, for many data sets at once: one row each, one column a unit."""
    if means.shape[1] < 2:
        return np.zeros(len(means), dtype=np.bool_)
    rounded = np.round(means, 9)
    low, _ = studentized_bounds(rounded, float(draws), level=level, resamples=resamples)
    support = np.unique(rounded)
    counts = np.stack([(rounded == value).sum(axis=1) for value in support], axis=1)
    weight = unseen_weight(rounded, float(draws))
    chance = chance_of_less(support, counts.astype(np.float64), weight, 0.0)
    return (low > 0) & (chance < 0.5 * (1.0 - level)) & (means.mean(axis=1) > 0)


@lru_cache(maxsize=256)
def cases_to_add(lift: float, fresh: int, draws: int, baseline: float) -> int:
    """Cases that with the fresh ones show the lift in 80 %; over `MAX_CASES_TO_ADD` where that many are too few."""
    lift, baseline = round(lift, 2), round(baseline, 2)

    def is_enough(add: int) -> bool:
        total = fresh + add
        chances = chance_to_show(lift, total, draws, baseline=baseline, suites=SUITES_TO_ADD)
        return chances.tasks >= POWER

    low, high = 0, MAX_CASES_TO_ADD
    if not is_enough(high):
        return MAX_CASES_TO_ADD + 1
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=1024)
def best_lift(units: int, level: float) -> float:
    """The highest lower end of a lift: where every unit goes from failed to passed."""
    return paired_lift([1.0] * units, range(units), level=level).low


def best_pass_rate(units: int, level: float) -> float:
    """The highest lower end of a pass rate: where everything passes."""
    return mean_share([1.0] * units, level=level).low
