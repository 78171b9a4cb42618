"""A Requirement is a condition on a verdict, for CI: `lift>=0.1`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.errors import UsageError, did_you_mean
from upskill.verdicts.interval import Estimate
from upskill.verdicts.planning import best_lift, best_pass_rate
from upskill.verdicts.verdict import OBSTACLES, REASONS, Decision, Reading, Verdict

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
_OF_A_READING = ("lift", "pass_rate", "decision")  # what `tasks:` and `these:` can be put before
_HINT = 'For example: "lift>=0.1", "decision=helps", "tasks:decision=helps", "tokens<=1.2x" or "point:lift>=0.1".'


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on a verdict. It reads the less favorable end of an interval, unless `point`.

    `about` chooses a reading; without one it is enough that either meets it. Tokens and cost are measured totals.
    """

    text: str
    quantity: str  # a quantity, or "decision"
    comparison: str
    value: float
    decision: Decision | None = None
    point: bool = False
    about: str = ""  # "tasks", "these", or either


@dataclass(frozen=True, slots=True)
class Ruling:
    requirement: Requirement
    held: bool
    reason: str


def parse_requirement(text: str, shares: Sequence[str] = ()) -> Requirement:
    """Read `lift>=0.1`, `tasks:decision=helps`, `tokens<=1.2x`, `point:lift>=10%`. Ratios are of skill over baseline.

    With `shares`, these are the only quantities that can be required.
    """
    hint = f'For example: "{shares[0]}>=0.8" or "point:{shares[0]}>=0.8".' if shares else _HINT
    match = re.fullmatch(
        r"\s*((?:(?:tasks|these|point):\s*)*)([a-z_]+)\s*(>=|<=|!=|==|=|>|<)\s*(.+?)\s*", text
    )
    if not match:
        raise UsageError(f"{text!r} is not a valid requirement", hint)
    point = "point:" in match[1]
    about = next((name for name in ("tasks", "these") if f"{name}:" in match[1]), "")
    quantity = match[2]
    comparison = match[3].replace("==", "=")
    target = match[4]
    if about and (shares or quantity not in _OF_A_READING):
        message = f"{text!r}: `{about}:` can only be used with {', '.join(_OF_A_READING)}"
        raise UsageError(message, hint)
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
        return Requirement(text, quantity, comparison, math.nan, decision, point, about)
    known = tuple(shares) or (*QUANTITIES, "decision")
    if quantity not in known:
        raise UsageError(f"{text!r}: unknown quantity {quantity!r}", did_you_mean(quantity, known))
    if comparison in ("=", "!="):
        raise UsageError(f"{text!r}: numbers can only be compared with >=, <=, > or <", hint)
    is_ratio = quantity not in (*_SHARES, *shares)
    value = _number(text, quantity, target, hint, is_ratio=is_ratio)
    return Requirement(text, quantity, comparison, value, None, point, about)


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
    if verdict.reason is not None and verdict.reason in OBSTACLES:
        return Ruling(requirement, held=False, reason=REASONS[verdict.reason])
    if requirement.quantity not in _OF_A_READING:
        return check_number(requirement, _ratio(requirement.quantity, verdict), "x")
    readings = [reading for reading in (verdict.tasks, verdict.these) if reading is not None]
    if requirement.about:
        readings = [reading for reading in readings if reading.about == requirement.about]
    if not readings:
        return Ruling(requirement, held=False, reason="tasks like these were not measured")
    rulings = [_check_reading(requirement, reading) for reading in readings]
    # "Either" would let `decision!=hurts` pass beside a reading that says "hurts".
    if requirement.comparison == "!=":
        return next((ruling for ruling in rulings if not ruling.held), rulings[0])
    return next((ruling for ruling in rulings if ruling.held), rulings[-1])


