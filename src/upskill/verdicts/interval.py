"""The one interval behind every verdict: `paired_lift`, and `mean_share` for a single arm.

Nothing depends on the order of the rows or on a random state. `docs/simulations.md` has the formulas, the references
and the simulations that check them.

A *pair* is one case and one draw tried in two arms; its *difference* is the one arm's outcome less the other's. A
*unit* is what counts as independent: a case or its group for tasks like these, a draw for these cases. A *level* is a
confidence level such as 0.95.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
NORMAL = NormalDist()
SEED = 20_261_115  # of every resampling: the same rows always give the same interval
RESAMPLES = 10_000
MAX_FREEDOM = 5_000  # with more, Student's t is the normal distribution to three digits
BOOTSTRAP_MAX_CASES = 2_000  # with more, Student's t is as good as a bootstrap, and faster


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval. A bound is infinite where the data cannot bound it."""

    value: float
    low: float
    high: float
    level: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        return {"value": rounded(self.value), "interval": rounded_interval(self.interval)}


def rounded(value: float | None, digits: int = 6) -> float | None:
    """A number as JSON can hold it: an infinite or undefined one is null."""
    # A resumed run adds up the same numbers in another order, which changes their last bits.
    return None if value is None or not math.isfinite(value) else round(value, digits) + 0.0


def rounded_interval(interval: tuple[float, float] | None) -> list[float | None] | None:
    return None if interval is None else [rounded(bound) for bound in interval]


# Quantiles
# ------------------------------------------------------------------------------------------------


