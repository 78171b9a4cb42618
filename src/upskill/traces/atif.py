"""ATIF: the Agent Trajectory Interchange Format, version 1, as Harbor writes it to `trajectory.json`.

It is also the form in which a trace of our own is kept as a file. What the format has no place for (whether a call
failed, how long it took) stands under `extra`, where it allows anything.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping
from upskill.traces import Status, Step, Trace, Usage
from upskill.traces.reading import (
    Format,
    Recording,
    Sample,
    amount,
    count,
    exit_status,
    items,
    load_document,
    mapping,
    text_of,
    word,
)
from upskill.version import __version__

STATUS: dict[str, Status] = {"ok": "ok", "error": "error", "unknown": "unknown"}


def detects(sample: Sample) -> bool:
    document = as_mapping(sample.document)
    if document is None or not isinstance(document.get("steps"), list):
        return False
    return word(document.get("schema_version")).upper().startswith("ATIF") or "agent" in document


def read(path: Path) -> Trace:
    recording = Recording(path, "atif")
    told = mapping(load_document(path))
    about = mapping(told.get("agent"))
    recording.agent = word(about.get("name")) or "atif"
    recording.model = word(about.get("model_name"))
    recording.session = word(told.get("session_id"))
    extra = mapping(told.get("extra"))
    recording.stop, recording.cwd = word(extra.get("stop")), word(extra.get("cwd"))
    for item in items(told.get("steps")):
        if (step := as_mapping(item)) is None:
            recording.refuse(f"step {len(recording.steps) + 1} is not an object")
        else:
            _read_step(recording, step)
    recording.usage = _total(mapping(told.get("final_metrics")), recording.usage)
    return replace(recording.trace(), turns=count(extra.get("turns")))


def _read_step(recording: Recording, step: dict[str, Any]) -> None:
    at, source = word(step.get("timestamp")), word(step.get("source"))
    extra = mapping(step.get("extra"))
    agent = word(extra.get("agent"))
    recording.say("thinking", text_of(step.get("reasoning_content")), at=at, agent=agent)
    recording.content(source, step.get("message"), at=at, agent=agent)
    recording.model = word(step.get("model_name")) or recording.model
    ids: list[str] = []
    for item in items(step.get("tool_calls")):
        call = mapping(item)
        ids.append(word(call.get("tool_call_id")))
        recording.call(ids[-1], word(call.get("function_name")), call.get("arguments"), at=at, agent=agent)
    for item in items(mapping(step.get("observation")).get("results")):
        result = mapping(item)
        id = word(result.get("source_call_id"))  # noqa: A001
        if not id and ids:
            id = ids[0]  # noqa: A001 - an observation that names no call is that of the step's own
        output = text_of(result.get("content"))
        known = STATUS.get(word(extra.get("status"))) or exit_status(output)
        recording.result(id, output, known, seconds=amount(extra.get("seconds")), agent=agent)
    used = mapping(step.get("metrics"))
    cost = amount(used.get("cost_usd"))
    fresh = Usage(
        count(used.get("prompt_tokens")),
        count(used.get("completion_tokens")),
        count(used.get("cached_tokens")),
        0,
        cost,
    )
    if not recording.usage.total_tokens:
        recording.usage = fresh
    elif fresh.total_tokens:
        recording.usage = recording.usage + fresh


def _total(final: dict[str, Any], counted: Usage) -> Usage:
    cost = amount(final.get("total_cost_usd"))
    reasoning = count(mapping(final.get("extra")).get("reasoning_tokens"))
    return Usage(
        count(final.get("total_prompt_tokens")) or counted.input_tokens,
        count(final.get("total_completion_tokens")) or counted.output_tokens,
        count(final.get("total_cached_tokens")) or counted.cached_tokens,
        reasoning,
        counted.cost_usd if cost is None else cost,
    )


def write(trace: Trace) -> str:
    """The trace as a file that `read` makes the same trace of, but for what was said in no words."""
    extra: dict[str, Any] = {"stop": trace.stop, "cwd": trace.cwd, "turns": trace.turns}
    usage = trace.usage
    told = {
        "schema_version": "ATIF-v1.4",
        "session_id": trace.session,
        "agent": {"name": trace.agent or "upskill", "version": __version__, "model_name": trace.model},
        "steps": [_plain(number, step) for number, step in enumerate(trace.steps, start=1)],
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
    return json.dumps(told, indent=1)  # in ASCII: half of a surrogate pair, which models do say, stays as it is


def _plain(number: int, step: Step) -> dict[str, Any]:
    source = {"user": "user", "system": "system"}.get(step.kind, "agent")
    told: dict[str, Any] = {"step_id": number, "source": source, "message": ""}
    if step.at:
        told["timestamp"] = step.at
    extra: dict[str, Any] = {"agent": step.agent} if step.agent else {}
    if step.kind == "thinking":
        told["reasoning_content"] = step.text
    elif step.kind == "tool":
        id = f"call_{number}"  # noqa: A001
        told["tool_calls"] = [
            {"tool_call_id": id, "function_name": step.tool, "arguments": dict(step.arguments)},
        ]
        told["observation"] = {"results": [{"source_call_id": id, "content": step.output}]}
        extra["status"] = step.status
        if step.seconds is not None:
            extra["seconds"] = step.seconds
    else:
        told["message"] = step.text
    return told | ({"extra": extra} if extra else {})


FORMAT = Format("ATIF trajectory", read, detects)
