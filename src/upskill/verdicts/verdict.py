"""A Verdict answers two questions about a skill and a model: about tasks like these cases, and about these cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from upskill.verdicts import TOLERANCE
from upskill.verdicts.arms import ArmSummary, Interval, Missing
from upskill.verdicts.interval import Estimate, rounded, rounded_interval

Decision = Literal["helps", "hurts", "saves", "no effect", "undecided"]
About = Literal["tasks", "these"]


class Reason(StrEnum):
    """Why nothing is decided. The first that holds is given."""

    ISOLATION = "isolation"
    NO_BASELINE = "no baseline"
    UNFINISHED = "unfinished"
    ERRORS = "errors"
    TOO_FEW_CASES = "too few cases"
    NOT_ENOUGH_EVIDENCE = "not enough evidence"


REASONS: Mapping[Reason, str] = {
    Reason.ISOLATION: "a trial saw a skill that was hidden from it, so no number of this run means anything",
    Reason.NO_BASELINE: "no baseline was run",
    Reason.UNFINISHED: "the run is not finished",
    Reason.ERRORS: "too many trials are missing",
    Reason.TOO_FEW_CASES: "so few cases cannot show a lift",
    Reason.NOT_ENOUGH_EVIDENCE: "the interval holds both a gain and a loss",
}
# With these, what was measured is no evidence of anything.
OBSTACLES = (Reason.ISOLATION, Reason.NO_BASELINE, Reason.UNFINISHED, Reason.ERRORS)


@dataclass(frozen=True, slots=True)
class VerdictOptions:
    """How outcomes are weighed."""

    exact: frozenset[str] = frozenset()  # models that give each case one answer
    fresh: frozenset[str] | None = None  # cases not seen before this text; None: all of them
    in_rounds: bool = False  # looked at after each round, so both questions are at 99 %
    tolerance: float = TOLERANCE
    making_cost: float | None = None  # US dollars that making the skill cost
    isolation_broken: bool = False  # a trial saw a skill that was kept from it
    has_baseline: bool = True  # False: nothing was planned to compare with
    unfinished: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    caveats: tuple[str, ...] = ()  # whole sentences, printed with the verdict everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The answer to one of the two questions."""

    about: About
    decision: Decision
    reason: Reason | None  # of `undecided`
    lift: float | None  # None: no pair was graded in both arms
    interval: Interval | None
    level: float
    cases: int
    units: int  # that count as independent: draws, or cases and their groups
    pass_rate: Estimate | None  # of the skill
    add: int | None = None  # fresh cases that would probably decide it; None: nothing to add

    def to_dict(self) -> dict[str, Any]:
        return {
            "decision": self.decision,
            "about": self.about,
            "reason": self.reason,
            "lift": rounded(self.lift),
            "interval": rounded_interval(self.interval),
            "level": self.level,
            "cases": self.cases,
            "add": self.add,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """Measured totals of something over the pairs, without and with the skill."""

    before: float
    after: float

    @property
    def relative(self) -> float | None:
        """0.2: a fifth more with the skill."""
        return self.after / self.before - 1.0 if self.before else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "baseline": rounded(self.before, 8),
            "skill": rounded(self.after, 8),
            "relative": rounded(self.relative),
        }


