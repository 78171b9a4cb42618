"""Claude Code: sessions below `~/.claude/projects` with their sub-agents, exports of Claude Code on the web, and
`claude --output-format stream-json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from upskill.plain import list_or_empty, read_json
from upskill.traces import NO_USAGE, Usage
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, anthropic_usage, as_row, content_text, read_usage

# What the program itself writes into the user's turns.
BY_PROGRAM = (
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<system-reminder>",
    "Caveat: The messages",
)
NOISE = (
    *(
        "progress",
        "summary",
        "queue-operation",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
    ),
    *(
        "custom-title",
        "ai-title",
        "agent-name",
        "agent-color",
        "pr-link",
        "worktree-state",
        "system",
        "attachment",
    ),
    *("stream_event", "rate_limit_event", "assistant/thinking", "assistant/redacted_thinking"),
)
EXPORTED = "loglines"
TYPED = re.compile(
    r"<bash-(input|stdout|stderr)>(.*?)</bash-\1>", re.S
)  # a command that the person ran with `!`
IDS = (
    "sessionId",
    "session_id",
    "parentUuid",
    "leafUuid",
)  # left out by some who publish a session


def detects(sample: Sample) -> bool:
    return any(
        row.get("type")
        in ("user", "assistant", "system", "summary", "result", "queue-operation", "attachment")
        and (any(name in row for name in IDS) or "content" in row.child("message"))
        for row in (*sample.rows, *as_row(sample.document).children(EXPORTED))
    )


def read(builder: TraceBuilder) -> None:
    _read_file(builder)
    for file in sorted((builder.path.with_suffix("") / "subagents").glob("*.jsonl")):
        call_id = as_row(read_json(file.with_suffix(".meta.json"))).text("toolUseId")
        other = TraceBuilder(file, builder.agent)
        _read_file(other, file.stem)
        builder.add_subagent(call_id, other)


def _rows(builder: TraceBuilder) -> Iterator[Row]:
    """The lines of a file, or of what Claude Code on the web exports."""
    document = as_row(Sample.open(builder.path).document)
    yield from document.children(EXPORTED) if EXPORTED in document else builder.read_lines()


def _read_file(builder: TraceBuilder, agent: str = "") -> None:
    seen: set[tuple[str, int]] = set()
    used: dict[str, Usage] = {}
    for row in builder.watch(_rows(builder)):
        # A resumed session may repeat lines.
        told = row.text("uuid"), hash(str(row.child("message", "attachment")))
        if told[0] and told in seen:
            builder.use()
            continue
        seen.add(told)
        builder.session = builder.session or row.text("sessionId", "session_id")
        builder.cwd = builder.cwd or row.text("cwd")
        builder.at, builder.subagent = row.text("timestamp"), agent
        if not agent and (row.get("isSidechain") is True or row.get("parent_tool_use_id")):
            builder.subagent = row.text("agentId", "parent_tool_use_id") or "sidechain"
        kind, message = row.get("type"), row.child("message")
        if kind == "user":
            _read_user(builder, row, message)
        elif kind == "assistant":
            builder.add_content("assistant", message.get("content"))
            builder.model = message.text("model") or builder.model
            builder.stop = message.text("stop_reason") or builder.stop
            # Each block of a message is a line of its own, with the usage of the whole message.
            usage = anthropic_usage(message.child("usage"), row.number("costUSD"))
            used[message.text("id") or f"line {len(seen)}"] = usage
        elif kind == "attachment":
            attachment = row.child("attachment")
            if attachment.get("type") == "queued_command":  # typed while the agent was working
                builder.add_text("user", content_text(attachment.get("prompt")))
        elif kind == "system":
            builder.add_text("system", row.text("content"))
            builder.model = builder.model or row.text("model")
        elif kind == "result":
            builder.stop = row.text("stop_reason", "subtype") or builder.stop
            used = {"": _total(row)}
    counted = [usage for usage in used.values() if usage.total_tokens]
    builder.usage = sum(counted, NO_USAGE) if counted else builder.usage


def _read_user(builder: TraceBuilder, row: Row, message: Row) -> None:
    content = message.get("content")
    by_program = any(
        row.get(mark) is True for mark in ("isMeta", "isSynthetic", "isCompactSummary")
    )
    if isinstance(content, str) and TYPED.match(content.lstrip()):
        _read_typed(builder, TYPED.findall(content))
        return
    if isinstance(content, str):
        by_program = by_program or content.lstrip().startswith(BY_PROGRAM)
    builder.add_content("system" if by_program else "user", content)
    # The model may have seen only a part of the output.
    result = as_row(row.get("toolUseResult") or row.get("tool_use_result"))
    if isinstance(result.get("stdout"), str):
        full = "\n".join(filter(None, [result["stdout"], result.text("stderr")]))
        for block in list_or_empty(content):
            builder.extend_call(as_row(block).text("tool_use_id"), output=full)


def _read_typed(builder: TraceBuilder, parts: list[tuple[str, str]]) -> None:
    tool = "bash-input"
    for command in (text for name, text in parts if name == "input"):
        builder.add_call(tool, tool, {"command": command})
    outputs = [text for name, text in parts if name != "input"]
    if outputs:
        builder.add_result(tool, "\n".join(filter(None, outputs)), tool=tool)


def _total(row: Row) -> Usage:
    """The usage of the whole session, sub-agents included, from the last line of a stream."""
    cost = row.number("total_cost_usd")
    models = [as_row(usage) for usage in row.child("modelUsage").values()]
    if not models:
        return anthropic_usage(row.child("usage"), cost)
    sent = "inputTokens cacheCreationInputTokens cacheReadInputTokens"
    usages = [read_usage(usage, sent, "outputTokens", "cacheReadInputTokens") for usage in models]
    return replace(sum(usages, NO_USAGE), cost_usd=cost)


FORMAT = Format("claude-code", "Claude Code session", read, detects, noise=NOISE)
