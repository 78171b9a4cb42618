"""A Verdict says what a skill did to one model: lift with its interval, tokens, cost, and a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.verdicts.arms import ArmSummary, Interval, Missing
from upskill.verdicts.outcome import Scope
from upskill.verdicts.planning import EvidenceNeeded
from upskill.verdicts.statistics import Estimate, rounded, rounded_interval

Decision = Literal["helps", "hurts", "saves", "no effect", "undecided"]
StoppingPoint = Literal["open", "early", "last"]

# Why a verdict is undecided, other than too little evidence.
ISOLATION = "isolation"  # a trial saw a skill that was hidden from it
ERRORS = "errors"  # too many
ERRORS_COULD_EXPLAIN = "errors could explain it"
DISPUTED = "disputed trials could explain it"
UNFINISHED = "unfinished"
SNAPSHOTS = "snapshots"  # the arms were answered by different ones
NO_EVIDENCE_NEEDED = (ERRORS, ISOLATION, SNAPSHOTS, UNFINISHED, ERRORS_COULD_EXPLAIN, DISPUTED)
UNTESTED = "untested"  # the skill and its cases are both a model's memory
SEARCH = "part of a search"  # which decides by comparing candidates
USED = "a search has used these cases"  # to choose the skill
PART = "part of the suite"  # somebody chose the cases
CHOSEN = "cases were chosen after a look"
SAME_ANSWERS = (
    "the student gives the same answers every time"  # so what was seen on these cases is the truth
)
# Too little evidence.
ONE_CASE = "one case"
OPEN_INTERVAL = "the interval of the lift holds both 0 and more than the margin"


@dataclass(frozen=True, slots=True)
class VerdictOptions:
    """How outcomes are weighed."""

    level: float = 0.95
    margin: float = 0.05  # a lift within it counts as none
    # An interval that stays valid after every round: for the tasks the cases stand for, or for these very cases.
    anytime: Scope | None = None
    # "open" for a run without a planned end. A run with a number of rounds fixed in advance is "early" until the last
    # one: with little of the error spent on early looks, the last look has nearly the power of a fixed plan.
    stopping_point: StoppingPoint = "open"
    making_cost: float | None = None  # US dollars that making the skill cost
    tags: Mapping[str, Sequence[str]] = field(
        default_factory=dict[str, Sequence[str]]
    )  # by case, for the advice
    twins: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # a case, and the first that asks nearly the same
    has_reference: bool = False  # the baseline arm has the reference skill
    isolation_broken: bool = False  # a trial elsewhere in the run saw a skill that was kept from it
    earlier_looks: int = 0  # of the same model, at the same skill on some of the same cases
    both_scopes: bool = True  # also weigh the lift on exactly these cases
    models: int = 1  # that share the error of this decision: it has to hold at a level that allows for all of them
    replayed: str = ""  # see Verdict

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise ValueError(f"the margin must be between 0 and 1, not {self.margin}")


@dataclass(frozen=True, slots=True)
class Change:
    """How a quantity changed from baseline to skill: the mean per pair, and relative (0.2: a fifth more)."""

    mean: float
    mean_interval: Interval
    relative: float | None
    relative_interval: Interval | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "mean": rounded(self.mean),
            "mean_interval": rounded_interval(self.mean_interval),
            "relative": rounded(self.relative),
            "relative_interval": rounded_interval(self.relative_interval),
        }


@dataclass(frozen=True, slots=True)
class Controls:
    """What the control arms say about a lift. Each is None where its arms were not run."""

    content: Estimate | None  # skill minus placebo: what its content is worth
    length: Estimate | None  # placebo minus baseline: what any text of that length is worth
    noise: (
        Estimate | None
    )  # the repeated baseline minus the baseline: how much chance alone moves it

    def to_dict(self) -> dict[str, Any]:
        return {
            "content": _dict(self.content),
            "length": _dict(self.length),
            "noise": _dict(self.noise),
        }


@dataclass(frozen=True, slots=True)
class SubsetLift:
    """The lift over some of the pairs."""

    pairs: int
    lift: float | None
    interval: Interval | None  # not valid under peeking, even where the verdict's own is

    def to_dict(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            "lift": rounded(self.lift),
            "interval": rounded_interval(self.interval),
        }


@dataclass(frozen=True, slots=True)
class Activation:
    """Whether an agent activated the skill it was offered, and the lift where it did and where it did not.

    The student chose when to read the skill, so the lift over those trials explains, but proves nothing.
    """

    trials: int  # scored, with the skill on offer
    activated: int
    interval: (
        Interval  # of the share that activated it: Wilson's, on the effective number of trials
    )
    where_activated: SubsetLift
    where_not_activated: SubsetLift

    @property
    def rate(self) -> float:
        return self.activated / self.trials


@dataclass(frozen=True, slots=True)
class OnTheseCases:
    """The answer to the narrower question: the lift on exactly these cases, where the repeats are the sample."""

    lift: Estimate
    decision: Decision
    reason: str
    missing: Missing | None  # what errored trials may hide; None where none errored
    copies: (
        int  # cases that got the same answer in several repeats of an arm, which then count once
    )

    def to_dict(self) -> dict[str, Any]:
        return {
            "interval": rounded_interval(self.lift.interval),
            "decision": self.decision,
            "reason": self.reason,
            "missing": _dict(self.missing),
            "copies": self.copies,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """One model's decision card. Numbers that do not exist (no pairs, no price) are None."""

    model: str
    pairs: int
    cases: int  # those that ask nearly the same count as one
    case_ids: frozenset[str]  # the cases whose trials it counts
    baseline: ArmSummary
    skill: ArmSummary
    lift: float | None
    interval: Interval | None
    level: float
    margin: float
    p_value: float | None
    token_savings: (
        float | None
    )  # of total tokens over the pairs; positive means fewer with the skill
    input_tokens: Change | None
    output_tokens: Change | None
    total_tokens: Change | None
    cost: Change | None  # per pair; None where a price is missing
    cost_per_pass_ratio: Estimate | None  # skill over baseline; below 1 a pass got cheaper
    decision: Decision
    reason: str
    evidence_needed: EvidenceNeeded | None
    recommendation: str  # what it comes to, and what to do about it
    break_even: float | None  # passed tasks after which making the skill has paid for itself
    controls: Controls | None
    anytime: Scope | None  # set when the interval is a confidence sequence, valid under peeking
    activation: Activation | None  # None: no skill was on offer that an agent could open
    missing: Missing | None = (
        None  # what errored, redrawn and disputed trials may hide; None where there are none
    )
    # Of each quantity that can be required: its interval, whatever those trials would have shown.
    limits: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    advice: str = ""  # the part of the recommendation that says what to do
    look: int = 1  # at this skill on these cases; the interval allows for those before it
    these_cases: OnTheseCases | None = None  # None: no pairs
    models: int = 1  # that were decided about together; the interval is for this one alone
    alone: Decision | None = (
        None  # the decision about this model alone, where it does not stand among all
    )
    progress: tuple[int, int] | None = (
        None  # of a run that is not finished: trials done, and in all
    )
    replayed: str = (
        ""  # from which file of replies the answers come, in words; empty: the model was asked
    )

    def __repr__(self) -> str:
        lift = "" if self.lift is None else f", lift={self.lift:+.2f}"
        return f"Verdict({self.model!r}, {self.decision!r}{lift})"

    def withhold(self, reason: str) -> Verdict:
        """Undecided in both scopes."""
        these_cases = self.these_cases and replace(
            self.these_cases, decision="undecided", reason=reason
        )
        return replace(self, decision="undecided", reason=reason, these_cases=these_cases)

    @property
    def differs_on_these_cases(self) -> bool:
        """Something is decided about exactly these cases that is not decided about tasks like these."""
        return self.these_cases is not None and self.these_cases.decision not in (
            "undecided",
            self.decision,
        )

    @property
    def decision_if_exact(self) -> Decision:
        """Where nothing is left to chance: the decision that the lift itself makes, if only evidence was lacking."""
        if (
            self.lift is None
            or self.decision != "undecided"
            or self.reason not in (ONE_CASE, OPEN_INTERVAL)
        ):
            return self.decision
        if self.lift:
            return "helps" if self.lift > 0 else "hurts"
        return "saves" if (self.token_savings or 0.0) > 0 else "no effect"

    def made_exact(self) -> Verdict:
        """What the lift says decides about exactly these cases."""
        decision = self.decision_if_exact
        these = self.these_cases
        if these is None or decision == self.decision:
            return self
        exact = replace(these.lift, low=these.lift.value, high=these.lift.value)
        return replace(
            self, these_cases=replace(these, lift=exact, decision=decision, reason=SAME_ANSWERS)
        )

    @property
    def repeats_itself(self) -> bool:
        """In every case an arm gives the same answer again, so further rounds add nothing."""
        return self.these_cases is not None and self.these_cases.copies >= self.cases

    @property
    def is_beneficial(self) -> bool:
        return self.decision in ("helps", "saves")

    @property
    def skill_lift(self) -> float | None:
        """As upstream's users read it."""
        return self.lift

    @property
    def is_invalid(self) -> bool:
        return self.reason == ISOLATION

    @property
    def redrawn(self) -> int:
        """Trials that were repeated after a failed draw."""
        return self.baseline.redrawn + self.skill.redrawn

    @property
    def disputed(self) -> int:
        """Failed trials whose work cannot be told from correct work."""
        return self.baseline.disputed + self.skill.disputed

    @property
    def unsure(self) -> str:
        """What to call the trials that could have gone either way."""
        arms = (self.baseline, self.skill)
        counts = {
            "errored": sum(arm.errored for arm in arms),
            "repeated": self.redrawn,
            "disputed": self.disputed,
        }
        return " or ".join(name for name, count in counts.items() if count) or "missing"

    @property
    def pairs_needed(self) -> int | None:
        return self.evidence_needed.pairs if self.evidence_needed else None

    def to_dict(self) -> dict[str, Any]:
        """The form that reports, `upskill runs --json` and the store share."""
        return {
            "model": self.model,
            "replayed": self.replayed or None,
            "pairs": self.pairs,
            "cases": self.cases,
            "baseline": self.baseline.to_dict(),
            "skill": self.skill.to_dict(),
            "lift": rounded(self.lift),
            "interval": rounded_interval(self.interval),
            "level": self.level,
            "p_value": rounded(self.p_value),
            "token_savings": rounded(self.token_savings),
            "decision": self.decision,
            "reason": self.reason,
            "these_cases": _dict(self.these_cases),
            "models": self.models,
            "alone": self.alone,
            "further_pairs": self.pairs_needed,
            "recommendation": self.recommendation,
            "tokens": {
                "input": _dict(self.input_tokens),
                "output": _dict(self.output_tokens),
                "total": _dict(self.total_tokens),
            },
            "cost_per_pass": {
                "baseline": rounded(self.baseline.cost_per_pass, 8),
                "skill": rounded(self.skill.cost_per_pass, 8),
                "ratio": _dict(self.cost_per_pass_ratio),
            },
            "break_even": rounded(self.break_even, 2),
            "controls": _dict(self.controls),
            "missing": _dict(self.missing),
            "anytime": self.anytime,
            "look": self.look,
            "unfinished": self.progress and {"trials": self.progress[0], "of": self.progress[1]},
            "activation": self.activation
            and {
                "trials": self.activation.trials,
                "activated": self.activation.activated,
                "rate": rounded(self.activation.rate),
                "interval": rounded_interval(self.activation.interval),
                "lift": {
                    "offered": SubsetLift(self.pairs, self.lift, self.interval).to_dict(),
                    "activated": self.activation.where_activated.to_dict(),
                    "not_activated": self.activation.where_not_activated.to_dict(),
                },
            },
            "turns": self._both_arms(lambda arm: arm.turns),
            "tool_calls": self._both_arms(lambda arm: arm.tool_calls),
            "tool_errors": self._both_arms(lambda arm: arm.tool_errors),
        }

    def split_to_dict(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            **self._both_arms(lambda arm: arm.pass_rate),
            "lift": rounded(self.lift),
            "interval": rounded_interval(self.interval),
        }

    def _both_arms(self, read: Callable[[ArmSummary], float | None]) -> dict[str, Any]:
        return {"baseline": rounded(read(self.baseline)), "skill": rounded(read(self.skill))}


def _dict(
    part: Estimate | Change | Controls | Missing | OnTheseCases | None,
) -> dict[str, Any] | None:
    return None if part is None else part.to_dict()
