"""A Requirement is a condition on a verdict, for CI: `lift>=0.1`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.errors import UsageError, did_you_mean
from upskill.verdicts.arms import Interval
from upskill.verdicts.verdict import (
    CHOSEN,
    DISPUTED,
    ERRORS,
    ERRORS_COULD_EXPLAIN,
    ISOLATION,
    SNAPSHOTS,
    UNFINISHED,
    UNTESTED,
    USED,
    Decision,
    OnTheseCases,
    Verdict,
)

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!=": operator.ne,
    "=": operator.eq,
}
QUANTITIES = (
    "lift",
    "pass_rate",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
    "cost_per_pass",
)
_SHARES = ("lift", "pass_rate")  # the others are multiples of the baseline
_DECISIONS: tuple[Decision, ...] = ("helps", "hurts", "saves", "no effect", "undecided")
_ON_THESE_CASES = ("lift", "decision")  # what can be required of exactly these cases
_MEETS_NOTHING = {  # reasons of a verdict, in words
    ISOLATION: "the run is invalid: the arms were not isolated",
    SNAPSHOTS: "the arms ran on different snapshots of the model",
    ERRORS: "more than 10% of an arm's trials errored",
    UNFINISHED: "the run is unfinished",
    UNTESTED: "untested: the skill and its cases both come from a model's memory",
    CHOSEN: CHOSEN,
    USED: USED,
}
_HINT = 'For example: "lift>=0.1", "decision=helps", "these:decision=helps", "tokens<=1.2x" or "point:lift>=0.1".'


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on a verdict. Unless `point`, it has to hold at the less favorable end of the interval, whatever
    missing and redrawn trials would have shown.

    It is about tasks like these cases; with `these`, about exactly these.
    """

    text: str
    quantity: str  # a quantity, or "decision"
    comparison: str
    value: float
    decision: Decision | None = None
    point: bool = False
    these: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    requirement: Requirement
    held: bool
    reason: str


def parse_requirement(text: str, shares: Sequence[str] = ()) -> Requirement:
    """Read `lift>=0.1`, `these:decision=helps`, `tokens<=1.2x`, `point:lift>=10%`. Ratios are of skill over baseline.

    With `shares`, these are the only quantities that can be required.
    """
    hint = f'For example: "{shares[0]}>=0.8" or "point:{shares[0]}>=0.8".' if shares else _HINT
    match = re.fullmatch(
        r"\s*((?:(?:these|point):\s*)*)([a-z_]+)\s*(>=|<=|!=|==|=|>|<)\s*(.+?)\s*", text
    )
    if not match:
        raise UsageError(f"{text!r} is not a valid requirement", hint)
    point, these = (f"{prefix}:" in match[1] for prefix in ("point", "these"))
    quantity, comparison, target = match[2], match[3].replace("==", "="), match[4]
    if these and (shares or quantity not in _ON_THESE_CASES):
        raise UsageError(f"{text!r}: `these:` can only be used with lift and decision", hint)
    if quantity == "decision" and not shares:
        plain = re.sub(r"[\s_-]", "", target)
        decision: Decision | None = next(
            (name for name in _DECISIONS if name.replace(" ", "") == plain), None
        )
        if decision is None:
            raise UsageError(
                f"{text!r}: unknown decision {target!r}", did_you_mean(target, _DECISIONS)
            )
        if comparison not in ("=", "!="):
            raise UsageError(f"{text!r}: decisions can only be compared with = or !=", _HINT)
        return Requirement(text, quantity, comparison, math.nan, decision, point, these)
    known = tuple(shares) or (*QUANTITIES, "decision")
    if quantity not in known:
        raise UsageError(f"{text!r}: unknown quantity {quantity!r}", did_you_mean(quantity, known))
    if comparison in ("=", "!="):
        raise UsageError(f"{text!r}: numbers can only be compared with >=, <=, > or <", hint)
    is_ratio = quantity not in (*_SHARES, *shares)
    value = _number(text, quantity, target, hint, is_ratio=is_ratio)
    return Requirement(text, quantity, comparison, value, None, point, these)


def _number(text: str, quantity: str, target: str, hint: str, *, is_ratio: bool) -> float:
    match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))\s*(x|%)?", target)
    if not match:
        raise UsageError(f"{text!r}: {target!r} is not a number", hint)
    if is_ratio != (match[2] == "x"):
        kind = (
            "a multiple of the baseline, such as 1.2x"
            if is_ratio
            else "a share, such as 0.1 or 10%"
        )
        raise UsageError(f"{text!r}: {quantity} must be compared with {kind}", hint)
    number = float(match[1]) / (100.0 if match[2] == "%" else 1.0)
    if not is_ratio and abs(number) > 1:
        raise UsageError(f"{text!r}: {quantity} cannot be more than 1 (100%)", hint)
    return number


