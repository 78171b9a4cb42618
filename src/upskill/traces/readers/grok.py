"""Grok CLI: `chat_history.jsonl` below `~/.grok/sessions`."""

from __future__ import annotations

import re

from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, block_text, content_text, status_of

_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.S)
_EXIT = re.compile(r"^\s*exit(?: code)?:\s*(-?\d+)", re.M | re.I)


def detects(sample: Sample) -> bool:
    marks = {
        "tool_result": "tool_call_id",
        "backend_tool_call": "kind",
        "assistant": "model_id",
        "user": "prompt_index",
    }
    return any(
        "content" in row or "kind" in row
        for row in sample.rows
        if marks.get(row.text("type"), "type?") in row
    )


def read(builder: TraceBuilder) -> None:
    summary = builder.read_beside("summary.json")
    builder.session, builder.cwd = (
        summary.child("info").text("id"),
        summary.child("info").text("cwd"),
    )
    builder.started, builder.model = summary.text("created_at"), summary.text("current_model_id")
    for row in builder.watch(builder.read_lines()):
        _read_row(builder, row)


def _read_row(builder: TraceBuilder, row: Row) -> None:
    kind, text = row.text("type"), content_text(row.get("content"))
    if kind == "user":
        said, beside = _QUERY.findall(text), _QUERY.sub("", text)
        by_program = row.text("synthetic_reason") not in ("", "interjection")
        by_program = by_program or text.startswith(("<user_info>", "<system-reminder>"))
        builder.add_text("system" if said or by_program else "user", beside)
        builder.add_text("user", "\n".join(said))
    elif kind == "system":
        builder.add_text("system", text)
    elif kind == "reasoning":
        builder.add_text("thinking", content_text(row.get("summary")) or text)
        builder.use()  # often encrypted
    elif kind == "assistant":
        builder.model = row.text("model_id") or builder.model
        builder.add_text("thinking", row.child("reasoning").text("text"))
        builder.add_text("assistant", text)
        builder.add_tool_calls(row)
    elif kind == "tool_result":
        code = _EXIT.search(text)
        text = "\n".join([text, *map(block_text, row.children("images"))])
        builder.add_result(
            row.text("tool_call_id"), text, status_of(int(code[1]) if code else None)
        )
    elif kind == "backend_tool_call" and (call := row.child("kind")):  # a search by the provider
        status = status_of(True if call.get("status") == "completed" else None)
        builder.add_done(
            call.text("tool_type", "name"), call.get("action") or call.get("input"), "", status
        )


FORMAT = Format("grok", "Grok CLI session", read, detects)