def _check_reading(requirement: Requirement, reading: Reading) -> Ruling:
    if reading.reason is not None and reading.reason in OBSTACLES:
        return Ruling(requirement, held=False, reason=REASONS[reading.reason])
    where = " on these cases" if reading.about == "these" else " on tasks like these"
    if requirement.decision:
        held = _COMPARE[requirement.comparison](reading.decision, requirement.decision)
        return Ruling(requirement, held, f"the decision{where} is {reading.decision}")
    ruling = check_number(requirement, _share(requirement.quantity, reading), where=where)
    why = describe_unreachable(requirement, {reading.about: (reading.units, reading.level)})
    if ruling.held or not why:
        return ruling
    return Ruling(requirement, held=False, reason=f"{ruling.reason}; {why}")


def describe_unreachable(requirement: Requirement, units: Mapping[str, tuple[int, float]]) -> str:
    """Why no result could meet it; `units` has, for each reading, how many there are and their level."""
    if requirement.point or requirement.comparison not in (">=", ">", "="):
        return ""
    if requirement.quantity not in _SHARES and requirement.decision != "helps":
        return ""
    needed = 0.0 if requirement.decision else requirement.value
    best_of = best_pass_rate if requirement.quantity == "pass_rate" else best_lift
    name = requirement.quantity if requirement.quantity in _SHARES else "lift"
    shown: list[str] = []
    for about, (count, level) in units.items():
        if requirement.about in ("", about):
            best = best_of(count, level)
            if best > needed or (best == needed and not requirement.decision):
                return ""
            unit = "fresh cases" if about == "tasks" else "draws"
            shown.append(f"{count} {unit} can show a {name} of at most {best:.2f}")
    return "; ".join(shown) or "no case is fresh"


def are_settled(requirements: Sequence[Requirement], verdict: Verdict) -> bool:
    """Whether more rounds are unnecessary: a decision stands, or every requirement is known to hold or fail."""
    if not requirements or verdict.decision == "hurts":
        return verdict.decision != "undecided"
    return all(
        check_requirement(requirement, verdict).held or _is_refuted(requirement, verdict)
        for requirement in requirements
    )


def _is_refuted(requirement: Requirement, verdict: Verdict) -> bool:
    """Whether even the more favorable end of the interval fails it."""
    if requirement.quantity not in _SHARES or requirement.point:
        return verdict.decision != "undecided"
    compare = _COMPARE[requirement.comparison]
    readings = [reading for reading in (verdict.tasks, verdict.these) if reading is not None]
    for reading in readings:
        measured = _share(requirement.quantity, reading)
        if requirement.about not in ("", reading.about) or measured is None:
            continue
        if any(compare(bound, requirement.value) for bound in measured.interval):
            return False
    return True


def check_number(
    requirement: Requirement, measured: Estimate | None, unit: str = "", *, where: str = ""
) -> Ruling:
    compare = _COMPARE[requirement.comparison]
    name = f"{requirement.quantity}{where}"
    if measured is None:
        return Ruling(requirement, held=False, reason=f"{name} was not measured")
    low, high = measured.interval
    if requirement.point or low == high:
        held = compare(measured.value, requirement.value)
        return Ruling(requirement, held, f"{name} is {measured.value:.3g}{unit}")
    side, bound = ("upper", high)
    if requirement.comparison in (">=", ">"):
        side, bound = ("lower", low)
    reason = f"{name} is {measured.value:.3g}{unit}, its {side} bound {bound:.3g}{unit}"
    return Ruling(requirement, compare(bound, requirement.value), reason)


def _share(quantity: str, reading: Reading) -> Estimate | None:
    if quantity == "pass_rate":
        return reading.pass_rate
    if reading.lift is None or reading.interval is None:
        return None
    return Estimate(reading.lift, *reading.interval, reading.level)


def _ratio(quantity: str, verdict: Verdict) -> Estimate | None:
    """Measured totals with the skill, as a multiple of the baseline's."""
    if quantity == "cost_per_pass":
        ratio = verdict.cost_per_pass_ratio
    else:
        change = {
            "tokens": verdict.total_tokens,
            "input_tokens": verdict.input_tokens,
            "output_tokens": verdict.output_tokens,
            "cost": verdict.cost,
        }[quantity]
        ratio = None
        if change is not None and change.relative is not None:
            ratio = 1.0 + change.relative
    return None if ratio is None else Estimate(ratio, ratio, ratio, verdict.level)
