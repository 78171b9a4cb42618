"""A Trace is what an agent did with one task: every turn and tool call with its output, and what it used up.

It is what an agent returns, what checks look at, what the store keeps, and what a skill can be made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

StepKind = Literal["system", "user", "assistant", "thinking", "tool"]
Status = Literal["ok", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used. Cached tokens are part of the input tokens, reasoning tokens part of the output tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


NO_USAGE = Usage(cost_usd=0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: something said, thought, or one tool call together with what came back."""

    kind: StepKind
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: str = ""
    status: Status = "unknown"
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    steps: tuple[Step, ...]
    usage: Usage = NO_USAGE
    stop: str = ""  # why the model stopped, in the provider's word
    model: str = ""  # the name the provider answered under

    @property
    def answer(self) -> str:
        """The last thing the assistant said."""
        return next((step.text for step in reversed(self.steps) if step.kind == "assistant"), "")

    @property
    def calls(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind == "tool")
