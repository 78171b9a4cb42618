"""Numbers as reports write them: a difference of shares in points; a dash where not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from upskill.reports.report import Cell, Change, Headline, Kind, Measure, Rate
from upskill.verdicts.line import signed_points
from upskill.verdicts.verdict import REASONS, Reason

UNKNOWN = "–"
FREE = "free"
INVALID = f"INVALID: {REASONS[Reason.ISOLATION]}"


def percent(share: float) -> str:
    return f"{round(100 * share)}%"


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


def format_cell(cell: Cell, kind: Kind = "text") -> str:
    """A cell as text. A share without its unit stands in points; a number that does not exist is a dash."""
    if isinstance(cell, Change):
        before, after = format_cell(cell.before, kind), format_cell(cell.after, kind)
        is_same = before == UNKNOWN or before == after == FREE
        return after if is_same else f"{before} → {after}"
    if isinstance(cell, Rate):
        return f"{percent(cell.value)} ({cell.passed:,}/{cell.of:,})" if cell.of else UNKNOWN
    if isinstance(cell, Measure):
        value = format_cell(cell.value, kind)
        bounds = [format_cell(end, kind) for end in (cell.low, cell.high) if end is not None]
        return f"{value} ({' to '.join(bounds)})" if bounds else value
    if isinstance(cell, Headline):
        return f"{cell.sign} {cell.text}".lstrip()
    if cell is None:
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else FORMATS[kind](cell)


def _whole(number: float) -> str:
    return f"{number:,.0f}"


FORMATS: Mapping[Kind, Callable[[float], str]] = {
    "text": _whole,
    "code": _whole,
    "count": _whole,
    "share": percent,
    "points": signed_points,
    "decimal": lambda number: f"{number:.1f}",
    "dollars": dollars,
}
