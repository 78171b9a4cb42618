from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file
from upskill.sandboxes import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from upskill.reports.report import Report
    from upskill.reports.terminal import Detail

WIDTH_IN_A_PIPE = 110
LEAST_WIDTH = 40


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 - rich, only when something is drawn

    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, width=_width(stream), highlight=False, soft_wrap=False)


def _width(stream: TextIO) -> int | None:
    """COLUMNS, else the terminal's width."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return max(LEAST_WIDTH, int(columns))
    return None if stream.isatty() else WIDTH_IN_A_PIPE


def show(*parts: RenderableType) -> None:
    screen = console()
    if not screen.is_terminal:
        click.echo(as_text(*parts), nl=False)
        return
    for part in parts:
        screen.print(_Printable(part), crop=False)


class _Printable:
    """Drops terminal control characters: prompts and answers are other people's."""

    def __init__(self, part: RenderableType) -> None:
        self.part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment  # noqa: PLC0415

        for text, style, control in console.render(self.part, options):
            yield Segment(text if control else printable(text), style, control)


def as_text(*parts: RenderableType) -> str:
    from rich.console import Console  # noqa: PLC0415

    out = io.StringIO()
    screen = Console(file=out, width=_width(out), highlight=False, color_system=None)
    for part in parts:
        screen.print(_Printable(part), crop=False)
    # rich pads to the width, which only a terminal wants
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def show_report(
    report: Report, *, as_json: bool = False, quiet: bool = False, detail: Detail = "result"
) -> None:
    """The result of a command, for people or for programs."""
    if as_json:
        show_json(report.data)
        return
    from upskill.reports.terminal import render  # noqa: PLC0415 - rich, only for people

    if quiet:
        detail = "headlines"
    elif detail == "result" and is_verbose():
        detail = "outcomes"
    show(render(report, detail))


def is_verbose() -> bool:
    """Whether the command was given -v."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get("upskill.verbosity"))


def show_json(value: Mapping[str, Any] | list[Any]) -> None:
    click.echo(to_json_text(value, 0))


def to_json_text(value: object, indent: int = 2) -> str:
    # A terminal would obey what JSON leaves as it is, such as U+009B.
    on_terminal = sys.stdout.isatty() or (sys.stdout.encoding or "utf-8").lower() not in (
        "utf-8",
        "utf8",
    )
    text = json.dumps(value, indent=2, ensure_ascii=on_terminal, allow_nan=False).replace(
        "\n", "\n" + " " * indent
    )
    return text.replace("\x7f", "\\u007f") if on_terminal else text


def show_document(text: str) -> None:
    """Print a file's content as UTF-8, except on a terminal without it."""
    click.echo(text if sys.stdout.isatty() else text.encode(errors="replace"), nl=False)


_note_writers: list[Callable[[str], None]] = []


def redirect_notes(writer: Callable[[str], None] | None) -> None:
    """Send notes to whatever draws on standard error; None resets this."""
    _note_writers[:] = [writer] if writer else []


def note(text: str) -> None:
    text = _wrapped(printable(text))
    if _note_writers:
        _note_writers[-1](text)
    else:
        with suppress(OSError):  # standard error is full, so nobody would see a message
            click.echo(text, err=True)


def _wrapped(text: str) -> str:
    """Wrap between words, to COLUMNS or the terminal's width; a longer word stays whole, to be copied."""
    if not sys.stderr.isatty() and not os.environ.get("COLUMNS"):
        return text
    width = _width(sys.stderr) or shutil.get_terminal_size().columns
    wrap = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    lines = [(line, " " * (len(line) - len(line.lstrip()))) for line in text.split("\n")]
    return "\n".join(
        "\n".join(wrap(line, subsequent_indent=f"{indent}  ")) for line, indent in lines
    )


def check_writable(path: str, *, force: bool = False) -> None:
    """UsageError, before anything runs, if a file cannot be written or is not ours to overwrite."""
    if path == "-":
        raise UsageError(
            "this report cannot go to standard output (-)",
            "The result is already printed there; use a file name.",
        )
    file = Path(path)
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if (
        file.is_dir()
        or not folder.is_dir()
        or not os.access(file if file.exists() else folder, os.W_OK)
    ):
        raise UsageError(f"{path}: cannot be written", "Choose a file in a writable folder.")
    check_ours(path, force=force)


def write_file(path: str, content: str, *, overwrite: bool = True, private: bool = True) -> None:
    if not overwrite and os.path.lexists(path):
        raise UsageError(
            f"{path}: already exists", "Choose another file, or overwrite it with --force."
        )
    with whole_file(path, private=private) as stream:
        stream.write(content.encode(errors="backslashreplace"))
