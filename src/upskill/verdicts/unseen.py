"""How far a mean may lie from what was seen, given that some cases were not.

A skill may break one task in ten. Ten cases miss that one time in three, and then every interval made from their own
spread is too narrow. So a mean of differences in [-1, 1] gets a second bound: all cases, and a part of one more that
nobody has seen and that lies at the far end, get random weights (Dirichlet's); the bound is a quantile of the weighted
mean. With one whole case more this is Gaffke's bound, which for yes-or-no data is that of Clopper and Pearson.
"""

from __future__ import annotations

import math
from functools import cache

from upskill.verdicts.lazy_numpy import Floats, np

_STEP = 0.1
_MOST_VALUES = 200  # different ones that are told apart
_FAR = 12.0  # standard deviations from the mean: further out, a chance is taken to be 0 or 1


@cache
def _grid() -> Floats:
    """Of the integral, in standard deviations, evenly spaced as logarithms."""
    return np.exp(np.arange(-26.0, 12.0, _STEP))


def unseen_weight(runs: float) -> float:
    """How much of a case stands for those not seen.

    The more runs, the closer together the means of the cases seen may lie, and the less their spread says about what
    is missing. With one run a case is all or nothing, and a few wins look like more than they are. Chosen by
    simulation: in no world of docs/statistics.md is more than 4 % called wrongly on either side.
    """
    return max(0.5, 0.7 / runs, runs / (runs + 10.0))


def chance_of_less(support: Floats, counts: Floats, weight: float, mean: float) -> Floats:
    """The chance that the weighted mean is at most `mean`, for many data sets at once: the p-value of that mean.

    `counts` has a row for each data set and says how often each value of `support` occurs in it. The weighted mean is
    below a number when a sum of exponential variables, each times its distance from that number, is below zero; that
    chance comes from the sum's characteristic function, by Gil-Pelaez.
    """
    distances = np.append(support, -1.0) - mean
    amounts = np.hstack([counts, np.full((len(counts), 1), weight)])
    centres, spreads = amounts @ distances, np.sqrt(amounts @ distances**2)
    scale = float(np.median(spreads))
    if scale == 0.0:
        return np.ones(len(counts))
    angles = np.outer(distances, _grid() / scale)
    size = np.exp(amounts @ (-0.5 * np.log1p(angles**2)))
    inside = 0.5 - _STEP / math.pi * (size * np.sin(amounts @ np.arctan(angles))).sum(axis=1)
    far = np.abs(centres) > _FAR * spreads
    return np.where(far, (centres < 0).astype(np.float64), np.clip(inside, 0.0, 1.0))


def unseen_bound(values: Floats, runs: float, tail: float) -> float:
    """The least mean in [-1, 1] that these values, one a case, leave possible."""
    support, tally = np.unique(np.round(values, 9), return_counts=True)
    if len(support) > _MOST_VALUES:  # rounded down, which moves the bound by less than the rounding
        support, tally = np.unique(np.floor(values * _MOST_VALUES) / _MOST_VALUES, return_counts=True)
    counts, weight = tally.astype(np.float64)[np.newaxis, :], unseen_weight(runs)
    low, high = -1.0, float(values.mean())
    for _ in range(25):
        middle = 0.5 * (low + high)
        chance = float(chance_of_less(support, counts, weight, middle)[0])
        low, high = (middle, high) if chance < tail else (low, middle)
    return low
