"""What the commands print with: standard output for results, standard error for notes and progress."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from upskill.errors import UsageError
from upskill.runs.plan import Plan, Result, Trial
from upskill.runs.stores import Run
from upskill.traces import NO_USAGE

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID

WIDTH_IN_A_PIPE = 110
LEAST_WIDTH = 40


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 - rich, only when something is drawn

    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, width=_width(stream), highlight=False, soft_wrap=False)


def _width(stream: TextIO) -> int | None:
    """How wide to draw: what COLUMNS says, else as wide as the terminal is, which rich finds out."""
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
        screen.print(part, crop=False)


def as_text(*parts: RenderableType) -> str:
    """What rich would draw, as plain text."""
    from rich.console import Console  # noqa: PLC0415

    out = io.StringIO()
    screen = Console(file=out, width=_width(out), highlight=False, color_system=None)
    for part in parts:
        screen.print(part, crop=False)
    # rich pads to the width, which only a terminal wants
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def show_json(value: Mapping[str, Any] | list[Any]) -> None:
    click.echo(to_json_text(value, 0))


def to_json_text(value: object, indent: int = 2) -> str:
    """A value as JSON that stands this far in."""
    # A terminal would obey what JSON leaves as it is, such as U+009B.
    on_terminal = sys.stdout.isatty()
    text = json.dumps(value, indent=2, ensure_ascii=on_terminal, allow_nan=False).replace("\n", "\n" + " " * indent)
    return text.replace("\x7f", "\\u007f") if on_terminal else text


def note(text: str) -> None:
    from upskill.sandboxes import printable  # noqa: PLC0415 - not needed to print help

    click.echo(printable(text), err=True)


def check_writable(path: str) -> None:
    """UsageError where a report cannot be written, before anything is run."""
    if path == "-":
        raise UsageError("- is not a file", "Standard output is the result; name a file for this report.")
    file = Path(path)
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if file.is_dir() or not folder.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise UsageError(f"{path}: cannot be written", "Name a file in a folder that can be written to.")


def write_file(path: str, text: str, *, make_folders: bool = True) -> None:
    try:
        if make_folders:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_report(report: str | RenderableType, file: str) -> None:
    """Write a report to a file, or print it where no file is named."""
    if file:
        write_file(file, report if isinstance(report, str) else as_text(report))
    elif isinstance(report, str):
        click.echo(report, nl=False)
    else:
        show(report)


class RunProgress:
    """The progress of runs, one after another, on standard error: nothing in a pipe, nothing when quiet.

    Its methods are events: `Events(started=progress.started, result=progress.result)`. After Ctrl-C inside a
    `with` block it says what `interrupted` says.
    """

    def __init__(self, *, quiet: bool, interrupted: str = "") -> None:
        self.interrupted = interrupted
        self.is_drawn = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._drawn_at = 0.0

    def started(self, plan: Plan, _: Run, missing: list[Trial]) -> None:
        self.stop()
        self._done, self._left = len(plan) - len(missing), len(missing)
        self._passed: dict[str, list[int]] = {arm: [0, 0] for arm in plan.arms}  # and how many were scored
        self._errored = 0
        self._usage = NO_USAGE
        if not self.is_drawn or not missing:
            return
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console(err=True),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=len(plan), completed=self._done)

    def reading(self, model: str, done: int, total: int) -> None:
        """An embedded model reads a prompt, which takes a while when it is long."""
        if self._progress is not None and self._task is not None and done < total:
            words = f"{model} has read {done:,} of {total:,} tokens of a prompt"
            self._progress.update(self._task, description=words)

    def result(self, result: Result) -> None:
        counts = self._passed[result.trial.arm]
        if result.passed is None:
            self._errored += 1
        else:
            counts[0] += result.passed
            counts[1] += 1
        self._usage += result.usage
        self._done, self._left = self._done + 1, self._left - 1
        if not self._left:  # what is said from here on is not to be drawn into a bar
            self.stop()
        now = time.monotonic()
        if self._progress is not None and self._task is not None and now - self._drawn_at > 0.1:
            self._drawn_at = now
            self._progress.update(self._task, completed=self._done, description=self.summary)

    @property
    def summary(self) -> str:
        parts = [f"{arm} {passed}/{scored}" for arm, (passed, scored) in self._passed.items()]
        if self._errored:
            parts.append(f"{self._errored} errored")
        cost = self._usage.cost_usd
        parts += [f"{self._usage.total_tokens:,} tokens", "cost unknown" if cost is None else f"${cost:.4f}"]
        return " · ".join(parts)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is KeyboardInterrupt and self.interrupted:
            note(self.interrupted)
            raise click.exceptions.Exit(130)  # as after any Ctrl-C, which is said only once


class DownloadProgress:
    """A progress bar for what is fetched, on standard error; one line a tenth in a pipe would be noise, so none."""

    def __init__(self, *, quiet: bool) -> None:
        self.drawn = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self.drawn:
            return
        if self._progress is None:
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(24),
                DownloadColumn(),
                console=console(err=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(what, total=total or None)
            if command := click.get_current_context(silent=True):
                command.call_on_close(self.stop)  # also after an error or Ctrl-C, before that is said
        assert self._task is not None
        self._progress.update(self._task, completed=done, total=total or None)
        if total and done >= total:
            self.stop()

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
