"""Several sessions of one kind of work: their order in time, what they share, what differs, and what a later message
overrules. Nothing here understands English: a message stands, dated, beside the commands it names by a common word.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from upskill.authoring.evidence.commands import (
    PATHS,
    command_key,
    is_said,
    noise_of,
    only_looks,
    outcome_of,
    shell_command,
    split_commands,
)
from upskill.plain import digest_text
from upskill.traces import Step, Trace

UNDATED = "undated"
MAX_ROWS = 16  # of one history, the latest
MAX_QUOTED = 300  # characters of a message that can overrule something
_WORD = re.compile(r"-{0,2}\w[\w.@-]*\w")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the person said, or a command that ran and did not fail."""

    session: int  # from 0, in the order of time
    step: int  # from 1
    text: str
    words: frozenset[str]
    family: str = ""  # equal for runs of the same command; empty for what was said
    arguments: tuple[str, ...] = ()  # of a command, with its program; none of a script

    @property
    def place(self) -> tuple[int, int]:
        return self.session, self.step


@dataclass(frozen=True, slots=True)
class Overruled:
    """An argument of an earlier session's command that the person named later, and that no command has had since."""

    word: str
    message: str  # the latest
    message_ids: tuple[str, ...]

    def occurs_in(self, text: str, code: str) -> bool:
        """Whether a text says it; a word of letters alone counts only in code, as it may be plain English."""
        return self.word in words_in(text if _is_name(self.word) else code)


@dataclass(frozen=True, slots=True)
class History:
    family: str
    events: tuple[Event, ...]  # in the order of time


