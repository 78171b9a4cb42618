"""Extract: a page of quotations from traces, without a model. Each line but headings and SENTENCES cites its step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
from upskill.authoring.evidence.sessions import Sessions, words_in
from upskill.authoring.saving.provenance import cite_lines
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.skills import Skill, estimate_tokens
from upskill.traces import Step, Trace

DEFAULT_TOKENS = 800
MAX_QUOTED_LINES = 12  # of one command or message
TITLE = "# Quotations from a session"
INTRODUCTION = (
    "Everything that is indented was said or run in the session, word for word. Nobody has judged it: what ran before a"
    " success need not be what caused it. A teacher turns this into a skill."
)
Section = Literal["messages", "worked", "failed"]
HEADINGS: dict[Section, str] = {
    "messages": "## What the person said after the first message",
    "worked": "## Commands that worked, in their order",
    "failed": "## Commands that failed",
}
LOOKING_LEFT_OUT = "Commands that only look around are left out."
FAILED, ERROR, SUCCESS = (
    "Failed:",
    "From its output:",
    "The next run of the same command that succeeded:",
)
BETWEEN, MORE_BETWEEN = "Ran or changed in between:", "Some of what ran or changed in between:"
CUT = "(cut here)"
SENTENCES = (INTRODUCTION, LOOKING_LEFT_OUT, FAILED, ERROR, SUCCESS, BETWEEN, MORE_BETWEEN, CUT)


@dataclass(frozen=True, slots=True)
class Extraction:
    skill: Skill
    sources: Mapping[str, tuple[str, ...]]  # of `cite_lines`: the ids of steps
    left_out: int = 0  # quotations that did not fit into the tokens


@dataclass(frozen=True, slots=True)
class _Entry:
    """Lines that stay together on the page, each with the id of its step."""

    section: Section
    lines: tuple[tuple[str, str], ...]


def extract(traces: Sequence[Trace], name: str, *, tokens: int = DEFAULT_TOKENS) -> Extraction:
    """A skill of about this many tokens that quotes these traces, whose secrets are already redacted.

    Of several sessions the latest comes first, and commands that a later message overrules are left out.
    """
    entries: dict[_Entry, None] = {}
    sessions = Sessions(traces)
    overruled = {each.word for each in sessions.overruled}
    for number, quotations in reversed(list(enumerate(quote_sessions(sessions)))):
        prefix = f"{sessions.prefix(number)}s"
        for message in quotations.messages:
            entries[_Entry("messages", tuple(_quoted(message, prefix)))] = None
        for command in quotations.worked:
            if not overruled & words_in(command.text):
                entries[_Entry("worked", tuple(_quoted(command, prefix)))] = None
        for failure in quotations.failed:
            entries[_Entry("failed", tuple(_quote_failure(failure, prefix)))] = None
    if not entries:
        calls = counted(sum(len(trace.calls) for trace in traces), "tool call")
        raise UsageError(
            f"nothing to quote ({calls}): the session has only exploratory commands, such as ls or cat,"
            " and no message after the first",
            "Pass another trace with --from, or let a model read this one: -m MODEL or --handoff DIR.",
        )
    fitting: list[_Entry] = []
    for entry in sorted(entries, key=lambda entry: list(HEADINGS).index(entry.section)):
        if (
            not fitting
            or estimate_tokens("\n".join(line for line, _ in _body([*fitting, entry]))) <= tokens
        ):
            fitting.append(entry)
    body = _body(fitting)
    sources = cite_lines((line, (step,) if step else ()) for line, step in body)
    goal = " ".join(sessions.latest_goal().split())
    began = f" It began with: {goal[:300]}" if goal and not set("<>") & set(goal) else ""
    number = counted(len(sessions.traces), "session")
    description = f"Quotations from {number}: commands that worked, commands that failed, what the person said.{began}"
    skill = Skill.new(name, description, "\n".join(line for line, _ in body))
    return Extraction(skill, sources, len(entries) - len(fitting))


def _body(entries: list[_Entry]) -> list[tuple[str, str]]:
    """The lines of the page, each with the id of its step; our own have none."""
    lines = [(TITLE, ""), ("", ""), (INTRODUCTION, "")]
    for section, heading in HEADINGS.items():
        here = [entry for entry in entries if entry.section == section]
        if not here:
            continue
        lines += [("", ""), (heading, "")]
        if section == "worked":
            lines += [("", ""), (LOOKING_LEFT_OUT, ""), ("", "")]
        for entry in here:
            lines += [("", ""), *entry.lines] if section == "messages" else entry.lines
    return lines


def _quote_failure(failure: FailedCommand, prefix: str) -> Iterator[tuple[str, str]]:
    parts = (
        (FAILED, [failure.command]),
        (ERROR, [Quotation(failure.error, failure.command.step)] if failure.error else []),
        (MORE_BETWEEN if failure.more_between else BETWEEN, failure.between),
        (SUCCESS, [failure.success] if failure.success else []),
    )
    for label, quotes in parts:
        if quotes:
            # Without an empty line around it, an indented line belongs to the paragraph before.
            yield from [("", ""), (label, ""), ("", "")]
            yield from (line for quote in quotes for line in _quoted(quote, prefix))


def _quoted(quote: Quotation, prefix: str) -> Iterator[tuple[str, str]]:
    """Indented, so that nothing quoted can be read as a part of the page."""
    step = f"{prefix}{quote.step}"
    lines = [
        line for line in quote.text.encode("utf-8", "replace").decode().splitlines() if line.strip()
    ]
    for line in lines[:MAX_QUOTED_LINES]:
        yield f"    {line}", step
    if len(lines) > MAX_QUOTED_LINES:
        yield CUT, ""


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
