"""inspect_ai: the samples of a log, `.eval` or JSON. `log.eval/ID` is one of them, the file alone the first."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, dict_or_empty
from upskill.traces import Trace
from upskill.traces.formats import Format, Sample, load_document, open_trace
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_count, get_dict, get_dicts, get_str, read_usage

ARCHIVE = b"PK\x03\x04"
ATTACHMENT = "attachment://"
MAX_UNPACKED = 200_000_000  # bytes
LONG = ("input", "target", "choices", "messages", "output", "metadata", "files")  # fields with long texts
HINT = "Is this the right file, and was it copied whole?"


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


# Logs as plain data: a zip archive of JSON files (`.eval`), or one JSON document.


def unpack_log(data: bytes, where: str) -> dict[str, Any]:
    """The samples of an archive, in the form of a JSON log."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [file for file in archive.infolist() if re.fullmatch(r"samples/[^/]+\.json", file.filename)]
            if not members:
                raise UsageError(f"{where}: is a zip archive without samples of inspect_ai", HINT)
            if sum(file.file_size for file in members) > MAX_UNPACKED:
                raise UsageError(f"{where}: is larger than {MAX_UNPACKED // 10**6} MB when unpacked", HINT)
            samples = [dict_or_empty(json.loads(archive.read(file))) for file in members]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, OSError, EOFError, ValueError, RuntimeError) as error:
        raise UsageError(f"{where}: cannot be unpacked: {error}", HINT) from error
    return {"eval": {}, "samples": sorted(samples, key=_order)}


def _order(sample: dict[str, Any]) -> tuple[int, str, str]:
    """By id, numbers as numbers, then by epoch."""
    name = str(sample.get("id", ""))
    return (int(name) if name.isdecimal() and len(name) < 19 else 0, name, str(sample.get("epoch", "")))


def samples_of(log: object) -> list[dict[str, Any]]:
    """The samples of a log, with the long texts that it keeps apart put back in; empty if it is not one."""
    fields = dict_or_empty(log)
    samples = get_dicts(fields, "samples") if "eval" in fields else []
    return [
        sample | {name: _put_back(sample[name], get_dict(sample, "attachments")) for name in LONG if name in sample}
        for sample in samples
        if "input" in sample and "target" in sample
    ]


def _put_back(value: Any, texts: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith(ATTACHMENT):
        return texts.get(value.removeprefix(ATTACHMENT), value)
    if (items := as_list(value)) is not None:
        return [_put_back(item, texts) for item in items]
    if (fields := as_mapping(value)) is not None:
        return {name: _put_back(item, texts) for name, item in fields.items()}
    return value


FORMAT = Format("inspect_ai log", read, detects)
