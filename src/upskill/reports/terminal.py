"""`terminal`: verdict lines, tables, at most one note, and the next command; with `verbose` all but answers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from upskill.plain import counted
from upskill.reports.answers import render_group, render_outcomes
from upskill.reports.layout import FittedTable, Paragraph, indented
from upskill.reports.numbers import format_cell
from upskill.reports.report import Cell, Column, Headline, Note, Report, Section, Table, Tone
from upskill.sandboxes import printable

MAX_NOTES = 1  # below the table; `--verbose` and `upskill show` have them all
COLORS: dict[Tone, str] = {"good": "green", "bad": "red", "open": "yellow", "neutral": ""}


def render(report: Report, *, verbose: bool = False, quiet: bool = False) -> RenderableType:
    if quiet:
        return Group(*_result(report, with_notes=False))
    parts = [*render_alarms(report), Text(""), *_result(report)]
    notes = [note for note in report.notes if note.kind == "note"]
    shown = notes if verbose else notes[:MAX_NOTES]
    for note in shown:
        parts += render_note(note)
    if verbose:
        parts += [*render_details(report), *render_outcomes(report.groups())]
    if report.saved:
        parts.append(Paragraph(printable(report.saved), hanging=2))
    hidden = len(notes) - len(shown)
    for each in report.next:
        reason = each.reason
        if hidden:
            reason = f"{reason} and {counted(hidden, 'more note')}".removeprefix(" and ")
            hidden = 0
        parts.append(Paragraph(": ".join(filter(None, [reason, each.command])), "dim"))
    return Group(*parts)


def render_answers(report: Report, *, is_detailed: bool = False) -> RenderableType:
    """All there is, with every answer. `is_detailed`: with passing checks and every step."""
    parts: list[RenderableType] = [Paragraph(report.subject, "bold", indent=0, hanging=2)]
    parts += [*render_alarms(report), Text(""), *_result(report)]
    for note in report.notes:
        if note.kind == "note":
            parts += render_note(note)
    parts += render_details(report)
    for section in report.sections:
        parts += [*render_section(section), Text("")]
    for group in report.groups():
        parts += render_group(group, is_detailed=is_detailed)
    return Group(*parts)


def _result(report: Report, *, with_notes: bool = True) -> Iterator[RenderableType]:
    yield from render_headlines(report)
    for table in report.tables:
        if table.rows and not table.is_detail:
            yield Text("")
            yield from render_table(table)
            if with_notes:
                yield Text("")
            if table.note and with_notes:
                yield Paragraph(printable(table.note), hanging=2)


def render_headlines(report: Report) -> Iterator[RenderableType]:
    for headline in report.headlines or (Headline(report.title),):
        line = f"{headline.sign} {headline.text}".lstrip()
        yield Paragraph(printable(line), COLORS[headline.tone], hanging=2)
    for note in report.notes:
        if note.kind == "caveat":
            yield Paragraph(printable(note.text), "yellow", hanging=2)
            for line in note.lines:
                yield Paragraph(printable(line), indent=4)


def render_alarms(report: Report) -> Iterator[RenderableType]:
    for note in report.notes:
        if note.kind == "alarm":
            lines = [note.text, *(f"  {line}" for line in note.lines)]
            yield indented(Panel(Text("\n".join(lines)), style="bold red"))


def render_note(note: Note) -> Iterator[RenderableType]:
    style = "dim" if note.kind == "detail" else ""
    prefix = "Note: " if note.kind == "note" else ""
    yield Paragraph(f"{prefix}{printable(note.text)}", style, hanging=2)
    for line in note.lines:
        yield Paragraph(printable(line), style, indent=4)


def render_details(report: Report) -> Iterator[RenderableType]:
    """Further tables, and what is worth knowing where there is room."""
    for note in report.notes:
        if note.kind == "detail":
            yield from render_note(note)
    for table in report.tables:
        if table.rows and table.is_detail:
            yield Text("")
            yield from render_table(table)
            if table.note:
                yield Paragraph(printable(table.note), "dim", hanging=2)
    yield Text("")


def render_table(table: Table) -> Iterator[RenderableType]:
    if table.title:
        yield Paragraph(table.title, "bold")
    rows: list[dict[str, Text]] = []
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        rows.append({column.name: _text(cell, column) for column, cell in cells})
    if rows:
        left = [column.name for column in table.columns if column.kind in ("text", "code")]
        spare = [column.name for column in table.columns if column.spare]
        prose = [column.name for column in table.columns if column.kind == "text"]
        yield FittedTable(rows, left=left, spare=spare, prose=prose)


def _text(cell: Cell, column: Column) -> Text:
    style = COLORS[cell.tone] if isinstance(cell, Headline) else ""
    return Text(printable(format_cell(cell, column.kind)), style)


def render_section(section: Section) -> Iterator[RenderableType]:
    """Names with their values; a text is for pages."""
    yield Paragraph(section.title, "bold")
    for name, value in section.lines:
        yield Paragraph(f"{name}: {printable(value)}", hanging=2)
