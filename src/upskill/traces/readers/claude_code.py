"""Claude Code: sessions below `~/.claude/projects` with their sub-agents, and `claude --output-format stream-json`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty, list_or_empty, read_json
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import anthropic_usage, content_text, get_dict, get_float, get_str, read_usage

# What the program itself writes into the user's turns.
PROGRAM_PREFIXES = (
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<system-reminder>",
    "Caveat: The messages below",
)
IDS = ("sessionId", "session_id", "parentUuid", "leafUuid")  # left out by some who publish a session


def detects(sample: Sample) -> bool:
    return any(
        row.get("type") in ("user", "assistant", "system", "summary", "result", "queue-operation", "attachment")
        and (any(name in row for name in IDS) or "content" in get_dict(row, "message"))
        and row.get("type") != "tool_call"
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    builder = _read_file(path)
    for file in sorted((path.with_suffix("") / "subagents").glob("*.jsonl")):
        builder.add_subagent(_started_by(file), _read_file(file, file.stem))
    return builder.build()


def _started_by(file: Path) -> str:
    """The id of the call that started a sub-agent."""
    return get_str(read_json(file.with_suffix(".meta.json")), "toolUseId")


def _read_file(path: Path, agent: str = "") -> TraceBuilder:
    builder = TraceBuilder(path, "claude-code")
    seen: set[str] = set()
    used: dict[str, Usage] = {}
    for row in builder.read_lines():
        # A resumed session may repeat lines.
        if (uuid := get_str(row, "uuid")) and uuid in seen:
            continue
        seen.add(uuid)
        builder.session = builder.session or get_str(row, "sessionId") or get_str(row, "session_id")
        builder.cwd = builder.cwd or get_str(row, "cwd")
        at = get_str(row, "timestamp")
        subagent = agent or _agent_of(row)
        kind, message = row.get("type"), get_dict(row, "message")
        if kind == "user":
            _read_user(builder, row, message, at, subagent)
        elif kind == "assistant":
            builder.add_content("assistant", message.get("content"), at=at, agent=subagent)
            builder.model = get_str(message, "model") or builder.model
            builder.stop = get_str(message, "stop_reason") or builder.stop
            # Each block of a message is a line of its own, with the usage of the whole message.
            usage = anthropic_usage(get_dict(message, "usage"), get_float(row, "costUSD"))
            used[get_str(message, "id") or f"line {len(seen)}"] = usage
        elif kind == "attachment":
            attachment = get_dict(row, "attachment")
            if attachment.get("type") == "queued_command":  # typed while the agent was working
                builder.add_text("user", content_text(attachment.get("prompt")), at=at, agent=subagent)
        elif kind == "system":
            builder.add_text("system", get_str(row, "content"), at=at, agent=subagent)
            builder.model = builder.model or get_str(row, "model")
        elif kind == "result":
            builder.stop = get_str(row, "stop_reason") or get_str(row, "subtype") or builder.stop
            used = {"": _total(row)}
    counted = [usage for usage in used.values() if usage.total_tokens]
    builder.usage = sum(counted, NO_USAGE) if counted else builder.usage
    return builder


def _agent_of(row: dict[str, Any]) -> str:
    if row.get("isSidechain") is True or row.get("parent_tool_use_id"):
        return get_str(row, "agentId") or get_str(row, "parent_tool_use_id") or "sidechain"
    return ""


def _read_user(builder: TraceBuilder, row: dict[str, Any], message: dict[str, Any], at: str, agent: str) -> None:
    content = message.get("content")
    by_program = any(row.get(mark) is True for mark in ("isMeta", "isSynthetic", "isCompactSummary"))
    if isinstance(content, str) and content.lstrip().startswith(PROGRAM_PREFIXES):
        by_program = True
    builder.add_content("user", content, at=at, agent=agent, system=by_program)
    # The model may have seen only a part of the output.
    result = dict_or_empty(row.get("toolUseResult") or row.get("tool_use_result"))
    if isinstance(result.get("stdout"), str):
        full = "\n".join(filter(None, [result["stdout"], get_str(result, "stderr")]))
        for block in list_or_empty(content):
            builder.extend_call(get_str(dict_or_empty(block), "tool_use_id"), output=full)


def _total(row: dict[str, Any]) -> Usage:
    """The usage of the whole session, sub-agents included, from the last line of a stream."""
    cost = get_float(row, "total_cost_usd")
    models = [dict_or_empty(usage) for usage in get_dict(row, "modelUsage").values()]
    if not models:
        return anthropic_usage(get_dict(row, "usage"), cost)
    sent = "inputTokens cacheCreationInputTokens cacheReadInputTokens"
    usages = [read_usage(usage, sent, "outputTokens", "cacheReadInputTokens") for usage in models]
    return replace(sum(usages, NO_USAGE), cost_usd=cost)


FORMAT = Format("Claude Code session", read, detects)
