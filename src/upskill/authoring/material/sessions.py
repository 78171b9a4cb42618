"""Several sessions of one kind of work, in the order of their times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from upskill.traces import Step, Trace

MAX_LINE = 200  # characters of a call or an error that people are shown


def in_order_of_time(traces: Sequence[Trace]) -> list[Trace]:
    """Those without a time come last; of two that are the same, one."""
    unique: dict[str, Trace] = {}
    for trace in traces:
        unique.setdefault(repr(trace.steps), trace)
    return sorted(unique.values(), key=lambda trace: _began(trace) or float("inf"))


def session_labels(sessions: Sequence[Trace]) -> list[str]:
    """When each began, as a teacher is told; empty where there is only one."""
    if len(sessions) == 1:
        return [""]
    labels: list[str] = []
    for number, trace in enumerate(sessions, start=1):
        time = _began(trace)
        began = f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}" if time else ""
        labels.append(began or f"undated {number}")
    return labels


def latest_goal(sessions: Sequence[Trace]) -> str:
    """What was asked for in the latest session whose time is known, else in the first."""
    dated = [trace for trace in sessions if _began(trace)]
    return next((trace.goal for trace in (*reversed(dated), *sessions) if trace.goal), "")


def call_line(step: Step) -> str:
    """What a tool call does, in a line: its command or path, or the first thing it was given."""
    arguments = dict(step.arguments)
    names = [name for name in ("command", "cmd", "path", "file_path") if arguments.get(name)]
    value = arguments[names[0]] if names else next(iter(arguments.values()), "")
    return " ".join(str(value).split())[:MAX_LINE]


def step_failed(step: Step) -> bool:
    return step.status == "error"


def error_line(output: str) -> str:
    """The last line that says something, but for the exit code that our own agent adds."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[exit code")]
    return lines[-1][:MAX_LINE] if lines else ""


def _began(trace: Trace) -> float | None:
    for text in (trace.started, *(step.at for step in trace.steps)):
        try:
            time = datetime.fromisoformat(text)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None
