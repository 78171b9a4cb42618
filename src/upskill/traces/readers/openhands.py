"""OpenHands: exported trajectories and events, of its first and of its present generation, and `output.jsonl`.

`output.jsonl` of an evaluation has a task in each line: `output.jsonl/INSTANCE` is one, the file alone its first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty
from upskill.traces import Status, Trace
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_dict, get_float, get_list, get_str, read_usage, status_of

KINDS = ("MessageEvent", "ActionEvent", "ObservationEvent", "SystemPromptEvent", "AgentErrorEvent")
# Actions that are told, not done: what the program notes about itself.
NOTES = ("system", "recall", "change_agent_state", "condensation", "condensation_request", "null", "start")


def detects(sample: Sample) -> bool:
    document = sample.document
    rows = as_list(document) or ([document] if document is not None else sample.rows)
    return any(map(_is_event, (event for row in rows[:20] for event in _events_in(row))))


def _events_in(row: object) -> list[Any]:
    """The events of an evaluated task, or the row itself if it is one."""
    fields = as_mapping(row)
    for name in ("history", "trajectory", "events"):
        if fields is not None and isinstance(fields.get(name), list):
            # Once, an action and its observation came in pairs.
            return [event for item in get_list(fields, name) for event in as_list(item) or [item]]
    return as_list(row) or [row]


def _is_event(value: object) -> bool:
    event = dict_or_empty(value)
    if event.get("kind") in KINDS:
        return True
    told = isinstance(event.get("action"), str) and isinstance(event.get("args"), dict)
    seen = isinstance(event.get("observation"), str) and isinstance(event.get("content"), str)
    return (told or seen) and ("source" in event or "cause" in event or "id" in event)


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "openhands")
    rows = builder.read_values()
    tasks = [row for row in rows if as_mapping(row) is not None and not _is_event(row)]
    if tasks:
        rows = [_choose(builder, tasks)]
    for event in (event for row in rows for event in _events_in(row)):
        _read_event(builder, dict_or_empty(event))
    return builder.build()


def _choose(builder: TraceBuilder, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    names = [get_str(task, "instance_id") for task in tasks]
    task = tasks[names.index(builder.choose_session(names, "tasks"))]
    builder.session = get_str(task, "instance_id")
    builder.model = get_str(get_dict(get_dict(task, "metadata"), "llm_config"), "model")
    _read_usage(builder, get_dict(task, "metrics"))
    return task


def _read_usage(builder: TraceBuilder, metrics: dict[str, Any]) -> None:
    if used := get_dict(metrics, "accumulated_token_usage"):
        cost = get_float(metrics, "accumulated_cost")
        builder.usage = read_usage(used, "prompt_tokens", "completion_tokens", "cache_read_tokens", cost=cost)


def _read_event(builder: TraceBuilder, event: dict[str, Any]) -> None:
    at = get_str(event, "timestamp")
    _read_usage(builder, get_dict(event, "llm_metrics"))
    if event.get("kind") is not None and not isinstance(event.get("action"), str):
        _read_present(builder, event, at)
    elif isinstance(event.get("action"), str):
        _read_action(builder, event, at)
    elif isinstance(event.get("observation"), str):
        _read_observation(builder, event, at)


# The first generation: an action has an id, and its observation names that as its cause.


def _read_action(builder: TraceBuilder, event: dict[str, Any], at: str) -> None:
    name, arguments = get_str(event, "action"), get_dict(event, "args")
    called = get_dict(event, "tool_call_metadata")
    builder.model = get_str(get_dict(called, "model_response"), "model") or builder.model
    if name == "message":
        text = get_str(arguments, "content") or get_str(event, "content") or get_str(event, "message")
        builder.add_text("user" if event.get("source") == "user" else "assistant", text, at=at)
    elif name == "system":
        builder.add_text("system", get_str(arguments, "content") or get_str(event, "message"), at=at)
    elif name == "finish":
        text = get_str(arguments, "final_thought") or get_str(arguments, "thought") or get_str(event, "message")
        builder.add_text("assistant", text, at=at)
        builder.stop = "finish"
    elif name == "think":
        builder.add_text("thinking", get_str(arguments, "thought"), at=at)
    elif name not in NOTES and event.get("source") != "environment":
        builder.add_text("assistant", get_str(arguments, "thought"), at=at)
        call_arguments = {
            key: value for key, value in arguments.items() if key != "thought" and value not in ("", None)
        }
        tool = get_str(called, "function_name") or name
        builder.add_call(_id_of(event.get("id")), tool, call_arguments, at=at)


def _read_observation(builder: TraceBuilder, event: dict[str, Any], at: str) -> None:
    name, extras, cause = get_str(event, "observation"), get_dict(event, "extras"), _id_of(event.get("cause"))
    text = get_str(event, "content")
    if name == "agent_state_changed" or (name in (*NOTES, "think") and not builder.has_call(cause)):
        return
    if name in ("error", "user_rejected") and not builder.has_call(cause):
        builder.add_text("system", text, at=at)
        return
    code = get_dict(extras, "metadata").get("exit_code", extras.get("exit_code"))
    status: Status = "error" if name == "error" or event.get("success") is False else "unknown"
    if isinstance(code, int) and code != -1:  # -1: it is still running
        status = status_of(code)
    builder.add_result(cause, text, status, tool=name, at=at)


def _id_of(value: object) -> str:
    return str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""


# The present generation.


def _read_present(builder: TraceBuilder, event: dict[str, Any], at: str) -> None:
    kind = get_str(event, "kind")
    call = get_str(event, "tool_call_id")
    if kind == "MessageEvent":
        message = get_dict(event, "llm_message")
        builder.add_text("thinking", get_str(message, "reasoning_content"), at=at)
        role = get_str(message, "role") or ("user" if event.get("source") == "user" else "assistant")
        builder.add_content(role, message.get("content"), at=at)
    elif kind == "SystemPromptEvent":
        builder.add_text("system", content_text(event.get("system_prompt")), at=at)
    elif kind == "ActionEvent":
        builder.add_text("thinking", get_str(event, "reasoning_content"), at=at)
        _read_present_action(builder, event, call, at)
    elif kind in ("ObservationEvent", "UserRejectObservation") and event.get("tool_name") not in (
        "finish",
        "think",
    ):
        seen = get_dict(event, "observation")
        output = content_text(seen.get("content", seen.get("output"))) or get_str(event, "rejection_reason")
        code, failed = seen.get("exit_code"), seen.get("is_error", seen.get("error"))
        status: Status = "error" if failed or kind != "ObservationEvent" else "ok" if failed is False else "unknown"
        if isinstance(code, int) and code != -1:
            status = status_of(code)
        builder.add_result(call, output, status, tool=get_str(event, "tool_name"), at=at)
    elif kind == "AgentErrorEvent":
        builder.add_result(call, get_str(event, "error"), "error", tool=get_str(event, "tool_name"), at=at)


def _read_present_action(builder: TraceBuilder, event: dict[str, Any], call: str, at: str) -> None:
    action, tool = get_dict(event, "action"), get_str(event, "tool_name")
    builder.add_text("assistant", content_text(event.get("thought") or ""), at=at)
    arguments = {key: value for key, value in action.items() if key != "kind" and value is not None}
    if not arguments:  # it could not be understood, so only what the model wrote is there
        arguments = get_dict(event, "tool_call").get("arguments") or arguments
    if tool == "finish":
        builder.add_text("assistant", get_str(action, "message"), at=at)
        builder.stop = "finish"
    elif tool == "think":
        builder.add_text("thinking", get_str(action, "thought"), at=at)
    else:
        builder.add_call(call or get_str(event, "id"), tool or get_str(action, "kind"), arguments, at=at)


FORMAT = Format("OpenHands trajectory", read, detects)
