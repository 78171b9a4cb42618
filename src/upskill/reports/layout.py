"""Text and tables for any width: no word or name is ever broken or cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

GAP = "  "
MIN_PROSE = 20  # characters of a column that is wrapped


def indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


class Paragraph:
    """Text wrapped between words. A word longer than the line stays whole, so it can be copied."""

    def __init__(self, text: str, style: str = "", *, indent: int = 2, hanging: int = 0) -> None:
        self.text, self.style, self.indent, self.hanging = text, style, indent, hanging

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style(self.style) if self.style else Style.null()
        for line in self.text.splitlines() or [""]:
            wrapped = textwrap.wrap(
                line,
                max(20, options.max_width),
                initial_indent=" " * self.indent,
                subsequent_indent=" " * (self.indent + self.hanging),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for part in wrapped or [""]:
                yield Segment(part, style)
                yield Segment.line()


class FittedTable:
    """A table. If it is too wide, it drops `spare` columns in this order, then wraps the widest column of prose between
    words, then moves the first column above the rows, and finally prints a line per cell.
    """

    def __init__(
        self,
        rows: Sequence[dict[str, Text]],
        *,
        left: Sequence[str],
        spare: Sequence[str] = (),
        prose: Sequence[str] = (),
        indent: int = 2,
    ) -> None:
        self.rows = rows
        self.left = left
        self.spare = spare
        self.prose = prose
        self.indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        columns = list(self.rows[0])
        name = columns[0]
        for column in self.spare:
            if self._width(columns) > room:
                columns.remove(column)
        wrapped = self._wrapped(columns, room)
        if wrapped:
            yield wrapped
            return
        apart = self._width(columns) > room
        if apart:
            columns.remove(name)
            if self._width(columns) + 2 > room:
                yield from self._lines(console, name)
                return
        widths = {column: self._column_width(column) for column in columns}
        head = {column: Text(column, style="bold") for column in columns}
        for row in (head, *self.rows):
            if apart and row is not head:
                yield from _line(console, row[name], self.indent)
            padded = {column: row[column].copy() for column in columns}
            for column, cell in padded.items():
                cell.align("left" if column in self.left else "right", widths[column])
            yield from _line(
                console, Text(GAP).join(padded.values()), self.indent + (2 if apart else 0)
            )

    def _wrapped(self, columns: Sequence[str], room: int) -> Padding | None:
        """With the widest column of prose wrapped; None if it need not or cannot be."""
        prose = [column for column in columns if column in self.prose]
        excess = self._width(columns) - room
        if excess <= 0 or not prose:
            return None
        widest = max(prose, key=self._column_width)
        width = self._column_width(widest) - excess
        words = (word for row in self.rows for word in row[widest].plain.split())
        if width < max(MIN_PROSE, *map(cell_len, words)):
            return None
        table = Table.grid(padding=(0, len(GAP), 0, 0))
        for column in columns:
            justify = "left" if column in self.left else "right"
            own_width = width if column == widest else self._column_width(column)
            table.add_column(justify=justify, width=own_width, no_wrap=column != widest)
        table.add_row(*(Text(column, style="bold") for column in columns))
        for row in self.rows:
            table.add_row(*(row[column] for column in columns))
        return Padding(table, (0, 0, 0, self.indent))

    def _lines(self, console: Console, name: str) -> RenderResult:
        width = max(map(cell_len, self.rows[0])) + len(GAP)
        for row in self.rows:
            yield from _line(console, row[name], self.indent)
            for column, cell in row.items():
                if column != name and cell.plain:
                    line = f"{column:<{width}}{cell.plain}"
                    yield Paragraph(line, indent=self.indent + 2, hanging=width)

    def _width(self, columns: Sequence[str]) -> int:
        return self.indent + sum(map(self._column_width, columns)) + len(GAP) * (len(columns) - 1)

    def _column_width(self, column: str) -> int:
        return max(cell_len(column), *(row[column].cell_len for row in self.rows))


def _line(console: Console, text: Text, indent: int) -> RenderResult:
    text = Text(" " * indent) + text
    text.rstrip()
    yield from text.render(console)
    yield Segment.line()
