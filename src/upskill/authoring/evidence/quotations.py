"""Quotations: what a trace says that is worth keeping, word for word, with the steps it is from (counted from 1).

They are the commands that worked, the commands that failed beside the next run that succeeded, and what the person said
after the first message. Nothing is concluded from them: what fixed an error is for a teacher or a person to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from upskill.authoring.evidence.commands import (
    Outcome,
    command_key,
    only_looks,
    outcome_of,
    output_lines,
    shell_command,
)
from upskill.traces import Step, Trace

MAX_ERROR_LINES = 5  # the last of an output
MAX_BETWEEN = 12  # calls between a failure and the next success
_PATHS = ("file_path", "filePath", "path", "filename", "target_file", "absolute_path")
_CHANGES = (
    *("content", "contents", "fileText", "file_text", "streamContent", "code_edit", "edits"),
    *("new_string", "newString", "new_str", "newText"),
)
# What programs write into the turns of a person.
_WRITTEN_BY_PROGRAMS = re.compile(
    r"^\s*(?:<(?!user_query)[a-z][\w-]*[ >]|Caveat:|This session is being continued|\[Request interrupted[^\]]*\]\s*$"
    r"|\[Image|API Error|# AGENTS\.md|OBSERVATION|Observation:|Base directory for this skill|\[?System)",
)


@dataclass(frozen=True, slots=True)
class Quotation:
    text: str
    step: int


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A command that failed, and the next run of the same command that succeeded, if there was one."""

    command: Quotation
    error: str  # the last lines that it printed
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

    def to_pieces(self) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
        """Each quotation as a teacher sees it, with its steps."""
        for message in self.messages:
            yield {"the person said": message.text}, (message.step,)
        for failure in self.failed:
            fields: dict[str, Any] = {"failed": failure.command.text, "error": failure.error}
            if failure.success:
                fields["the next run of the same command that succeeded"] = failure.success.text
                fields["ran in between"] = [quote.text for quote in failure.between]
            yield fields, failure.steps
        if self.worked:
            worked = {"worked, in this order": [quote.text for quote in self.worked]}
            yield worked, tuple(quote.step for quote in self.worked)


@dataclass(frozen=True, slots=True)
class _Call:
    number: int
    step: Step
    command: str  # empty: it ran none
    outcome: Outcome

    def quote(self) -> list[Quotation]:
        """Its command, or the files that it changed."""
        if self.command:
            return [] if only_looks(self.command) else [Quotation(self.command, self.number)]
        return [Quotation(path, self.number) for path in _changed_files(self.step.arguments)]


def quote_trace(trace: Trace) -> Quotations:
    calls: list[_Call] = []
    messages: list[Quotation] = []
    worked: dict[str, Quotation] = {}
    for number, step in enumerate(trace.steps, start=1):
        if step.kind == "user" and not step.agent and not _WRITTEN_BY_PROGRAMS.match(step.text):
            messages.append(Quotation(step.text.strip(), number))
        elif step.kind == "tool":
            call = _Call(number, step, shell_command(step), outcome_of(step))
            calls.append(call)
            if call.command and call.outcome == "ok" and not only_looks(call.command):
                worked.setdefault(call.command, Quotation(call.command, number))
    return Quotations(tuple(worked.values()), tuple(_failed_commands(calls)), tuple(messages[1:]))


def _failed_commands(calls: list[_Call]) -> Iterator[FailedCommand]:
    """Each failure once; of a command that fails several times in the same way, the last."""
    keys = [command_key(call.command) for call in calls]
    failures: dict[tuple[str, str], FailedCommand] = {}
    for position, call in enumerate(calls):
        if not call.command or call.outcome != "failed":
            continue
        key, error = keys[position], "\n".join(output_lines(call.step.output)[-MAX_ERROR_LINES:])
        later = range(position + 1, len(calls))
        success = next((index for index in later if keys[index] == key and calls[index].outcome == "ok"), None)
        between = [quote for other in calls[position + 1 : success] for quote in other.quote()] if success else []
        failures.pop((call.command, error), None)
        failures[call.command, error] = FailedCommand(
            command=Quotation(call.command, call.number),
            error=error,
            success=Quotation(calls[success].command, calls[success].number) if success else None,
            between=tuple(between[-MAX_BETWEEN:]),
            more_between=len(between) > MAX_BETWEEN,
        )
    yield from failures.values()


def _changed_files(arguments: Mapping[str, Any]) -> Iterator[str]:
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), "")
    if path and any(name in arguments for name in _CHANGES):
        yield path
    for value in arguments.values():
        if isinstance(value, str) and "*** Begin Patch" in value:
            yield from re.findall(r"^\*\*\* (?:Add|Update|Delete) File: .+$", value, re.M)
