"""A Firing says how readily a skill is opened, for one model: on which queries, precision, recall; arithmetic only.

A query's trigger rate is the share of its runs in which the skill was opened; errored runs are left out. Every query
weighs the same, however many of its runs were scored. Assumed is that the queries of each kind are a random sample of
what people ask, independent of one another; runs of one query may depend on each other in any way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from upskill.suites.queries import Part, Queries, Query
from upskill.verdicts import statistics
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate
from upskill.verdicts.verdict import MAX_ERROR_RATE

LEVEL = 0.95
SIDE = 0.5  # a trigger rate has to be above it, or below it
QUANTITIES = ("precision", "recall", "accuracy", "false_triggers")


@dataclass(frozen=True, slots=True)
class Rate:
    """What became of one query."""

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
        """Wilson's, for this query were it run for ever: it says nothing about other queries."""
        return statistics.wilson(self.triggered, self.scored, level=LEVEL)

    @property
    def right(self) -> bool | None:
        """Whether the trigger rate is on the right side of a half; exactly a half is on neither."""
        if self.value is None:
            return None
        return self.value > SIDE if self.query.should_trigger else self.value < SIDE

    @property
    def correct(self) -> float | None:
        """The share of runs that did what they should."""
        if self.value is None:
            return None
        return self.value if self.query.should_trigger else 1.0 - self.value


@dataclass(frozen=True)
class Firing:
    """What it came to over all queries. An estimate is None where no run that it needs was scored."""

    model: str
    rates: tuple[Rate, ...]
    recall: Estimate | None  # of the queries that should trigger, how often they do
    false_triggers: Estimate | None  # of those that should not, how often they do
    precision: Estimate | None  # of the times it fired, how often rightly: in the mix of kinds that the queries have
    accuracy: Estimate | None

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
    def right(self) -> int:
        return sum(rate.right is True for rate in self.rates)

    @property
    def score(self) -> float | None:
        """The mean of recall and of the share of silence where silence is due: both kinds count the same."""
        if self.recall is None or self.false_triggers is None:
            return None
        return round(0.5 * (self.recall.value + 1.0 - self.false_triggers.value), 9)

    def measured(self, quantity: str) -> Estimate | None:
        estimates: Mapping[str, Estimate | None] = {name: getattr(self, name) for name in QUANTITIES}
        return estimates[quantity]

    def plain(self) -> dict[str, Any]:
        return {
            "model": self.model,
            **{name: plain_estimate(self.measured(name)) for name in QUANTITIES},
            "score": self.score,
            "right": self.right,
            "scored": self.scored,
            "errored": self.errored,
            "queries": [
                {
                    **rate.query.plain(),
                    "part": rate.part,
                    "triggered": rate.triggered,
                    "runs": rate.scored,
                    "errored": rate.errored,
                    "rate": None if rate.value is None else round(rate.value, 6),
                    "interval": [round(bound, 6) for bound in rate.interval],
                    "right": rate.right,
                }
                for rate in self.rates
            ],
        }


def plain_estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"value": round(estimate.value, 6) + 0.0, "interval": [round(bound, 6) + 0.0 for bound in estimate.interval]}


