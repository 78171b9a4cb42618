"""Compares a candidate with the best so far, and at the end of a search the last skill with the first.

Gains on train cases are provisional. One confirmation on fresh seeds decides; it is wrong in at most ALPHA of all
searches (`docs/statistics.md`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, comb
from typing import Literal

from upskill.authoring.search.refiners import Proposal
from upskill.plain import counted
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Candidate
from upskill.skills import Skill
from upskill.verdicts.arms import MAX_ERROR_RATE
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import paired_lift

ALPHA = 0.05  # the chance that a search calls a skill better that is no better
FIRST_LOOK, LAST_LOOK = 0.01, 0.04  # of ALPHA: half-way through the confirmation, and at its end
CONFIRMING_PAIRS = 96  # about: enough to see a gain of 20 points four times in five
MAX_ROUNDS = 12  # of the confirmation, on few cases
SECOND_LOOK_PAIRS = 24  # about, for a candidate of which one look says too little
HOPELESS = 0.25  # a candidate that is worse with a p-value of at most this gets no second look
MARGIN = 0.10  # old cases may pass this much less often, at most, for "not worse"
MIN_NOT_WORSE = 3  # cases; on fewer, MAX_ROUNDS cannot show it
SHOWN_WORSE = 0.05

Decision = Literal[
    "first draft",
    "kept provisionally",
    "confirmed",
    "not enough evidence",
    "worse",
    "not decided",  # errors or a ceiling came first
    "not tried",  # there was nothing new to try
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two skills on the same cases and seeds, over the pairs that both have a score for."""

    mended: tuple[str, ...]  # cases that pass more often than before
    broken: tuple[str, ...]
    same: int  # cases
    differences: tuple[float, ...]  # of the pairs
    errored: int = 0  # trials

    @property
    def decidable(self) -> bool:
        pairs = len(self.differences)
        return pairs > 0 and self.errored <= MAX_ERROR_RATE * (pairs + self.errored)

    @property
    def gain(self) -> int:
        """Pairs that got better, less those that got worse."""
        return round(sum(self.differences))

    @property
    def p_value(self) -> float:
        """One-sided, of being no better than before."""
        return _sign_test(self.differences)

    @property
    def p_worse(self) -> float:
        """One-sided, of being no worse than before."""
        return _sign_test([-difference for difference in self.differences])

    def is_not_worse(self, level: float) -> bool:
        """Whether the pass rate is shown not to have fallen by MARGIN, at this one-sided level."""
        if not self.differences:
            return False
        return paired_lift(self.differences, range(len(self.differences)), level=1 - 2 * level).low > -MARGIN

    @property
    def screened(self) -> Decision:
        if not self.decidable:
            return "not decided"
        if self.gain > 0:
            return "kept provisionally"
        return "worse" if self.p_worse <= SHOWN_WORSE else "not enough evidence"

    @property
    def deserves_second_look(self) -> bool:
        """It changed something, is not ahead, and may still be better."""
        changed = bool(self.mended or self.broken)
        return self.decidable and changed and self.gain <= 0 and self.p_worse > HOPELESS

    @property
    def summary(self) -> str:
        if not self.decidable:
            return f"{counted(self.errored, 'trial')} errored, too many to say anything"
        return f"{counted(len(self.mended), 'case')} better, {len(self.broken) or 'none'} worse, {self.same} the same"


@dataclass(frozen=True, slots=True)
class Confirmation:
    cases: Comparison  # where it had to get better; or not worse, where there was nothing to get better
    decision: Decision
    rounds: int
    trials: int  # what it cost at most
    only_not_worse: bool = False  # no case could get better, so it had to be shown that none got worse
    older_cases: Comparison | None = None  # those that must not get worse

    @property
    def summary(self) -> str:
        summary = self.cases.summary
        if self.cases.decidable and not self.only_not_worse:
            summary += " (p < 0.001)" if self.cases.p_value < 0.001 else f" (p = {self.cases.p_value:.3f})"
        if self.older_cases is not None:
            summary += f"; older cases: {self.older_cases.summary}"
        return f"{summary}, {counted(self.rounds, 'fresh seed')} a case"


@dataclass
class Attempt:
    number: int
    skill: Skill
    evaluation: Evaluation | None  # None: it was not worth evaluating
    decision: Decision
    note: str
    comparison: Comparison | None = None  # None: the first has nothing to be compared with
    proposal: Proposal | None = None
    stored: Candidate | None = None

    @property
    def accepted(self) -> bool | None:
        """Whether it was kept, provisionally or for good; None: nobody knows."""
        if self.decision == "not decided":
            return None
        return self.decision in ("first draft", "kept provisionally", "confirmed")


def compare(
    before: Iterable[Outcome], after: Iterable[Outcome], cases: Collection[str] | None = None, *, arm: str = "skill"
) -> Comparison:
    """Pair the trials of two skills by case and seed; `arm` is where the earlier one ran."""
    old, new = (
        {(row.case, row.seed): row.passed for row in rows if row.arm == name and (cases is None or row.case in cases)}
        for rows, name in ((before, arm), (after, "skill"))
    )
    keys = sorted(key for key in old.keys() & new.keys() if old[key] is not None and new[key] is not None)
    errored = sum(passed is None for passed in [*old.values(), *new.values()])
    differences = tuple(float(bool(new[key])) - float(bool(old[key])) for key in keys)
    by_case: dict[str, float] = {}
    for (case, _), difference in zip(keys, differences, strict=True):
        by_case[case] = by_case.get(case, 0.0) + difference
    mended = tuple(case for case, total in by_case.items() if total > 0)
    broken = tuple(case for case, total in by_case.items() if total < 0)
    return Comparison(mended, broken, len(by_case) - len(mended) - len(broken), differences, errored)


def confirm(better: Comparison, older: Comparison | None, level: float, *, only_not_worse: bool) -> Decision:
    parts = [better, *([older] if older else [])]
    if not all(part.decidable for part in parts):
        return "not decided"
    is_proven = better.is_not_worse(level) if only_not_worse else better.p_value <= level
    if is_proven and (older is None or older.is_not_worse(level)):
        return "confirmed"
    return "worse" if any(part.p_worse <= SHOWN_WORSE for part in parts) else "not enough evidence"


def confirming_rounds(cases: int) -> tuple[int, ...]:
    """After how many rounds over so many cases the confirmation is looked at."""
    rounds = max(1, min(MAX_ROUNDS, ceil(CONFIRMING_PAIRS / max(1, cases))))
    return tuple(sorted({ceil(rounds / 2), rounds}))


def second_look_rounds(cases: int) -> int:
    return max(1, ceil(SECOND_LOOK_PAIRS / max(1, cases)))


def failures_needed(cases: int) -> int:
    """How many cases an edit must mend, at the least, before any confirmation could say that it is better."""
    rounds, needed = confirming_rounds(cases)[-1], 1
    while 0.5 ** (needed * rounds) > LAST_LOOK:
        needed += 1
    return needed


def _sign_test(differences: Sequence[float]) -> float:
    plus = sum(difference > 0 for difference in differences)
    total = sum(difference != 0 for difference in differences)
    return sum(comb(total, count) for count in range(plus, total + 1)) / 2**total
