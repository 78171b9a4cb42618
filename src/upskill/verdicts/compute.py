"""From outcomes to a verdict.

A pair counts when both of its trials were scored; an errored trial is never a failure, never a pass and never saves a
token. `docs/statistics.md` explains every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from upskill.verdicts import arms, statistics
from upskill.verdicts.advice import failing_tags, with_advice
from upskill.verdicts.arms import (
    LEVEL_OF_BOTH_ARMS,
    MAX_ERROR_RATE,
    ArmOutcomes,
    Interval,
    Missing,
    Pairs,
    bounds_of_share,
    by_arm,
    fill_in,
    p_value_of_difference,
    pair_arms,
    share_interval,
    summarize_arm,
)
from upskill.verdicts.outcome import Outcome, Scope
from upskill.verdicts.planning import evidence_needed
from upskill.verdicts.statistics import Estimate, Sequential
from upskill.verdicts.these_cases import lift_on_these_cases
from upskill.verdicts.verdict import (
    DISPUTED,
    ERRORS,
    ERRORS_COULD_EXPLAIN,
    ISOLATION,
    NO_EVIDENCE_NEEDED,
    ONE_CASE,
    OPEN_INTERVAL,
    SNAPSHOTS,
    UNFINISHED,
    Activation,
    Change,
    Controls,
    Decision,
    OnTheseCases,
    SubsetLift,
    Verdict,
    VerdictOptions,
)

EARLY_ALPHA_SHARE = (
    0.4  # of the error, for looks before the planned end; the last look has the rest
)


def compute_verdict(outcomes: Iterable[Outcome], options: VerdictOptions | None = None) -> Verdict:
    options = options or VerdictOptions()
    rows = list(outcomes)
    models = sorted({row.model for row in rows})
    if len(models) > 1:
        raise ValueError(
            f"a verdict covers one model, but these outcomes come from {', '.join(models)}"
        )
    by_name = by_arm(rows)
    baseline, skill = (by_name.get(name, ArmOutcomes(name, {})) for name in ("baseline", "skill"))
    pairs = pair_arms(baseline, skill, options.twins)
    baseline_summary, skill_summary = (
        summarize_arm(arm, options.level, options.twins) for arm in (baseline, skill)
    )
    level = level_of(options)
    lift, p_value = _weigh_lift(pairs, options, level) if pairs else (None, None)
    tokens = _change(pairs, arms.total_tokens, level)
    saving = _proven_saving(pairs, options, level)
    unpaired = len(
        baseline.trials.keys() ^ skill.trials.keys()
    )  # pairs with a trial that was never run
    is_unfinished = unpaired > MAX_ERROR_RATE * len(baseline.trials.keys() | skill.trials.keys())
    obstacle = ""
    if options.isolation_broken or any(row.leaked for row in rows):
        obstacle = ISOLATION
    elif pairs.answered_by_different_models:
        obstacle = SNAPSHOTS
    elif any(
        arm.errored > MAX_ERROR_RATE * (arm.scored + arm.errored)
        for arm in (baseline_summary, skill_summary)
    ):
        obstacle = ERRORS
    elif pairs and is_unfinished:
        obstacle = UNFINISHED
    elif not pairs:
        obstacle = "no pairs" if baseline.trials else "no baseline"

    missed = unpaired + sum(arm.errored + arm.redrawn for arm in (baseline_summary, skill_summary))
    disputed = baseline_summary.disputed + skill_summary.disputed
    is_incomplete = bool(missed + disputed)

    def decide(weigh: _Weigh, lift: Estimate | None) -> tuple[Decision, str, Missing | None]:
        findings, missing = _Findings(lift, saving, options.margin), None
        decision, reason = ("undecided", obstacle) if obstacle else _decide(findings)
        if pairs and is_incomplete:
            missing = _weigh_missing(baseline, skill, decision, options, level, weigh)
            if missing.changes_decision:
                decision, reason = (
                    "undecided",
                    DISPUTED if disputed > missed else ERRORS_COULD_EXPLAIN,
                )
        return decision, reason, missing

    decision, reason, missing = decide(_weigh_lift, lift)
    if decision == "undecided" and not obstacle and len(set(pairs.units)) == 1:
        reason = ONE_CASE
    these_cases = None
    if pairs and options.both_scopes:
        on_these, _ = _weigh_these_cases(pairs, options, level)
        these_cases = OnTheseCases(
            on_these, *decide(_weigh_these_cases, on_these), len(pairs.copies)
        )
    needed = None
    if decision == "undecided" and pairs and reason not in NO_EVIDENCE_NEEDED:
        needed = evidence_needed(
            pairs.differences,
            pairs.units,
            margin=options.margin,
            level=level,
            anytime=options.anytime,
        )
    costs = baseline_summary.cost_per_pass, skill_summary.cost_per_pass
    saved = costs[0] - costs[1] if costs[0] is not None and costs[1] is not None else 0.0
    verdict = Verdict(
        model=models[0] if models else "",
        pairs=len(pairs),
        cases=len(set(pairs.units)),
        case_ids=frozenset(row.case for row in rows),
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
        decision=decision,
        reason=reason,
        evidence_needed=needed,
        recommendation="",
        break_even=options.making_cost / saved
        if options.making_cost is not None and saved > 0
        else None,
        controls=_controls(by_name, options),
        anytime=options.anytime,
        activation=_activation(skill, pairs, level, options.twins),
        missing=missing,
        limits=_limits(baseline, skill, missing, options, level) if is_incomplete else {},
        look=1 + options.earlier_looks,
        replayed=options.replayed,
        these_cases=these_cases,
    )
    return with_advice(
        verdict, failing_tags(skill, options.tags), has_reference=options.has_reference
    )


def level_of(options: VerdictOptions) -> float:
    """The level of the interval: the one asked for, at this look, shared by all models that are decided about."""
    return 1.0 - (1.0 - level_of_look(options.level, 1 + options.earlier_looks)) / options.models


def level_of_look(level: float, look: int) -> float:
    """The level of the interval at the n-th look that nobody had planned.

    It has 1/(n(n-1)) of the first look's error, so all later looks together have as much as the first: a skill without
    effect is called helpful in at most 5 %.
    """
    return level if look <= 1 else 1.0 - (1.0 - level) / (look * (look - 1))


@dataclass(frozen=True, slots=True)
class _Findings:
    """What a decision rests on: the lift with its interval, and proven savings."""

    lift: Estimate | None
    saving: str
    margin: float

    def support(self, decision: Decision) -> bool:
        """Whether they support the decision. Undecided needs no support."""
        low, high = self.lift.interval if self.lift else (-1.0, 1.0)
        return {
            "helps": low > 0,
            "hurts": high < 0,
            "saves": low >= -self.margin and bool(self.saving),
            "no effect": -self.margin <= low and high <= self.margin,
            "undecided": True,
        }[decision]


_Weigh = Callable[
    [Pairs, VerdictOptions, float], tuple[Estimate, float | None]
]  # the lift, and its p-value


def _weigh_missing(
    baseline: ArmOutcomes,
    skill: ArmOutcomes,
    decision: Decision,
    options: VerdictOptions,
    level: float,
    weigh: _Weigh,
) -> Missing:
    """What missing, redrawn and disputed trials may hide.

    Redrawn trials of the arm that a decision favors count against it at the level of the verdict. Those of both arms
    at once, which only a server that fails the arms in opposite ways would call for, count at a lower level where the
    interval is wider than it claims, as that over cases is.
    """
    lower = level_of(replace(options, level=LEVEL_OF_BOTH_ARMS))
    both_level = min(level, lower) if weigh is _weigh_lift else level
    lifts: list[Estimate] = []
    holds = True
    for against_skill in (True, False):
        one, both = (
            fill_in(
                baseline, skill, options.twins, against_skill=against_skill, both_arms=both_arms
            )
            for both_arms in (False, True)
        )
        first, second = weigh(one, options, level)[0], weigh(both, options, both_level)[0]
        for lift, pairs, at in ((first, one, level), (second, both, both_level)):
            holds = holds and _Findings(
                lift, _proven_saving(pairs, options, at), options.margin
            ).support(decision)
        lifts.append(
            Estimate(second.value, min(first.low, second.low), max(first.high, second.high), level)
        )
    worst, best = lifts
    errors = p_value_of_difference(baseline, skill, lambda trial: trial.passed is None)
    redraws = p_value_of_difference(baseline, skill, lambda trial: trial.redraws > 0)
    return Missing(worst, best, errors, redraws, changes_decision=not holds)


def _limits(
    baseline: ArmOutcomes,
    skill: ArmOutcomes,
    missing: Missing | None,
    options: VerdictOptions,
    level: float,
) -> dict[str, Interval]:
    """The interval of each quantity that can be required, whatever missing and redrawn trials would have shown."""
    limits = {"pass_rate": bounds_of_share(skill, baseline, options.level, options.twins)}
    if missing is None:
        return limits
    worst, best = (
        _ratio_intervals(fill_in(baseline, skill, options.twins, against_skill=against), level)
        for against in (True, False)
    )
    ratios = {
        name: (min(worst[name][0], best[name][0]), max(worst[name][1], best[name][1]))
        for name in worst.keys() & best.keys()
    }
    return limits | ratios | {"lift": (missing.worst.low, missing.best.high)}


def _ratio_intervals(pairs: Pairs, level: float) -> dict[str, Interval]:
    """Of what can be required as a multiple of the baseline."""
    columns = (arms.total_tokens, arms.input_tokens, arms.output_tokens, arms.cost)
    changes = zip(("tokens", "input_tokens", "output_tokens", "cost"), columns, strict=True)
    intervals = {
        name: (1.0 + change.relative_interval[0], 1.0 + change.relative_interval[1])
        for name, read in changes
        if (change := _change(pairs, read, level)) and change.relative_interval
    }
    ratio = _cost_per_pass_ratio(pairs, level)
    return intervals | ({"cost_per_pass": ratio.interval} if ratio else {})


def _weigh_lift(pairs: Pairs, options: VerdictOptions, level: float) -> tuple[Estimate, float]:
    lift = statistics.paired_lift(pairs.differences, pairs.units, level=level)
    if options.anytime is None:
        return lift, statistics.sign_flip_p_value(pairs.differences, pairs.units)
    (low, high), p_value = _sequential_bounds(
        pairs, pairs.differences, options.anytime, options, level
    )
    return Estimate(lift.value, low, high, level), p_value


def _weigh_these_cases(
    pairs: Pairs, options: VerdictOptions, level: float
) -> tuple[Estimate, None]:
    draws = pairs.draws(after=False), pairs.draws(after=True)
    results = pairs.column(arms.passed, after=False), pairs.column(arms.passed, after=True)
    if options.anytime is None:
        return lift_on_these_cases(*results, draws, pairs.units, level=level), None
    value = float(np.mean(statistics.CaseGroups.of(pairs.units).means(pairs.differences)))
    low, high = replay_rounds(pairs, pairs.differences, "suite").interval(level)
    return Estimate(value, min(low, value), max(high, value), level), None


def _sequential_bounds(
    pairs: Pairs,
    differences: statistics.Floats,
    scope: Scope,
    options: VerdictOptions,
    level: float,
) -> tuple[Interval, float]:
    """Before a planned end, all looks together keep to the error."""
    running = replay_rounds(pairs, differences, scope)
    if options.stopping_point == "open":
        return running.interval(level), running.p_value
    alpha, early = 1.0 - level, EARLY_ALPHA_SHARE
    low, high = running.interval(1.0 - early * alpha)
    p_value = min(1.0, running.p_value / early)
    if options.stopping_point == "last":
        last = statistics.paired_lift(differences, pairs.units, level=1.0 - (1.0 - early) * alpha)
        low, high = max(low, min(last.low, high)), min(high, max(last.high, low))
        p_value = min(
            p_value, statistics.sign_flip_p_value(differences, pairs.units) / (1.0 - early)
        )
    return (low, high), p_value


def replay_rounds(pairs: Pairs, values: statistics.Floats, scope: Scope) -> Sequential:
    """Over the suite, a case in which an arm repeats an answer has one pair, and the others are not known."""
    running = Sequential(scope)
    by_round: dict[int, dict[str, list[float]]] = {}
    copies = pairs.copies if scope == "suite" else ()
    seen: set[str] = set()
    for case, unit, number, value in zip(
        pairs.cases, pairs.units, pairs.rounds, values.tolist(), strict=True
    ):
        is_known = case not in copies or case not in seen
        seen.add(case)
        by_round.setdefault(number, {}).setdefault(unit, []).append(value if is_known else math.nan)
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
    ratio = statistics.cost_per_pass_ratio(
        before, passed[0], after, passed[1], pairs.units, level=level
    )
    return None if math.isnan(ratio.value) else ratio


def _activation(
    skill: ArmOutcomes, pairs: Pairs, level: float, twins: Mapping[str, str]
) -> Activation | None:
    offered = sorted(
        (trial for trial in skill.scored if trial.activated is not None),
        key=lambda trial: (trial.case, trial.seed),
    )
    if not offered:
        return None
    activated = [trial.activated is True for trial in offered]
    return Activation(
        trials=len(offered),
        activated=sum(activated),
        interval=share_interval(activated, offered, level, twins),
        where_activated=_subset_lift(pairs.where(activated=True), level),
        where_not_activated=_subset_lift(pairs.where(activated=False), level),
    )


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
        return (
            statistics.paired_lift(pairs.differences, pairs.units, level=options.level)
            if pairs
            else None
        )

    if not {"placebo", "baseline_repeat"} & by_name.keys():
        return None
    return Controls(
        lift("skill", "placebo"), lift("placebo", "baseline"), lift("baseline_repeat", "baseline")
    )


def _proven_saving(pairs: Pairs, options: VerdictOptions, level: float) -> str:
    """ "tokens", "cost per pass", or nothing."""
    if not pairs:
        return ""
    before, after = (
        pairs.column(arms.total_tokens, after=False),
        pairs.column(arms.total_tokens, after=True),
    )
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
    return (
        "cost per pass"
        if ratio is not None and ratio.high < 1 and len(set(pairs.units)) >= 6
        else ""
    )


def _decide(findings: _Findings) -> tuple[Decision, str]:
    if findings.support("helps"):
        return "helps", "the interval of the lift is above 0"
    if findings.support("hurts"):
        return "hurts", "the interval of the lift is below 0"
    if findings.support("saves"):
        return (
            "saves",
            f"not worse by more than the margin, and {findings.saving} lower beyond doubt",
        )
    if findings.support("no effect"):
        return "no effect", "the interval of the lift is within the margin"
    return "undecided", OPEN_INTERVAL
