"""inspect_ai: the samples of a log, `.eval` or JSON. `log.eval/ID` is one of them, the file alone the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty
from upskill.traces import Trace
from upskill.traces.formats import Format, Sample, load_document, open_trace
from upskill.traces.readers.inspect_logs import ARCHIVE, samples_of, unpack_log
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_count, get_dict, get_dicts, get_str, read_usage


def detects(sample: Sample) -> bool:
    if sample.data.startswith(ARCHIVE):
        return b"samples/" in sample.data or b"_journal/" in sample.data
    return bool(samples_of(sample.document))


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "inspect")
    with open_trace(path) as stream:
        packed = stream.read(len(ARCHIVE)) == ARCHIVE
        log = unpack_log(ARCHIVE + stream.read(), str(path)) if packed else load_document(path)
    samples = {_name(sample): sample for sample in samples_of(log)}
    if not samples:
        return builder.build()
    builder.session = builder.choose_session(list(samples), "samples")
    sample = samples[builder.session]
    for message in get_dicts(sample, "messages"):
        _read_message(builder, message)
    for name, used in get_dict(sample, "model_usage").items():
        builder.model = builder.model or name
        sent = "input_tokens input_tokens_cache_read input_tokens_cache_write"
        builder.usage += read_usage(
            dict_or_empty(used), sent, "output_tokens", "input_tokens_cache_read", "reasoning_tokens"
        )
    for choice in get_dicts(get_dict(sample, "output"), "choices")[:1]:
        builder.stop = get_str(choice, "stop_reason")
    for name, score in get_dict(sample, "scores").items():
        builder.add_text("system", f"[{name} scored it {dict_or_empty(score).get('value')}]")
    return builder.build()


def _name(sample: dict[str, Any]) -> str:
    epoch = get_count(sample, "epoch")
    return f"{sample.get('id')}" + (f"@{epoch}" if epoch > 1 else "")


def _read_message(builder: TraceBuilder, message: dict[str, Any]) -> None:
    role, content = get_str(message, "role"), message.get("content")
    if role == "tool":
        error = get_dict(message, "error")
        output = content_text(content) or get_str(error, "message")
        status = "error" if error else "ok"
        builder.add_result(get_str(message, "tool_call_id"), output, status, tool=get_str(message, "function"))
        return
    builder.add_content(role, content)
    builder.add_tool_calls(message)


FORMAT = Format("inspect_ai log", read, detects)
