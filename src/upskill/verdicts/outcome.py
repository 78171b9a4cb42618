"""An Outcome is the part of a trial's result that arithmetic needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# What a student did instead of giving an answer that can pass: the trial has failed. Only an answer that is verbose has
# passed all the same, and one that the judge did not grade has errored. A `disputed` trial has failed, but its checks
# pass with files as the student left them that are not known to be its own to change: nobody can tell right work from a
# fake. Reports count these by arm.
Cause = Literal[
    "length",
    "repetition",
    "context",
    "refusal",
    "empty",
    "unreadable",
    "disputed",
    "verbose",
    "judge",
]
Scope = Literal["cases", "suite"]  # what a claim is about: tasks like these cases, or exactly these
CAUSES: tuple[Cause, ...] = (
    "length",
    "repetition",
    "context",
    "refusal",
    "empty",
    "unreadable",
    "disputed",
    "verbose",
)
MIN_COPIES = 6  # that show that a student repeats itself: two rounds of three cases, or four of one


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one trial, in numbers."""

    model: str
    case: str
    arm: str
    seed: int
    passed: bool | None  # None: errored, never scored
    input_tokens: int
    output_tokens: int
    cost_usd: float | None  # None: the price is not known
    cached_tokens: int = 0
    seconds: float = 0.0
    checks_passed: int = 0
    checks: int = 0
    activated: bool | None = None  # None: no skill was on offer that an agent could open
    turns: int = 0
    calls: int = 0  # of tools
    tool_errors: int = 0
    leaked: bool = False  # the trial saw a skill that was kept from it
    bug: bool = False  # it errored because of a bug in upskill
    cause: Cause | Literal[""] = (
        ""  # of a failure: why there was no answer that could pass; or `verbose`, `judge`
    )
    snapshot: str = ""  # the name that the provider answered under
    answer: int = 0  # a hash of all that the student did; 0: not known
    redraws: int = 0  # failed draws: an answer that may have been on its way was asked for again


def gave_same_answers(outcomes: Iterable[Outcome]) -> bool:
    """Whether all seeds of a case, in each arm, gave the same answer in the same way."""
    answers: dict[tuple[str, str], int] = {}
    scored = (row for row in outcomes if row.passed is not None)
    return all(
        row.answer == answers.setdefault((row.case, row.arm), row.answer) != 0 for row in scored
    )


def never_varies(outcomes: Sequence[Outcome]) -> bool:
    """Whether every case was repeated and every repeat was a copy: then what was seen is the truth on these cases."""
    repeats = Counter((row.case, row.arm) for row in outcomes if row.passed is not None)
    copies = repeats.total() - len(repeats)
    return copies >= MIN_COPIES and min(repeats.values()) > 1 and gave_same_answers(outcomes)