class Sessions:
    """Traces in the order of their first times, then those without a time; of two that are the same, one."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        keyed = sorted((_sort_key(trace), number) for number, trace in enumerate(traces))
        kept = {key[:3]: number for key, number in reversed(keyed)}
        self.traces = tuple(traces[number] for key, number in keyed if kept[key[:3]] == number)
        self.repeated = tuple(traces[number] for key, number in keyed if kept[key[:3]] != number)
        self.times = [_began(trace) for trace in self.traces]
        self._shared: dict[str, list[int]] = {}
        for session, trace in enumerate(self.traces):
            for key in {_call_key(step) for step in trace.steps if step.kind == "tool"}:
                self._shared.setdefault(key, []).append(session)

    def label(self, session: int) -> str:
        """When it began, as a teacher is told."""
        time = self.times[session]
        if time is not None:
            return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
        return f"{UNDATED} {session + 1 - sum(time is not None for time in self.times)}"

    def prefix(self, session: int) -> str:
        """Of ids."""
        return f"r{session + 1}-" if session else ""

    def shown_id(self, session: int, step: int) -> str:
        """The id of a step, or of the same call in the latest session that made it."""
        told = self.traces[session].steps[step - 1]
        last = (self.sharing(told) or [session])[-1]
        if last != session:
            key = _call_key(told)
            steps = enumerate(self.traces[last].steps, start=1)
            step = next(
                number
                for number, other in steps
                if other.kind == "tool" and _call_key(other) == key
            )
        return f"{self.prefix(last)}s{step}"

    def sharing(self, step: Step) -> list[int]:
        """The sessions that made this call, with the same outcome."""
        return self._shared[_call_key(step)] if step.kind == "tool" else []

    def latest_goal(self) -> str:
        """What was asked for in the latest session whose time is known, else in the first."""
        dated = [
            trace for trace, time in zip(self.traces, self.times, strict=True) if time is not None
        ]
        return next((trace.goal for trace in (*reversed(dated), *self.traces) if trace.goal), "")

    @cached_property
    def messages(self) -> list[Event]:
        return [
            Event(session, number, step.text.strip(), words_in(step.text))
            for session, number, step in self._steps()
            if is_said(step)
        ]

    @cached_property
    def runs(self) -> list[Event]:
        return [
            Event(session, number, text, words, family, arguments)
            for session, number, step in self._steps()
            if step.kind == "tool" and not noise_of(step) and outcome_of(step) != "failed"
            for text, words, family, arguments in _commands_of(step)
        ]

    def histories(self) -> list[History]:
        """Commands that sessions ran in different ways, or of which a person spoke in another session."""
        families: dict[str, list[Event]] = {}
        for run in self.runs:
            families.setdefault(run.family, []).append(run)
        histories: list[History] = []
        overruled = {each.word for each in self.overruled}
        for family, runs in families.items():
            telling = {
                word for run in runs for word in run.words if _is_name(word) or word in overruled
            }
            said = [message for message in self.messages if message.words & telling]
            differs = len({run.text for run in runs}) > 1 and len({run.session for run in runs}) > 1
            if differs or any(
                message.session != run.session and not self._is_later(run, message)
                for message in said
                for run in runs
            ):
                last = {(run.text, run.session): run for run in runs}  # once for each session
                events = sorted([*said, *last.values()], key=lambda event: event.place)
                histories.append(History(family, tuple(events)))
        return histories

    def describe(self, history: History) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for event in history.events:
            row = {
                "session": self.label(event.session),
                "ran" if event.family else "the person said": event.text,
            }
            rows.append(row)
        left_out = len(rows) - MAX_ROWS
        fields: dict[str, Any] = {
            "command": history.family,
            "over time, the latest last": rows[-MAX_ROWS:],
        }
        if left_out > 0:
            fields["older rows left out"] = left_out
        sessions: dict[str, set[int]] = {}
        for run in filter(lambda event: event.family, history.events):
            for word in run.text.split():
                sessions.setdefault(word, set()).add(run.session)
        most = max(map(len, sessions.values()))
        fields["varies, with the sessions that have it"] = {
            word: [self.label(session) for session in sorted(found)]
            for word, found in list(sessions.items())
            if len(found) < most
        }
        return fields

    @cached_property
    def overruled(self) -> list[Overruled]:
        if len(self.traces) < 2:
            return []
        uses: dict[str, list[Event]] = {}
        for run in self.runs:
            for word in set(run.arguments):
                uses.setdefault(word, []).append(run)
        overruling: dict[str, list[Event]] = {}
        spoken = Counter(message.text for message in self.messages)
        for message in self.messages:
            if (
                spoken[message.text] > 1 or len(message.text) > MAX_QUOTED
            ):  # a pasted log or plan names everything
                continue
            for word in message.words & uses.keys():
                if self._overrules(message, word, uses[word]):
                    overruling.setdefault(word, []).append(message)
        return [
            Overruled(word, said[-1].text, tuple(self.shown_id(*message.place) for message in said))
            for word, said in sorted(overruling.items())
        ]

    def _overrules(self, message: Event, word: str, uses: list[Event]) -> bool:
        before = [use for use in uses if use.session != message.session]
        if not before or any(self._is_later(use, message) for use in uses):
            return False
        # A plain word, or the name of a program, may be said for any reason.
        is_telling = _is_name(word) and not any(word in words_in(use.family) for use in before)
        return is_telling or self._is_replaced(message, word, before)

    def _is_replaced(self, message: Event, word: str, before: list[Event]) -> bool:
        """Whether a command of before ran after the message with another word of the message in its place."""
        after = {run.arguments for run in self.runs if self._is_later(run, message)}
        return any(
            tuple(other if argument == word else argument for argument in use.arguments) in after
            for use in before
            for other in message.words
        )

    def _is_later(self, event: Event, message: Event) -> bool:
        """Known to be later: in the same session, or in another one with a later time."""
        if event.session == message.session:
            return event.step > message.step
        dated = self.times[event.session] is not None and self.times[message.session] is not None
        return dated and event.session > message.session

    def _steps(self) -> Iterator[tuple[int, int, Step]]:
        for session, trace in enumerate(self.traces):
            for number, step in enumerate(trace.steps, start=1):
                yield session, number, step


def _began(trace: Trace) -> float | None:
    times = [
        time
        for text in (trace.started, *(step.at for step in trace.steps))
        if (time := _seconds(text))
    ]
    return min(times, default=None)


def _seconds(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _sort_key(trace: Trace) -> tuple[bool, float, str, str]:
    began = _began(trace)
    return began is None, began or 0.0, digest_text(repr(trace.steps)), trace.source


def _call_key(step: Step) -> str:
    # Where a format leaves the arguments out, calls are told apart by what came back.
    arguments = (
        json.dumps(dict(step.arguments), sort_keys=True, default=str)
        if step.arguments
        else step.output
    )
    return digest_text("\0".join((step.agent, step.tool, arguments, outcome_of(step))))


def _commands_of(step: Step) -> Iterator[tuple[str, frozenset[str], str, tuple[str, ...]]]:
    """The commands of a call with their words, families and arguments; another tool is a command, unless of files."""
    if line := shell_command(step):
        for command in split_commands(line):
            if not only_looks(command):
                yield command, words_in(command), command_key(command), _arguments(command)
    elif step.arguments and not _is_file_tool(step):
        arguments = json.dumps(dict(step.arguments), ensure_ascii=False, default=str)
        values = [str(value).casefold() for value in step.arguments.values()]
        yield (
            f"{step.tool} {arguments}",
            words_in(" ".join(values)),
            step.tool,
            (step.tool, *values),
        )


def _arguments(command: str) -> tuple[str, ...]:
    try:
        tokens = shlex.split(command.casefold()) if "\n" not in command else []
    except ValueError:  # a quote that is never closed
        return ()
    return tuple(part for token in tokens for part in token.split("="))


def _is_file_tool(step: Step) -> bool:
    return (
        step.kind == "tool"
        and not shell_command(step)
        and any(name in step.arguments for name in PATHS)
    )


def words_in(text: str) -> frozenset[str]:
    return frozenset(word.rstrip(".-") for word in _WORD.findall(text.casefold()))


def _is_name(word: str) -> bool:
    """Not a plain word or number: `stage-a`, `--fast`, `app_2`."""
    return not word.isalpha() and not word.isdigit()
