"""A test that may be looked at while a run goes on, by betting. `docs/statistics.md` says why that is legal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from upskill.verdicts.lazy_numpy import Floats, np
from upskill.verdicts.outcome import Scope
from upskill.verdicts.statistics import check_level


class Sequential:
    """A test of the mean of differences in [-1, 1] that stays valid however often one looks and whenever one stops.

    It bets against each possible mean m: wealth is multiplied by 1 + bet * (x - m) for every x, averaged over 32 sizes
    of bet in either direction. If m is the true mean the wealth hardly ever grows: by Ville's inequality it reaches
    1/a with a chance of at most a, over all looks together. The interval holds every m whose wealth stayed below.

    What x is, and so what is assumed and claimed, is the scope:

    "cases"  x is the mean of a case over the rounds so far. Claims something about the tasks the cases are a random
             sample of. Assumes independent cases and, within a case, rounds in exchangeable order; the cases are those
             of the first update. More rounds sharpen the case means and can never replace more cases.
    "suite"  x is a pair. Claims something about these very cases, were they run for ever, and nothing about others.
             Assumes pairs independent given their case, and that every update is a whole round: each case once (or
             equally often). A pair lost to an error leaves its case with less weight; nothing else changes.
    """

    def __init__(self, scope: Scope = "cases") -> None:
        self.scope: Scope = scope
        self.rounds = 0
        self._seen: dict[str, tuple[float, int]] = {}
        self._looks: list[tuple[Floats, Floats]] = []  # the values of x at each look and how often each occurs
        self._pairs: dict[float, int] = {}

    def update(self, differences: Mapping[str, float | Sequence[float]]) -> None:
        """Add a round: of each case its difference, or several."""
        for case in sorted(differences):
            given = differences[case]
            values = [float(given)] if isinstance(given, (int, float)) else [float(value) for value in given]
            if any(not -1.0 <= value <= 1.0 for value in values):
                raise ValueError(f"case {case}: a difference lies between -1 and 1")
            if self.rounds and case not in self._seen and self.scope == "cases":
                continue  # a latecomer would break the reversal in time that makes looking legal
            total, count = self._seen.get(case, (0.0, 0))
            if values:
                self._seen[case] = total + math.fsum(values), count + len(values)
            for value in values:
                self._pairs[value] = self._pairs.get(value, 0) + 1
        if self.scope == "suite":
            support = sorted(self._pairs)
            counts = np.array([self._pairs[value] for value in support], dtype=np.float64)
            values = np.array(support, dtype=np.float64)
        else:
            means = [round(total / count, 12) for total, count in self._seen.values()]
            values, tally = np.unique(np.array(means, dtype=np.float64), return_counts=True)
            counts = tally.astype(np.float64)
        if self._seen:
            self.rounds += 1
            self._looks.append((values, counts))

    @property
    def value(self) -> float | None:
        """The mean so far; None before anything was seen."""
        if not self._looks:
            return None
        values, counts = self._looks[-1]
        return float((values * counts).sum() / counts.sum())

    @property
    def e_value(self) -> float:
        """The wealth against "no lift" at the latest look: 1 says nothing, 20 would be a surprise of one in twenty."""
        if not self._looks:
            return 1.0
        values, counts = self._looks[-1]
        up, down = _wealth(values, counts, 0.0), _wealth(-values, counts, 0.0)
        return float(np.exp(min(700.0, float(np.logaddexp(up, down)) - math.log(2.0))))

    @property
    def p_value(self) -> float:
        """One over the largest wealth of any look: a p-value that may be looked at as often as one likes."""
        best = 0.0
        for values, counts in self._looks:
            up, down = _wealth(values, counts, 0.0), _wealth(-values, counts, 0.0)
            best = max(best, float(np.logaddexp(up, down)) - math.log(2.0))
        return math.exp(-best)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The means that no look so far has ruled out. Over all looks together it is wrong with chance 1 - level."""
        check_level(level)
        limit = math.log(2.0 / (1.0 - level))
        low = max((_lower_bound(values, counts, limit) for values, counts in self._looks), default=-1.0)
        high = min((-_lower_bound(-values[::-1], counts[::-1], limit) for values, counts in self._looks), default=1.0)
        # The looks may contradict each other, though no more often than the interval may be wrong at all.
        return (low, high) if low <= high else (0.5 * (low + high), 0.5 * (low + high))


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
    """The smallest mean that the wealth does not rule out: the wealth falls as the mean rises, so halve and halve."""
    low, high = -1.0, float((values * counts).sum() / counts.sum())
    if high <= -1.0:
        return -1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _wealth(values, counts, middle) >= limit else (low, middle)
    return low
