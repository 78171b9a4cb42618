"""Amp: a thread, from `amp threads export`, `amp threads markdown` or below `~/.local/share/amp/threads`."""

from __future__ import annotations

import re
from urllib.parse import unquote

from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder, load_document, read_text
from upskill.traces.values import (
    Row,
    as_row,
    content_text,
    iso_time,
    kind_of,
    parse_object,
    read_usage,
    status_of,
)

BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "file")
STATUSES: dict[str, Status] = {
    "done": "ok",
    **dict.fromkeys(("error", "cancelled", "rejected-by-user", "timeout"), "error"),
}
_FRONT = re.compile(
    r"\A---\n(?:(?!---\n).*\n)*?threadId: (T-\S+)\n(?:created: (\S+)\n)?(?:(?!---\n).*\n)*?---\n"
)
_MARK = re.compile(
    r"^(?:## (User|Assistant|Info|System)|\*\*Tool (Use|Result):\*\* `([^`\n]*)`) *$", re.M
)
_FENCE = re.compile(r"\s*```\w*\n")


def detects(sample: Sample) -> bool:
    if sample.is_text and _FRONT.match(sample.text):
        return True
    thread = as_row(sample.document)
    return thread.text("id").startswith("T-") and any(
        "role" in message for message in thread.children("messages")[:5]
    )


def read(builder: TraceBuilder) -> None:
    if front := _FRONT.match(text := read_text(builder.path)):
        builder.session, builder.started = front[1], front[2] or ""
        _read_markdown(builder, _MARK.split(text[front.end() :])[1:])
        return
    thread = as_row(load_document(builder.path))
    initial = thread.child("env").child("initial")
    trees = [
        unquote(tree.text("uri").removeprefix("file://")) for tree in initial.children("trees")
    ]
    builder.session, builder.cwd = (
        thread.text("id"),
        initial.text("cwd", "workingDirectory") or next(iter(trees), ""),
    )
    builder.started = iso_time(thread.get("created"))
    for message in builder.watch(thread.children("messages")):
        _read_message(builder, message)


def _read_markdown(builder: TraceBuilder, pieces: list[str]) -> None:
    """Each part has a speaker, or `Use` or `Result` with a name, and its text. Results are in the order of calls."""
    role, turn = "", 0
    for speaker, what, name, text in zip(*[iter(pieces)] * 4, strict=True):
        if speaker:
            role, turn = speaker.lower(), turn + (speaker == "Assistant")
        begin = _FENCE.match(text) if what else None
        # A result may have fences of its own.
        end = (
            (text.find if what == "Use" else text.rfind)("\n```", begin.end() - 1) if begin else -1
        )
        block, rest = (
            (text[begin.end() : end], text[end + 4 :]) if begin and end >= 0 else ("", text)
        )
        if what == "Use":
            builder.add_call(f"turn {turn}", name, block)
        elif what == "Result":
            output, status = _outcome(Row(result=parse_object(block) or block))
            builder.add_result(f"turn {turn}", output, status)
        builder.add_content("system" if rest.strip() == "*(interrupted)*" else role, rest.strip())


def _read_message(builder: TraceBuilder, message: Row) -> None:
    role, usage, blocks = message.text("role"), message.child("usage"), message.children("content")
    begun = next((block["startTime"] for block in blocks if "startTime" in block), None)
    meta = message.child("meta")
    if meta.get("fromAutomation") or meta.get("fromExecutorThreadID"):  # another thread wrote it
        role = "system"
    sent_at = iso_time(meta.get("sentAt") or begun)
    builder.at = usage.text("timestamp") or message.text("createdAt") or sent_at
    builder.model = usage.text("model") or builder.model
    sent = "inputTokens cacheCreationInputTokens cacheReadInputTokens"
    builder.usage += read_usage(usage, sent, "outputTokens", "cacheReadInputTokens")
    builder.stop = message.child("state").text("stopReason") or builder.stop
    if isinstance(message.get("content"), str):
        builder.add_content(role, message["content"])
    for block in blocks if role else ():
        kind = block.text("type")
        if kind == "tool_result" and {"run", "toolUseID"} & set(block):
            output, status = _outcome(block.child("run") or block)
            builder.add_result(block.text("toolUseID", "tool_use_id"), output, status)
        elif kind == "manual_bash_invocation":  # typed by the person, after "$"
            output, status = _outcome(block.child("toolRun"))
            builder.add_done("Bash", block.get("args"), output, status)
        elif kind == "server_tool_use":
            builder.add_call(block.text("id"), block.text("name"), block.get("input"))
        elif kind == "summary":  # of what was compacted
            builder.add_text("system", block.child("summary").text("summary", "thread"))
        elif kind in BLOCKS:
            builder.add_content("system" if block.get("hidden") is True else role, [block])
        else:
            builder.leave_out(kind_of(block))


def _outcome(run: Row) -> tuple[str, Status]:
    """What a call returned, and how it ended: a command that failed is also `done`, with another exit code."""
    told = run.get("result", run.get("output", run.get("content")))
    result = as_row(told)
    known = status_of(result.get("exitCode", result.get("success")))
    status = STATUSES.get(run.text("status"), "unknown") if known == "unknown" else known
    error = run.child("error").text("message") or run.text("error", "reason")
    return error or result.text("output", "summary") or content_text(
        result.get("content") or told
    ), status


FORMAT = Format("amp", "Amp thread", read, detects)
