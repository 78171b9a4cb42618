"""Trigger metrics: how readily a model opens a skill, query by query and as precision and recall.

A query's trigger rate is the share of its scored runs in which the skill was opened. Every query weighs the same.
Queries of a kind count as an independent random sample of what people ask; runs of one query may be dependent. So
intervals are about queries, whose rates may lie anywhere between 0 and 1: see `mean_share`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from upskill.suites.queries import Part, Queries, Query
from upskill.verdicts.interval import (
    CaseGroups,
    Estimate,
    chance_of_less,
    mean_share,
    paired_lift,
    rounded,
    rounded_interval,
)
from upskill.verdicts.outcome import Outcome

LEVEL = 0.95
MAX_ERROR_RATE = 0.10  # share of the runs that may error before nothing can be decided
THRESHOLD = 0.5  # the trigger rate of a query should be above it where the skill is needed, and below it elsewhere
QUANTITIES = ("precision", "recall", "accuracy", "false_triggers")
MAX_QUERIES_NAMED = 500  # more are not suggested


@dataclass(frozen=True, slots=True)
class QueryRate:
    """The runs of one query."""

    query: Query
    part: Part
    triggered: int
    scored: int
    errored: int

    @property
    def value(self) -> float | None:
        return self.triggered / self.scored if self.scored else None

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's, for further runs of this query. It says nothing about other queries."""
        return _clopper_pearson(self.triggered, self.scored)

    @property
    def as_expected(self) -> bool | None:
        """Whether the trigger rate is on the right side of THRESHOLD; a rate of exactly that is on neither."""
        if self.value is None:
            return None
        return self.value > THRESHOLD if self.query.should_trigger else self.value < THRESHOLD

    @property
    def accuracy(self) -> float | None:
        if self.value is None:
            return None
        return self.value if self.query.should_trigger else 1.0 - self.value

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.query.to_dict(),
            "part": self.part,
            "triggered": self.triggered,
            "runs": self.scored,
            "errored": self.errored,
            "rate": rounded(self.value),
            "interval": rounded_interval(self.interval),
            "right": self.as_expected,
        }


@dataclass(frozen=True)
class TriggerMetrics:
    """All queries of one model. An estimate is None where none of the runs that it needs was scored."""

    model: str
    rates: tuple[QueryRate, ...]
    recall: Estimate | None  # mean trigger rate of the queries that should trigger
    false_triggers: Estimate | None  # mean trigger rate of those that should not
    precision: (
        Estimate | None
    )  # share of triggers that were right, in the mix of kinds that the queries have
    accuracy: Estimate | None  # share of runs that did what they should

    @property
    def scored(self) -> int:
        return sum(rate.scored for rate in self.rates)

    @property
    def errored(self) -> int:
        return sum(rate.errored for rate in self.rates)

    @property
    def too_many_errors(self) -> bool:
        """Over a tenth of the runs errored, or nothing was run."""
        return not self.scored or self.errored > MAX_ERROR_RATE * (self.scored + self.errored)

    @property
    def as_expected(self) -> int:
        return sum(rate.as_expected is True for rate in self.rates)

    @property
    def score(self) -> float | None:
        """The mean of recall and of 1 - false triggers: both kinds of query count the same."""
        if self.recall is None or self.false_triggers is None:
            return None
        return round(0.5 * (self.recall.value + 1.0 - self.false_triggers.value), 9)

    def estimate(self, quantity: str) -> Estimate | None:
        """One of QUANTITIES."""
        assert quantity in QUANTITIES
        return getattr(self, quantity)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            **{
                quantity: estimate.to_dict() if (estimate := self.estimate(quantity)) else None
                for quantity in QUANTITIES
            },
            "score": self.score,
            "right": self.as_expected,
            "scored": self.scored,
            "errored": self.errored,
            "queries": [rate.to_dict() for rate in self.rates],
        }


def compute_trigger_metrics(
    model: str, queries: Queries, outcomes: Iterable[Outcome]
) -> TriggerMetrics:
    triggered, scored_runs, errored = Counter[str](), Counter[str](), Counter[str]()
    for outcome in outcomes:
        if outcome.model == model:
            scored_runs[outcome.case] += outcome.passed is not None
            errored[outcome.case] += outcome.passed is None
            triggered[outcome.case] += outcome.passed is not None and outcome.activated is True
    rates = tuple(
        QueryRate(
            query,
            queries.parts[query.text],
            triggered[query.id],
            scored_runs[query.id],
            errored[query.id],
        )
        for query in queries
    )
    scored = [rate for rate in rates if rate.scored]
    right = [rate.value or 0.0 for rate in scored if rate.query.should_trigger]
    wrong = [rate.value or 0.0 for rate in scored if not rate.query.should_trigger]
    return TriggerMetrics(
        model,
        rates,
        _mean_rate(right),
        _mean_rate(wrong),
        _precision(right, wrong),
        _mean_rate([*right, *(1.0 - rate for rate in wrong)]),
    )


