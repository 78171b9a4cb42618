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

from upskill.reports.report import Column

GAP = 2  # spaces between columns
MIN_PROSE = 20  # characters of a column that is wrapped


def indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


class Paragraph:
    """Text wrapped between words. A word longer than the line stays whole, so it can be copied, unless `folds`: inside
    of something else, what is too wide would be lost.
    """

    def __init__(
        self, text: str, style: str = "", *, indent: int = 2, hanging: int = 0, folds: bool = False
    ) -> None:
        self.text, self.style, self.indent, self.hanging = text, style, indent, hanging
        self.folds = folds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style(self.style) if self.style else Style.null()
        for line in self.text.splitlines() or [""]:
            wrapped = textwrap.wrap(
                line,
                max(20, options.max_width),
                initial_indent=" " * self.indent,
                subsequent_indent=" " * (self.indent + self.hanging),
                break_long_words=self.folds,
                break_on_hyphens=False,
            )
            for part in wrapped or [""]:
                yield Segment(part, style)
                yield Segment.line()


class FittedTable:
    """A table. If it is too wide, it leaves out spare columns, then wraps the widest column of prose between words, and
    finally prints a line per cell.
    """

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int = 2
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = {place: self._width(place) for place in range(len(self.columns))}
        for place, column in enumerate(self.columns):
            if column.spare and self._excess(widths, options) > 0:
                del widths[place]
        excess = self._excess(widths, options)
        if excess > 0:
            prose = [place for place in widths if self.columns[place].kind == "text"]
            widest = max(prose, key=widths.__getitem__, default=0)
            words = (word for row in self.rows for word in row[widest].plain.split())
            if not prose or widths[widest] - excess < max(MIN_PROSE, *map(cell_len, words)):
                yield from self._lines()
                return
            widths[widest] -= excess
        table = Table.grid(padding=(0, GAP, 0, 0))
        for place, width in widths.items():
            table.add_column(justify=self.columns[place].justify, width=width)
        table.add_row(*(Text(self.columns[place].name, style="bold") for place in widths))
        for row in self.rows:
            table.add_row(*(row[place] for place in widths))
        yield Padding(table, (0, 0, 0, self.indent))

    def _width(self, place: int) -> int:
        name = self.columns[place].name
        return max(cell_len(name), *(row[place].cell_len for row in self.rows))

    def _excess(self, widths: dict[int, int], options: ConsoleOptions) -> int:
        gaps = GAP * (len(widths) - 1)
        return self.indent + sum(widths.values()) + gaps - options.max_width

    def _lines(self) -> RenderResult:
        names = [column.name for column in self.columns]
        width = max(map(cell_len, names)) + GAP
        for first, *others in self.rows:
            yield Paragraph(first.plain, indent=self.indent)
            for name, cell in zip(names[1:], others, strict=True):
                if cell.plain:
                    line = f"{name:<{width}}{cell.plain}"
                    yield Paragraph(line, indent=self.indent + 2, hanging=width)
