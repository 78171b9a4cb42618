"""A verdict as plain data for JSON: the one form in which reports, `upskill runs --json` and the store write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from upskill.verdicts.arms import ArmSummary, Interval
from upskill.verdicts.missing import Missing
from upskill.verdicts.outcome import CAUSES
from upskill.verdicts.statistics import Estimate
from upskill.verdicts.verdict import Activation, Change, SubsetLift, Verdict


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "model": verdict.model,
        "pairs": verdict.pairs,
        "baseline": _arm(verdict.baseline),
        "skill": _arm(verdict.skill),
        "lift": rounded(verdict.lift),
        "interval": interval_to_json(verdict.interval),
        "level": verdict.level,
        "p_value": rounded(verdict.p_value),
        "token_savings": rounded(verdict.token_savings),
        "decision": verdict.decision,
        "reason": verdict.reason,
        "further_pairs": verdict.pairs_needed,
        "recommendation": verdict.recommendation,
        "tokens": {
            "input": _change(verdict.input_tokens),
            "output": _change(verdict.output_tokens),
            "total": _change(verdict.total_tokens),
        },
        "cost_per_pass": {
            "baseline": rounded(verdict.baseline.cost_per_pass, 8),
            "skill": rounded(verdict.skill.cost_per_pass, 8),
            "ratio": estimate_to_json(verdict.cost_per_pass_ratio),
        },
        "break_even": rounded(verdict.break_even, 2),
        "controls": None
        if verdict.controls is None
        else {
            "content": estimate_to_json(verdict.controls.content),
            "length": estimate_to_json(verdict.controls.length),
            "noise": estimate_to_json(verdict.controls.noise),
        },
        "missing": None if verdict.missing is None else _missing(verdict.missing),
        "anytime": verdict.anytime,
        "look": verdict.look,
        "activation": None if verdict.activation is None else _activation(verdict, verdict.activation),
        "turns": _both_arms(verdict, lambda arm: arm.turns),
        "tool_calls": _both_arms(verdict, lambda arm: arm.tool_calls),
        "tool_errors": _both_arms(verdict, lambda arm: arm.tool_errors),
    }


def estimate_to_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"value": rounded(estimate.value), "interval": interval_to_json(estimate.interval)}


def interval_to_json(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [rounded(bound) for bound in interval]


def rounded(value: float | None, digits: int = 6) -> float | None:
    """A number as JSON can hold it: an infinite or undefined one is null."""
    # A resumed run adds up the same numbers in another order, which changes their last bits.
    return None if value is None or not math.isfinite(value) else round(value, digits) + 0.0


def _arm(arm: ArmSummary) -> dict[str, Any]:
    return {
        "passed": arm.passed,
        "failed": arm.failed,
        "errored": arm.errored,
        "causes": {cause: arm.causes[cause] for cause in CAUSES if cause in arm.causes},
        "pass_rate": rounded(arm.pass_rate),
        "input_tokens": arm.input_tokens,
        "output_tokens": arm.output_tokens,
        "cost_usd": rounded(arm.cost_usd, 8),
    }


def _both_arms(verdict: Verdict, read: Callable[[ArmSummary], float | None]) -> dict[str, Any]:
    return {"baseline": rounded(read(verdict.baseline)), "skill": rounded(read(verdict.skill))}


def _change(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "mean": rounded(change.mean),
        "mean_interval": interval_to_json(change.mean_interval),
        "relative": rounded(change.relative),
        "relative_interval": interval_to_json(change.relative_interval),
    }


def _missing(missing: Missing) -> dict[str, Any]:
    return {
        "worst": estimate_to_json(missing.worst),
        "best": estimate_to_json(missing.best),
        "p_value": rounded(missing.p_value),
        "changes_decision": missing.changes_decision,
    }


def split_to_json(verdict: Verdict) -> dict[str, Any]:
    """What is told of a verdict over some of the cases."""
    return {
        "pairs": verdict.pairs,
        "baseline": rounded(verdict.baseline.pass_rate),
        "skill": rounded(verdict.skill.pass_rate),
        "lift": rounded(verdict.lift),
        "interval": interval_to_json(verdict.interval),
    }


def _activation(verdict: Verdict, activation: Activation) -> dict[str, Any]:
    return {
        "trials": activation.trials,
        "activated": activation.opened,
        "rate": rounded(activation.rate),
        "interval": interval_to_json(activation.interval),
        "lift": {
            "offered": _lift(SubsetLift(verdict.pairs, verdict.lift, verdict.interval)),
            "activated": _lift(activation.activated),
            "not_activated": _lift(activation.not_activated),
        },
    }


def _lift(subset: SubsetLift) -> dict[str, Any]:
    return {"pairs": subset.pairs, "lift": rounded(subset.lift), "interval": interval_to_json(subset.interval)}
