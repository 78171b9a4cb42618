"""inspect_ai: the samples of a log, `.eval` or JSON. `log.eval/ID` is one of them, the file alone the first."""

from __future__ import annotations

from upskill.traces.formats import Format, Sample, TraceBuilder, load_document, open_trace
from upskill.traces.readers.inspect_logs import ARCHIVE, samples_of, unpack_log
from upskill.traces.values import Row, as_row, content_text, read_usage


def detects(sample: Sample) -> bool:
    if sample.data.startswith(ARCHIVE):
        return b"samples/" in sample.data or b"_journal/" in sample.data
    return bool(samples_of(sample.document))


def read(builder: TraceBuilder) -> None:
    with open_trace(builder.path) as stream:
        packed = stream.read(len(ARCHIVE)) == ARCHIVE
        log = (
            unpack_log(ARCHIVE + stream.read(), str(builder.path))
            if packed
            else load_document(builder.path)
        )
    samples = {_name(sample): sample for sample in samples_of(log)}
    builder.session = builder.choose_session(list(samples), "samples")
    sample = samples[builder.session]
    for message in builder.watch(sample.children("messages")):
        _read_message(builder, message)
    for name, used in sample.child("model_usage").items():
        builder.model = builder.model or name
        sent = "input_tokens input_tokens_cache_read input_tokens_cache_write"
        counts = as_row(used)
        builder.usage += read_usage(
            counts, sent, "output_tokens", "input_tokens_cache_read", "reasoning_tokens"
        )
    for choice in sample.child("output").children("choices")[:1]:
        builder.stop = choice.text("stop_reason")
    for name, score in sample.child("scores").items():
        builder.add_text("system", f"[{name} scored it {as_row(score).get('value')}]")


def _name(sample: Row) -> str:
    epoch = sample.count("epoch")
    return f"{sample.get('id')}" + (f"@{epoch}" if epoch > 1 else "")


def _read_message(builder: TraceBuilder, message: Row) -> None:
    role, content = message.text("role"), message.get("content")
    if role == "tool":
        error = message.child("error")
        output = content_text(content) or error.text("message")
        tool = message.text("function")
        builder.add_result(
            message.text("tool_call_id"), output, "error" if error else "ok", tool=tool
        )
    else:
        builder.add_content(role, content)
        builder.add_tool_calls(message)


FORMAT = Format("inspect", "inspect_ai log", read, detects)
