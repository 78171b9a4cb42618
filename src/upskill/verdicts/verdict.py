"""A Verdict says what a skill did to one model: lift with its interval, tokens, cost, and a decision.

Outcomes come in as plain rows and are paired by (case, seed). A pair counts when both of its trials were scored; an
errored trial is never a failure, never a pass and never saves a token. `docs/statistics.md` explains every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from upskill.record import record
from upskill.verdicts import arms, statistics
from upskill.verdicts.advice import failing_tags, with_advice
from upskill.verdicts.arms import (
    ArmOutcomes,
    ArmSummary,
    Interval,
    Pairs,
    by_arm,
    pair_arms,
    share_interval,
    summarise_arm,
)
from upskill.verdicts.lazy_numpy import np
from upskill.verdicts.missing import MAX_ERROR_RATE, Missing, count_unpaired, error_p_value, fill_in
from upskill.verdicts.outcome import Outcome, Scope
from upskill.verdicts.planning import EvidenceNeeded, evidence_needed
from upskill.verdicts.sequential import Sequential
from upskill.verdicts.statistics import Estimate

Decision = Literal["helps", "hurts", "saves", "no effect", "undecided"]
StoppingPoint = Literal["open", "early", "last"]

ERRORS_COULD_EXPLAIN = "errors could explain it"
UNFINISHED = "unfinished"
SNAPSHOTS = "snapshots"  # the arms were answered by different ones
NO_EVIDENCE_NEEDED = ("errors", "isolation", SNAPSHOTS, UNFINISHED, ERRORS_COULD_EXPLAIN)  # more would not help
EARLY_ALPHA_SHARE = 0.4  # of the error, for looks before the planned end; the last look has the rest


@record
class VerdictOptions:
    """How outcomes are weighed."""

    baseline_arm: str = "baseline"
    skill_arm: str = "skill"
    level: float = 0.95
    margin: float = 0.05  # a lift within it counts as none
    # An interval that stays valid after every round: for the tasks the cases stand for, or for these very cases.
    anytime: Scope | None = None
    # "open" for a run without a planned end. A run with a number of rounds fixed in advance is "early" until the last
    # one: with little of the error spent on early looks, the last look has nearly the power of a fixed plan.
    stopping_point: StoppingPoint = "open"
    making_cost: float | None = None  # US dollars that making the skill cost
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])  # by case, for the advice
    twins: Mapping[str, str] = field(default_factory=dict[str, str])  # a case, and the first that asks nearly the same
    baseline_is_skill: bool = False  # an older skill
    isolation_broken: bool = False  # a trial elsewhere in the run saw a skill that was kept from it
    earlier_looks: int = 0  # of the same model, at the same skill on some of the same cases

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"a level lies between 0 and 1, and {self.level} does not")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"a margin lies from 0 to 1, and {self.margin} does not")
        if self.earlier_looks < 0:
            raise ValueError(f"there cannot be {self.earlier_looks} earlier looks")


@record
class Change:
    """How a quantity changed from baseline to skill: the mean per pair, and relative (0.2: a fifth more)."""

    mean: float
    mean_interval: Interval
    relative: float | None
    relative_interval: Interval | None


@record
class Controls:
    """What the control arms say about a lift. Each is None where its arms were not run."""

    content: Estimate | None  # skill minus placebo: what its content is worth
    length: Estimate | None  # placebo minus baseline: what any text of that length is worth
    noise: Estimate | None  # the repeated baseline minus the baseline: how much chance alone moves it


@record
class SubsetLift:
    """The lift over some of the pairs."""

    pairs: int
    lift: float | None
    interval: Interval | None  # not valid under peeking, even where the verdict's own is


@record
class Activation:
    """Whether an agent that was offered the skill opened it, and the lift where it did and where it did not.

    The verdict's own lift compares what was offered. The student chose which trials opened the skill, so the lift over
    those is of a selected group: it explains, but proves nothing.
    """

    trials: int  # scored, with the skill on offer
    opened: int
    interval: Interval  # of the share that opened it: Wilson's, on the effective number of trials
    activated: SubsetLift
    not_activated: SubsetLift

    @property
    def rate(self) -> float:
        return self.opened / self.trials


@record
class Verdict:
    """One model's decision card. Numbers that do not exist (no pairs, no price) are None."""

    model: str
    pairs: int
    cases: int  # those that ask nearly the same count as one
    baseline: ArmSummary
    skill: ArmSummary
    lift: float | None
    interval: Interval | None
    level: float
    margin: float
    p_value: float | None
    token_savings: float | None  # of total tokens over the pairs; positive means fewer with the skill
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
    missing: Missing | None = None  # what errored trials may hide; None where none errored
    advice: str = ""  # the part of the recommendation that says what to do
    look: int = 1  # at this skill on these cases; the interval allows for those before it

    @property
    def is_beneficial(self) -> bool:
        return self.decision in ("helps", "saves")

    @property
    def skill_lift(self) -> float | None:
        return self.lift

    @property
    def pairs_needed(self) -> int | None:
        return self.evidence_needed.pairs if self.evidence_needed else None


