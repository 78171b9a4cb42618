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

from upskill.reports.report import Column, Tone

COLORS: dict[Tone, str] = {"good": "green", "bad": "red", "open": "yellow", "neutral": ""}
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
        self.lines = text.splitlines() or [""]
        self.style = style
        self.wrapper = textwrap.TextWrapper(
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_long_words=folds,
            break_on_hyphens=False,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style(self.style) if self.style else Style.null()
        self.wrapper.width = max(20, options.max_width)
        for line in self.lines:
            for part in self.wrapper.wrap(line) or [""]:
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
        widths: dict[int, int] = {}
        for place, column in enumerate(self.columns):
            widths[place] = max(cell_len(column.name), *(row[place].cell_len for row in self.rows))
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
            justify = "right" if self.columns[place].is_number else "left"
            table.add_column(justify=justify, width=width)
        heads = [Text(column.name, style="bold") for column in self.columns]
        for row in (heads, *self.rows):
            table.add_row(*(row[place] for place in widths))
        yield Padding(table, (0, 0, 0, self.indent))

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