@dataclass(frozen=True, slots=True)
class PairedChange:
    """The change in accuracy, paired by query and seed. Errored runs count against the change."""

    estimate: Estimate
    p_value: float  # two-sided, flipping the signs of whole queries
    further_queries: (
        int | None
    )  # that would show it, if what was seen is typical; None: it is shown, or no gain

    @property
    def is_better(self) -> bool:
        return self.estimate.low > 0


def paired_change(
    before: Iterable[Outcome], after: Iterable[Outcome], *, level: float
) -> PairedChange | None:
    """None where no query was run before and after."""
    old, new = ({(row.case, row.seed): row.passed for row in rows} for rows in (before, after))
    keys = sorted(old.keys() & new.keys())
    if not keys:
        return None
    differences = [float(new[key] is True) - float(old[key] is not False) for key in keys]
    labels = [query for query, _ in keys]
    change = paired_lift(differences, labels, level=level)
    means = sorted(CaseGroups.of(labels).means(differences).tolist())
    further = _further_queries(means, level) if change.value > 0 >= change.low else None
    return PairedChange(change, _sign_flip_p_value(differences, labels), further)


def _sign_flip_p_value(differences: Sequence[float], queries: Sequence[str]) -> float:
    """Two-sided p-value of "both are alike", flipping the sign of whole queries."""
    sums = np.abs(CaseGroups.of(queries).sums(differences).astype(np.int64))
    reach = int(sums.sum())
    chance = np.zeros(2 * reach + 1)  # of each sum from -reach to reach
    chance[reach] = 1.0
    for step in sums[sums != 0].tolist():
        chance = 0.5 * (np.roll(chance, step) + np.roll(chance, -step))
    far = abs(round(math.fsum(differences)))
    return min(1.0, float(chance[: reach - far + 1].sum() + chance[reach + far :].sum()))


def _further_queries(means: Sequence[float], level: float) -> int | None:
    """About how many more that come out like these would show the change."""
    count = len(means)
    while (count := max(count + 1, round(1.1 * count))) <= MAX_QUERIES_NAMED:
        alike = [means[number * len(means) // count] for number in range(count)]
        if paired_lift(alike, range(count), level=level).low > 0:
            return count - len(means)
    return None


def min_queries(level: float) -> int:
    """How many queries it takes for a change to be shown, if it fixes every one of them."""
    return next(n for n in count(2) if paired_lift([1.0] * n, range(n), level=level).low > 0)


def _mean_rate(rates: Sequence[float]) -> Estimate | None:
    return mean_share(rates, level=LEVEL) if rates else None


@cache
def _clopper_pearson(triggered: int, runs: int) -> tuple[float, float]:
    estimate = _mean_rate([1.0] * triggered + [0.0] * (runs - triggered))
    return estimate.interval if estimate else (0.0, 1.0)


def _precision(right: Sequence[float], wrong: Sequence[float]) -> Estimate | None:
    """Precision, with every value that is not ruled out; the rates are those of queries that should and should not.

    Precision is p where the mean of (1 - p) * right and -p * wrong over all queries is 0. So p is ruled out where 0
    lies outside Gaffke's bounds of that mean.
    """
    if not right or not wrong or not (total := math.fsum(right) + math.fsum(wrong)):
        return None  # it never triggered, or could not have been right, or wrong
    value = math.fsum(right) / total
    counts = np.ones((1, len(right) + len(wrong)))

    def is_ruled_out(p: float, side: float) -> bool:
        values = (
            2.0
            * (
                np.array([*((1.0 - p) * rate for rate in right), *(-p * rate for rate in wrong)])
                + p
            )
            - 1.0
        )
        chance = chance_of_less(side * values, counts, 1.0, side * (2.0 * p - 1.0))
        return float(chance[0]) < 0.5 * (1.0 - LEVEL)

    low = _bisect(0.0, value, lambda p: is_ruled_out(p, 1.0))
    high = _bisect(1.0, value, lambda p: is_ruled_out(p, -1.0))
    return Estimate(value, min(low, value), max(high, value), LEVEL)


def _bisect(outer: float, inner: float, ruled_out: Callable[[float], bool]) -> float:
    """The value between `outer` and `inner`, which is not ruled out, from which on nothing is ruled out."""
    if not ruled_out(outer):
        return outer
    for _ in range(25):
        middle = 0.5 * (outer + inner)
        outer, inner = (middle, inner) if ruled_out(middle) else (outer, middle)
    return inner