def compute_verdict(outcomes: Iterable[Outcome], options: VerdictOptions | None = None) -> Verdict:
    """The verdict on one model, from the outcomes of its arms.

    One trial that saw a skill that was kept from it invalidates them all: the decision is then `undecided`.
    """
    options = options or VerdictOptions()
    rows = list(outcomes)
    models = sorted({row.model for row in rows})
    if len(models) > 1:
        raise ValueError(f"one verdict is about one model, these outcomes are of {', '.join(models)}")
    by_name = by_arm(rows)
    baseline = by_name.get(options.baseline_arm, ArmOutcomes(options.baseline_arm, {}))
    skill = by_name.get(options.skill_arm, ArmOutcomes(options.skill_arm, {}))
    pairs = pair_arms(baseline, skill, options.twins)
    baseline_summary, skill_summary = (summarise_arm(arm, options.level, options.twins) for arm in (baseline, skill))
    level = level_of_look(options.level, 1 + options.earlier_looks)
    lift, p_value = _weigh_lift(pairs, options, level) if pairs else (None, None)
    tokens = _change(pairs, arms.total_tokens, level)
    verdict = Verdict(
        model=models[0] if models else "",
        pairs=len(pairs),
        cases=len(set(pairs.units)),
        baseline=baseline_summary,
        skill=skill_summary,
        lift=lift.value if lift else None,
        interval=lift.interval if lift else None,
        level=options.level,
        margin=options.margin,
        p_value=p_value,
        token_savings=-tokens.relative if tokens and tokens.relative is not None else None,
        input_tokens=_change(pairs, arms.input_tokens, level),
        output_tokens=_change(pairs, arms.output_tokens, level),
        total_tokens=tokens,
        cost=_change(pairs, arms.cost, level),
        cost_per_pass_ratio=_cost_per_pass_ratio(pairs, level),
        decision="undecided",
        reason="",
        evidence_needed=None,
        recommendation="",
        break_even=_break_even(baseline_summary, skill_summary, options.making_cost),
        controls=_controls(by_name, options),
        anytime=options.anytime,
        activation=_activation(skill, pairs, level, options.twins),
        look=1 + options.earlier_looks,
    )
    missing = None
    if options.isolation_broken or any(row.leaked for row in rows):
        decision, reason = "undecided", "isolation"
    elif pairs.answered_by_different_models:
        decision, reason = "undecided", SNAPSHOTS
    else:
        decision, reason = _decide(verdict, _Findings(lift, _proven_saving(pairs, options, level), options.margin))
    unpaired, of_all = count_unpaired(baseline, skill)
    if pairs and reason not in ("errors", "isolation", SNAPSHOTS) and unpaired > MAX_ERROR_RATE * of_all:
        decision, reason = "undecided", UNFINISHED
    if pairs and unpaired + baseline_summary.errored + skill_summary.errored:
        missing = _weigh_missing(baseline, skill, decision, options, level)
        if missing.changes_decision:
            decision, reason = "undecided", ERRORS_COULD_EXPLAIN
    verdict = replace(verdict, decision=decision, reason=reason, missing=missing)
    if decision == "undecided" and pairs and reason not in NO_EVIDENCE_NEEDED:
        needed = evidence_needed(
            pairs.differences, pairs.units, margin=options.margin, level=level, anytime=options.anytime
        )
        verdict = replace(verdict, evidence_needed=needed)
    tags = failing_tags(skill, options.tags)
    return with_advice(verdict, tags, baseline_is_skill=options.baseline_is_skill)


