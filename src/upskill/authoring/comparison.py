"""The gate of a search: is a candidate better than the best so far, or just lucky?

A Comparison is a one-sided sign-flip test, case by case, on the same train cases and seeds. A search makes at most K
comparisons and each is held to ALPHA / K, so the chance that it ever replaces a skill by one that is no better is at
most ALPHA, however the candidates were chosen and however they depend on each other (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from upskill.plain import counted
from upskill.verdicts import statistics
from upskill.verdicts.missing import MAX_ERROR_RATE
from upskill.verdicts.outcome import Outcome

ALPHA = 0.10  # the chance that a whole search accepts something that is no better


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against the best so far, over the train trials that both have a score for."""

    better: int  # cases
    worse: int
    same: int
    change: float  # in the pass rate
    p_value: float  # one-sided, of being no better than before
    level: float
    errored: int = 0  # trials

    @property
    def accepted(self) -> bool | None:
        """None: too many trials errored to decide."""
        pairs = self.better + self.worse + self.same
        if not pairs or self.errored > MAX_ERROR_RATE * (pairs + self.errored):
            return None
        return self.change > 0 and self.p_value <= self.level

    @property
    def summary(self) -> str:
        counts = f"{counted(self.better, 'case')} better, {self.worse} worse, {self.same} the same"
        if self.accepted is None:
            return f"{counted(self.errored, 'trial')} errored, too many to say anything"
        p_value = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        return f"{counts} ({p_value}, at most {self.level:.3f} is accepted)"


def compare(before: Iterable[Outcome], after: Iterable[Outcome], level: float) -> Comparison:
    """Pair the trials with the skill of two evaluations by case and seed, and test whether the second is better."""
    old, new = (
        {(row.case, row.seed): row.passed for row in rows if row.arm == "skill"} for rows in (list(before), list(after))
    )
    keys = sorted(key for key in old.keys() & new.keys() if old[key] is not None and new[key] is not None)
    errored = sum(passed is None for passed in [*old.values(), *new.values()])
    differences = [float(bool(new[key])) - float(bool(old[key])) for key in keys]
    by_case: dict[str, list[float]] = {}
    for (case, _), difference in zip(keys, differences, strict=True):
        by_case.setdefault(case, []).append(difference)
    means = [sum(values) / len(values) for values in by_case.values()]
    change = sum(means) / len(means) if means else 0.0
    # The flips are symmetric, so the one-sided p-value is half of the two-sided one.
    p_value = statistics.sign_flip_p_value(differences, [case for case, _ in keys]) / 2 if change > 0 else 1.0
    better, worse = sum(mean > 0 for mean in means), sum(mean < 0 for mean in means)
    return Comparison(better, worse, len(means) - better - worse, change, p_value, level, errored)


def affordable_attempts(attempts: int, comparisons_before: int, cases: int, alpha: float = ALPHA) -> int:
    """How many attempts leave a level that the gate can reach: on few cases no test can be that sure."""
    while attempts and 0.5**cases > alpha / (attempts + comparisons_before):
        attempts -= 1
    return attempts
