"""Progress: what is said while something takes a while, in a terminal and in a pipe, under a clock of our own."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import HELPFUL, serving, start, write_script, write_skill
from loopback import Call
from upskill.cli.progress import Display, RunProgress, show_transfer
from upskill.runs.planning.plan import Plan, Result, Trial, make_plan
from upskill.runs.stores import open_store
from upskill.skills import Skill
from upskill.traces import Usage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watched:
    """A display whose time passes only when it is told to; its thread is never started."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        stream: io.StringIO | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        monkeypatch.delenv("UPSKILL_PROGRESS", raising=False)
        self.clock, self.stream = Clock(), stream or io.StringIO()
        self.display = Display(quiet=quiet, stream=self.stream, clock=self.clock, ticking=False)

    def after(self, seconds: float, step: float = 0.5) -> str:
        """What has been written once so many seconds have passed."""
        self.stream.seek(0)
        self.stream.truncate()
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += step
            self.display.tick()
        return self.stream.getvalue()


@pytest.fixture
def plan(home: Path) -> Plan:
    write_script(home / "model.yaml", HELPFUL)
    return make_plan(
        Skill.load(write_skill(home / "greeter", cases=4)), models=["scripted:model.yaml"]
    )


def passed(trial: Trial) -> Result:
    return Result(
        trial, "key", passed=trial.arm == "skill", usage=Usage(40, 10, cost_usd=0.0), seconds=1.0
    )


