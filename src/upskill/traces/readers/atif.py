"""ATIF: the Agent Trajectory Interchange Format, version 1, as Harbor writes it to `trajectory.json`.

It is also how we write a trace of our own to a file. What the format has no field for is under `extra`.
"""

from __future__ import annotations

import json
from typing import Any

from upskill.traces import Status, Step, Trace, Usage
from upskill.traces.formats import Format, Sample, TraceBuilder, load_document
from upskill.traces.values import Row, as_row, content_text, exit_status, read_usage
from upskill.version import __version__

STATUS: dict[str, Status] = {"ok": "ok", "error": "error", "unknown": "unknown"}


def detects(sample: Sample) -> bool:
    document = as_row(sample.document)
    known = document.text("schema_version").upper().startswith("ATIF") or "agent" in document
    return known and isinstance(document.get("steps"), list)


def read(builder: TraceBuilder) -> None:
    document = as_row(load_document(builder.path))
    agent_info = document.child("agent")
    builder.agent = agent_info.text("name") or "atif"
    builder.model = agent_info.text("model_name")
    builder.session = document.text("session_id")
    extra = document.child("extra")
    builder.stop, builder.cwd = extra.text("stop"), extra.text("cwd")
    for item in builder.watch(document.array("steps")):
        _read_step(builder, as_row(item))
    builder.usage = _total(document.child("final_metrics"), builder.usage)
    builder.turns = extra.count("turns")


def _read_step(builder: TraceBuilder, step: Row) -> None:
    extra = step.child("extra")
    builder.at, builder.subagent = step.text("timestamp"), extra.text("agent")
    builder.add_text("thinking", content_text(step.get("reasoning_content")))
    builder.add_content(step.text("source"), step.get("message"))
    builder.model = step.text("model_name") or builder.model
    ids: list[str] = []
    for call in step.children("tool_calls"):
        ids.append(call.text("tool_call_id"))
        builder.add_call(ids[-1], call.text("function_name"), call.get("arguments"))
    builder.at = ""  # of the results it is not known
    for result in step.child("observation").children("results"):
        # An observation without a call is that of the step's first.
        call_id = result.text("source_call_id") or next(iter(ids), "")
        output = content_text(result.get("content"))
        status = STATUS.get(extra.text("status")) or exit_status(output)
        builder.add_result(call_id, output, status, seconds=extra.number("seconds"))
    used = step.child("metrics")
    cost = used.number("cost_usd")
    step_usage = read_usage(used, "prompt_tokens", "completion_tokens", "cached_tokens", cost=cost)
    if not builder.usage.total_tokens:
        builder.usage = step_usage
    elif step_usage.total_tokens:
        builder.usage += step_usage


def _total(final: Row, summed: Usage) -> Usage:
    cost = final.number("total_cost_usd")
    reasoning = final.child("extra").count("reasoning_tokens")
    return Usage(
        final.count("total_prompt_tokens") or summed.input_tokens,
        final.count("total_completion_tokens") or summed.output_tokens,
        final.count("total_cached_tokens") or summed.cached_tokens,
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
        "agent": {
            "name": trace.agent or "upskill",
            "version": __version__,
            "model_name": trace.model,
        },
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
    return json.dumps(
        document, indent=1
    )  # in ASCII: models do write lone surrogates, and they survive this way


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
        call = {
            "tool_call_id": call_id,
            "function_name": step.tool,
            "arguments": dict(step.arguments),
        }
        document["tool_calls"] = [call]
        document["observation"] = {"results": [{"source_call_id": call_id, "content": step.output}]}
        extra["status"] = step.status
        if step.seconds is not None:
            extra["seconds"] = step.seconds
    else:
        document["message"] = step.text
    return document | ({"extra": extra} if extra else {})


FORMAT = Format("atif", "ATIF trajectory", read, detects)
