"""ATIF: the Agent Trajectory Interchange Format, version 1, as Harbor writes it to `trajectory.json`.

It is also how we write a trace of our own to a file. What the format has no field for (whether a call failed, how long
it took) is under `extra`, where anything is allowed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping, dict_or_empty
from upskill.traces import Status, Step, Trace, Usage
from upskill.traces.formats import Format, Sample, load_document
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    content_text,
    exit_status,
    get_count,
    get_dict,
    get_dicts,
    get_float,
    get_list,
    get_str,
    read_usage,
)
from upskill.version import __version__

STATUS: dict[str, Status] = {"ok": "ok", "error": "error", "unknown": "unknown"}


def detects(sample: Sample) -> bool:
    document = as_mapping(sample.document)
    if document is None or not isinstance(document.get("steps"), list):
        return False
    return get_str(document, "schema_version").upper().startswith("ATIF") or "agent" in document


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "atif")
    document = dict_or_empty(load_document(path))
    agent_info = get_dict(document, "agent")
    builder.agent = get_str(agent_info, "name") or "atif"
    builder.model = get_str(agent_info, "model_name")
    builder.session = get_str(document, "session_id")
    extra = get_dict(document, "extra")
    builder.stop, builder.cwd = get_str(extra, "stop"), get_str(extra, "cwd")
    for item in get_list(document, "steps"):
        if (step := as_mapping(item)) is None:
            builder.skip(f"step {len(builder.steps) + 1} is not an object")
        else:
            _read_step(builder, step)
    builder.usage = _total(get_dict(document, "final_metrics"), builder.usage)
    return replace(builder.build(), turns=get_count(extra, "turns"))


def _read_step(builder: TraceBuilder, step: dict[str, Any]) -> None:
    at, source = get_str(step, "timestamp"), get_str(step, "source")
    extra = get_dict(step, "extra")
    agent = get_str(extra, "agent")
    builder.add_text("thinking", content_text(step.get("reasoning_content")), at=at, agent=agent)
    builder.add_content(source, step.get("message"), at=at, agent=agent)
    builder.model = get_str(step, "model_name") or builder.model
    ids: list[str] = []
    for call in get_dicts(step, "tool_calls"):
        ids.append(get_str(call, "tool_call_id"))
        builder.add_call(ids[-1], get_str(call, "function_name"), call.get("arguments"), at=at, agent=agent)
    for result in get_dicts(get_dict(step, "observation"), "results"):
        call_id = get_str(result, "source_call_id")
        if not call_id and ids:
            call_id = ids[0]  # an observation without a call is that of the step's first
        output = content_text(result.get("content"))
        status = STATUS.get(get_str(extra, "status")) or exit_status(output)
        builder.add_result(call_id, output, status, seconds=get_float(extra, "seconds"), agent=agent)
    used = get_dict(step, "metrics")
    cost = get_float(used, "cost_usd")
    step_usage = read_usage(used, "prompt_tokens", "completion_tokens", "cached_tokens", cost=cost)
    if not builder.usage.total_tokens:
        builder.usage = step_usage
    elif step_usage.total_tokens:
        builder.usage += step_usage


def _total(final: dict[str, Any], summed: Usage) -> Usage:
    cost = get_float(final, "total_cost_usd")
    reasoning = get_count(get_dict(final, "extra"), "reasoning_tokens")
    return Usage(
        get_count(final, "total_prompt_tokens") or summed.input_tokens,
        get_count(final, "total_completion_tokens") or summed.output_tokens,
        get_count(final, "total_cached_tokens") or summed.cached_tokens,
        reasoning,
        summed.cost_usd if cost is None else cost,
    )


def write(trace: Trace) -> str:
    """The text of a file from which `read` gets the same trace, apart from steps without any text."""
    extra: dict[str, Any] = {"stop": trace.stop, "cwd": trace.cwd, "turns": trace.turns}
    usage = trace.usage
    document = {
        "schema_version": "ATIF-v1.4",
        "session_id": trace.session,
        "agent": {"name": trace.agent or "upskill", "version": __version__, "model_name": trace.model},
        "steps": [_step_to_dict(number, step) for number, step in enumerate(trace.steps, start=1)],
        "final_metrics": {
            "total_prompt_tokens": usage.input_tokens,
            "total_completion_tokens": usage.output_tokens,
            "total_cached_tokens": usage.cached_tokens,
            "total_cost_usd": usage.cost_usd,
            "total_steps": len(trace.steps),
            "extra": {"reasoning_tokens": usage.reasoning_tokens},
        },
        "extra": {name: value for name, value in extra.items() if value},
    }
    return json.dumps(document, indent=1)  # in ASCII: models do write lone surrogates, and they survive this way


def _step_to_dict(number: int, step: Step) -> dict[str, Any]:
    source = {"user": "user", "system": "system"}.get(step.kind, "agent")
    document: dict[str, Any] = {"step_id": number, "source": source, "message": ""}
    if step.at:
        document["timestamp"] = step.at
    extra: dict[str, Any] = {"agent": step.agent} if step.agent else {}
    if step.kind == "thinking":
        document["reasoning_content"] = step.text
    elif step.kind == "tool":
        call_id = f"call_{number}"
        document["tool_calls"] = [
            {"tool_call_id": call_id, "function_name": step.tool, "arguments": dict(step.arguments)},
        ]
        document["observation"] = {"results": [{"source_call_id": call_id, "content": step.output}]}
        extra["status"] = step.status
        if step.seconds is not None:
            extra["seconds"] = step.seconds
    else:
        document["message"] = step.text
    return document | ({"extra": extra} if extra else {})


FORMAT = Format("ATIF trajectory", read, detects)
