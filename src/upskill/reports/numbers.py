"""Numbers as reports write them: a difference of shares in points, a relative change in %; a dash where not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upskill.plain import counted
from upskill.verdicts.line import signed_points
from upskill.verdicts.verdict import REASONS, Reason

if TYPE_CHECKING:
    from upskill.verdicts.arms import ArmSummary, Interval

UNKNOWN = "–"
INVALID = f"INVALID: {REASONS[Reason.ISOLATION]}"


def percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return UNKNOWN
    rounded = round(100 * share)
    return f"{rounded:+d}%" if signed and rounded else f"{rounded}%"


def points(lift: float | None) -> str:
    if lift is None:
        return UNKNOWN
    return f"{signed_points(lift)} point{'' if round(abs(100 * lift)) == 1 else 's'}"


def whole_points(share: float) -> str:
    return f"{100 * share + 0.0:+.0f}"


def dollars(cost: float | None) -> str:
    """A cost: "free" if it is zero, a dash if it is unknown."""
    if cost is None:
        return UNKNOWN
    if not cost:
        return "free"
    if cost < 0.000001:
        return "<$0.000001"
    return f"${cost:,.{2 if cost >= 1 else 4 if cost >= 0.001 else 6}f}"


def decimal(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:.1f}"


def interval_in_points(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(signed_points, interval))


def lift_in_points(lift: float | None, pairs: int) -> str:
    return UNKNOWN if lift is None else f"{signed_points(lift)} ({counted(pairs, 'pair')})"


def pass_rate(arm: ArmSummary) -> str:
    return f"{percent(arm.pass_rate)} ({arm.passed}/{arm.scored})" if arm.scored else UNKNOWN


def mean_tokens(arm: ArmSummary) -> float:
    return arm.total_tokens / arm.scored if arm.scored else 0.0


def before_after(before: str, after: str) -> str:
    """Only the second if the first is unknown."""
    return after if before == UNKNOWN else f"{before} → {after}"
