"""SWE-agent: the `.traj` files of its runs, and its demonstrations, in which there is only the history.

`trajectory` has every action with its whole output; `history` has the request and the arguments of function calls.
"""

from __future__ import annotations

from itertools import takewhile

from upskill.traces.formats import Format, Sample, TraceBuilder, load_document
from upskill.traces.values import Row, as_row, content_text, read_usage

SHELL = "bash"  # where a model writes its commands as text


def detects(sample: Sample) -> bool:
    document = as_row(sample.document)
    steps = [
        row
        for row in document.children("trajectory")[:3]
        if "action" in row and "observation" in row
    ]
    messages = [
        row for row in document.children("history")[:5] if "message_type" in row or "thought" in row
    ]
    return bool(steps) or any("role" in message for message in messages)


def read(builder: TraceBuilder) -> None:
    document = as_row(load_document(builder.path))
    info = document.child("info")
    builder.stop = info.text("exit_status")
    builder.session = document.text("environment")
    history, steps = document.children("history"), document.children("trajectory")
    if steps:
        for message in takewhile(
            lambda row: row.get("role") != "assistant" or _is_shown(row), history
        ):
            _read_text(builder, message)
        _read_trajectory(builder, steps, history)
    else:
        _read_history(builder, history)
    stats = info.child("model_stats")
    cost = stats.number("instance_cost") if stats.count("tokens_sent") else None
    builder.usage = read_usage(stats, "tokens_sent", "tokens_received", cost=cost)


def _is_shown(message: Row) -> bool:
    """Whether it is part of a demonstration that the model was shown."""
    return message.get("is_demo") is True or message.get("message_type") == "demonstration"


def _read_text(builder: TraceBuilder, message: Row) -> None:
    builder.add_content(
        "system" if _is_shown(message) else message.text("role"), message.get("content")
    )


def _read_trajectory(builder: TraceBuilder, steps: list[Row], history: list[Row]) -> None:
    called = [
        message for message in history if message.array("tool_calls") and not _is_shown(message)
    ]
    for step in builder.watch(steps):
        action, output = step.text("action"), content_text(step.get("observation"))
        builder.add_text("assistant", step.text("thought", "response"))
        if not action.strip():  # an answer without an action; the observation says so
            builder.add_text("system", output)
            continue
        message = called.pop(0) if called and called[0].text("action") == action else Row()
        builder.add_done(
            *_call_of(action, message), output, "unknown", seconds=step.number("execution_time")
        )


def _call_of(action: str, message: Row) -> tuple[str, object]:
    if calls := message.children("tool_calls"):
        function = calls[0].child("function")
        return function.text("name"), function.get("arguments")
    return SHELL, {"command": action.strip("\n")}


def _read_history(builder: TraceBuilder, history: list[Row]) -> None:
    waiting = ""
    for number, message in enumerate(builder.watch(history)):
        action = message.text("action")
        if message.get("role") == "assistant" and (action.strip() or message.array("tool_calls")):
            builder.add_text(
                "assistant", message.text("thought") or content_text(message.get("content"))
            )
            waiting = str(number)
            builder.add_call(waiting, *_call_of(action, message))
        elif waiting and message.get("role") in ("user", "tool"):
            builder.add_result(waiting, content_text(message.get("content")))
            waiting = ""
        else:
            _read_text(builder, message)


FORMAT = Format("swe-agent", "SWE-agent trajectory", read, detects)
