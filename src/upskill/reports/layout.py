"""Text and tables for any width: no word or name is ever broken or cut."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from upskill.sandboxes import printable

GAP = "  "


def indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


def plain_table(*heads: str, right: Collection[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    return table


def render_result(
    conclusion: str, lines: Iterable[str], table: Table | None = None, style: str = "bold"
) -> Iterator[RenderableType]:
    """The result of an experiment: its conclusion, the figures, then details."""
    yield from (Text(""), Paragraph(printable(conclusion), style), Text(""))
    if table:
        yield from (indented(table), Text(""))
    yield from (Paragraph(printable(line), hanging=2) for line in lines)


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
    """A table without wrapping. If it is too wide, it drops `spare` columns in this order, then moves the first column
    above the rows, then drops the `last` one, and finally prints a line per cell; or it becomes its `narrow` table.
    """

    def __init__(
        self,
        rows: Sequence[dict[str, Text]],
        *,
        left: Sequence[str],
        spare: Sequence[str] = (),
        last: str = "",
        indent: int = 2,
        narrow: FittedTable | None = None,
    ) -> None:
        self.rows, self.left, self.spare, self.last, self.indent = rows, left, spare, last, indent
        self.narrow = narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        columns = list(self.rows[0])
        if self.narrow and self._width(columns) > room:
            yield self.narrow
            return
        name = columns[0]
        for column in self.spare:
            if self._width(columns) > room:
                columns.remove(column)
        apart = self._width(columns) > room
        if apart:
            columns.remove(name)
            if self.last and self._width(columns) + 2 > room:
                columns.remove(self.last)
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

    def _lines(self, console: Console, name: str) -> RenderResult:
        width = max(cell_len(column) for column in self.rows[0])
        for row in self.rows:
            yield from _line(console, row[name], self.indent)
            for column, cell in row.items():
                if column != name and cell.plain:
                    yield from _line(
                        console,
                        Text(f"{column:<{width}}{GAP}", style="bold") + cell,
                        self.indent + 2,
                    )

    def _width(self, columns: Sequence[str]) -> int:
        return self.indent + sum(map(self._column_width, columns)) + len(GAP) * (len(columns) - 1)

    def _column_width(self, column: str) -> int:
        return max(cell_len(column), *(row[column].cell_len for row in self.rows))


def _line(console: Console, text: Text, indent: int) -> RenderResult:
    text = Text(" " * indent) + text
    text.rstrip()
    yield from text.render(console)
    yield Segment.line()
