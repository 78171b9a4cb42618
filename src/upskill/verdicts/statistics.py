"""The arithmetic behind a verdict: intervals and tests for paired outcomes that come in cases.

Nothing depends on the order of the rows or on a random state. `docs/simulations.md` has the formulas, the references
and the simulations that check them.

A *pair* is one case and one seed tried in two arms; its *difference* is the one arm's outcome less the other's. Pairs
of one case resemble one another, so cases are resampled, not pairs. A *level* is a confidence level such as 0.95.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from upskill.verdicts.outcome import Scope

Floats = NDArray[np.float64]
NORMAL = NormalDist()
SEED = 20_261_115  # of every resampling: the same rows always give the same interval
RESAMPLES = 10_000
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


# ---------------------------------------------------------------------------------------------------- quantiles


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
    if freedom <= 300:
        return _inverse(lambda t: t_cdf(t, freedom), p)
    z = NORMAL.inv_cdf(p)  # Cornish and Fisher's expansion, right to eight digits by here
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _inverse(cdf: Callable[[float], float], p: float) -> float:
    if p < 0.5:  # so that quantiles of p and 1 - p mirror each other to the last digit
        return -_inverse(cdf, 1.0 - p)
    low, high = 0.0, 1.0
    while cdf(high) < p:
        low, high = high, high * 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cdf(middle) < p else (low, middle)
    return 0.5 * (low + high)


# ---------------------------------------------------------------------------------------------------- grouping


@dataclass(frozen=True, slots=True)
class CaseGroups:
    """Rows gathered by case, in the order of the case labels."""

    codes: NDArray[np.intp]  # of each row, the index of its case
    counts: Floats  # rows of each case

    @classmethod
    def of(cls, labels: ArrayLike) -> CaseGroups:
        names = list(
            cast("Sequence[Any]", labels)
        )  # not `np.unique`, which compares texts one by one
        indexes = {name: index for index, name in enumerate(sorted(set(names)))}
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


# ---------------------------------------------------------------------------------------------------- cases not seen
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


# ---------------------------------------------------------------------------------------------------- lift


def paired_lift(differences: ArrayLike, cases: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Mean difference in [-1, 1], every case weighing the same, with an interval that allows for cases not seen.

    Each bound is the further one of the studentized cluster bootstrap's and of `unseen_bound`'s.
    """
    values = np.asarray(differences, dtype=np.float64).reshape(-1)
    if values.size and not (np.abs(values) <= 1.0 + 1e-9).all():
        raise ValueError("the difference of two outcomes must be between -1 and 1")
    groups = CaseGroups.of(cases)
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


