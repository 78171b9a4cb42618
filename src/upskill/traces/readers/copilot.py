"""GitHub Copilot CLI: `events.jsonl` below `~/.copilot/session-state`, and `copilot --output-format json`."""

from __future__ import annotations

import re
from pathlib import Path

from upskill.traces import Usage
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, content_text, read_usage, status_of

_EVENT = re.compile(r"(?:session|user|assistant|tool|subagent|system|hook)\.\w+")

NOISE = (
    "assistant.turn_start",
    "assistant.turn_end",
    "session.info",
    "hook.start",
    "hook.end",
    "system.notification",
)


def detects(sample: Sample) -> bool:
    return any(
        isinstance(row.get("data"), dict) and _EVENT.fullmatch(row.text("type"))
        for row in sample.rows
    )


class _Reader(TraceBuilder):
    written = 0  # tokens
    thought = ""

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path, agent)
        self.agents: dict[str, str] = {}  # sub-agents by the call that started them

    def fill(self) -> None:
        for row in self.watch(self.read_lines()):
            data = row.child("data")
            started_by = data.text("parentToolCallId")
            self.at = row.text("timestamp")
            self.subagent = self.agents.get(started_by, started_by) or row.text("agentId")
            self.event(row.text("type"), data)
        if not self.usage.total_tokens:
            self.usage = Usage(0, self.written)

    def event(self, kind: str, data: Row) -> None:
        if not self.subagent:
            self.model = data.text("model") or self.model
        if kind in ("session.start", "session.resume"):
            self.session = self.session or data.text("sessionId")
            self.cwd = data.child("context").text("cwd") or self.cwd
            self.model = data.text("selectedModel") or self.model
            self.started = self.started or data.text("startTime")
        elif kind == "session.model_change":
            self.model = data.text("newModel") or self.model
        elif kind == "user.message":
            self.add_text("user", data.text("content"))
        elif kind == "system.message":
            self.add_text("system", data.text("content"))
        elif kind == "assistant.reasoning":
            self.think(data.text("content"))
        elif kind == "assistant.message":
            self.answer(data)
        elif kind == "tool.execution_start":
            self.call(data, data.text("toolName"))
        elif kind == "tool.execution_complete":
            output = content_text(data.child("result").get("content")) or data.child("error").text(
                "message"
            )
            self.add_result(data.text("toolCallId"), output, status_of(data.get("success")))
        elif kind == "subagent.started":
            self.agents[data.text("toolCallId")] = data.text("agentName")
            self.use()
        elif kind in ("session.error", "abort", "session.compaction_complete"):
            text = data.text("message", "reason", "summaryContent")
            self.add_text("system", f"{kind.rpartition('.')[2]}: {text}" if text else "")
        elif kind == "session.shutdown":
            self.stop = data.text("shutdownType")
            usages = [as_row(model).child("usage") for model in data.child("modelMetrics").values()]
            counts = [
                read_usage(usage, "inputTokens", "outputTokens", "cacheReadTokens")
                for usage in usages
            ]
            self.usage = sum(counts, self.usage)

    def answer(self, data: Row) -> None:
        if data.text("reasoningText"):
            self.think(data.text("reasoningText"))
        self.add_text("assistant", data.text("content"))
        self.written += data.count("outputTokens")
        for request in data.children("toolRequests"):
            self.call(request, request.text("name"))

    def think(self, text: str) -> None:
        self.use()
        if text != self.thought:  # told in an event of its own and with the message
            self.add_text("thinking", text)
        self.thought = text

    def call(self, data: Row, tool: str) -> None:
        """A call is told by the message that asks for it and when it begins, in either order."""
        self.use()
        if not self.has_call(call_id := data.text("toolCallId")):
            self.add_call(call_id, tool, data.get("arguments"))


FORMAT = Format(
    "copilot", "Copilot CLI session", _Reader.fill, detects, builder=_Reader, noise=NOISE
)
