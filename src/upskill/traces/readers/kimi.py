"""Kimi: `wire.jsonl` of Kimi Code below `~/.kimi-code/sessions`, and `context.jsonl` and `wire.jsonl` of Kimi CLI."""

from __future__ import annotations

from upskill.plain import as_list
from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, as_row, content_text, iso_time, kind_of, read_usage, status_of

OWN_ROLES = ("_checkpoint", "_usage", "_system_prompt")
NOISE = (
    *("_checkpoint", "_usage", "metadata", "usage.record", "llm.request", "llm.tools_snapshot", "mcp.tools_discovered"),
    *("tools.set_active_tools", "turn.prompt", "turn.steer", "turn.ended", "context.append_loop_event/step.begin"),
    *("StepBegin", "TurnEnd", "StatusUpdate", "StepRetry", "ApprovalRequest", "ApprovalResponse", "HookTriggered"),
    *("HookResolved", "CompactionBegin", "CompactionEnd", "MCPLoadingBegin", "MCPLoadingEnd"),
)


def detects(sample: Sample) -> bool:
    return any(
        row.get("role") in OWN_ROLES
        or row.text("type").startswith("context.append_")
        or ("timestamp" in row and "payload" in row.child("message"))
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    for row in builder.watch(builder.read_lines(), _kind):
        seconds, message = row.number("timestamp"), row.child("message")
        builder.at = iso_time(seconds * 1000 if seconds else row.get("time"))
        builder.subagent = ""
        if "payload" in message:
            _read_event(builder, message.text("type"), message.child("payload"))
        elif row.text("role"):
            _read_message(builder, row)
        else:
            _read_record(builder, row)


def _kind(row: Row) -> str:
    message = row.child("message")
    return message.text("type") if "payload" in message else kind_of(row)


def _read_message(builder: TraceBuilder, message: Row) -> None:
    """A message that the model was sent or wrote: a line of `context.jsonl`, or inside a record of Kimi Code."""
    role, content = message.text("role"), message.get("content")
    if role == "tool":
        output = content_text(content)
        failed = output.startswith(("<system>ERROR", "<system>Command failed"))
        done = output.startswith("<system>Command executed successfully")
        status: Status = "error" if failed else "ok" if done else "unknown"
        builder.add_result(message.text("tool_call_id", "toolCallId"), output, status)
    elif role in ("user", "assistant", "system", "_system_prompt"):
        by_program = message.child("origin").text("kind") not in ("", "user")
        _add_parts(builder, "system" if by_program else role, content)
        builder.add_tool_calls(message if "tool_calls" in message else Row(tool_calls=message.array("toolCalls")))


def _add_parts(builder: TraceBuilder, role: str, content: object) -> None:
    for part in as_list(content) or [content]:
        thought = as_row(part).text("think")
        builder.add_content(role, [{"type": "thinking", "thinking": thought}] if thought else [part])


def _read_record(builder: TraceBuilder, row: Row) -> None:
    """A line that Kimi Code writes; it tells of a call only if it failed."""
    kind, event = row.text("type"), row.child("event")
    told = event.text("type")
    if kind == "metadata":
        builder.started = iso_time(row.get("created_at"))
    elif kind == "llm.request":
        builder.model = row.text("model") or builder.model
    elif kind == "config.update":
        builder.cwd = row.text("cwd") or builder.cwd
        builder.add_text("system", row.text("systemPrompt"))
    elif kind == "context.append_message":
        _read_message(builder, row.child("message"))
    elif kind == "context.apply_compaction":
        builder.add_text("system", row.text("summary"))
    elif told == "content.part":
        _add_parts(builder, "assistant", event.get("part"))
    elif told == "tool.call":
        builder.add_call(event.text("toolCallId"), event.text("name"), event.get("args"))
    elif told == "tool.result":
        result = event.child("result")
        builder.add_result(
            event.text("toolCallId"), content_text(result.get("output")), status_of(result.get("isError") is not True)
        )
    elif told == "step.end":
        sent = "inputOther inputCacheRead inputCacheCreation"
        builder.usage += read_usage(event.child("usage"), sent, "output", "inputCacheRead")
        builder.stop = event.text("finishReason") or builder.stop
        builder.use()


def _read_event(builder: TraceBuilder, kind: str, payload: Row) -> None:
    """A line of the `wire.jsonl` that Kimi CLI writes."""
    if kind in ("TurnBegin", "SteerInput"):
        _add_parts(builder, "user", payload.get("user_input"))
    elif kind == "ContentPart":
        _add_parts(builder, "assistant", payload)
    elif kind == "ToolCall":
        builder.add_tool_calls(Row(tool_calls=[payload]))
    elif kind == "ToolResult":
        result = payload.child("return_value", "result")
        output = content_text(result.get("output")) or result.text("message")
        builder.add_result(payload.text("tool_call_id"), output, status_of(result.get("is_error") is not True))
    elif kind == "StatusUpdate":
        sent = "input_other input_cache_read input_cache_creation"
        builder.usage += read_usage(payload.child("token_usage"), sent, "output", "input_cache_read")
    elif kind == "SubagentEvent":
        builder.subagent = payload.text("agent_id", "task_tool_call_id", "parent_tool_call_id") or "subagent"
        event = payload.child("event")
        _read_event(builder, event.text("type"), event.child("payload"))


FORMAT = Format("kimi", "Kimi session", read, detects, noise=NOISE)
