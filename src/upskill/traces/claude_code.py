"""Claude Code: sessions below `~/.claude/projects` with their sub-agents, and `claude --output-format stream-json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from upskill.plain import as_mapping
from upskill.traces import Trace, Usage
from upskill.traces.reading import Format, Recording, Sample, amount, count, items, mapping, text_of, word

# Written by the program into the person's turn.
NOT_SAID = ("<local-command-", "<command-name>", "<command-message>", "<system-reminder>", "Caveat: The messages below")


def detects(sample: Sample) -> bool:
    return any(
        row.get("type") in ("user", "assistant", "system", "summary", "result", "queue-operation", "attachment")
        and ("sessionId" in row or "session_id" in row or "parentUuid" in row or "leafUuid" in row)
        and row.get("type") != "tool_call"
        for row in sample.rows
    )


def read(path: Path) -> Trace:
    recording = _read_file(path)
    for file in sorted((path.with_suffix("") / "subagents").glob("*.jsonl")):
        recording.splice(_started_by(file), _read_file(file, file.stem))
    return recording.trace()


def _started_by(file: Path) -> str:
    """The id of the call that started a sub-agent."""
    try:
        said = as_mapping(json.loads(file.with_suffix(".meta.json").read_bytes()))
    except (OSError, ValueError):
        return ""
    return word((said or {}).get("toolUseId"))


def _read_file(path: Path, agent: str = "") -> Recording:
    recording = Recording(path, "claude-code")
    seen: set[str] = set()
    used: dict[str, Usage] = {}
    for row in recording.rows():
        # A session that is taken up again may repeat lines.
        if (id := word(row.get("uuid"))) and id in seen:  # noqa: A001
            continue
        seen.add(id)
        recording.session = recording.session or word(row.get("sessionId")) or word(row.get("session_id"))
        recording.cwd = recording.cwd or word(row.get("cwd"))
        at = word(row.get("timestamp"))
        whose = agent or _agent_of(row)
        kind, message = row.get("type"), mapping(row.get("message"))
        if kind == "user":
            _read_user(recording, row, message, at, whose)
        elif kind == "assistant":
            recording.content("assistant", message.get("content"), at=at, agent=whose)
            recording.model = word(message.get("model")) or recording.model
            recording.stop = word(message.get("stop_reason")) or recording.stop
            # Each block of a message is a line of its own, with the usage of the whole message.
            used[word(message.get("id")) or f"line {len(seen)}"] = _usage(mapping(message.get("usage")), row)
        elif kind == "attachment":
            attachment = mapping(row.get("attachment"))
            if attachment.get("type") == "queued_command":  # said while the agent was at work
                recording.say("user", text_of(attachment.get("prompt")), at=at, agent=whose)
        elif kind == "system":
            recording.say("system", word(row.get("content")), at=at, agent=whose)
            recording.model = recording.model or word(row.get("model"))
        elif kind == "result":
            recording.stop = word(row.get("stop_reason")) or word(row.get("subtype")) or recording.stop
            used = {"": _total(row)}
    for usage in used.values():
        cost = recording.usage.cost_usd if recording.usage.total_tokens else 0.0
        recording.usage = (
            Usage(*_counts(recording.usage), cost_usd=cost) + usage if usage.total_tokens else recording.usage
        )
    return recording


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens


def _agent_of(row: dict[str, Any]) -> str:
    if row.get("isSidechain") is True or row.get("parent_tool_use_id"):
        return word(row.get("agentId")) or word(row.get("parent_tool_use_id")) or "sidechain"
    return ""


def _read_user(recording: Recording, row: dict[str, Any], message: dict[str, Any], at: str, agent: str) -> None:
    content = message.get("content")
    ours = any(row.get(mark) is True for mark in ("isMeta", "isSynthetic", "isCompactSummary"))
    if isinstance(content, str) and content.lstrip().startswith(NOT_SAID):
        ours = True
    recording.content("user", content, at=at, agent=agent, system=ours)
    # The model may have been shown less of the output than there was.
    result = mapping(row.get("toolUseResult") or row.get("tool_use_result"))
    if isinstance(result.get("stdout"), str):
        full = "\n".join(filter(None, [result["stdout"], word(result.get("stderr"))]))
        for block in items(content):
            recording.amend(word(mapping(block).get("tool_use_id")), output=full)


def _usage(said: dict[str, Any], row: dict[str, Any]) -> Usage:
    cached = count(said.get("cache_read_input_tokens"))
    fresh = count(said.get("input_tokens")) + count(said.get("cache_creation_input_tokens"))
    return Usage(fresh + cached, count(said.get("output_tokens")), cached, 0, amount(row.get("costUSD")))


def _total(row: dict[str, Any]) -> Usage:
    """What the last line of a stream says of all that was used, sub-agents among it."""
    cost = amount(row.get("total_cost_usd"))
    models = [mapping(said) for said in mapping(row.get("modelUsage")).values()]
    if not models:
        usage = _usage(mapping(row.get("usage")), {})
        return Usage(*_counts(usage), cost_usd=cost)
    cached = sum(count(said.get("cacheReadInputTokens")) for said in models)
    fresh = sum(count(said.get("inputTokens")) + count(said.get("cacheCreationInputTokens")) for said in models)
    return Usage(fresh + cached, sum(count(said.get("outputTokens")) for said in models), cached, 0, cost)


FORMAT = Format("Claude Code session", read, detects)
