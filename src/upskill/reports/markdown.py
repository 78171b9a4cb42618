"""`markdown`: a report as a summary for a pull request."""

from __future__ import annotations

import re

from upskill.reports.numbers import format_cell
from upskill.reports.report import Cell, Column, Headline, Report, Tone
from upskill.reports.templates import load_template

_SIGN = r"[\\`*_|<>\[\]]"  # means something in Markdown
MARKS: dict[Tone, str] = {"good": "🟢", "bad": "🔴", "open": "🟡", "neutral": "⚪"}


def render(report: Report) -> str:
    text = load_template("markdown.md.j2").render(
        sentence=write_text,
        cell=write_cell,
        zip=zip,
        MARKS=MARKS,
        report=report,
        headlines=report.headlines or [Headline(report.title)],
        tables=[table for table in report.tables if table.rows],
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write_text(text: str) -> str:
    """A sentence of ours: what stands between backticks is code, the rest is escaped."""
    parts = re.split(r"(?<!`)(`[^`]+`)(?!`)", " ".join(text.split()))
    return "".join(part if place % 2 else _escape(part) for place, part in enumerate(parts))


def write_cell(cell: Cell, column: Column) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error contains."""
    text = " ".join(format_cell(cell, column.kind).split())
    is_code = column.kind == "code" and isinstance(cell, str) and not re.search(r"[`|]", text)
    return f"`{text}`" if is_code and text else _escape(text)


def _escape(text: str) -> str:
    return re.sub(_SIGN, r"\\\g<0>", text)
