"""ATIF: the Agent Trajectory Interchange Format, version 1, as Harbor writes it to `trajectory.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import as_mapping
from upskill.traces import Trace, Usage
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
    for item in items(told.get("steps")):
        if (step := as_mapping(item)) is None:
            recording.refuse(f"step {len(recording.steps) + 1} is not an object")
        else:
            _read_step(recording, step)
    recording.usage = _total(mapping(told.get("final_metrics")), recording.usage)
    return recording.trace()


def _read_step(recording: Recording, step: dict[str, Any]) -> None:
    at, source = word(step.get("timestamp")), word(step.get("source"))
    recording.say("thinking", text_of(step.get("reasoning_content")), at=at)
    recording.content(source, step.get("message"), at=at)
    recording.model = word(step.get("model_name")) or recording.model
    ids: list[str] = []
    for item in items(step.get("tool_calls")):
        call = mapping(item)
        ids.append(word(call.get("tool_call_id")))
        recording.call(ids[-1], word(call.get("function_name")), call.get("arguments"), at=at)
    for item in items(mapping(step.get("observation")).get("results")):
        result = mapping(item)
        id = word(result.get("source_call_id"))  # noqa: A001
        if not id and ids:
            id = ids[0]  # noqa: A001 - an observation that names no call is that of the step's own
        output = text_of(result.get("content"))
        recording.result(id, output, exit_status(output))
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
    return Usage(
        count(final.get("total_prompt_tokens")) or counted.input_tokens,
        count(final.get("total_completion_tokens")) or counted.output_tokens,
        count(final.get("total_cached_tokens")) or counted.cached_tokens,
        0,
        counted.cost_usd if cost is None else cost,
    )


FORMAT = Format("ATIF trajectory", read, detects)
