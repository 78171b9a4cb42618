"""Antigravity: `transcript.jsonl` and `transcript_full.jsonl` below `~/.gemini/antigravity*/brain`."""

from __future__ import annotations

import re
from typing import Any

from upskill.plain import counted, load_json
from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, read_usage, seconds_between, status_of

NOISE = ("CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS")
_REQUEST = re.compile(r"<USER_REQUEST>\n?(.*?)\n?</USER_REQUEST>\s*", re.S)
_MODEL = re.compile(r"`?Model Selection`? from .*? to (.+?)\.(?:\s|$)")
_TIMES = re.compile(r"\ACreated At: (\S+)\n(?:Completed At: (\S+)\n)?")
_TYPED = re.compile(r"The USER performed the following action:\n(?:Command: (.*)\nCWD: (.*)\n)?")
_ENDED = re.compile(
    r"\A\s*The command (completed successfully|(?:exited with|failed with exit) code:? (-?\d+))"
)


def detects(sample: Sample) -> bool:
    return any(
        "step_index" in row and row.get("type") in ("USER_INPUT", "PLANNER_RESPONSE")
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    builder.session = builder.path.parents[2].name if builder.path.parent.name == "logs" else ""
    asked, waiting, cut = "", 0, 0
    for row in builder.watch(builder.read_lines()):
        builder.at, kind, source = row.text("created_at"), row.text("type"), row.text("source")
        cut += bool(row.get("truncated_fields"))
        if kind == "USER_INPUT":
            _read_request(builder, row.text("content"))
        elif kind == "PLANNER_RESPONSE" or row.get("thinking") or row.get("tool_calls"):
            asked, waiting = str(row.get("step_index")), len(row.array("tool_calls"))
            _read_answer(builder, row, asked)
        elif source == "MODEL" or (
            waiting and kind == "ERROR_MESSAGE"
        ):  # calls are answered in their order
            _read_result(builder, row, asked if waiting else "")
            waiting -= bool(waiting)
        elif source == "USER_EXPLICIT":
            _read_action(builder, row)
        elif source == "SYSTEM":
            builder.add_text("system", row.text("content", "error"))
    if cut:
        builder.warn(
            f"{counted(cut, 'line')} cut short; transcript_full.jsonl beside it may have the rest"
        )


def _read_request(builder: TraceBuilder, content: str) -> None:
    if chosen := _MODEL.search(content):
        builder.model = chosen[1]
    said = _REQUEST.findall(content)
    by_program = said or content.lstrip().startswith("<USER_SETTINGS_CHANGE>")
    builder.add_text("user", "\n".join(said) if by_program else content)
    builder.add_text("system", _REQUEST.sub("", content) if by_program else "")


def _read_answer(builder: TraceBuilder, row: Row, name: str) -> None:
    builder.model = row.text("model") or builder.model
    builder.usage += read_usage(
        row.child("usage"), "input_tokens", "output_tokens", "cached_content_token_count"
    )
    builder.add_text("thinking", row.text("thinking"))
    builder.add_text("assistant", row.text("content"))
    for call in row.children("tool_calls"):
        arguments = {key: _decoded(value) for key, value in call.child("args").items()}
        builder.cwd = builder.cwd or as_row(arguments).text("Cwd")
        builder.add_call(name, call.text("name"), arguments)
    builder.use()


def _decoded(value: Any) -> Any:
    """An argument, which most versions write as JSON within JSON."""
    try:
        return load_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _read_result(builder: TraceBuilder, row: Row, name: str) -> None:
    content = row.text("content", "error")
    times = _TIMES.match(content)
    output = content[times.end() :] if times else content
    seconds = seconds_between(times[1], times[2] or "") if times else None
    builder.add_result(
        name, output, _status(row, output), tool=row.text("type").lower(), seconds=seconds
    )


def _read_action(builder: TraceBuilder, row: Row) -> None:
    """What the person did meanwhile: a command, or a file that was opened."""
    content = row.text("content")
    typed = _TYPED.match(content)
    arguments = {"CommandLine": typed[1], "Cwd": typed[2]} if typed and typed[1] else {}
    output = content[typed.end() :] if typed else content
    builder.add_done(row.text("type").lower(), arguments, output, _status(row, output))


def _status(row: Row, output: str) -> Status:
    code, kind, state = row.get("exit_code"), row.text("type"), row.text("status")
    if code is None and (ended := _ENDED.match(output)):
        code = int(ended[2] or 0)
    if code is None and kind != "RUN_COMMAND" and state == "DONE":
        code = int(kind == "ERROR_MESSAGE")
    return "error" if state in ("ERROR", "CANCELED") else status_of(code)


FORMAT = Format("antigravity", "Antigravity transcript", read, detects, noise=NOISE)