def t_cdf(t: float, freedom: int) -> float:
    """The chance that Student's t with this many (whole) degrees of freedom is below t. Assumes freedom >= 1."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    term = cosine if freedom % 2 else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    if freedom % 2:
        inside = 2.0 / math.pi * (angle + inside)
    return 0.5 + 0.5 * inside


@lru_cache(maxsize=256)
def t_quantile(p: float, freedom: int) -> float:
    """The t below which Student's t falls with chance p. Assumes 0 < p < 1 and whole degrees of freedom >= 1."""
    if freedom > MAX_FREEDOM:
        return NORMAL.inv_cdf(p)
    if p < 0.5:  # so that quantiles of p and 1 - p mirror each other to the last digit
        return -t_quantile(1.0 - p, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < p:
        low, high = high, high * 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_cdf(middle, freedom) < p else (low, middle)
    return 0.5 * (low + high)


# Grouping
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseGroups:
    """Rows gathered by case, in the order of the case labels."""

    codes: NDArray[np.intp]  # of each row, the index of its case
    counts: Floats  # rows of each case

    @classmethod
    def of(cls, labels: Iterable[Hashable]) -> CaseGroups:
        names = list(labels)  # not `np.unique`, which compares texts one by one
        indexes = {name: index for index, name in enumerate(dict.fromkeys(names))}
        codes = np.fromiter(map(indexes.__getitem__, names), dtype=np.intp, count=len(names))
        return cls(codes, np.bincount(codes, minlength=len(indexes)).astype(np.float64))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def runs(self) -> float:
        """Pairs a case, as the harmonic mean: how far averaging within cases shrinks noise."""
        return float(len(self.counts) / np.sum(1.0 / self.counts)) if len(self.counts) else 0.0

    def sums(self, values: ArrayLike) -> Floats:
        weights = np.asarray(values, dtype=np.float64)
        return np.bincount(self.codes, weights=weights, minlength=len(self.counts)).astype(
            np.float64
        )

    def means(self, values: ArrayLike) -> Floats:
        return self.sums(values) / self.counts


@lru_cache(maxsize=4)
def _resamples(cases: int, most: int = RESAMPLES) -> Floats:
    """How often each of so many cases is drawn in each resample; with its mirror image, so that arms can be swapped."""
    size = max(500, min(most, 2_000_000 // cases) // 2)
    rng = np.random.default_rng((SEED, cases))
    drawn = rng.multinomial(cases, np.full(cases, 1.0 / cases), size=size).astype(np.float64)
    both = np.concatenate([drawn, drawn[:, ::-1]])
    both.setflags(write=False)
    return both


# Cases not seen
# ------------------------------------------------------------------------------------------------
#
# A skill may break one task in ten. Ten cases miss that one time in three, and then every interval made from their own
# spread is too narrow. So a mean of differences in [-1, 1] gets a second bound: all cases, and a part of one more that
# nobody has seen and that lies at the far end, get random weights (Dirichlet's); the bound is a quantile of the
# weighted mean. With one whole case more this is Gaffke's bound, which for yes-or-no data is Clopper and Pearson's.

_STEP = 0.1
_MAX_VALUES = 200  # different ones that are told apart
_FAR = 12.0  # standard deviations from the mean: further out, a chance is taken to be 0 or 1


@cache
def _grid() -> Floats:
    """Of the integral, in standard deviations, evenly spaced as logarithms."""
    return np.exp(np.arange(-26.0, 12.0, _STEP))


def unseen_weight(means: Floats, runs: float) -> Floats:
    """How much of a case stands for those not seen, for many data sets at once; see docs/simulations.md.

    A whole one where all case means are alike. The more they vary, but for the one farthest out, the less is needed,
    since that widens the bound as well. Pairs vary, and so do means of a few, even where it does not show.
    """
    squares = (means - means.mean(axis=1, keepdims=True)) ** 2
    variance = (squares.sum(axis=1) - squares.max(axis=1)) / max(1, means.shape[1] - 2)
    return np.maximum(max(0.5, 0.7 / runs), 1.0 / (1.0 + np.maximum(30.0 * variance, 3.0 / runs)))


def chance_of_less(support: Floats, counts: Floats, weight: float | Floats, mean: float) -> Floats:
    """The chance that the weighted mean is at most `mean`, for many data sets at once: the p-value of that mean.

    `counts` has a row for each data set and says how often each value of `support` occurs in it; `weight` is that of
    the case not seen. By Gil-Pelaez, from the characteristic function of a sum of exponential variables.
    """
    distances = np.append(support, -1.0) - mean
    amounts = np.hstack([counts, np.broadcast_to(np.reshape(weight, (-1, 1)), (len(counts), 1))])
    centres, spreads = amounts @ distances, np.sqrt(amounts @ distances**2)
    scale = float(np.median(spreads))
    if scale == 0.0:
        return np.ones(len(counts))
    angles = np.outer(distances, _grid() / scale)
    size = np.exp(amounts @ (-0.5 * np.log1p(angles**2)))
    inside = 0.5 - _STEP / math.pi * (size * np.sin(amounts @ np.arctan(angles))).sum(axis=1)
    far = np.abs(centres) > _FAR * spreads
    return np.where(far, (centres < 0).astype(np.float64), np.clip(inside, 0.0, 1.0))


def unseen_bound(values: Floats, weight: float, tail: float) -> float:
    """The least mean in [-1, 1] that these values, one a case, leave possible."""
    support, tally = np.unique(np.round(values, 9), return_counts=True)
    if len(support) > _MAX_VALUES:  # rounded down, which moves the bound by less than the rounding
        support, tally = np.unique(np.floor(values * _MAX_VALUES) / _MAX_VALUES, return_counts=True)
    counts = tally.astype(np.float64)[np.newaxis, :]
    low, high = -1.0, float(values.mean())
    for _ in range(25):
        middle = 0.5 * (low + high)
        chance = float(chance_of_less(support, counts, weight, middle)[0])
        low, high = (middle, high) if chance < tail else (low, middle)
    return low


# Lift
# ------------------------------------------------------------------------------------------------


def paired_lift(
    differences: ArrayLike, units: Iterable[Hashable], *, level: float = 0.95
) -> Estimate:
    """Mean difference in [-1, 1], every case weighing the same, with an interval that allows for cases not seen.

    Each bound is the further one of the studentized cluster bootstrap's and of `unseen_bound`'s.
    """
    values = np.asarray(differences, dtype=np.float64).reshape(-1)
    groups = CaseGroups.of(units)
    if len(groups) == 0:
        return Estimate(math.nan, -1.0, 1.0, level)
    means = groups.means(values)
    value = float(np.mean(np.sort(means)))
    if len(groups) == 1:
        return Estimate(value, -1.0, 1.0, level)
    (low,), (high,) = studentized_bounds(means[np.newaxis, :], groups.runs, level=level)
    tail = 0.5 * (1.0 - level)
    weight = float(unseen_weight(means[np.newaxis, :], groups.runs)[0])
    low = min(float(low), value, unseen_bound(means, weight, tail))
    high = max(float(high), value, -unseen_bound(-means, weight, tail))
    return Estimate(value, low, high, level)


def studentized_bounds(
    means: Floats, runs: float, *, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Floats, Floats]:
    """Bounds of the lift by the spread of the cases, for many data sets at once: one row each, one column a case.

    Assumes what `paired_lift` does; `runs` is the number of pairs behind each case mean, and there are two cases or
    more. Three things make the bootstrap honest on few cases of yes-or-no data, each checked by simulation:

    - One case of +1 and one of -1 are added with a weight of runs^-1.5 each, as Bonett and Price do for pairs, and
      with more (up to 1) where hardly any case differs from the rest. Ten wins in ten then do not mean [1, 1].
    - The studentized bootstrap supplies 0.6 of each critical value and Student's t the rest; the former knows which
      way the data lean, the latter how little ten cases are.
    - The bootstrap's share fades where fewer than three cases differ from the rest: there it has nothing to resample.
    """
    means = np.sort(means, axis=1)
    count = means.shape[1]
    odd = count - longest_run(means)  # cases that differ from the most common value
    extra = np.maximum(runs**-1.5, 1.0 / (1.0 + odd))
    total = count + 2.0 * extra
    centre = means.sum(axis=1) / total
    error = np.sqrt((((means**2).sum(axis=1) + 2.0 * extra) / total - centre**2) / total)
    tail = 0.5 * (1.0 - level)
    student = t_quantile(1.0 - tail, count - 1)
    below = above = np.full(len(means), student)
    if count <= BOOTSTRAP_MAX_CASES:
        draws = _resamples(count, resamples).T
        first = means @ draws / total[:, np.newaxis]
        second = (means**2 @ draws + 2.0 * extra[:, np.newaxis]) / total[:, np.newaxis]
        pivots = (first - centre[:, np.newaxis]) / np.sqrt(
            (second - first**2) / total[:, np.newaxis]
        )
        lower, upper = np.quantile(pivots, [tail, 1.0 - tail], axis=1)
        share = 0.6 * np.minimum(1.0, odd / 3.0)
        below = share * upper + (1.0 - share) * student
        above = (1.0 - share) * student - share * lower
    return np.clip(centre - below * error, -1.0, 1.0), np.clip(centre + above * error, -1.0, 1.0)


def longest_run(ordered: Floats) -> Floats:
    run = np.ones(len(ordered))
    longest = run.copy()
    for before, after in zip(ordered.T[:-1], ordered.T[1:], strict=True):
        run = np.where(after - before < 1e-9, run + 1.0, 1.0)
        longest = np.maximum(longest, run)
    return longest


# One arm
# ------------------------------------------------------------------------------------------------


def mean_share(shares: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Mean of shares in [0, 1], one a case, with Gaffke's bounds: for yes-or-no data they are Clopper and Pearson's.

    They hold for few cases, rare events and any number of runs, however much the cases differ.
    """
    values = 2.0 * np.asarray(shares, dtype=np.float64) - 1.0
    tail = 0.5 * (1.0 - level)
    low, high = (
        0.5 + 0.5 * unseen_bound(values, 1.0, tail),
        0.5 - 0.5 * unseen_bound(-values, 1.0, tail),
    )
    return Estimate(0.5 + 0.5 * float(values.mean()), low, high, level)