def level_of_look(level: float, look: int) -> float:
    """The level of the interval at the n-th look that nobody had planned.

    The second has half of the error of the first, the third a sixth, the n-th 1/(n(n-1)). All later looks together have
    as much as the first, however many there are: a skill without effect is called helpful in at most 5 %.
    """
    return level if look <= 1 else 1.0 - (1.0 - level) / (look * (look - 1))


@record
class _Findings:
    """What a decision rests on: the lift with its interval, and what is saved beyond doubt."""

    lift: Estimate | None
    saving: str
    margin: float

    def support(self, decision: Decision) -> bool:
        """Whether they bear the decision out. What is undecided needs nothing."""
        low, high = self.lift.interval if self.lift else (-1.0, 1.0)
        return {
            "helps": low > 0,
            "hurts": high < 0,
            "saves": low >= -self.margin and bool(self.saving),
            "no effect": -self.margin <= low and high <= self.margin,
            "undecided": True,
        }[decision]


def _weigh_missing(
    baseline: ArmOutcomes, skill: ArmOutcomes, decision: Decision, options: VerdictOptions, level: float
) -> Missing:
    """The lift at both extremes of what the missing trials may have been, and whether the decision holds there."""
    extremes = [fill_in(baseline, skill, options.twins, against_skill=against) for against in (True, False)]
    worst, best = (_weigh_lift(pairs, options, level)[0] for pairs in extremes)
    holds = all(
        _Findings(lift, _proven_saving(pairs, options, level), options.margin).support(decision)
        for lift, pairs in zip((worst, best), extremes, strict=True)
    )
    return Missing(worst, best, error_p_value(baseline, skill), changes_decision=not holds)


def _weigh_lift(pairs: Pairs, options: VerdictOptions, level: float) -> tuple[Estimate, float]:
    """The lift with its interval, and its p-value."""
    lift = statistics.paired_lift(pairs.differences, pairs.units, level=level)
    if options.anytime is None:
        return lift, statistics.sign_flip_p_value(pairs.differences, pairs.units)
    (low, high), p_value = _sequential_bounds(pairs, pairs.differences, options.anytime, options, level)
    return Estimate(lift.value, low, high, level), p_value


def _sequential_bounds(
    pairs: Pairs, differences: statistics.Floats, scope: Scope, options: VerdictOptions, level: float
) -> tuple[Interval, float]:
    """Interval and p-value of the mean difference. Before a planned end, all looks together keep to the error."""
    running = _replay_rounds(pairs, differences, scope)
    if options.stopping_point == "open":
        return running.interval(level), running.p_value
    alpha, early = 1.0 - level, EARLY_ALPHA_SHARE
    low, high = running.interval(1.0 - early * alpha)
    p_value = min(1.0, running.p_value / early)
    if options.stopping_point == "last":
        last = statistics.paired_lift(differences, pairs.units, level=1.0 - (1.0 - early) * alpha)
        low, high = max(low, min(last.low, high)), min(high, max(last.high, low))
        p_value = min(p_value, statistics.sign_flip_p_value(differences, pairs.units) / (1.0 - early))
    return (low, high), p_value


def _replay_rounds(pairs: Pairs, values: statistics.Floats, scope: Scope) -> Sequential:
    """The sequential test with a look after every round, as during the run."""
    running = Sequential(scope)
    by_round: dict[int, dict[str, list[float]]] = {}
    for unit, number, value in zip(pairs.units, pairs.rounds, values.tolist(), strict=True):
        by_round.setdefault(number, {}).setdefault(unit, []).append(value)
    for number in sorted(by_round):
        running.update(by_round[number])
    return running


def _change(pairs: Pairs, read: Callable[[Outcome], float], level: float) -> Change | None:
    before, after = pairs.column(read, after=False), pairs.column(read, after=True)
    if not pairs or bool(np.isnan(before).any() or np.isnan(after).any()):
        return None
    mean = statistics.mean_change(before, after, pairs.units, level=level)
    if not before.sum():
        return Change(mean.value, mean.interval, None, None)
    relative = statistics.relative_change(before, after, pairs.units, level=level)
    return Change(mean.value, mean.interval, relative.value, relative.interval)


