"""The shell commands in a trace: what each is for, whether it worked, and the line that says why not.

A tool call can run several commands (`shell` splits them, `command_roles` says what each is for) and has one status:
which of them failed follows from how they are joined and from what was printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from upskill.authoring.evidence.command_roles import Role, program_and_verb, role_of, split_runner
from upskill.authoring.evidence.shell import ShellCommand, parse_shell
from upskill.plain import as_list
from upskill.traces import Step, Trace

MAX_LINE = 500  # characters of a line that says what was wrong
Outcome = Literal["ok", "failed", "unknown"]


_SHELL_TOOL = re.compile(r"bash|shell|terminal|exec|run_|command|console|^sh$", re.I)
_EDITOR_COMMANDS = ("create", "view", "str_replace", "insert", "undo_edit")
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|\bcommand not found\b|\bNo such file or directory\b"
    r"|^(?:\S+: )*(?:error|fatal)\b[:\[](?! \(none)"
    r"|^\S*(?:Error|Exception):(?! \(none)|^npm (?:ERR!|error)|\bELIFECYCLE\b"
    r"|^(?:FAILED|FAIL)\b|\b[1-9]\d* (?:failed|failing|errors?)\b|^error\b(?!: \(none)|\bpanicked at\b"
    r"|^Build failed|^CMake Error|\berrors occurred\b"
    r"|^exit(?:ed with)? (?:code|status):? [1-9]|\bpermission denied\b"
    r"|^\W*(?:exit|rc|ret|status)(?: code| status)?\W{1,3}[1-9]\d*$",
    re.I | re.M,
)
# A call that was refused, or that goes on in the background, says nothing about the command.
_SAYS_NOTHING = re.compile(
    r"doesn't want to proceed|tool use was rejected|requires approval|haven't granted|Request interrupted"
    r"|rejected by user|user denied|execution denied|was blocked|<tool_use_error>"
    r"|running in (?:the )?background|Process running with session ID",
    re.I,
)
_EXIT_LINE = re.compile(
    r"^=== RUN|^--- PASS|^ok\s"
    r"|^\W*(?:(?:Error: )?Exit code:? \d+|exit status \d+|Process exited with code \d+|ELIFECYCLE.*"
    r"|Signal: .*|Error: \(none\)"
    r"|Background PIDs: .*|Process Group PGID: .*|Command: .*|Directory: .*)\W*$",
    re.I,
)
_SUMMARY = re.compile(r"\b\d+ (?:errors?|problems?|warnings?|failed|passed|tests?|previous errors?)\b", re.I)
_STRONG = re.compile(
    r"\berror\b|\bfatal\b|error:|exception\b|Error\b|\bpanicked at\b|timed out|^npm ERR!|unknown (?:option|flag)",
    re.I,
)
_WEAK = re.compile(
    r"fail|cannot|can't|could not|\bnot |missing|unknown|invalid|denied|required|refused|unable|have no", re.I
)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command as one step of a trace ran it."""

    number: int  # of the step, from 1
    place: int  # in the line
    text: str  # as a person would type it
    words: tuple[str, ...]  # after what runs it: the program first
    runner: tuple[str, ...]  # variables and programs in front of it
    folder: str
    role: Role
    outcome: Outcome
    step: Step
    error: str = ""
    whole: bool = True  # False: its words are not all that it takes to run it

    @property
    def subcommand(self) -> str:
        """Equal for attempts at the same thing."""
        return program_and_verb(self.words)

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.place


def shell_command(step: Step) -> str:
    """The shell line that a tool call runs; empty when it runs none."""
    if step.kind != "tool":
        return ""
    given = step.arguments
    value: Any = None
    for name in ("command", "cmd", "commands", "script"):
        if given.get(name):
            value = given[name]
            break
    if value is None and _SHELL_TOOL.search(step.tool):
        value = given.get("input") or given.get("code")
    if isinstance(value, str) and value in _EDITOR_COMMANDS and "path" in given:
        return ""
    listed = as_list(value)
    if listed is not None:
        words = [str(word) for word in listed]
        return _script_of(words) or shlex.join(words)
    if not isinstance(value, str):
        return ""
    return _script_of(list(split_words(value))) or value.strip()


