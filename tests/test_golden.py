"""What the commands print, to the letter: at 80 and 120 columns, and in a pipe.

The files in tests/fixtures/golden are what they should print. After a change that is meant, `make golden` writes them
anew; read the difference before you commit it. What differs between machines is made equal before files are compared.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import HELPFUL, Done, Upskill, write_script, write_skill

GOLDEN = Path(__file__).parent / "fixtures" / "golden"
WRITE = os.environ.get("GOLDEN") == "write"
WIDTHS = {"80": "80", "120": "120", "pipe": ""}

# In this order: later commands show what earlier ones have stored.
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "models": ("models",),
    "doctor": ("doctor",),
    "eval-plan": ("eval", "greeter", "-m", "scripted:model.yaml", "--plan"),
    "runs-of-an-empty-project": ("runs",),
    "eval": ("eval", "greeter", "-m", "scripted:model.yaml", "--require", "lift>=0.1"),
    "eval-quiet": ("eval", "greeter", "-m", "scripted:model.yaml", "-q"),
    "show": ("show", "last"),
    "show-case": ("show", "last", "--case", "greet-1"),
    "runs": ("runs",),
    "eval-several-models": (
        "eval",
        "sailor",
        "-m",
        "scripted:model.yaml",
        "-m",
        "scripted:mixed.yaml",
        "--repeats",
        "3",
    ),
    "eval-every-case": ("eval", "parrot", "-m", "scripted:hurt.yaml", "-v"),
    "runs-of-several-skills": ("runs",),
}


def settle(home: Path) -> None:
    """Three skills and three scripted models: one is helped, one mostly, one is hurt."""
    for name in ("greeter", "sailor", "parrot"):
        write_skill(home / name, cases=8)
    write_script(home / "model.yaml")
    write_script(
        home / "mixed.yaml",
        [{"when": "guest 1.", "answer": "no"}, {"when": "guest 2.", "answer": "ahoy"}, *HELPFUL],
    )
    write_script(home / "hurt.yaml", [{"system": "ahoy", "answer": "hello"}, {"answer": "ahoy"}])


def normal(text: str) -> str:
    """Without what differs from day to day and from machine to machine, in as many characters."""
    text = re.sub(
        r"\b(greeter|sailor|parrot)-[0-9a-f]{8}\b", r"\1-0a1b2c3d", text
    )  # a hash of the plan
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d\b(?!:)", "2026-01-02 03:04", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "2026-01-02T03:04:05+00:00", text)
    text = re.sub(
        r"^\d{4}-\d\d-\d\d .* (INFO|DEBUG) .*\n", "", text, flags=re.MULTILINE
    )  # the log of -v
    text = re.sub(r"\d+\.\d s\b", "0.0 s", text)  # how long a trial took
    return text.replace("  ready   ", "  absent  ")  # weights that are here


# What a doctor finds depends on what is installed and running; that it looks for it, and where it says so, does not.
FOUND = (
    r"a student|a teacher|an agent|a sandbox|on a GPU|compile CUDA kernels|run CUDA kernels|upskill|local \w+"
    r"|local:[\w.-]+|server \w[\w.]+"
    r"|bridge pydantic-ai|MCP servers|PDF, HTML, Word|PostgreSQL store|trials on Ray"
)


def without_findings(text: str) -> str:
    """The report of a doctor, with … for what was found on this machine; of embedded models only the default one."""
    text = re.sub(
        rf"^(  ). ({FOUND})  .*\n(?: {{20,}}.*\n)*", r"\1· \2 …\n", text, flags=re.MULTILINE
    )
    return re.sub(r"^  · local:(?!qwen2\.5-coder-0\.5b ).*\n", "", text, flags=re.MULTILINE)


def as_file(command: tuple[str, ...], done: Done) -> str:
    err = f"--- standard error\n{done.err}" if normal(done.err) else ""
    code = f"--- exit code {done.code}\n" if done.code else ""
    out = without_findings(done.out) if command[0] == "doctor" else done.out
    return normal(f"$ upskill {' '.join(command)}\n{out}{err}{code}")


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_printed_is_as_it_should_be(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    settle(home)
    monkeypatch.delenv("COLUMNS", raising=False)
    if WIDTHS[width]:
        monkeypatch.setenv("COLUMNS", WIDTHS[width])
    monkeypatch.setenv("PATH", str(home))  # nobody's agents are found
    found = {name: as_file(command, upskill(*command)) for name, command in COMMANDS.items()}
    for name, text in found.items():
        if WRITE:
            (GOLDEN / f"{name}-{width}.txt").write_text(text, encoding="utf-8")
    wanted = {
        name: (GOLDEN / f"{name}-{width}.txt").read_text(encoding="utf-8") for name in COMMANDS
    }
    assert found == wanted


def test_there_is_no_golden_file_that_nothing_prints() -> None:
    known = {f"{name}-{width}.txt" for name in COMMANDS for width in WIDTHS}
    assert {path.name for path in GOLDEN.iterdir()} == known


def test_a_terminal_shows_what_a_pipe_of_the_same_width_gets(home: Path) -> None:
    settle(home)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "upskill", *COMMANDS["eval"]]
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm-256color"}
    drawn = b""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        with suppress(OSError):  # Linux says so when the other end is closed
            while part := os.read(ours, 4096):
                drawn += part
    os.close(ours)
    assert b"\x1b[32m" in drawn  # in colour
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode()).replace("\r", "")
    shown = [
        line.rstrip() for line in normal(plain).splitlines() if not re.match(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", line)
    ]
    wanted = (
        (GOLDEN / "eval-80.txt").read_text(encoding="utf-8").replace("--- standard error\n", "")
    )
    assert shown == wanted.splitlines()[1:]


LONG = "a-model-whose-name-is-as-long-as-names-of-models-get-instruct-q4_k_m"


@pytest.mark.parametrize("command", ["eval", "runs", "models"])
def test_no_word_is_broken_at_any_width(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    settle(home)
    write_script(home / f"{LONG}.yaml", HELPFUL)
    students = ("-m", f"scripted:{LONG}.yaml", "-m", "scripted:mixed.yaml")
    for skill in ("greeter", "sailor"):
        upskill("eval", skill, *students, "--repeats", "3")
    given = (
        ("eval", "greeter", *students, "--repeats", "3", "-v") if command == "eval" else (command,)
    )
    monkeypatch.setenv("COLUMNS", "1000")
    words = set(upskill(*given).out.split())
    for width in (60, 80, 100, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        out = upskill(*given).out
        assert set(out.split()) <= words, width
        for line in out.splitlines():
            # Only those stick out.
            assert len(line) <= width or LONG in line or "https://" in line, line
        if command != "models":
            assert f"scripted:{LONG}.yaml" in out