def compute_firing(model: str, queries: Queries, outcomes: Iterable[Outcome]) -> Firing:
    """What the outcomes of one model say about these queries."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.model == model:
            rows.setdefault(outcome.case, []).append(outcome)
    rates = tuple(_rate(query, queries.parts[query.text], rows.get(query.id, [])) for query in queries)
    fires = _share(rate for rate in rates if rate.query.should_trigger)
    misfires = _share(rate for rate in rates if not rate.query.should_trigger)
    counted = [rate for rate in rates if rate.scored]
    due = sum(rate.query.should_trigger for rate in counted)
    return Firing(
        model,
        rates,
        fires,
        misfires,
        _precision(due, fires, len(counted) - due, misfires),
        _accuracy(due, fires, len(counted) - due, misfires),
    )


def compare(before: Iterable[Outcome], after: Iterable[Outcome]) -> tuple[Estimate, float] | None:
    """How much more often the second did what it should, paired by query and seed, and how sure that is (two-sided)."""
    old, new = ({(row.case, row.seed): row.passed for row in rows} for rows in (before, after))
    keys = sorted(key for key in old.keys() & new.keys() if old[key] is not None and new[key] is not None)
    if not keys:
        return None
    differences = [float(bool(new[key])) - float(bool(old[key])) for key in keys]
    labels = [query for query, _ in keys]
    return statistics.paired_lift(differences, labels, level=LEVEL), statistics.sign_flip(differences, labels)


def _rate(query: Query, part: Part, rows: list[Outcome]) -> Rate:
    scored = [row for row in rows if row.passed is not None]
    return Rate(query, part, sum(row.activated is True for row in scored), len(scored), len(rows) - len(scored))


def _share(rates: Iterable[Rate]) -> Estimate | None:
    """The mean trigger rate of queries, with Wilson's interval on the effective number of runs."""
    scored = [rate for rate in rates if rate.value is not None]
    if not scored:
        return None
    fired = [run < rate.triggered for rate in scored for run in range(rate.scored)]
    labels = [number for number, rate in enumerate(scored) for _ in range(rate.scored)]
    effective = statistics.effective_trials(fired, labels)
    mean = math.fsum(rate.value or 0.0 for rate in scored) / len(scored)
    return Estimate(mean, *statistics.wilson(mean * effective, effective, level=LEVEL), LEVEL)


def _accuracy(due: int, fires: Estimate | None, not_due: int, misfires: Estimate | None) -> Estimate | None:
    """The share of queries' runs that did what they should, from the two independent shares that it is made of."""
    if fires is None or misfires is None:
        return fires or (Estimate(1 - misfires.value, 1 - misfires.high, 1 - misfires.low, LEVEL) if misfires else None)
    one, two = due / (due + not_due), not_due / (due + not_due)
    value = one * fires.value + two * (1.0 - misfires.value)
    below = math.hypot(one * (fires.value - fires.low), two * (misfires.high - misfires.value))
    above = math.hypot(one * (fires.high - fires.value), two * (misfires.value - misfires.low))
    return Estimate(value, max(0.0, value - below), min(1.0, value + above), LEVEL)


def _precision(due: int, fires: Estimate | None, not_due: int, misfires: Estimate | None) -> Estimate | None:
    """due * fires / (due * fires + not_due * misfires), and the values that its parts do not rule out.

    p is the precision exactly where (1 - p) * due * fires = p * not_due * misfires. It is ruled out where zero lies
    outside of the interval of the difference of the two sides, which is recovered from the intervals of the two
    independent shares (Zou and Donner's MOVER; for a ratio it is what Fieller does). Never a point, not even where
    nothing fired wrongly.
    """
    if fires is None or misfires is None:
        return None
    rightly, wrongly = due * fires.value, not_due * misfires.value
    if rightly + wrongly == 0.0:
        return None  # it never fired
    value = rightly / (rightly + wrongly)

    def least(p: float) -> float:
        spread = math.hypot((1 - p) * due * (fires.value - fires.low), p * not_due * (misfires.high - misfires.value))
        return (1 - p) * rightly - p * wrongly - spread

    def most(p: float) -> float:
        spread = math.hypot((1 - p) * due * (fires.high - fires.value), p * not_due * (misfires.value - misfires.low))
        return (1 - p) * rightly - p * wrongly + spread

    low = _border(0.0, value, lambda p: least(p) > 0)
    high = _border(1.0, value, lambda p: most(p) < 0)
    return Estimate(value, min(low, value), max(high, value), LEVEL)


def _border(outer: float, inner: float, ruled_out: Callable[[float], bool]) -> float:
    """Between a value that may be ruled out and one that is not, where that changes."""
    if not ruled_out(outer):
        return outer
    for _ in range(60):
        middle = 0.5 * (outer + inner)
        outer, inner = (middle, inner) if ruled_out(middle) else (outer, middle)
    return inner
