"""Numbers as reports write them: a difference of shares in points, a relative change in %; a dash where not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from upskill.reports.report import Cell, Change, Headline, Kind, Measure, Rate
from upskill.verdicts.line import signed_points
from upskill.verdicts.verdict import REASONS, Reason

if TYPE_CHECKING:
    from upskill.verdicts.arms import ArmSummary, Interval

UNKNOWN = "–"
FREE = "free"
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


def dollars(cost: float | None) -> str:
    """A cost: "free" if it is zero, a dash if it is unknown."""
    if cost is None:
        return UNKNOWN
    if not cost:
        return FREE
    if cost < 0.000001:
        return "<$0.000001"
    return f"${cost:,.{2 if cost >= 1 else 4 if cost >= 0.001 else 6}f}"


def first_of(names: Sequence[str], most: int) -> str:
    """greet-1, greet-2 and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def interval_in_points(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(signed_points, interval))


def pass_rate(arm: ArmSummary) -> str:
    return f"{percent(arm.pass_rate)} ({arm.passed}/{arm.scored})" if arm.scored else UNKNOWN


def before_after(before: str, after: str) -> str:
    """Only the second if the first is unknown."""
    return after if before == UNKNOWN else f"{before} → {after}"


def format_cell(cell: Cell, kind: Kind = "text") -> str:
    """A cell as text. A share without its unit stands in points; a number that does not exist is a dash."""
    if isinstance(cell, Change):
        before, after = format_cell(cell.before, kind), format_cell(cell.after, kind)
        return after if before == after == FREE else before_after(before, after)
    if isinstance(cell, Rate):
        if not cell.of:
            return UNKNOWN
        return f"{percent(cell.value)} ({cell.passed:,}/{cell.of:,})"
    if isinstance(cell, Measure):
        return format_measure(cell, kind)
    if isinstance(cell, Headline):
        return f"{cell.sign} {cell.text}".lstrip()
    if cell is None or isinstance(cell, str):
        return UNKNOWN if cell is None else cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return FORMATS[kind](cell)


def format_measure(measure: Measure, kind: Kind = "points") -> str:
    """+75 (+56 to +87)."""
    if measure.value is None:
        return UNKNOWN
    write = FORMATS["points" if kind == "text" else kind]
    bounds = [write(each) for each in (measure.low, measure.high) if each is not None]
    return f"{write(measure.value)} ({' to '.join(bounds)})" if bounds else write(measure.value)


def _whole(number: float) -> str:
    return f"{number:,.0f}"


FORMATS: Mapping[Kind, Callable[[float], str]] = {
    "text": _whole,
    "code": _whole,
    "count": _whole,
    "share": percent,
    "points": signed_points,
    "change": lambda share: percent(share, signed=True),
    "decimal": lambda number: f"{number:.1f}",
    "dollars": dollars,
}
