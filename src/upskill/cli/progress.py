"""What a command is doing, on standard error: a live line in a terminal, a line every 15 seconds elsewhere."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import click

from upskill.cli import console
from upskill.plain import counted
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.stores import Run
from upskill.runs.stores.rows import INSTANT
from upskill.traces import NO_USAGE

if TYPE_CHECKING:
    from rich.live import Live

EVERY = 15.0  # seconds between lines without a terminal; UPSKILL_PROGRESS overrides it, 0 turns lines off
DELAY = 1.0  # seconds before anything is drawn: shorter work needs no status
TICK = 0.1
LONG_WAIT = 20.0  # seconds without a result before the status says why
BUSY = 2.0  # load per core from which the machine counts as busy
TEXT_WIDTH = 76  # columns for words; the bar gets what is left
MIN_BAR, MAX_BAR = 8, 24
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Display:
    """The status line. A thread calls `tick` to draw; all other methods only set what to draw."""

    def __init__(
        self,
        *,
        quiet: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        ticking: bool = True,
    ) -> None:
        self.stream, self.clock, self.ticking = stream or sys.stderr, clock, ticking
        self.is_terminal = self.stream.isatty()
        self.every = EVERY
        with suppress(ValueError):
            self.every = max(0.0, float(os.environ.get("UPSKILL_PROGRESS", "") or EVERY))
        self.is_silent = quiet or not (self.is_terminal or self.every)
        self.run: RunProgress | None = None
        self.usual = ""  # the default activity
        self._activity, self._share, self._detail = "", None, ""
        self._began = self._activity_began = self._spoke = clock()
        self._live: Live | None = None
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def doing(self, activity: str, detail: str = "", share: float | None = None) -> None:
        """Set the current activity and how far it is; empty: nothing slow."""
        with self._lock:
            if not (self._activity or self.run):
                self._began = self._spoke = self.clock()
            if activity != self._activity:
                self._activity_began = self.clock()
            self._activity, self._detail, self._share = activity, detail, share
            if not activity and not self.run:
                self._erase()
        if activity:
            self._start()

    def detail(self, text: str) -> None:
        self._detail = text

    def watch(self, run: RunProgress | None) -> None:
        """Draw the counts of this run; None stops that."""
        with self._lock:
            self.run, self._detail = run, ""
            if self._activity == self.usual or run is None:
                self._activity = ""
            self._erase()
            self._began = self._spoke = self.clock()
        if run is None:
            self.doing(self.usual)
        else:
            self._start()

    def say(self, text: str) -> None:
        """Print a line; one with "..." in it also starts an activity."""
        with self._lock:
            self._erase()
            click.echo(text, err=True)
            self._spoke = self.clock()
        activity, is_begun, _ = text.partition("...")
        self.doing(" ".join(activity.split()) if is_begun else "" if self.run else self.usual)

    @contextmanager
    def asking(self) -> Generator[None]:
        with self._lock:
            self._erase()
            yield
            self._spoke = self.clock()

    def tick(self) -> None:
        with self._lock:
            now = self.clock()
            if self.is_silent or not (self._activity or self.run) or now - self._began < DELAY:
                return
            if self.is_terminal:
                self._draw(now)
            elif now - self._spoke >= self.every:
                self._spoke = now
                click.echo(f"… {' · '.join(self._parts(now))}", file=self.stream)

    def _parts(self, now: float) -> list[str]:
        """The most important first."""
        if self.run is None:
            parts = [self._activity, self._detail, _duration(now - self._activity_began)]
        else:
            parts = [
                *self.run.counts(now),
                self._detail,
                *self.run.problems(now),
                self._activity,
                *self.run.spent(),
            ]
        return [part for part in parts if part]

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._thread = None
            self.run, self.usual, self._activity, self._detail = None, "", "", ""
            self._erase()

    def _start(self) -> None:
        def keep_ticking() -> None:
            while not self._ended.wait(TICK):
                self.tick()

        if self.ticking and not self.is_silent and self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=keep_ticking, name="progress", daemon=True)
            self._thread.start()

    def _draw(self, now: float) -> None:
        from rich.cells import cell_len  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415 - rich, only when something is drawn
        from rich.text import Text  # noqa: PLC0415

        if self._live is None:
            screen = console.console(err=True)
            self._live = Live(
                console=screen, transient=True, auto_refresh=False, redirect_stdout=False
            )
            self._live.start()
        share = self.run.share if self.run else self._share
        spinner = SPINNER[int((now - self._began) / TICK) % len(SPINNER)]
        room = self._live.console.width
        line = f"{spinner} "
        if share is not None and (size := min(MAX_BAR, room - TEXT_WIDTH)) >= MIN_BAR:
            filled = round(min(1.0, share) * size)
            line += f"{'━' * filled}{'╌' * (size - filled)} "
        first, *others = self._parts(now)
        line += first
        for part in others:  # what does not fit is left out whole
            if cell_len(f"{line} · {part}") <= room:
                line += f" · {part}"
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _erase(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def display_of_command(*, quiet: bool) -> Display:
    """The display of the running command, closed before an error or Ctrl-C is reported."""
    command = click.get_current_context(silent=True)
    if command is None:
        return Display(quiet=quiet)
    if "upskill.display" not in command.meta:
        command.meta["upskill.display"] = display = Display(quiet=quiet)
        console.redirect_notes(display.say)
        command.call_on_close(lambda: console.redirect_notes(None))
        command.call_on_close(display.stop)  # which is called first
    return command.meta["upskill.display"]


class RunProgress:
    """Progress of successive runs; its methods are events. After Ctrl-C in a `with` block it shows `interrupted`."""

    def __init__(
        self,
        *,
        quiet: bool,
        interrupted: str = "",
        display: Display | None = None,
        load: Callable[[], float] = lambda: os.getloadavg()[0],
    ) -> None:
        self.interrupted, self._load, self._timed = interrupted, load, 0
        self.display = display or display_of_command(quiet=quiet)

    def started(self, plan: Plan, _: Run, missing: Collection[Trial]) -> None:
        self._total, self._stored, self._done = len(plan), len(plan) - len(missing), 0
        self._errored = self._timed = 0  # timed: not instant, so it shows how fast the student is
        self._usage = NO_USAGE
        self._began = self._last = self.display.clock()
        self._students = list(dict.fromkeys(trial.model for trial in missing))
        self._cores = 0  # shared by an embedded student and everything else on this machine
        if any(
            address.provider == "local" and address.name in self._students
            for address in plan.models
        ):
            from upskill.models.embedded.capacity import usable_cores  # noqa: PLC0415 - only for embedded models

            self._cores = usable_cores()
        if missing:
            self.display.watch(self)

    def reading(self, model: str, done: int, total: int) -> None:
        doing = f"reading the prompt ({done / total:.0%})" if done < total else "answering"
        self.display.detail(f"{model} is {doing}")

    def result(self, result: Result) -> None:
        self._errored += result.passed is None
        self._usage += result.usage
        self._done += 1
        self._timed += result.seconds >= INSTANT
        self._last = self.display.clock()
        self.display.detail("")
        if self._stored + self._done >= self._total:  # later notes must not be drawn into a bar
            self.display.watch(None)

    @property
    def share(self) -> float:
        return (self._stored + self._done) / self._total

    def counts(self, now: float) -> Iterator[str]:
        yield f"{self._stored + self._done:,} of {counted(self._total, 'trial')}"
        if self._timed:
            # A trial that takes longer than usual counts as if it were done now.
            pace = max(self._pace, (now - self._began) / (self._timed + 1))
            yield f"about {_duration((self._total - self._stored - self._done) * pace)} left"

    def problems(self, now: float) -> Iterator[str]:
        yield from self._waiting(now)
        # Not how many passed: if the baseline is stored, that would reveal how the skill is doing.
        if self._errored:
            yield f"{self._errored} errored"

    def spent(self) -> Iterator[str]:
        from upskill.reports.numbers import dollars  # noqa: PLC0415 - not needed to print help

        if self._done:
            cost = self._usage.cost_usd
            yield f"{self._usage.total_tokens:,} tokens"
            yield "price unknown" if cost is None else dollars(cost)

    @property
    def _pace(self) -> float:
        """Seconds between two results that were not instant."""
        return (self._last - self._began) / self._timed

    def expected_time(self, trials: int) -> str:
        """How long so many trials take at the pace of the last ones; empty where none ran."""
        return f", about {_duration(trials * self._pace)}" if self._timed else ""

    def _waiting(self, now: float) -> Iterator[str]:
        """What a long wait is for, and whether an embedded student waits because the machine is busy."""
        if now - self._last < LONG_WAIT:
            return
        students = (
            self._students[0] if len(self._students) == 1 else counted(len(self._students), "model")
        )
        yield f"waiting for {students} for {_duration(now - self._last)}"
        if self._cores and (load := self._load()) > BUSY * self._cores:
            yield f"this machine is busy: a load of {load:.0f} on {counted(self._cores, 'core')}"

    def stop(self) -> None:
        self.display.stop()

    def __enter__(self) -> RunProgress:
        self.display.usual = "working"
        self.display.doing(self.display.usual)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self.stop()
        if isinstance(error, KeyboardInterrupt) and self.interrupted:
            error.add_note(self.interrupted)  # printed once, when the command ends


def show_transfer(display: Display, what: str, done: int, total: int) -> None:
    """Bytes done and in all. A total of 1 is work without a size, 0 an unknown size."""
    if total and done >= total:
        display.doing(display.usual)
    elif total == 1:
        display.doing(what)
    elif total:
        display.doing(what, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", done / total)
    else:
        display.doing(what, f"{done / 1e6:,.0f} MB")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
