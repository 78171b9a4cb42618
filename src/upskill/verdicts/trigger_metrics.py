"""Trigger metrics: how readily a model opens a skill, query by query and as precision and recall.

A query's trigger rate is the share of its scored runs in which the skill was opened. Every query weighs the same.
Queries of a kind are taken for an independent random sample of what people ask; runs of one query may be dependent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from upskill.suites.queries import Part, Queries, Query
from upskill.verdicts import statistics
from upskill.verdicts.arms import MAX_ERROR_RATE
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate, rounded, rounded_interval

FIRES = "fires"  # the check of a case that is a query
LEVEL = 0.95
THRESHOLD = 0.5  # the trigger rate of a query should be above it where the skill is needed, and below it elsewhere
QUANTITIES = ("precision", "recall", "accuracy", "false_triggers")


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
        """Wilson's interval for further runs of this query. It says nothing about other queries."""
        return statistics.wilson_interval(self.triggered, self.scored, level=LEVEL)

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
    precision: Estimate | None  # share of triggers that were right, in the mix of kinds that the queries have
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


def compute_trigger_metrics(model: str, queries: Queries, outcomes: Iterable[Outcome]) -> TriggerMetrics:
    triggered, scored_runs, errored = Counter[str](), Counter[str](), Counter[str]()
    for outcome in outcomes:
        if outcome.model == model:
            scored_runs[outcome.case] += outcome.passed is not None
            errored[outcome.case] += outcome.passed is None
            triggered[outcome.case] += outcome.passed is not None and outcome.activated is True
    rates = tuple(
        QueryRate(query, queries.parts[query.text], triggered[query.id], scored_runs[query.id], errored[query.id])
        for query in queries
    )
    recall = _mean_rate(rate for rate in rates if rate.query.should_trigger)
    false_triggers = _mean_rate(rate for rate in rates if not rate.query.should_trigger)
    scored = [rate for rate in rates if rate.scored]
    positives = sum(rate.query.should_trigger for rate in scored)
    negatives = len(scored) - positives
    return TriggerMetrics(
        model,
        rates,
        recall,
        false_triggers,
        _precision(positives, recall, negatives, false_triggers),
        _accuracy(positives, recall, negatives, false_triggers),
    )


def paired_change(before: Iterable[Outcome], after: Iterable[Outcome]) -> tuple[Estimate, float] | None:
    """The change in accuracy, paired by query and seed, and its p-value; None where no query has a score in both."""
    old, new = ({(row.case, row.seed): row.passed for row in rows} for rows in (before, after))
    keys = sorted(key for key in old.keys() & new.keys() if old[key] is not None and new[key] is not None)
    if not keys:
        return None
    differences = [float(bool(new[key])) - float(bool(old[key])) for key in keys]
    labels = [query for query, _ in keys]
    return statistics.paired_lift(differences, labels, level=LEVEL), statistics.sign_flip_p_value(differences, labels)


def _mean_rate(rates: Iterable[QueryRate]) -> Estimate | None:
    """With Wilson's interval on the effective number of runs."""
    scored = [rate for rate in rates if rate.value is not None]
    if not scored:
        return None
    triggered = [run < rate.triggered for rate in scored for run in range(rate.scored)]
    labels = [number for number, rate in enumerate(scored) for _ in range(rate.scored)]
    effective = statistics.effective_trials(triggered, labels)
    mean = math.fsum(rate.value or 0.0 for rate in scored) / len(scored)
    return Estimate(mean, *statistics.wilson_interval(mean * effective, effective, level=LEVEL), LEVEL)


def _accuracy(
    positives: int, recall: Estimate | None, negatives: int, false_triggers: Estimate | None
) -> Estimate | None:
    if false_triggers is None:
        return recall
    if recall is None:
        return Estimate(1 - false_triggers.value, 1 - false_triggers.high, 1 - false_triggers.low, LEVEL)
    p_share, n_share = positives / (positives + negatives), negatives / (positives + negatives)
    value = p_share * recall.value + n_share * (1.0 - false_triggers.value)
    below = math.hypot(p_share * (recall.value - recall.low), n_share * (false_triggers.high - false_triggers.value))
    above = math.hypot(p_share * (recall.high - recall.value), n_share * (false_triggers.value - false_triggers.low))
    return Estimate(value, max(0.0, value - below), min(1.0, value + above), LEVEL)


def _precision(
    positives: int, recall: Estimate | None, negatives: int, false_triggers: Estimate | None
) -> Estimate | None:
    """Precision, with every value that is not ruled out.

    p is ruled out where zero lies outside the interval of (1 - p) * positives * recall - p * negatives *
    false_triggers, which follows from the intervals of the two independent shares (MOVER, by Zou and Donner).
    """
    if recall is None or false_triggers is None:
        return None
    right, wrong = positives * recall.value, negatives * false_triggers.value
    if right + wrong == 0.0:
        return None  # it never triggered
    value = right / (right + wrong)

    def is_ruled_out(p: float, recall_spread: float, false_spread: float) -> bool:
        spread = math.hypot((1 - p) * positives * recall_spread, p * negatives * false_spread)
        return abs((1 - p) * right - p * wrong) > spread

    down = recall.value - recall.low, false_triggers.high - false_triggers.value
    up = recall.high - recall.value, false_triggers.value - false_triggers.low
    low = _bisect(0.0, value, lambda p: is_ruled_out(p, *down))
    high = _bisect(1.0, value, lambda p: is_ruled_out(p, *up))
    return Estimate(value, min(low, value), max(high, value), LEVEL)


def _bisect(outer: float, inner: float, ruled_out: Callable[[float], bool]) -> float:
    """The value between `outer` and `inner`, which is not ruled out, from which on nothing is ruled out."""
    if not ruled_out(outer):
        return outer
    for _ in range(60):
        middle = 0.5 * (outer + inner)
        outer, inner = (middle, inner) if ruled_out(middle) else (outer, middle)
    return inner
