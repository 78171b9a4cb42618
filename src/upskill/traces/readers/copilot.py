"""GitHub Copilot CLI: `events.jsonl` below `~/.copilot/session-state`, and `copilot --output-format json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty
from upskill.traces import Trace, Usage
from upskill.traces.formats import Format, Sample
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import content_text, get_count, get_dict, get_dicts, get_str, read_usage, status_of

_EVENT = re.compile(r"(?:session|user|assistant|tool|subagent|system|hook)\.\w+")


def detects(sample: Sample) -> bool:
    return any(
        isinstance(row.get("data"), dict) and _EVENT.fullmatch(get_str(row, "type")) is not None for row in sample.rows
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "copilot")
    reader = _Reader(builder)
    for row in builder.read_lines():
        reader.event(get_str(row, "type"), get_dict(row, "data"), get_str(row, "timestamp"), get_str(row, "agentId"))
    if not builder.usage.total_tokens:
        builder.usage = Usage(0, reader.written)
    return builder.build()


class _Reader:
    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.agents: dict[str, str] = {}  # sub-agents by the call that started them
        self.written = 0
        self.thought = ""

    def event(self, kind: str, data: dict[str, Any], at: str, agent: str) -> None:
        builder = self.builder
        started_by = get_str(data, "parentToolCallId")
        agent = self.agents.get(started_by, started_by) or agent
        builder.model = get_str(data, "model") if not agent and get_str(data, "model") else builder.model
        if kind in ("session.start", "session.resume"):
            builder.session = builder.session or get_str(data, "sessionId")
            builder.cwd = get_str(get_dict(data, "context"), "cwd") or builder.cwd
            builder.model = get_str(data, "selectedModel") or builder.model
            builder.started = builder.started or get_str(data, "startTime")
        elif kind == "session.model_change":
            builder.model = get_str(data, "newModel") or builder.model
        elif kind == "user.message":
            builder.add_text("user", get_str(data, "content"), at=at, agent=agent)
        elif kind == "system.message":
            builder.add_text("system", get_str(data, "content"), at=at, agent=agent)
        elif kind == "assistant.reasoning":
            self.think(get_str(data, "content"), at, agent)
        elif kind == "assistant.message":
            self.answer(data, at, agent)
        elif kind == "tool.execution_start":
            self.call(data, get_str(data, "toolName"), at, agent)
        elif kind == "tool.execution_complete":
            self.result(data, at, agent)
        elif kind == "subagent.started":
            self.agents[get_str(data, "toolCallId")] = get_str(data, "agentName")
        elif kind in ("session.error", "abort", "session.compaction_complete"):
            text = get_str(data, "message") or get_str(data, "reason") or get_str(data, "summaryContent")
            builder.add_text("system", f"{kind.rpartition('.')[2]}: {text}" if text else "", at=at)
        elif kind == "session.shutdown":
            builder.stop = get_str(data, "shutdownType")
            self.total(get_dict(data, "modelMetrics"))

    def think(self, text: str, at: str, agent: str) -> None:
        if text != self.thought:  # told in an event of its own and with the message
            self.builder.add_text("thinking", text, at=at, agent=agent)
        self.thought = text

    def answer(self, data: dict[str, Any], at: str, agent: str) -> None:
        if get_str(data, "reasoningText"):
            self.think(get_str(data, "reasoningText"), at, agent)
        self.builder.add_text("assistant", get_str(data, "content"), at=at, agent=agent)
        self.written += get_count(data, "outputTokens")
        for request in get_dicts(data, "toolRequests"):
            self.call(request, get_str(request, "name"), at, agent)

    def call(self, data: dict[str, Any], tool: str, at: str, agent: str) -> None:
        """A call is told by the message that asks for it and when it begins, in either order."""
        if not self.builder.has_call(call_id := get_str(data, "toolCallId")):
            self.builder.add_call(call_id, tool, data.get("arguments"), at=at, agent=agent)

    def result(self, data: dict[str, Any], at: str, agent: str) -> None:
        output = content_text(get_dict(data, "result").get("content")) or get_str(get_dict(data, "error"), "message")
        status = status_of(data.get("success"))
        self.builder.add_result(get_str(data, "toolCallId"), output, status, at=at, agent=agent)

    def total(self, metrics: dict[str, Any]) -> None:
        for model in metrics.values():
            used = get_dict(dict_or_empty(model), "usage")
            self.builder.usage += read_usage(used, "inputTokens", "outputTokens", "cacheReadTokens")


FORMAT = Format("Copilot CLI session", read, detects)
