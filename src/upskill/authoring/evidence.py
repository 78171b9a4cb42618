"""Evidence is what a trace can teach: typed items, each citing the steps it comes from (counted from 1).

Items are the goal, errors with their fixes, corrections by the person, commands that succeeded, the files that were
left behind, commands and scripts that were reused, and the cost. They are found by rules, without a model; the text of
a trace is quoted and never obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from upskill.authoring.trace_commands import (
    error_line,
    only_inspects,
    program_and_verb,
    shell_command,
    split_words,
    step_failed,
)
from upskill.authoring.trace_files import FinalFile, changed_files, final_files
from upskill.traces import Step, Trace, Usage

_CONFIRMS = re.compile(
    r"\b(?:test|tests|pytest|unittest|check|verify|validate|lint|ruff|mypy|pyright|tsc|build|compile"
    r"|status|doctor|health)\b"
)
_CORRECTS = re.compile(
    r"^\s*(?:no\b|nope|stop\b|wait\b|actually\b|wrong)|\b(?:not|don't|do not|never|always|instead|rather|wrong"
    r"|forgot|should(?:n't)?|must(?:n't)?|make sure|prefer|only use|use the|you missed|incorrect"
    r"|again)\b|^\[Request interrupted",
    re.I,
)
VERIFY = "verify"  # the tool name under which `teach` records the check that decides on success
FIX_WINDOW = 25  # calls after an error in which a fix is looked for

FixKind = Literal["command", "before", "file"]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the person wrote: the goal, or a correction."""

    text: str
    step: int


@dataclass(frozen=True, slots=True)
class ErrorFix:
    """An error and its fix: another `command`, a command that had to run `before`, or a changed `file`."""

    command: str
    error: str  # the line that says what was wrong
    kind: FixKind
    fix: str  # a command, or the path of a file
    steps: tuple[int, ...]  # the error first


@dataclass(frozen=True, slots=True)
class SuccessfulCommand:
    """A command that succeeded, in the form in which it last did."""

    command: str
    purpose: str  # in the agent's words, where it gave one
    output: str
    step: int
    confirms: bool = False  # it examines the result: a test, a check, a build


@dataclass(frozen=True, slots=True)
class ReusedCommand:
    """A script that was written and run, or a command that was run again."""

    command: str
    steps: tuple[int, ...]
    path: str = ""  # of the script


@dataclass(frozen=True, slots=True)
class Cost:
    usage: Usage
    calls: int
    failed: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    goal: UserMessage
    fixes: tuple[ErrorFix, ...]
    corrections: tuple[UserMessage, ...]
    successes: tuple[SuccessfulCommand, ...]
    files: tuple[FinalFile, ...]
    reused: tuple[ReusedCommand, ...]
    cost: Cost
    cwd: str = ""

    @property
    def confirmed(self) -> tuple[SuccessfulCommand, ...]:
        """The commands that examined the result and found it good."""
        return tuple(item for item in self.successes if item.confirms)


@dataclass(frozen=True, slots=True)
class _ShellRun:
    """A shell command as one step of a trace ran it."""

    number: int
    command: str
    words: tuple[str, ...]
    step: Step
    failed: bool
    error: str = ""

    @property
    def subcommand(self) -> str:
        """Equal for attempts at the same thing."""
        return program_and_verb(self.words)


def evidence_of(trace: Trace) -> TraceEvidence:
    """Everything that a trace can teach."""
    runs = list(_shell_runs(trace))
    files = final_files(trace)
    asked = [(number, step) for number, step in _numbered(trace) if step.kind == "user" and not step.agent]
    goal = UserMessage(trace.goal or (asked[0][1].text if asked else ""), asked[0][0] if asked else 0)
    corrections = [UserMessage(step.text.strip(), number) for number, step in asked[1:] if _CORRECTS.search(step.text)]
    calls = trace.calls
    took = [step.seconds for step in calls if step.seconds is not None]
    cost = Cost(trace.usage, len(calls), sum(step_failed(step) for step in calls), sum(took) if took else None)
    return TraceEvidence(
        goal,
        tuple(_fixes(runs, changed_files(trace))),
        tuple(corrections),
        tuple(_successes(trace, runs)),
        tuple(files),
        tuple(_reused(runs, files)),
        cost,
        trace.cwd,
    )


def _numbered(trace: Trace) -> Iterator[tuple[int, Step]]:
    return enumerate(trace.steps, start=1)


