"""Quotations from traces: commands that worked or failed, and what the person said, word for word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from upskill.authoring.evidence.commands import (
    PATHS,
    Outcome,
    command_key,
    excerpt,
    is_said,
    only_looks,
    outcome_of,
    shell_command,
)
from upskill.authoring.evidence.sessions import Sessions
from upskill.traces import Step, Trace

MAX_ERROR_LINES = 5
MAX_BETWEEN = 12  # calls between a failure and the next success
_CHANGES = (
    *("content", "contents", "fileText", "file_text", "streamContent", "code_edit", "edits"),
    *("new_string", "newString", "new_str", "newText"),
)
# What Claude Code answers: some formats of traces keep no other word of the path.
_CHANGED = re.compile(
    r"The file (.+?) has been (?:updated|created)|File created successfully at: (.+)"
)


@dataclass(frozen=True, slots=True)
class Quotation:
    text: str
    step: int


@dataclass(frozen=True, slots=True)
class FailedCommand:
    command: Quotation
    error: str  # from what it printed
    success: Quotation | None = None
    between: tuple[Quotation, ...] = ()  # commands, and the files that were changed
    more_between: bool = False

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(quote.step for quote in (self.command, *self.between, self.success) if quote)


@dataclass(frozen=True, slots=True)
class Quotations:
    worked: tuple[Quotation, ...]
    failed: tuple[FailedCommand, ...]
    messages: tuple[Quotation, ...]  # of the person, after the first
    support: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # sessions in which a command worked

    def to_pieces(self) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
        """What the steps themselves do not say: messages are steps already."""
        for failure in self.failed:
            fields: dict[str, Any] = {"failed": failure.command.text, "error": failure.error}
            if failure.success:
                fields["the next run of the same command that succeeded"] = failure.success.text
                fields["ran in between"] = [quote.text for quote in failure.between]
            yield fields, failure.steps
        if self.worked:
            commands = [
                {"command": quote.text, "sessions": self.support[quote.text]}
                if self.support.get(quote.text, 1) > 1
                else quote.text
                for quote in self.worked
            ]
            yield {"worked, in this order": commands}, tuple(quote.step for quote in self.worked)


@dataclass(frozen=True, slots=True)
class _Call:
    number: int
    step: Step
    command: str  # empty: it ran none
    outcome: Outcome

    def quote(self) -> list[Quotation]:
        if self.command:
            return [] if only_looks(self.command) else [Quotation(self.command, self.number)]
        return [Quotation(path, self.number) for path in _changed_files(self.step)]


def quote_trace(trace: Trace, *, first: bool = True) -> Quotations:
    """`first`: its first message is the task, and not quoted."""
    calls: list[_Call] = []
    messages: dict[str, Quotation] = {}
    worked: dict[str, Quotation] = {}
    for number, step in enumerate(trace.steps, start=1):
        if is_said(step):
            messages.setdefault(step.text.strip(), Quotation(step.text.strip(), number))
        elif step.kind == "tool":
            call = _Call(number, step, shell_command(step), outcome_of(step))
            calls.append(call)
            if call.command and call.outcome == "ok" and not only_looks(call.command):
                worked.setdefault(call.command, Quotation(call.command, number))
    return Quotations(
        tuple(worked.values()), tuple(_failed_commands(calls)), tuple(messages.values())[first:]
    )


def quote_sessions(sessions: Sessions) -> list[Quotations]:
    """For each session, what no later one has too."""
    quoted: list[Quotations] = []
    support: Counter[str] = Counter()
    failed: set[tuple[str, str]] = set()
    for number, trace in reversed(list(enumerate(sessions.traces))):
        quotations = quote_trace(trace, first=number == 0)
        worked = tuple(quote for quote in quotations.worked if quote.text not in support)
        failures = tuple(
            each for each in quotations.failed if (each.command.text, each.error) not in failed
        )
        support.update(quote.text for quote in quotations.worked)
        failed |= {(each.command.text, each.error) for each in failures}
        quoted.append(replace(quotations, worked=worked, failed=failures, support=support))
    return quoted[::-1]


def _failed_commands(calls: list[_Call]) -> Iterator[FailedCommand]:
    """Each failure once; for a command that fails repeatedly in the same way, the last."""
    keys = [command_key(call.command) for call in calls]
    failures: dict[tuple[str, str], FailedCommand] = {}
    for position, call in enumerate(calls):
        if not call.command or call.outcome != "failed":
            continue
        key, error = keys[position], "\n".join(excerpt(call.step.output, MAX_ERROR_LINES))
        later = range(position + 1, len(calls))
        success = next(
            (index for index in later if keys[index] == key and calls[index].outcome == "ok"), None
        )
        between = (
            [quote for other in calls[position + 1 : success] for quote in other.quote()]
            if success
            else []
        )
        failures.pop((call.command, error), None)
        failures[call.command, error] = FailedCommand(
            command=Quotation(call.command, call.number),
            error=error,
            success=Quotation(calls[success].command, calls[success].number) if success else None,
            between=tuple(between[-MAX_BETWEEN:]),
            more_between=len(between) > MAX_BETWEEN,
        )
    yield from failures.values()


def _changed_files(step: Step) -> Iterator[str]:
    arguments = step.arguments
    path = next((arguments[name] for name in PATHS if isinstance(arguments.get(name), str)), "")
    if path and any(name in arguments for name in _CHANGES):
        yield path
    elif changed := _CHANGED.match(step.output):
        yield changed[1] or changed[2]
    for value in arguments.values():
        if isinstance(value, str) and "*** Begin Patch" in value:
            yield from re.findall(r"^\*\*\* (?:Add|Update|Delete) File: .+$", value, re.M)