def test_a_pipe_gets_a_line_every_15_seconds_and_none_before(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    watched = Watched(monkeypatch)
    progress = RunProgress(quiet=False, display=watched.display)
    with open_store(None) as store:
        run, _ = store.start_run(plan, "0")
    trials = list(plan.trials())
    progress.started(plan, run, trials)
    for trial in trials[:2]:
        progress.result(passed(trial))
    assert watched.after(14.5) == ""
    said = watched.after(0.5)
    assert re.fullmatch(r"… 2 of 8 trials · about 30 s left · 100 tokens · free\n", said), said
    assert watched.after(14.5) == ""
    progress.reading("local", 512, 2048)
    assert "local is reading the prompt (25%)" in watched.after(0.5)
    for trial in trials[2:]:
        progress.result(passed(trial))
    assert watched.after(60) == ""  # all is done: there is nothing to wait for
    assert progress.expected_time(80) == ", about 5 min"  # 8 trials took 30 seconds
    assert RunProgress(quiet=True).expected_time(80) == ""


def test_a_long_wait_says_for_whom_and_that_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    plan = make_plan(Skill.load(write_skill(home / "greeter", cases=4)), models=["local"])
    trials, load = list(plan.trials()), 0.5
    watched = Watched(monkeypatch)
    progress = RunProgress(quiet=False, display=watched.display, load=lambda: load)
    with open_store(None) as store:
        run, _ = store.start_run(plan, "0")
    progress.started(plan, run, trials)
    assert watched.after(30) == "… 0 of 8 trials\n… 0 of 8 trials · waiting for local for 30 s\n"
    load = 400.0
    assert re.search(
        r"waiting for local for 45 s · this machine is busy: a load of 400 on \d+ cores?\n",
        watched.after(15),
    )
    progress.reading("local", 40, 40)
    assert watched.after(15).startswith(
        "… 0 of 8 trials · local is answering · waiting for local for "
    )
    progress.result(passed(trials[0]))
    assert (
        watched.after(15) == "… 1 of 8 trials · about 7 min left · 50 tokens · free\n"
    )  # 60 s for the first


def test_a_fetch_loading_and_writing_say_so_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(monkeypatch)
    show_transfer(watched.display, "fetching qwen", 100_000_000, 491_000_000)
    assert watched.after(15) == "… fetching qwen · 100 of 491 MB · 15 s\n"
    show_transfer(watched.display, "fetching qwen", 491_000_000, 491_000_000)
    assert watched.after(30) == ""
    show_transfer(watched.display, "loading local", 0, 1)
    assert watched.after(15) == "… loading local · 15 s\n"
    show_transfer(watched.display, "loading local", 1, 1)
    watched.display.say("Generating test cases with opus...")
    assert capsys.readouterr().err == "Generating test cases with opus...\n"
    assert (
        watched.after(30)
        == "… Generating test cases with opus · 15 s\n… Generating test cases with opus · 30 s\n"
    )
    watched.display.say("Comparing on opus... (6 cases:\n  72 trials)")  # wrapped
    assert watched.after(15) == "… Comparing on opus · 15 s\n"
    watched.display.say("Wrote 12 cases to evals.json")
    assert watched.after(30) == ""


def test_a_terminal_shows_a_spinner_counts_and_the_time_left_within_two_seconds(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    watched = Watched(monkeypatch, terminal)
    progress = RunProgress(quiet=False, display=watched.display)
    with open_store(None) as store:
        run, _ = store.start_run(plan, "0")
    progress.started(plan, run, list(plan.trials()))
    assert watched.after(0.5) == ""  # what is done at once needs no word
    progress.result(passed(next(iter(plan.trials()))))
    drawn = watched.after(1)
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ━━━╌+ 1 of 8 trials · about \d+ s left · ", drawn), drawn
    progress.stop()
    assert watched.stream.getvalue().endswith("\x1b[2K")  # wiped away


def test_instant_results_say_nothing_of_the_time_left_and_waiting_does_not_raise_it(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    watched = Watched(monkeypatch)
    progress = RunProgress(quiet=False, display=watched.display)
    with open_store(None) as store:
        run, _ = store.start_run(plan, "0")
    first, second, *_ = trials = list(plan.trials())
    progress.started(plan, run, trials)
    progress.result(replace(passed(first), seconds=0.002))  # from the store
    assert watched.after(30).startswith("… 1 of 8 trials · 50 tokens")
    assert progress.expected_time(80) == ""
    progress.result(passed(second))
    assert (
        re.findall("about .* left", watched.after(30)) == ["about 3 min left"] * 2
    )  # 6 times 30 s, at both lines
    assert watched.after(15).startswith(
        "… 2 of 8 trials · about 4 min left"
    )  # overdue: 75 s for two


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (60, "Comparing on opus · free"),
        (80, "local is reading the prompt (25%) · 50 tokens"),
        (100, "local is reading the prompt (25%) · free"),
        (140, "local is reading the prompt (25%) · Comparing on opus · 50 tokens · free"),
    ],
)
def test_what_does_not_fit_the_terminal_is_left_out_whole(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, columns: int, shown: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    watched = Watched(monkeypatch, terminal)
    progress = RunProgress(quiet=False, display=watched.display)
    with open_store(None) as store:
        run, _ = store.start_run(plan, "0")
    trials = list(plan.trials())
    watched.display.say("Comparing on opus... (6 cases)")
    progress.started(plan, run, trials)
    watched.after(1)
    progress.result(passed(trials[0]))
    progress.reading("local", 512, 2048)
    drawn = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", watched.after(0.5))
    (last,) = [part for part in drawn if "trials" in part]
    assert re.sub("^. [━╌ ]*", "", last) == f"1 of 8 trials · about 7 s left · {shown}"
    assert len(last) <= columns


def test_quiet_and_0_say_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, quiet=True)
    watched.display.doing("loading")
    assert watched.after(100) == ""
    monkeypatch.setenv("UPSKILL_PROGRESS", "0")
    assert Display(quiet=False, stream=io.StringIO()).is_silent
    monkeypatch.setenv("UPSKILL_PROGRESS", "60")
    assert Display(quiet=False, stream=io.StringIO()).every == 60


@pytest.mark.parametrize(
    ("extra", "how"), [([], "again"), (["--redraw"], "again without --redraw")]
)
def test_ctrl_c_is_told_once_and_truly(home: Path, extra: list[str], how: str) -> None:
    write_script(
        home / "waits.json",
        [{"turns": [{"calls": [{"name": "bash", "arguments": {"command": "sleep 77"}}]}]}],
    )
    skill = write_skill(home / "greeter", cases=1)
    given = ("eval", skill, "-m", "scripted:waits.json", "--agent", "tools", "-v", *extra)
    with start(*given, start_new_session=True) as process:
        assert process.stderr is not None
        while "trials left to run" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert re.findall(r"(?i).*interrupted.*", err) == [
        f"upskill: interrupted. Every finished trial is stored. Run the same command {how} to continue."
    ]


def test_in_a_real_terminal_the_line_moves_and_is_wiped_away_before_the_report(home: Path) -> None:
    drawn, seen = b"", threading.Event()

    def answer(_: Call) -> str:
        seen.wait(600)  # nobody answers until the line was drawn
        return "ahoy"

    skill = write_skill(home / "greeter", cases=1)
    ours, theirs = pty.openpty()
    with serving(answer) as server:
        command = [
            sys.executable,
            "-m",
            "upskill",
            "eval",
            str(skill),
            "-m",
            "any",
            "--base-url",
            server.url,
            "--repeats",
            "1",
        ]
        wide = {**os.environ, "COLUMNS": "100"}
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True, env=wide
        ) as process:
            os.close(theirs)
            with suppress(OSError):  # Linux says so when the other end is closed
                while part := os.read(ours, 4096):
                    drawn += part
                    if "0 of 2 trials" in drawn.decode(errors="replace"):
                        seen.set()
            seen.set()
    os.close(ours)
    text = drawn.decode()
    assert process.returncode == 0, text
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ╌+ 0 of 2 trials", text), text
    assert text.rindex("\x1b[2K") < text.index("undecided")