def sign_flip_p_value(differences: ArrayLike, cases: ArrayLike) -> float:
    """Two-sided p-value of "the arms are interchangeable", flipping the sign of whole cases.

    Exact, by dynamic programming, unless the sums do not fit; then up to 100,000 seeded flips, counting the one seen.
    """
    values = np.asarray(differences, dtype=np.float64).reshape(-1)
    groups = CaseGroups.of(cases)
    sums = groups.sums(values)
    counts = groups.counts.astype(np.int64)
    integers = np.rint(sums)
    common = math.lcm(*(int(n) for n in np.unique(counts))) if len(counts) else 1
    if np.abs(sums - integers).max(initial=0.0) < 1e-9 and common < 1_000_000:
        steps = np.abs(integers.astype(np.int64)) * (common // counts)
        observed = abs(int((integers.astype(np.int64) * (common // counts)).sum()))
        steps = steps[steps > 0]
        if steps.size == 0:
            return 1.0
        steps //= (unit := int(np.gcd.reduce(steps)))
        if int(steps.sum()) * steps.size <= 100_000_000:
            return _exact_flips(np.sort(steps), observed // unit)
    return _random_flips(np.sort(sums / groups.counts))


def _exact_flips(steps: NDArray[np.int64], observed: int) -> float:
    """The share of all sign patterns whose sum is at least as far from zero as the one seen."""
    reach = int(steps.sum())
    chance = np.zeros(2 * reach + 1)
    chance[reach] = 1.0
    for step in steps.tolist():
        moved = np.zeros_like(chance)
        moved[step:] += 0.5 * chance[:-step]
        moved[:-step] += 0.5 * chance[step:]
        chance = moved
    inner = chance[reach - observed + 1 : reach + observed]
    # Added from the outside in, so that a tiny p is not lost beside a large one.
    tails = chance[: reach - observed + 1].sum() + chance[reach + observed :].sum()
    return float(min(1.0, tails)) if inner.size else 1.0


def _random_flips(means: Floats) -> float:
    flips = max(2_000, min(100_000, 20_000_000 // means.size))
    rng = np.random.default_rng((SEED, means.size))
    observed = abs(float(means.sum())) * (1.0 - 1e-12)
    beyond = 0
    for start in range(0, flips, 1_000):
        signs = rng.integers(0, 2, size=(min(1_000, flips - start), means.size)) * 2.0 - 1.0
        beyond += int((np.abs(signs @ means) >= observed).sum())
    return (1 + beyond) / (1 + flips)


# ---------------------------------------------------------------------------------------------------- one arm


def wilson_interval(passed: float, trials: float, *, level: float = 0.95) -> tuple[float, float]:
    """[0, 1] without trials. For clustered trials give `effective_trials`, and the pass rate times that as `passed`."""
    if trials <= 0:
        return 0.0, 1.0
    z2 = NORMAL.inv_cdf(0.5 + 0.5 * level) ** 2
    rate = passed / trials
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(z2 * rate * (1 - rate) / trials + z2 * z2 / (4 * trials * trials)) / (
        1 + z2 / trials
    )
    return (0.0 if rate == 0 else max(0.0, centre - half)), (
        1.0 if rate == 1 else min(1.0, centre + half)
    )


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


def effective_trials(passed: ArrayLike, cases: ArrayLike) -> float:
    """n over Kish's design effect. Where nothing varies the correlation is 1: repeating a case proves nothing new."""
    values = np.asarray(passed, dtype=np.float64).reshape(-1)
    groups = CaseGroups.of(cases)
    n, k = values.size, len(groups)
    if n in (0, k):
        return float(n)
    if k == 1:
        return 1.0
    means = groups.means(values)
    size = (n - float((groups.counts**2).sum()) / n) / (k - 1)
    between = float((groups.counts * (means - values.mean()) ** 2).sum()) / (k - 1)
    within = float(((values - means[groups.codes]) ** 2).sum()) / (n - k)
    spread = between + (size - 1.0) * within
    correlation = 1.0 if spread <= 0 else min(1.0, max(0.0, (between - within) / spread))
    weight = float((groups.counts**2).sum()) / n  # cases with more runs count for more: Kish's form
    return n / (1.0 + (weight - 1.0) * correlation)


# ---------------------------------------------------------------------------------------------------- tokens, cost


def mean_change(
    before: ArrayLike, after: ArrayLike, cases: ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Mean of after - before over pairs, with a studentized cluster-bootstrap interval."""
    groups = CaseGroups.of(cases)
    change = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return _ratio_of_sums(groups.sums(change), groups.counts, level)


def relative_change(
    before: ArrayLike, after: ArrayLike, cases: ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Total of after over total of before, less 1 (0.2: a fifth more); cluster bootstrap of its logarithm."""
    groups = CaseGroups.of(cases)
    ratio = _log_ratio((groups.sums(after),), (groups.sums(before),), level)
    return Estimate(ratio.value - 1.0, ratio.low - 1.0, ratio.high - 1.0, level)


def cost_per_pass_ratio(
    cost_before: ArrayLike,
    passed_before: ArrayLike,
    cost_after: ArrayLike,
    passed_after: ArrayLike,
    cases: ArrayLike,
    *,
    level: float = 0.95,
) -> Estimate:
    """Cost per pass after, over cost per pass before: below 1 a pass has become cheaper.

    Student's interval for the logarithm, with half a pass added (Haldane, Anscombe): bounded even without a pass.
    """
    groups = CaseGroups.of(cases)
    up = groups.sums(cost_after), groups.sums(passed_before)
    down = groups.sums(cost_before), groups.sums(passed_after)
    return _log_ratio(up, down, level, with_passes=True)


def _ratio_of_sums(top: Floats, bottom: Floats, level: float) -> Estimate:
    count = len(top)
    if count == 0:
        return Estimate(math.nan, -math.inf, math.inf, level)
    value = float(top.sum() / bottom.sum())
    if count == 1:
        return Estimate(value, -math.inf, math.inf, level)
    residuals = (top - value * bottom) / bottom.mean()
    error = math.sqrt(float((residuals**2).sum()) / (count * (count - 1)))
    if error <= 1e-12 * max(1.0, abs(value)):
        return Estimate(value, value, value, level)
    tail = 0.5 * (1.0 - level)
    student = t_quantile(1.0 - tail, count - 1)
    lower, upper = -student, student
    if count <= BOOTSTRAP_MAX_CASES:
        draws = _resamples(count)
        tops, bottoms = draws @ top, draws @ bottom
        values = tops / bottoms
        squares = (
            draws @ (top**2)
            - 2 * values * (draws @ (top * bottom))
            + values**2 * (draws @ (bottom**2))
        )
        errors = np.sqrt(np.maximum(squares, 0.0) * count / (count - 1)) / bottoms
        lower, upper = _pivots(values - value, errors, error, tail, student)
    return Estimate(value, value - upper * error, value - lower * error, level)


def _pivots(
    shifts: Floats, errors: Floats, error: float, tail: float, student: float
) -> tuple[float, float]:
    """Quantiles of the studentized shifts, never wilder than resamples of hardly any spread can make them."""
    pivots = shifts / np.maximum(errors, 0.1 * error)
    lower, upper = np.quantile(pivots, [tail, 1.0 - tail])
    # A few cases give a jagged bootstrap; Student's t steadies it, as in paired_lift.
    return 0.5 * (float(lower) - student), 0.5 * (float(upper) + student)


def _log_ratio(
    top: tuple[Floats, ...],
    bottom: tuple[Floats, ...],
    level: float,
    *,
    with_passes: bool = False,
) -> Estimate:
    """A product of sums over a product of as many sums, studentized on the scale of logarithms."""
    count = len(top[0])
    above, below = math.prod(float(x.sum()) for x in top), math.prod(float(x.sum()) for x in bottom)
    if count == 0 or above == below == 0.0:
        return Estimate(math.nan, 0.0, math.inf, level)
    value = above / below if below else math.inf
    half = 0.5 / count
    parts = np.stack([*top, *bottom], axis=1)
    if with_passes:
        parts[:, [len(top) - 1, -1]] += half
    sizes = parts.mean(axis=0)
    if count == 1 or (sizes == 0.0).any():
        return Estimate(value, 0.0, math.inf, level)
    parts = parts / sizes
    signs = np.repeat([1.0, -1.0], [len(top), len(bottom)])
    centre = math.exp(float(np.log(sizes) @ signs))
    error = math.sqrt(float(((parts @ signs) ** 2).sum()) / (count * (count - 1)))
    if error <= 1e-12:
        return Estimate(value, min(value, centre), max(value, centre), level)
    tail = 0.5 * (1.0 - level)
    student = t_quantile(1.0 - tail, count - 1)
    lower, upper = -student, student
    if (
        count <= BOOTSTRAP_MAX_CASES and not with_passes
    ):  # resampling a handful of passes says less than the formula
        draws = _resamples(count)
        means = draws @ parts / count
        fine = (means > 0).all(
            axis=1
        )  # nearly always: sums of tokens and costs are hardly ever zero
        draws, means = draws[fine], means[fine]
        squares = (draws * ((signs / means) @ parts.T) ** 2).sum(axis=1)
        errors = np.sqrt(squares / (count * (count - 1)))
        lower, upper = _pivots(np.log(means) @ signs, errors, error, tail, student)
    # After many looks a level can be so high that a bound is beyond every number.
    low, high = (centre * math.exp(min(-bound * error, 700.0)) for bound in (upper, lower))
    return Estimate(value, min(low, value), max(high, value) if high < 1e300 else math.inf, level)


# ---------------------------------------------------------------------------------------------------- early looks


class Sequential:
    """A test of the mean of differences in [-1, 1] that stays valid however often one looks and whenever one stops.

    It bets against each possible mean: by Ville's inequality the wealth against the true one reaches 1/a with a chance
    of at most a, over all looks together. The interval holds every mean whose wealth stayed below. With the scope
    "cases", a value is the mean of a case over the rounds so far, and the claim is about the tasks that the cases are a
    sample of; with "suite" it is a pair, and the claim is about these very cases. A pair that is not known (NaN) then
    counts against every claim: as -1 against a mean above, as 1 against a mean below.
    """

    def __init__(self, scope: Scope = "cases") -> None:
        self.scope: Scope = scope
        self.rounds = 0
        self._case_sums: dict[str, tuple[float, int]] = {}
        self.looks: list[
            tuple[Floats, Floats]
        ] = []  # the values of x at each look and how often each occurs
        self.highs: list[
            tuple[Floats, Floats]
        ] = []  # the same with 1 for what is not known, which `looks` has as -1
        self._pairs: tuple[dict[float, int], dict[float, int]] = ({}, {})

    def update(self, differences: Mapping[str, float | Sequence[float]]) -> None:
        for case in sorted(differences):
            of_case: list[float] = np.atleast_1d(
                np.asarray(differences[case], dtype=np.float64)
            ).tolist()
            if any(not (-1.0 <= value <= 1.0 or math.isnan(value)) for value in of_case):
                raise ValueError(f"case {case}: a difference must be between -1 and 1")
            if self.rounds and case not in self._case_sums and self.scope == "cases":
                continue  # a latecomer would break the reversal in time that makes looking legal
            total, count = self._case_sums.get(case, (0.0, 0))
            if of_case:
                self._case_sums[case] = total + math.fsum(of_case), count + len(of_case)
            for pairs, unknown in zip(self._pairs, (-1.0, 1.0), strict=True):
                for value in (unknown if math.isnan(value) else value for value in of_case):
                    pairs[value] = pairs.get(value, 0) + 1
        if self.scope == "suite":
            low, high = (_tally(pairs) for pairs in self._pairs)
        else:
            low = high = _tally(
                Counter(round(total / count, 12) for total, count in self._case_sums.values())
            )
        if self._case_sums:
            self.rounds += 1
            self.looks.append(low)
            self.highs.append(high)

    @property
    def p_value(self) -> float:
        """One over the largest wealth of any look: a p-value that may be looked at as often as one likes."""
        return math.exp(-max([0.0, *map(log_wealth, self.looks, self.highs)]))

    def log_e_value(self, mean: float, *, above: bool, times: float = 1.0) -> float:
        """The logarithm of the wealth so far from betting that the true mean is above this one, or below it.

        Where it is not, the wealth is expected to be at most 1 whenever one stops: an e-value. `times`: what it would
        be with so many times the rounds, all like those so far.
        """
        if not self.looks:
            return 0.0
        values, counts = self.looks[-1] if above else self.highs[-1]
        counts = counts * times
        return _wealth(values, counts, mean) if above else _wealth(-values, counts, -mean)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The means that no look so far has ruled out. Over all looks together it is wrong with chance 1 - level."""
        limit = math.log(2.0 / (1.0 - level))
        low = max(
            (_lower_bound(values, counts, limit) for values, counts in self.looks), default=-1.0
        )
        high = min(
            (-_lower_bound(-values[::-1], counts[::-1], limit) for values, counts in self.highs),
            default=1.0,
        )
        # The looks may contradict each other, though no more often than the interval may be wrong at all.
        return (low, high) if low <= high else (0.5 * (low + high), 0.5 * (low + high))


def _tally(values: Mapping[float, int]) -> tuple[Floats, Floats]:
    support = sorted(values)
    return np.array(support, dtype=np.float64), np.array(
        [values[value] for value in support], dtype=np.float64
    )


def log_wealth(low: tuple[Floats, Floats], high: tuple[Floats, Floats]) -> float:
    """Of a bet on both sides of 0."""
    up, down = _wealth(*low, 0.0), _wealth(-high[0], high[1], 0.0)
    return float(np.logaddexp(up, down)) - math.log(2.0)


@cache
def bets() -> Floats:
    """As fractions of what may be risked, dense at both ends: small ones for small lifts, bold ones for large."""
    return np.sin((np.arange(32) + 0.5) * math.pi / 64) ** 2


def _wealth(values: Floats, counts: Floats, mean: float) -> float:
    """The logarithm of the wealth of betting that the true mean is above this one."""
    share = (1.0 + values) / (1.0 + mean) if mean > -1.0 else np.where(values > -1.0, np.inf, 1.0)
    with np.errstate(divide="ignore"):
        grown = np.log((1.0 - bets())[:, np.newaxis] + bets()[:, np.newaxis] * share) @ counts
    top = float(grown.max())
    return top if math.isinf(top) else top + math.log(float(np.exp(grown - top).mean()))


def _lower_bound(values: Floats, counts: Floats, limit: float) -> float:
    return _bound_of(tuple(values.tolist()), tuple(counts.tolist()), limit)


@lru_cache(maxsize=4096)  # every look asks for those of all looks before it
def _bound_of(support: tuple[float, ...], tally: tuple[float, ...], limit: float) -> float:
    """The smallest mean that the wealth does not rule out: the wealth falls as the mean rises, so halve and halve."""
    values, counts = np.array(support), np.array(tally)
    low, high = -1.0, float((values * counts).sum() / counts.sum())
    if high <= -1.0:
        return -1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _wealth(values, counts, middle) >= limit else (low, middle)
    return low