def _shell_runs(trace: Trace) -> Iterator[_ShellRun]:
    for number, step in _numbered(trace):
        if command := shell_command(step):
            wrong = step_failed(step)
            yield _ShellRun(
                number, command, split_words(command), step, wrong, error_line(step.output) if wrong else ""
            )


def _successes(trace: Trace, runs: list[_ShellRun]) -> Iterator[SuccessfulCommand]:
    """Each thing that was done, in the form that worked last."""
    last: dict[str, _ShellRun] = {}
    for run in runs:
        if not run.failed and not _is_check(run) and not only_inspects(run.words) and "\n" not in run.command:
            last.pop(run.subcommand, None)  # in the order of the last success
            last[run.subcommand] = run
    for run in last.values():
        confirms = bool(_CONFIRMS.search(run.command))
        yield SuccessfulCommand(run.command, _purpose(trace, run), run.step.output, run.number, confirms)
    # A check that was named beforehand always counts.
    for run in runs:
        if _is_check(run) and not run.failed:
            yield SuccessfulCommand(run.command, _purpose(trace, run), run.step.output, run.number, confirms=True)


def _is_check(run: _ShellRun) -> bool:
    return run.step.tool == VERIFY


def _purpose(trace: Trace, run: _ShellRun) -> str:
    """What the agent said the command is for."""
    stated = run.step.arguments.get("description") or run.step.arguments.get("explanation")
    if isinstance(stated, str) and stated.strip():
        return " ".join(stated.split())
    before = trace.steps[run.number - 2] if run.number >= 2 else None
    if before is not None and before.kind == "assistant" and before.agent == run.step.agent:
        return re.split(r"(?<=[.!?:])\s", " ".join(before.text.split()))[-1]
    return ""


# Errors and their fixes.


def _fixes(runs: list[_ShellRun], changes: list[tuple[int, str]]) -> Iterator[ErrorFix]:
    seen: set[tuple[str, str]] = set()
    for place, run in enumerate(runs):
        if not run.failed or only_inspects(run.words) or (run.subcommand, run.error) in seen:
            continue
        found = _find_fix(run, runs[place + 1 : place + 1 + FIX_WINDOW], changes)
        if found is not None:
            seen.add((run.subcommand, run.error))
            yield found


def _find_fix(run: _ShellRun, later: list[_ShellRun], changes: list[tuple[int, str]]) -> ErrorFix | None:
    tries = [other for other in later if other.subcommand == run.subcommand]
    # The first try that gets further: it succeeds, or something else is wrong with it.
    further = next((other for other in tries if not other.failed or other.error != run.error), None)
    if further is not None and further.command == run.command:
        between = [(number, path) for number, path in changes if run.number < number < further.number]
        before = [
            other
            for other in later
            if other.number < further.number
            and not other.failed
            and other.subcommand != run.subcommand
            and not only_inspects(other.words)
        ]
        if between:
            return ErrorFix(run.command, run.error, "file", between[-1][1], (run.number, *(n for n, _ in between)))
        if before:
            return ErrorFix(run.command, run.error, "before", before[-1].command, (run.number, before[-1].number))
    worked = next((other for other in tries if not other.failed), None)
    if worked is None:
        worked = next((other for other in later[:5] if not other.failed and _similar(run, other)), None)
    if worked is None or worked.command == run.command:
        return None
    return ErrorFix(run.command, run.error, "command", worked.command, (run.number, worked.number))


def _similar(one: _ShellRun, two: _ShellRun) -> bool:
    return not only_inspects(two.words) and SequenceMatcher(None, one.words, two.words).ratio() >= 0.6


# Reuse.


def _reused(runs: list[_ShellRun], files: list[FinalFile]) -> Iterator[ReusedCommand]:
    scripts = {file.path: file for file in files if re.search(r"\.(?:sh|py|js|ts|rb|pl|mjs)$", file.path)}
    worked = [run for run in runs if not run.failed]
    for path, file in scripts.items():
        ran = [run for run in worked if any(word.removeprefix("./") == path for word in run.words)]
        if ran:
            yield ReusedCommand(ran[-1].command, (*file.steps, *(run.number for run in ran)), path)
    again: dict[str, list[int]] = {}
    for run in worked:
        if not only_inspects(run.words):
            again.setdefault(run.command, []).append(run.number)
    for command, numbers in again.items():
        if len(numbers) > 1 and not any(path in command for path in scripts):
            yield ReusedCommand(command, tuple(numbers))
