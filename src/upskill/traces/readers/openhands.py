"""OpenHands: exported trajectories and events, of its first and of its present generation, and `output.jsonl`.

`output.jsonl` of an evaluation has a task in each line: `output.jsonl/INSTANCE` is one, the file alone its first.
"""

from __future__ import annotations

from typing import Any

from upskill.plain import as_list
from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, content_text, is_object, read_usage, status_of

KINDS = ("MessageEvent", "ActionEvent", "ObservationEvent", "SystemPromptEvent", "AgentErrorEvent")
# Actions that are told, not done: what the program notes about itself.
NOTES = (
    "system",
    "recall",
    "change_agent_state",
    "condensation",
    "condensation_request",
    "null",
    "start",
)


def detects(sample: Sample) -> bool:
    return any(_is_event(event) for row in sample.values[:20] for event in _events_in(row))


def _events_in(row: object) -> list[Any]:
    """The events of an evaluated task, or the row itself if it is one."""
    fields = as_row(row)
    for name in ("history", "trajectory", "events"):
        if isinstance(fields.get(name), list):
            # Once, an action and its observation came in pairs.
            return [event for item in fields.array(name) for event in as_list(item) or [item]]
    return as_list(row) or [row]


def _is_event(value: object) -> bool:
    event = as_row(value)
    if event.get("kind") in KINDS:
        return True
    is_action = isinstance(event.get("action"), str) and is_object(event.get("args"))
    is_observation = isinstance(event.get("observation"), str) and isinstance(
        event.get("content"), str
    )
    return (is_action or is_observation) and (
        "source" in event or "cause" in event or "id" in event
    )


def read(builder: TraceBuilder) -> None:
    rows = builder.read_values()
    tasks = [as_row(row) for row in rows if is_object(row) and _events_in(row) != [row]]
    if tasks:
        names = [task.text("instance_id") for task in tasks]
        builder.session = builder.choose_session(names, "tasks")
        task = tasks[names.index(builder.session)]
        builder.model = task.child("metadata").child("llm_config").text("model")
        _read_usage(builder, task.child("metrics"))
        rows = [task]
    for event in builder.watch(event for row in rows for event in _events_in(row)):
        _read_event(builder, as_row(event))


def _read_usage(builder: TraceBuilder, metrics: Row) -> None:
    if used := metrics.child("accumulated_token_usage"):
        cost = metrics.number("accumulated_cost")
        builder.usage = read_usage(
            used, "prompt_tokens", "completion_tokens", "cache_read_tokens", cost=cost
        )


def _read_event(builder: TraceBuilder, event: Row) -> None:
    builder.at = event.text("timestamp")
    _read_usage(builder, event.child("llm_metrics"))
    if isinstance(event.get("action"), str):
        _read_action(builder, event)
    elif event.get("kind") is not None:
        _read_present(builder, event)
    elif isinstance(event.get("observation"), str):
        _read_observation(builder, event)


# The first generation: an action has an id, and its observation names that as its cause.


def _read_action(builder: TraceBuilder, event: Row) -> None:
    name, arguments = event.text("action"), event.child("args")
    called = event.child("tool_call_metadata")
    builder.model = called.child("model_response").text("model") or builder.model
    if name == "message":
        text = arguments.text("content") or event.text("content", "message")
        builder.add_text("user" if event.get("source") == "user" else "assistant", text)
    elif name == "system":
        builder.add_text("system", arguments.text("content") or event.text("message"))
    elif name == "finish":
        builder.add_text(
            "assistant", arguments.text("final_thought", "thought") or event.text("message")
        )
        builder.stop = "finish"
    elif name == "think":
        builder.add_text("thinking", arguments.text("thought"))
    elif name not in NOTES and event.get("source") != "environment":
        builder.add_text("assistant", arguments.text("thought"))
        others = {
            key: value
            for key, value in arguments.items()
            if key != "thought" and value not in ("", None)
        }
        builder.add_call(_id_of(event.get("id")), called.text("function_name") or name, others)


def _read_observation(builder: TraceBuilder, event: Row) -> None:
    name, extras, cause = (
        event.text("observation"),
        event.child("extras"),
        _id_of(event.get("cause")),
    )
    text = event.text("content")
    if name == "agent_state_changed" or (name in (*NOTES, "think") and not builder.has_call(cause)):
        return
    if name in ("error", "user_rejected") and not builder.has_call(cause):
        builder.add_text("system", text)
        return
    code = extras.child("metadata").get("exit_code", extras.get("exit_code"))
    status: Status = "error" if name == "error" or event.get("success") is False else "unknown"
    if isinstance(code, int) and code != -1:  # -1: it is still running
        status = status_of(code)
    builder.add_result(cause, text, status, tool=name)


def _id_of(value: object) -> str:
    return str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""


def _read_present(builder: TraceBuilder, event: Row) -> None:
    kind, call, tool = event.text("kind"), event.text("tool_call_id"), event.text("tool_name")
    if kind == "MessageEvent":
        message = event.child("llm_message")
        builder.add_text("thinking", message.text("reasoning_content"))
        role = message.text("role") or ("user" if event.get("source") == "user" else "assistant")
        builder.add_content(role, message.get("content"))
    elif kind == "SystemPromptEvent":
        builder.add_text("system", content_text(event.get("system_prompt")))
    elif kind == "ActionEvent":
        builder.add_text("thinking", event.text("reasoning_content"))
        _read_present_action(builder, event, call)
    elif kind in ("ObservationEvent", "UserRejectObservation") and tool not in ("finish", "think"):
        observation = event.child("observation")
        output = content_text(observation.get("content", observation.get("output"))) or event.text(
            "rejection_reason"
        )
        code, failed = (
            observation.get("exit_code"),
            observation.get("is_error", observation.get("error")),
        )
        status: Status = (
            "error"
            if failed or kind != "ObservationEvent"
            else "ok"
            if failed is False
            else "unknown"
        )
        if isinstance(code, int) and code != -1:
            status = status_of(code)
        builder.add_result(call, output, status, tool=tool)
    elif kind == "AgentErrorEvent":
        builder.add_result(call, event.text("error"), "error", tool=tool)


def _read_present_action(builder: TraceBuilder, event: Row, call: str) -> None:
    action, tool = event.child("action"), event.text("tool_name")
    builder.add_text("assistant", content_text(event.get("thought") or ""))
    arguments = {key: value for key, value in action.items() if key != "kind" and value is not None}
    if not arguments:  # it could not be understood, so only what the model wrote is there
        arguments = event.child("tool_call").get("arguments") or arguments
    if tool == "finish":
        builder.add_text("assistant", action.text("message"))
        builder.stop = "finish"
    elif tool == "think":
        builder.add_text("thinking", action.text("thought"))
    else:
        builder.add_call(call or event.text("id"), tool or action.text("kind"), arguments)


NOISE = (
    *NOTES,
    "think",
    "agent_state_changed",
    "ConversationStateUpdateEvent",
    "Condensation",
    "CondensationRequest",
)
FORMAT = Format("openhands", "OpenHands trajectory", read, detects, noise=NOISE)
