"""How well people agree with a check or a judge, beyond chance: Cohen's kappa with an interval.

The interval is a Bayesian bootstrap over cases (ratings of one case are one draw), with Jeffreys' prior: two made-up
ratings that keep a few marks which all agree from looking like certainty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from upskill.verdicts.statistics import rounded, rounded_interval

LEVEL = 0.95
DRAWS = 4_000
PRIOR = 0.5  # of a rating, for each of the four ways


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a person and a check said the same of an answer."""

    both_pass: int
    only_person: int  # the person calls it right, the check fails it
    only_check: int  # the check passes it, the person calls it wrong
    both_fail: int
    kappa: (
        float | None
    )  # None: one rating is too few; or both always say the same one thing, as chance alone would
    interval: tuple[float, float] | None  # None: fewer than two ratings
    cases: int

    @property
    def ratings(self) -> int:
        return self.both_pass + self.only_person + self.only_check + self.both_fail

    @property
    def agreed(self) -> int:
        return self.both_pass + self.both_fail

    def to_dict(self) -> dict[str, Any]:
        return {
            "ratings": self.ratings,
            "cases": self.cases,
            "agreed": self.agreed,
            "passed_but_wrong": self.only_check,
            "failed_but_right": self.only_person,
            "kappa": rounded(self.kappa),
            "interval": rounded_interval(self.interval),
            "level": LEVEL,
        }


def measure_agreement(ratings: Iterable[tuple[str, bool, bool]]) -> Agreement:
    """Each rating: the case, whether a person calls the answer right, and whether the check passed it."""
    by_case: dict[str, np.ndarray[Any, Any]] = {}
    for case, right, passed in ratings:
        table = by_case.setdefault(case, np.zeros(4))
        table[(0 if passed else 1) if right else (2 if passed else 3)] += 1
    tables = np.array(list(by_case.values())).reshape(-1, 4)
    total = tables.sum(axis=0)
    kappa = _kappa(total[None, :])[0]
    return Agreement(
        *(int(count) for count in total),
        kappa=None if np.isnan(kappa) or total.sum() < 2 else float(kappa),
        interval=_interval(tables, kappa) if total.sum() > 1 else None,
        cases=len(tables),
    )


def _kappa(tables: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of each table: both pass, only the person, only the check, both fail."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = tables / tables.sum(axis=1, keepdims=True)
        both, person, check, neither = shares.T
        observed = both + neither
        expected = (both + person) * (both + check) + (check + neither) * (person + neither)
        return np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)


def _interval(tables: np.ndarray[Any, Any], kappa: float) -> tuple[float, float]:
    draw = np.random.default_rng(0)  # the same marks, the same interval
    weights = draw.gamma(1.0, size=(DRAWS, len(tables)))
    drawn = _kappa(weights @ tables + draw.gamma(PRIOR, size=(DRAWS, 4)))
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.fmin(low, kappa)), float(np.fmax(high, kappa))