@dataclass(frozen=True, slots=True)
class Controls:
    """What the control arms say about a lift. Each is None where its arms were not run."""

    content: Estimate | None  # skill minus placebo: what its content is worth
    length: Estimate | None  # placebo minus baseline: what any text of that length is worth
    noise: Estimate | None  # repeated baseline minus baseline: how much chance alone moves it

    def to_dict(self) -> dict[str, Any]:
        return {
            "content": self.content and self.content.to_dict(),
            "length": self.length and self.length.to_dict(),
            "noise": self.noise and self.noise.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Activation:
    """Whether an agent activated the skill it was offered, and the lift where it did and where it did not.

    The student chose when to read the skill, so the lift over those trials explains, but proves nothing.
    """

    trials: int  # graded, with the skill on offer
    activated: int
    interval: Interval  # of the share that activated it
    pairs: tuple[int, int]  # that activated it, and that did not
    lifts: tuple[float | None, float | None]

    @property
    def rate(self) -> float:
        return self.activated / self.trials

    def to_dict(self) -> dict[str, Any]:
        pairs, lifts = self.pairs, self.lifts
        return {
            "trials": self.trials,
            "activated": self.activated,
            "rate": rounded(self.rate),
            "interval": rounded_interval(self.interval),
            "lift": {
                "activated": {"pairs": pairs[0], "lift": rounded(lifts[0])},
                "not_activated": {"pairs": pairs[1], "lift": rounded(lifts[1])},
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One model's decision card. Numbers that do not exist (no pairs, no price) are None."""

    model: str
    heading: Reading  # about tasks where that decides, else about these cases
    other: Reading | None  # None: no case is fresh
    tolerance: float
    exact: bool
    pairs: int
    baseline: ArmSummary
    skill: ArmSummary
    input_tokens: Change | None
    output_tokens: Change | None
    total_tokens: Change | None
    cost: Change | None  # None where a price is missing
    break_even: float | None  # passed tasks after which making the skill has paid for itself
    controls: Controls | None
    activation: Activation | None  # None: no skill was on offer that an agent could open
    missing: Missing
    caveats: tuple[str, ...]
    progress: tuple[int, int] | None  # of a run that is not finished: trials done, and in all

    def __repr__(self) -> str:
        lift = "" if self.lift is None else f", lift={self.lift:+.2f}"
        return f"Verdict({self.model!r}, {self.decision!r} about {self.about}{lift})"

    @property
    def decision(self) -> Decision:
        return self.heading.decision

    @property
    def about(self) -> About:
        return self.heading.about

    @property
    def lift(self) -> float | None:
        return self.heading.lift

    @property
    def interval(self) -> Interval | None:
        return self.heading.interval

    @property
    def level(self) -> float:
        return self.heading.level

    @property
    def reason(self) -> Reason | None:
        return self.heading.reason

    @property
    def cases(self) -> int:
        return self.these.cases

    @property
    def these(self) -> Reading:
        """The answer about exactly these cases; there always is one."""
        if self.heading.about == "these" or self.other is None:
            return self.heading
        return self.other

    @property
    def tasks(self) -> Reading | None:
        return self.heading if self.heading.about == "tasks" else self.other

    @property
    def is_beneficial(self) -> bool:
        return self.decision in ("helps", "saves")

    @property
    def skill_lift(self) -> float | None:
        """As upstream's users read it."""
        return self.lift

    @property
    def token_savings(self) -> float | None:
        """Of total tokens over the pairs; positive means fewer with the skill."""
        if self.total_tokens is None or self.total_tokens.relative is None:
            return None
        return -self.total_tokens.relative

    @property
    def cost_per_pass_ratio(self) -> float | None:
        """Skill over baseline; below 1 a pass got cheaper."""
        if not self.baseline.cost_per_pass or self.skill.cost_per_pass is None:
            return None
        return self.skill.cost_per_pass / self.baseline.cost_per_pass

    def to_dict(self) -> dict[str, Any]:
        """The form that reports, `upskill runs --json` and the store share."""
        return {
            "model": self.model,
            **self.heading.to_dict(),
            "other": self.other and self.other.to_dict(),
            "caveats": list(self.caveats),
            "tolerance": self.tolerance,
            "exact": self.exact,
            "pairs": self.pairs,
            "baseline": self.baseline.to_dict(),
            "skill": self.skill.to_dict(),
            "missing": self.missing.to_dict(),
            "unfinished": self.progress and {"trials": self.progress[0], "of": self.progress[1]},
            "token_savings": rounded(self.token_savings),
            "tokens": {
                "input": self.input_tokens and self.input_tokens.to_dict(),
                "output": self.output_tokens and self.output_tokens.to_dict(),
                "total": self.total_tokens and self.total_tokens.to_dict(),
            },
            "cost_per_pass": {
                "baseline": rounded(self.baseline.cost_per_pass, 8),
                "skill": rounded(self.skill.cost_per_pass, 8),
                "ratio": rounded(self.cost_per_pass_ratio),
            },
            "break_even": rounded(self.break_even, 2),
            "controls": self.controls and self.controls.to_dict(),
            "activation": self.activation and self.activation.to_dict(),
            "turns": self._both_arms(lambda arm: arm.turns),
            "tool_calls": self._both_arms(lambda arm: arm.tool_calls),
            "tool_errors": self._both_arms(lambda arm: arm.tool_errors),
        }

    def _both_arms(self, read: Callable[[ArmSummary], float | None]) -> dict[str, Any]:
        return {"baseline": rounded(read(self.baseline)), "skill": rounded(read(self.skill))}
