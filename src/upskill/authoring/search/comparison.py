"""Compares a candidate with the best so far, and at the end of a search the last skill with the first.

Gains on train cases are provisional. Fresh seeds show whether the last skill is better on exactly these cases: then it
is the best guess. It is confirmed if a test over cases says so too, at a level that the tried edits share
(`docs/statistics.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, comb, log2
from typing import Literal

from upskill.authoring.search.old_arithmetic import MAX_ERROR_RATE, sign_flip_p_value
from upskill.authoring.search.refiners import Proposal
from upskill.plain import counted
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Candidate
from upskill.skills import Skill
from upskill.verdicts.interval import paired_lift
from upskill.verdicts.outcome import Outcome

ALPHA = 0.05  # the chance that a search confirms a skill that is no better
EARLIER_LOOK, LAST_LOOK = (
    0.005,
    0.04,
)  # for exactly these cases: two looks during the confirmation, and the last
WITHIN_REACH = 0.10  # before the last look: if a test over cases misses this level, more rounds are not worth it
CONFIRMING_PAIRS = 96  # about: enough to see a gain of 20 points four times in five
MAX_ROUNDS = 12  # of the confirmation, on few cases
HOPELESS = 0.25  # cases that are worse with a p-value of at most this rule a candidate out
MARGIN = 0.10  # old cases may pass this much less often, at most, for "not worse"
MIN_NOT_WORSE = 3  # cases; on fewer, MAX_ROUNDS cannot show it
SHOWN_WORSE = 0.05
MAX_CASES_NAMED = 500  # more are not suggested

Decision = Literal[
    "first draft",
    "older version",  # the same, where an older skill is improved
    "set aside",  # it fixed some of the failing cases that it was tried on, and waits for the others
    "kept provisionally",
    "confirmed",
    "best guess",  # better on exactly these train cases, and not confirmed
    "kept as requested",  # somebody asked for it, and it is shown neither better nor worse
    "not enough evidence",
    "worse",
    "not decided",  # errors or a ceiling came first
    "not tried",  # there was nothing new to try
]
KEPT: tuple[Decision, ...] = (
    "confirmed",
    "best guess",
    "kept as requested",
)  # at the end of a search


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two skills on the same cases and seeds, over the pairs that both have a score for."""

    fixed: tuple[str, ...]  # cases that pass more often than before
    broken: tuple[str, ...]
    same: int  # cases
    differences: tuple[float, ...]  # of the pairs
    cases: tuple[str, ...]  # of each pair
    errored: int = 0  # trials
    exact: bool = (
        False  # the student always gives the same answer, so all pairs of a case are one draw
    )

    @classmethod
    def of(cls, cases: tuple[str, ...], differences: tuple[float, ...], errored: int) -> Comparison:
        by_case: dict[str, float] = {}
        for case, difference in zip(cases, differences, strict=True):
            by_case[case] = by_case.get(case, 0.0) + difference
        fixed = tuple(case for case, total in by_case.items() if total > 0)
        broken = tuple(case for case, total in by_case.items() if total < 0)
        return cls(
            fixed, broken, len(by_case) - len(fixed) - len(broken), differences, cases, errored
        )

    def plus(self, other: Comparison) -> Comparison:
        cases, differences = self.cases + other.cases, self.differences + other.differences
        return Comparison.of(cases, differences, self.errored + other.errored)

    @property
    def is_open(self) -> bool:
        """Not ahead, but some cases changed, and more trials of these may tell."""
        return (
            self.decidable and any(self.differences) and self.gain <= 0 and self.p_worse > HOPELESS
        )

    @property
    def decidable(self) -> bool:
        pairs = len(self.differences)
        return pairs > 0 and self.errored <= MAX_ERROR_RATE * (pairs + self.errored)

    @property
    def gain(self) -> int:
        """Pairs that got better, less those that got worse."""
        return round(sum(self.differences))

    @property
    def p_value(self) -> float | None:
        """One-sided, of being no better than before. Cases are the sample: seeds of one case are no further cases.

        None: the student always gives the same answer, so the search had seen them all when it chose.
        """
        if self.exact or not self.differences:
            return None
        half = sign_flip_p_value(self.differences, self.cases) / 2
        return half if self.gain > 0 else 1 - half

    @property
    def p_worse(self) -> float:
        """One-sided, of being no worse than before on exactly these cases."""
        return _sign_test([-difference for difference in self.differences])

    @property
    def is_shown_worse(self) -> bool:
        """On exactly these cases. What a student that never varies loses is a fact, but one case may be chance."""
        if self.exact:
            return self.gain <= min(-2, -MARGIN * len(self.differences))
        return self.p_worse <= SHOWN_WORSE

    def is_better_here(self, level: float) -> bool:
        """On exactly these cases, where seeds are the sample."""
        return self.gain > 0 and (self.exact or _sign_test(self.differences) <= level)

    def is_not_worse_here(self, level: float) -> bool:
        """Whether the pass rate on exactly these cases is shown not to have fallen by MARGIN."""
        pairs = len(self.differences)
        if not pairs or self.exact:
            return pairs > 0 and self.gain > -MARGIN * pairs
        return paired_lift(self.differences, range(pairs), level=1 - 2 * level).low > -MARGIN

    def is_better(self, level: float) -> bool:
        return self.p_value is not None and self.p_value <= level

    def is_not_worse(self, level: float) -> bool:
        if not self.differences or self.exact:
            return False
        return paired_lift(self.differences, self.cases, level=1 - 2 * level).low > -MARGIN

    def cases_needed(self, holds: Callable[[Comparison], bool]) -> int | None:
        """About how many cases that come out like these would do; None: more than MAX_CASES_NAMED."""
        by_case = groupby(
            sorted(zip(self.cases, self.differences, strict=True)), key=lambda pair: pair[0]
        )
        pairs = sorted(([difference for _, difference in group] for _, group in by_case), key=sum)
        count = len(pairs)
        while pairs and (count := max(count + 1, round(1.1 * count))) <= MAX_CASES_NAMED:
            drawn = [
                (str(number), each)
                for number in range(count)
                for each in pairs[number * len(pairs) // count]
            ]
            cases, differences = zip(*drawn, strict=True)
            if holds(replace(self, differences=differences, cases=cases)):
                return count
        return None

    @property
    def screened(self) -> Decision:
        if not self.decidable:
            return "not decided"
        if self.gain > 0:
            return "kept provisionally"
        return "worse" if self.is_shown_worse else "not enough evidence"

    @property
    def summary(self) -> str:
        if not self.decidable:
            return f"{counted(self.errored, 'trial')} errored, too many for a verdict"
        total = self.same + len(self.fixed) + len(self.broken)
        return f"better on {len(self.fixed)} of these {total} train cases, worse on {len(self.broken) or 'none'}"


@dataclass(frozen=True, slots=True)
class Confirmation:
    cases: Comparison  # where it had to get better; or not worse, where there was nothing to get better
    decision: Decision
    rounds: int
    trials: int  # what it cost at most
    tried: int = 1  # candidates that it was chosen from on the same cases
    only_not_worse: bool = (
        False  # no case could get better, so it had to be shown that none got worse
    )
    older_cases: Comparison | None = None  # those that must not get worse
    before: Decision = "first draft"  # what it was compared with

    @property
    def level(self) -> float:
        return levels_over_cases(self.tried)[1]

    @property
    def summary(self) -> str:
        summary = self.cases.summary
        if (
            self.cases.decidable
            and not self.only_not_worse
            and (p := self.cases.p_value) is not None
        ):
            after = (
                f", and {self.level:.3f} is needed after {self.tried} candidates"
                if self.tried > 1
                else ""
            )
            summary += f" ({'p < 0.001' if p < 0.001 else f'p = {p:.3f}'} over cases{after})"
        if self.older_cases is not None:
            summary += f"; older cases: {self.older_cases.summary}"
        return f"{summary}; {counted(self.rounds, 'new draw')} per case"

    @property
    def not_shown(self) -> str:
        """What is not shown of a requested change that is kept all the same."""
        cases = f"{len({*self.cases.cases})} train cases"
        if not self.cases.decidable:
            return f"not tested on {cases}"
        if self.only_not_worse:
            return f"not shown to lose less than {MARGIN:.0%} on {cases}"
        if self.cases.is_better_here(LAST_LOOK) and self.older_cases:
            older = counted(len({*self.older_cases.cases}), "older case")
            return f"better on {cases}, but not shown to lose less than {MARGIN:.0%} on {older}"
        return f"not shown to be better on {cases}"

    @property
    def doubt(self) -> str:
        """Why a best guess is not confirmed, in words."""
        if self.cases.exact:
            return "the student always gives the same answer, so there is nothing to test it with"
        for part, must_be_better in (
            (self.cases, not self.only_not_worse),
            (self.older_cases, False),
        ):
            test = Comparison.is_better if must_be_better else Comparison.is_not_worse
            if part is None or test(part, self.level):
                continue
            total = len({*part.cases})
            kind = "older cases" if part is self.older_cases else "train cases"
            what = (
                "to detect an edit of this size"
                if must_be_better
                else f"to rule out a loss of {MARGIN:.0%}"
            )
            enough = part.cases_needed(lambda more, test=test: test(more, self.level))
            hint = (
                f"about {enough} would be enough"
                if enough
                else f"even {MAX_CASES_NAMED} would not be enough"
            )
            return f"{total} {kind} are too few {what}; {hint}"
        return ""


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
    tested: bool = False  # against the first draft, on new draws

    @property
    def accepted(self) -> bool | None:
        """Whether it was kept, provisionally or for good; None: nobody knows."""
        if self.decision in ("not decided", "set aside"):
            return None
        return self.decision in ("first draft", "older version", "kept provisionally", *KEPT)


def compare(
    before: Iterable[Outcome],
    after: Iterable[Outcome],
    cases: Collection[str] | None = None,
    *,
    arm: str = "skill",
    worst: bool = False,
) -> Comparison:
    """Pair the trials of two skills by case and seed; `arm` is where the earlier one ran.

    `worst`: trials that errored count against the later one.
    """
    old, new = (
        {
            (row.case, row.seed): row
            for row in rows
            if row.arm == name and (cases is None or row.case in cases)
        }
        for rows, name in ((before, arm), (after, "skill"))
    )
    keys = sorted(
        key
        for key in old.keys() & new.keys()
        if worst or None not in (old[key].passed, new[key].passed)
    )
    errored = sum(row.passed is None for row in [*old.values(), *new.values()])
    differences = tuple(
        float(bool(new[key].passed)) - float(old[key].passed is not False) for key in keys
    )
    return Comparison.of(tuple(case for case, _ in keys), differences, errored)


def confirm(
    better: Comparison,
    older: Comparison | None,
    here: float,
    over_cases: float,
    *,
    only_not_worse: bool = False,
) -> Decision:
    """Decide at a level for exactly these cases, and at another for a test over cases."""
    parts = [better, *([older] if older else [])]
    if not all(part.decidable for part in parts):
        return "not decided"
    is_guess = better.is_not_worse_here(here) if only_not_worse else better.is_better_here(here)
    if is_guess and (older is None or older.is_not_worse_here(here)):
        is_shown = (
            better.is_not_worse(over_cases) if only_not_worse else better.is_better(over_cases)
        )
        return (
            "confirmed"
            if is_shown and (older is None or older.is_not_worse(over_cases))
            else "best guess"
        )
    return "worse" if any(part.is_shown_worse for part in parts) else "not enough evidence"


def confirming_rounds(cases: int) -> tuple[int, ...]:
    """After how many rounds over so many cases the confirmation is looked at: soon, half-way and at its end."""
    rounds = max(1, min(MAX_ROUNDS, ceil(CONFIRMING_PAIRS / max(1, cases))))
    half = ceil(rounds / 2)
    return tuple(sorted({min(2, half), half, rounds}))


def levels_over_cases(tried: int) -> tuple[float, float]:
    """At the first look and at the last, which share ALPHA, and so do the candidates that were tried.

    If every case that changes gets better, the p-value is a power of 1/2. The last look only needs the largest one
    that is small enough, and the first look gets the rest.
    """
    last = 0.5 ** ceil(log2(tried / ALPHA))
    return ALPHA / tried - last, last


def failures_needed(cases: int) -> int:
    """How many cases an edit must fix, at the least, before any confirmation could say that it is better."""
    rounds, needed = confirming_rounds(cases)[-1], 1
    while 0.5 ** (needed * rounds) > LAST_LOOK:
        needed += 1
    return needed


def _sign_test(differences: Sequence[float]) -> float:
    plus = sum(difference > 0 for difference in differences)
    total = sum(difference != 0 for difference in differences)
    return sum(comb(total, count) for count in range(plus, total + 1)) / 2**total