def _script_of(words: list[str]) -> str:
    """The script in `bash -lc '…'`."""
    if len(words) == 3 and PurePosixPath(words[0]).name in ("bash", "sh", "zsh", "dash", "fish", "env"):
        return words[2].strip() if re.fullmatch(r"-[a-z]*c", words[1]) else ""
    return ""


def split_words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())


# How it went.


def command_runs(trace: Trace) -> list[CommandRun]:
    """Every command of a trace, one after another, with its own outcome."""
    return [run for number, step in enumerate(trace.steps, start=1) for run in _runs_of(number, step)]


def _runs_of(number: int, step: Step) -> Iterator[CommandRun]:
    line = shell_command(step)
    commands = parse_shell(line)
    if not commands:
        return
    runs: list[CommandRun] = []
    for place, command in enumerate(commands):
        front, words = split_runner(command.words)
        role: Role = "script" if command.fed and role_of(command.words) == "work" else role_of(command.words)
        text, whole = command.text, not command.nested and not command.fed and "\n" not in command.text
        if command.joint == "|" and role == "work" and place:
            before = commands[place - 1]
            text, whole = f"{before.text} | {text}", whole and not before.fed
        runs.append(CommandRun(number, place, text, words, front, command.folder, role, "unknown", step, "", whole))
    yield from _with_outcomes(runs, commands, step)


def _with_outcomes(runs: list[CommandRun], commands: tuple[ShellCommand, ...], step: Step) -> Iterator[CommandRun]:
    """The commands of one call with what the call says about each: a line has one status, its commands have many."""
    if _SAYS_NOTHING.search(step.output[:400]):
        yield from runs
        return
    signs = bool(_FAILED.search(step.output[-20_000:]))
    failed = step_failed(step)
    # A pager, `|| true` or a later command hides the status of what comes before.
    hidden = [
        place + 1 < len(commands) and any(after.joint in ("|", "||", ";") for after in commands[place + 1 :])
        for place in range(len(commands))
    ]
    unknown = {place for place, command in enumerate(commands) if command.background}
    for place, command in enumerate(commands):
        if command.joint == "||":  # one of the two ran, or both, and the line says nothing about the first
            unknown.add(place)
            while place and command.joint in ("||", "&&", "|"):
                place -= 1  # noqa: PLW2901
                unknown.add(place)
    error = error_line(step.output) if failed or (signs and any(hidden)) else ""
    blamed = _blame(runs, error) if error or failed else None
    for place, run in enumerate(runs):
        if blamed is not None and place == blamed:
            yield replace(run, outcome="failed", error=error)
        elif failed or (blamed is None and signs and hidden[place] and run.role in ("work", "script")):
            reached = failed and blamed is not None and place < blamed and run.role != "context"
            yield replace(run, outcome="ok") if reached and place not in unknown else run
        elif place in unknown:
            yield run
        else:
            yield replace(run, outcome="ok")


def _blame(runs: list[CommandRun], error: str) -> int | None:
    """Which command of a failed line failed; None where that cannot be told."""
    work = [place for place, run in enumerate(runs) if run.role in ("work", "script")]
    named = [place for place in work if re.search(rf"(?<![\w/.-]){re.escape(_program(runs[place]))}\b", error)]
    if len(work) == 1:
        return work[0]
    if len(named) == 1:
        return named[0]
    if not work:
        other = [place for place, run in enumerate(runs) if run.role != "context"]
        return other[-1] if other else None
    return None


def _program(run: CommandRun) -> str:
    return run.subcommand.split(" ", maxsplit=1)[0] or "\0"


def step_failed(step: Step) -> bool:
    """Whether a call failed, by its status or, where that is unknown, by its output."""
    if step.status == "unknown":
        return bool(_FAILED.search(step.output[-20_000:]))
    return step.status == "error"


def error_line(output: str) -> str:
    """The line of an output that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _EXIT_LINE.match(line.strip())]
    lines = [line.removeprefix("Output: ").strip()[:MAX_LINE] for line in lines]
    if not lines:
        return ""
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        told = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception|Exit|Interrupt|Configured)\b", line)]
        return told[-1] if told else lines[-1]
    telling = [line for line in lines if not _SUMMARY.search(line)] or lines
    for pattern in (re.compile(r"^E   "), _STRONG, _WEAK, re.compile(r"^\S+:\d+")):
        if found := next((line for line in telling if pattern.search(line)), ""):
            return found
    return telling[-1]
