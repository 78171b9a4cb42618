"""SWE-agent: the `.traj` files of its runs, and its demonstrations, in which there is only the history.

`trajectory` has every action with its whole output; `history` has what the model was sent, where outputs end in a
prompt and the last is missing, but also the request and the arguments of function calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import as_mapping, dict_or_empty
from upskill.traces import Trace, Usage
from upskill.traces.formats import Format, Sample, load_document
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_count, get_dict, get_dicts, get_float, get_list, get_str

SHELL = "bash"  # where a model writes its commands as text


def detects(sample: Sample) -> bool:
    document = as_mapping(sample.document) or {}
    steps = get_dicts(document, "trajectory")[:3]
    history = get_dicts(document, "history")[:5]
    return any("action" in step and "observation" in step for step in steps) or any(
        "role" in message and ("message_type" in message or "thought" in message) for message in history
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "swe-agent")
    document = dict_or_empty(load_document(path))
    info = get_dict(document, "info")
    builder.stop = get_str(info, "exit_status")
    builder.session = get_str(document, "environment")
    history, steps = get_dicts(document, "history"), get_dicts(document, "trajectory")
    if steps:
        _read_request(builder, history)
        _read_trajectory(builder, steps, history)
    else:
        _read_history(builder, history)
    stats = get_dict(info, "model_stats")
    sent, received = get_count(stats, "tokens_sent"), get_count(stats, "tokens_received")
    builder.usage = Usage(sent, received, cost_usd=get_float(stats, "instance_cost") if sent else None)
    return builder.build()


def _read_request(builder: TraceBuilder, history: list[dict[str, Any]]) -> None:
    """What came before the first action."""
    for message in history:
        if message.get("role") == "assistant" and not _is_shown(message):
            return
        _read_text(builder, message)


def _is_shown(message: dict[str, Any]) -> bool:
    """Whether it is part of a demonstration that the model was shown."""
    return message.get("is_demo") is True or message.get("message_type") == "demonstration"


def _read_text(builder: TraceBuilder, message: dict[str, Any]) -> None:
    role = get_str(message, "role")
    builder.add_content(role, message.get("content"), system=_is_shown(message) or role == "system")


def _read_trajectory(builder: TraceBuilder, steps: list[dict[str, Any]], history: list[dict[str, Any]]) -> None:
    called = [message for message in history if get_list(message, "tool_calls") and not _is_shown(message)]
    for number, step in enumerate(steps):
        action = get_str(step, "action")
        builder.add_text("assistant", get_str(step, "thought") or get_str(step, "response"))
        if not action.strip():  # an answer without an action; the observation says so
            builder.add_text("system", content_text(step.get("observation")))
            continue
        message = called.pop(0) if called and get_str(called[0], "action") == action else {}
        _add_call(builder, str(number), action, message)
        output = content_text(step.get("observation"))
        builder.add_result(str(number), output, seconds=get_float(step, "execution_time"))


def _add_call(builder: TraceBuilder, call_id: str, action: str, message: dict[str, Any]) -> None:
    if calls := get_dicts(message, "tool_calls"):
        function = get_dict(calls[0], "function")
        builder.add_call(call_id, get_str(function, "name"), function.get("arguments"))
    else:
        builder.add_call(call_id, SHELL, {"command": action.strip("\n")})


def _read_history(builder: TraceBuilder, history: list[dict[str, Any]]) -> None:
    waiting = ""
    for number, message in enumerate(history):
        action = get_str(message, "action")
        if message.get("role") == "assistant" and (action.strip() or get_list(message, "tool_calls")):
            builder.add_text("assistant", get_str(message, "thought") or content_text(message.get("content")))
            waiting = str(number)
            _add_call(builder, waiting, action, message)
        elif waiting and message.get("role") in ("user", "tool"):
            builder.add_result(waiting, content_text(message.get("content")))
            waiting = ""
        else:
            _read_text(builder, message)


FORMAT = Format("SWE-agent trajectory", read, detects)