def check_requirement(requirement: Requirement, verdict: Verdict) -> Ruling:
    if why := _MEETS_NOTHING.get(verdict.reason):
        return Ruling(requirement, False, why)
    these = verdict.these_cases if requirement.these else None
    where = " on these cases" if requirement.these else ""
    if (requirement.these and these is None) or (requirement.decision and verdict.lift is None):
        return Ruling(requirement, False, f"the {requirement.quantity}{where} was not measured")
    if requirement.decision:
        decision, reason = (these or verdict).decision, (these or verdict).reason
        if reason in (
            ERRORS_COULD_EXPLAIN,
            DISPUTED,
        ):  # or they would tick "decision!=hurts" for a skill that hurts
            return Ruling(requirement, False, f"the decision{where} is {decision}: {reason}")
        held = _COMPARE[requirement.comparison](decision, requirement.decision)
        return Ruling(requirement, held, f"the decision{where} is {decision}")
    if these:
        return check_number(requirement, (these.lift.value, _with_missing(these)))
    unit = "" if requirement.quantity in _SHARES else "x"
    return check_number(requirement, _measured(requirement.quantity, verdict), unit)


def are_settled(requirements: Sequence[Requirement], verdict: Verdict) -> bool:
    """Whether more rounds are unnecessary: a decision stands, or every requirement is known to hold or fail."""
    if not requirements or verdict.decision == "hurts":
        return verdict.decision != "undecided"
    return all(_is_settled(requirement, verdict) for requirement in requirements)


def _is_settled(requirement: Requirement, verdict: Verdict) -> bool:
    """Whether all of the interval meets it, or none of it."""
    these = verdict.these_cases if requirement.these else None
    if requirement.decision or requirement.point:
        return (these or verdict).decision != "undecided"
    measured = (
        (these.lift.value, _with_missing(these))
        if these
        else _measured(requirement.quantity, verdict)
    )
    if measured is None:
        return verdict.decision != "undecided"
    compare = _COMPARE[requirement.comparison]
    return len({compare(bound, requirement.value) for bound in measured[1]}) == 1


def check_number(
    requirement: Requirement, measured: tuple[float, Interval] | None, unit: str = ""
) -> Ruling:
    compare = _COMPARE[requirement.comparison]
    if measured is None:
        return Ruling(requirement, False, f"{requirement.quantity} was not measured")
    value, (low, high) = measured
    if requirement.point:
        return Ruling(
            requirement,
            compare(value, requirement.value),
            f"{requirement.quantity} is {value:.3g}{unit}",
        )
    bound = low if requirement.comparison in (">=", ">") else high
    side = "lower" if bound is low else "upper"
    reason = f"{requirement.quantity} is {value:.3g}{unit}, its {side} bound {bound:.3g}{unit}"
    return Ruling(requirement, compare(bound, requirement.value), reason)


def _with_missing(these: OnTheseCases) -> Interval:
    """The interval, wide enough for whatever the errored trials would have shown."""
    lifts = [these.lift, *((these.missing.worst, these.missing.best) if these.missing else ())]
    return min(lift.low for lift in lifts), max(lift.high for lift in lifts)


def _measured(quantity: str, verdict: Verdict) -> tuple[float, Interval] | None:
    """Tokens and cost are multiples of the baseline."""
    estimate, interval = _estimated(quantity, verdict)
    if estimate is None or interval is None:
        return None
    # Where some trials are missing, a ratio that could not be computed without them is not known either.
    return estimate, verdict.limits.get(
        quantity, (-math.inf, math.inf)
    ) if verdict.limits else interval


def _estimated(quantity: str, verdict: Verdict) -> tuple[float | None, Interval | None]:
    if quantity == "lift":
        return verdict.lift, verdict.interval
    if quantity == "pass_rate":
        return verdict.skill.pass_rate, verdict.skill.interval
    if quantity == "cost_per_pass":
        ratio = verdict.cost_per_pass_ratio
        return (None, None) if ratio is None else (ratio.value, ratio.interval)
    change = {
        "tokens": verdict.total_tokens,
        "input_tokens": verdict.input_tokens,
        "output_tokens": verdict.output_tokens,
        "cost": verdict.cost,
    }[quantity]
    if change is None or change.relative is None or change.relative_interval is None:
        return None, None
    low, high = change.relative_interval
    return 1.0 + change.relative, (1.0 + low, 1.0 + high)
