"""`markdown`: a report as a summary for a pull request."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from upskill.reports.numbers import format_cell
from upskill.reports.report import Cell, Column, Headline, Report, Tone
from upskill.sandboxes import printable

_SIGN = r"[\\`*_|<>\[\]]"  # means something in Markdown
MARKS: dict[Tone, str] = {"good": "🟢", "bad": "🔴", "open": "🟡", "neutral": "⚪"}


def render(report: Report) -> str:
    text = _template().render(
        report=report,
        headlines=report.headlines or (Headline(report.title),),
        alarms=[note for note in report.notes if note.kind == "alarm"],
        notes=[note for note in report.notes if note.kind in ("caveat", "note")],
        tables=[table for table in report.tables if table.rows],
        MARKS=MARKS,
    )
    lines = re.sub(r"\n{3,}", "\n\n", text).strip()
    return printable(f"{lines}\n")  # a model's name may reverse the text after it


def escape(text: str) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error contains."""
    return _escape_signs(" ".join(text.split()))


def write_text(text: str) -> str:
    """A sentence of ours: what stands between backticks is code, the rest is escaped."""
    parts = re.split(r"(?<!`)(`[^`]+`)(?!`)", " ".join(text.split()))
    return "".join(part if place % 2 else _escape_signs(part) for place, part in enumerate(parts))


def _escape_signs(text: str) -> str:
    return re.sub(_SIGN, r"\\\g<0>", text)


def write_cell(cell: Cell, column: Column) -> str:
    text = format_cell(cell, column.kind)
    is_code = column.kind == "code" and isinstance(cell, str) and not re.search(r"[`|\n]", text)
    return f"`{text}`" if is_code and text else escape(text)


def align(column: Column) -> str:
    return "---" if column.justify == "left" else "---:"


@cache
def _template() -> Template:
    def load(name: str) -> str:
        return files("upskill.reports").joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=False,  # noqa: S701 - Markdown; `sentence` and `escaped` do it
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    ours: dict[str, Any] = {"sentence": write_text, "escaped": escape, "align": align}
    environment.filters.update(ours)
    functions: dict[str, Any] = {"cell": write_cell, "zip": zip}
    return environment.get_template("markdown.md.j2", globals=functions)
