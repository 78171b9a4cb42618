"""An Outcome is the part of a trial's result that arithmetic needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What a student did instead of giving an answer that can pass: the trial has failed. Only an answer
# that is verbose has passed all the same, and one that the judge did not grade is missing.
Cause = Literal[
    "length",
    "repetition",
    "context",
    "refusal",
    "empty",
    "unreadable",
    "verbose",
    "judge",
]
CAUSES: tuple[Cause, ...] = (
    "length",
    "repetition",
    "context",
    "refusal",
    "empty",
    "unreadable",
    "verbose",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one trial, in numbers."""

    model: str
    case: str
    arm: str
    seed: int
    passed: bool | None  # None: missing, so neither a pass nor a failure
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
    group: str = ""  # the case's declared group; empty: the case stands for itself
