"""`terminal`: verdict lines, tables, at most one note, and the next command; or more, down to every answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from upskill.plain import counted
from upskill.reports.answers import render_group, render_outcomes
from upskill.reports.layout import COLORS, FittedTable, Paragraph
from upskill.reports.numbers import format_cell
from upskill.reports.report import Headline, Report, Table

# How much is said: `--quiet`, usually, `--verbose`, `show`, and `show --case`.
Detail = Literal["headlines", "result", "outcomes", "answers", "steps"]
MAX_NOTES = 1  # below the result
STYLES = {"alarm": "bold red", "caveat": "yellow", "note": "", "detail": "dim"}


def render(report: Report, detail: Detail = "result") -> RenderableType:
    return Group(*_parts(report, detail))


def _parts(report: Report, detail: Detail) -> Iterator[RenderableType]:
    if detail == "headlines":
        yield from _result(report, with_notes=False)
        return
    is_short = detail == "result"
    has_answers = detail in ("answers", "steps")
    if has_answers:
        yield Paragraph(report.subject, "bold", indent=0, hanging=2)
    yield from _notes(report, "alarm")
    yield Text("")
    yield from _result(report)
    yield from _notes(report, "note", MAX_NOTES if is_short else None)
    if not is_short:
        yield from _notes(report, "detail")
        for table in report.tables:
            if table.is_detail:
                yield from _table(table)
        yield Text("")
    if has_answers:
        for section in report.sections:
            yield Paragraph(section.title, "bold")
            for name, value in (section.lines or {}).items():
                yield Paragraph(f"{name}: {value}", hanging=2)
            yield Text("")
        for group in report.groups():
            yield from render_group(group, is_detailed=detail == "steps")
    elif not is_short:
        yield from render_outcomes(report.groups())
    if report.saved:
        yield Paragraph(report.saved, hanging=2)
    hidden = sum(note.kind == "note" for note in report.notes) - MAX_NOTES
    for each in report.next:
        more = counted(hidden, "more note") if is_short and hidden > 0 else ""
        reason = " and ".join(filter(None, [each.reason, more]))
        yield Paragraph(": ".join(filter(None, [reason, each.command])), "dim")
        hidden = 0


def _result(report: Report, *, with_notes: bool = True) -> Iterator[RenderableType]:
    for headline in report.headlines or [Headline(report.title)]:
        yield Paragraph(format_cell(headline), COLORS[headline.tone], hanging=2)
    yield from _notes(report, "caveat")
    for table in report.tables:
        if not table.is_detail:
            yield from _table(table, with_note=with_notes)


def _notes(report: Report, kind: str, most: int | None = None) -> Iterator[RenderableType]:
    notes = [note for note in report.notes if note.kind == kind]
    for note in notes[:most]:
        prefix = "Note: " if kind == "note" else ""
        yield Paragraph(f"{prefix}{note.text}", STYLES[kind], hanging=2)
        for line in note.lines:
            yield Paragraph(line, STYLES[kind], indent=4)


def _table(table: Table, *, with_note: bool = True) -> Iterator[RenderableType]:
    if not table.rows:
        return
    yield Text("")
    if table.title:
        yield Paragraph(table.title, "bold")
    rows: list[list[Text]] = []
    for row in table.rows:
        cells: list[Text] = []
        for cell, column in zip(row, table.columns, strict=True):
            color = COLORS[cell.tone] if isinstance(cell, Headline) else ""
            cells.append(Text(format_cell(cell, column.kind), color))
        rows.append(cells)
    yield FittedTable(table.columns, rows)
    if with_note:
        yield Text("")
        if table.note:
            yield Paragraph(table.note, hanging=2)