def _cost_per_pass_ratio(pairs: Pairs, level: float) -> Estimate | None:
    before, after = pairs.column(arms.cost, after=False), pairs.column(arms.cost, after=True)
    if not pairs or math.isnan(before.sum() + after.sum()) or not (before.sum() and after.sum()):
        return None
    passed = pairs.column(arms.passed, after=False), pairs.column(arms.passed, after=True)
    ratio = statistics.cost_per_pass_ratio(before, passed[0], after, passed[1], pairs.units, level=level)
    return None if math.isnan(ratio.value) else ratio


def _activation(skill: ArmOutcomes, pairs: Pairs, level: float, twins: Mapping[str, str]) -> Activation | None:
    offered = sorted(
        (trial for trial in skill.scored if trial.activated is not None), key=lambda trial: (trial.case, trial.seed)
    )
    if not offered:
        return None
    opened = [trial.activated is True for trial in offered]
    lifts = _subset_lift(pairs.where(opened=True), level), _subset_lift(pairs.where(opened=False), level)
    return Activation(len(offered), sum(opened), share_interval(opened, offered, level, twins), *lifts)


def _subset_lift(pairs: Pairs, level: float) -> SubsetLift:
    if not pairs:
        return SubsetLift(0, None, None)
    lift = statistics.paired_lift(pairs.differences, pairs.units, level=level)
    return SubsetLift(len(pairs), lift.value, lift.interval)


def _controls(by_name: Mapping[str, ArmOutcomes], options: VerdictOptions) -> Controls | None:
    def lift(after: str, before: str) -> Estimate | None:
        if after not in by_name or before not in by_name:
            return None
        pairs = pair_arms(by_name[before], by_name[after], options.twins)
        return statistics.paired_lift(pairs.differences, pairs.units, level=options.level) if pairs else None

    if not {"placebo", "baseline_repeat"} & by_name.keys():
        return None
    baseline, skill = options.baseline_arm, options.skill_arm
    return Controls(lift(skill, "placebo"), lift("placebo", baseline), lift("baseline_repeat", baseline))


def _break_even(baseline: ArmSummary, skill: ArmSummary, making_cost: float | None) -> float | None:
    if making_cost is None or baseline.cost_per_pass is None or skill.cost_per_pass is None:
        return None
    saved = baseline.cost_per_pass - skill.cost_per_pass
    return making_cost / saved if saved > 0 else None


def _proven_saving(pairs: Pairs, options: VerdictOptions, level: float) -> str:
    """What the skill saves beyond doubt: "tokens", "cost per pass", or nothing."""
    if not pairs:
        return ""
    before, after = pairs.column(arms.total_tokens, after=False), pairs.column(arms.total_tokens, after=True)
    total = before + after
    saved = np.divide(before - after, total, out=np.zeros_like(total), where=total > 0)
    if options.anytime is not None:
        # The saving as a share of both arms' tokens lies in [-1, 1], so the same bets can be made on it.
        (low, _), _ = _sequential_bounds(pairs, saved, options.anytime, options, level)
        return "tokens" if low > 0 else ""
    # With few cases that hardly differ the intervals are too narrow; the sign-flip test is not fooled.
    if statistics.sign_flip_p_value(np.sign(saved), pairs.units) <= 1.0 - level:
        change = _change(pairs, arms.total_tokens, level)
        relative = change.relative_interval if change else None
        if relative is not None and relative[1] < 0:
            return "tokens"
    ratio = _cost_per_pass_ratio(pairs, level)
    return "cost per pass" if ratio is not None and ratio.high < 1 and len(set(pairs.units)) >= 6 else ""


def _decide(verdict: Verdict, found: _Findings) -> tuple[Decision, str]:
    for arm in (verdict.baseline, verdict.skill):
        if arm.errored > MAX_ERROR_RATE * (arm.scored + arm.errored):
            return "undecided", "errors"
    if not verdict.baseline.scored + verdict.baseline.errored:
        return "undecided", "no baseline"
    if found.lift is None:
        return "undecided", "no pairs"
    if found.support("helps"):
        return "helps", "the interval of the lift is above 0"
    if found.support("hurts"):
        return "hurts", "the interval of the lift is below 0"
    if found.support("saves"):
        return "saves", f"not worse by more than the margin, and {found.saving} lower beyond doubt"
    if found.support("no effect"):
        return "no effect", "the interval of the lift is within the margin"
    if verdict.cases == 1:
        return "undecided", "one case"
    return "undecided", "the interval of the lift holds both 0 and more than the margin"
