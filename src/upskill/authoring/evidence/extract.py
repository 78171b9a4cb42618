"""Extract: a page of quotations from traces, without a model; the same traces always give the same page.

It is a valid skill, but nobody has judged what it says: a teacher turns it into one worth having. Every line that is
neither a heading nor in SENTENCES stands in a trace, and names its step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from upskill.authoring.evidence.quotations import FailedCommand, Quotation, quote_trace
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.skills import Skill, estimate_tokens
from upskill.traces import Trace

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
FAILED, ERROR, SUCCESS = "Failed:", "Its last output:", "The next run of the same command that succeeded:"
BETWEEN, MORE_BETWEEN = "Ran or changed in between:", "Ran or changed in between, of more than are quoted here:"
CUT = "(cut here)"
SENTENCES = (INTRODUCTION, LOOKING_LEFT_OUT, FAILED, ERROR, SUCCESS, BETWEEN, MORE_BETWEEN, CUT)


@dataclass(frozen=True, slots=True)
class Extraction:
    skill: Skill
    sources: Mapping[str, tuple[str, ...]]  # a line of the body -> the ids of its steps
    left_out: int = 0  # quotations that did not fit into the tokens


@dataclass(frozen=True, slots=True)
class _Entry:
    """Lines that stay together on the page, each with the id of its step."""

    section: Section
    lines: tuple[tuple[str, str], ...]


def extract(traces: Sequence[Trace], name: str, *, tokens: int = DEFAULT_TOKENS) -> Extraction:
    """A skill that quotes these traces, which have no secrets any more, in about so many tokens."""
    entries: dict[_Entry, None] = {}
    for number, trace in enumerate(traces):
        quotations = quote_trace(trace)
        prefix = f"r{number + 1}-s" if number else "s"
        for message in quotations.messages:
            entries[_Entry("messages", tuple(_quoted(message, prefix)))] = None
        for command in quotations.worked:
            entries[_Entry("worked", tuple(_quoted(command, prefix)))] = None
        for failure in quotations.failed:
            entries[_Entry("failed", tuple(_quote_failure(failure, prefix)))] = None
    if not entries:
        calls = counted(sum(len(trace.calls) for trace in traces), "tool call")
        raise UsageError(
            f"nothing to quote ({calls}): no command but such as look around, and no message after the first",
            "Give another trace with --from, or let a model read it: -m MODEL or --handoff DIR.",
        )
    fitting: list[_Entry] = []
    for entry in sorted(entries, key=lambda entry: list(HEADINGS).index(entry.section)):
        if not fitting or estimate_tokens("\n".join(line for line, _ in _body([*fitting, entry]))) <= tokens:
            fitting.append(entry)
    body = _body(fitting)
    sources: dict[str, tuple[str, ...]] = {}
    for line, step in body:
        if step:
            sources[line.strip()] = tuple(dict.fromkeys([*sources.get(line.strip(), ()), step]))
    goal = next((" ".join(trace.goal.split()) for trace in traces if trace.goal), "")
    began = f" It began with: {goal[:300]}" if goal and not set("<>") & set(goal) else ""
    sessions = counted(len(traces), "session")
    description = (
        f"Quotations from {sessions}: commands that worked, commands that failed, what the person said.{began}"
    )
    skill = Skill.new(name, description, "\n".join(line for line, _ in body))
    return Extraction(skill, sources, len(entries) - len(fitting))


def _body(entries: list[_Entry]) -> list[tuple[str, str]]:
    """The lines of the page, each with the id of its step; our own have that of the first step they are about."""
    first = next(step for _, step in entries[0].lines if step)
    lines = [(TITLE, ""), ("", ""), (INTRODUCTION, first)]
    for section, heading in HEADINGS.items():
        here = [entry for entry in entries if entry.section == section]
        if not here:
            continue
        lines += [("", ""), (heading, "")]
        if section == "worked":
            lines += [("", ""), (LOOKING_LEFT_OUT, here[0].lines[0][1]), ("", "")]
        for entry in here:
            lines += [("", ""), *entry.lines] if section == "messages" else entry.lines
    return lines


def _quote_failure(failure: FailedCommand, prefix: str) -> Iterator[tuple[str, str]]:
    step = failure.command.step
    parts = (
        (FAILED, [failure.command]),
        (ERROR, [Quotation(failure.error, step)] if failure.error else []),
        (MORE_BETWEEN if failure.more_between else BETWEEN, failure.between),
        (SUCCESS, [failure.success] if failure.success else []),
    )
    for label, quotes in parts:
        if quotes:
            # Without an empty line around it, an indented line belongs to the paragraph before.
            yield from [("", ""), (label, f"{prefix}{step}"), ("", "")]
            yield from (line for quote in quotes for line in _quoted(quote, prefix))


def _quoted(quote: Quotation, prefix: str) -> Iterator[tuple[str, str]]:
    """The lines of a quotation, indented, so that nothing in it can be read as a part of the page."""
    step = f"{prefix}{quote.step}"
    lines = [line for line in quote.text.encode("utf-8", "replace").decode().splitlines() if line.strip()]
    for line in lines[:MAX_QUOTED_LINES]:
        yield f"    {line}", step
    if len(lines) > MAX_QUOTED_LINES:
        yield CUT, step
