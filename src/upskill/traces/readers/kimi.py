"""Kimi: `wire.jsonl` of Kimi Code below `~/.kimi-code/sessions`, and `context.jsonl` and `wire.jsonl` of Kimi CLI."""

from __future__ import annotations

from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder
from upskill.traces.values import Row, content_text, iso_time, kind_of, read_usage, status_of

OWN_ROLES = ("_checkpoint", "_usage", "_system_prompt")
NOISE = (
    *(
        "_checkpoint",
        "_usage",
        "metadata",
        "usage",
        "llm",
        "mcp",
        "tools",
        "turn",
        "agent",
        "prompt",
        "permission",
    ),
    *(
        "plugin",
        "runtime",
        "token_counting",
        "plan_mode",
        "full_compaction",
        "context.append_loop_event/step.begin",
    ),
    *(
        "StepBegin",
        "TurnEnd",
        "StatusUpdate",
        "StepRetry",
        "ApprovalRequest",
        "ApprovalResponse",
        "HookTriggered",
    ),
    *(
        "HookResolved",
        "CompactionBegin",
        "CompactionEnd",
        "MCPLoadingBegin",
        "MCPLoadingEnd",
        "context.undone",
    ),
)


def detects(sample: Sample) -> bool:
    return any(
        row.get("role") in OWN_ROLES
        or row.text("type").startswith("context.append_")
        or ("timestamp" in row and "payload" in row.child("message"))
        for row in sample.rows
    )


def read(builder: TraceBuilder) -> None:
    rows = builder.read_kept(
        lambda row: row.get("type") == "turn.prompt",
        lambda row: row.count("count") if row.get("type") == "context.undo" else 0,
    )
    for row in builder.watch(rows, _kind):
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
    told = message.child("payload").child("event").text("type")  # by a sub-agent
    return told or message.text("type") if "payload" in message else kind_of(row)


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
        builder.add_content("system" if by_program else role, content)
        builder.add_tool_calls(
            message if "tool_calls" in message else Row(tool_calls=message.array("toolCalls"))
        )


def _read_record(builder: TraceBuilder, row: Row) -> None:
    """A line that Kimi Code writes; it tells of a call only if it failed."""
    kind, event = row.text("type"), row.child("event")
    told = event.text("type")
    if kind == "metadata":
        builder.started = iso_time(row.get("created_at"))
    elif kind == "llm.request":
        builder.model = row.text("model") or builder.model
    elif kind in ("config.update", "profile.bind"):
        builder.cwd = (
            row.text("cwd") or row.child("environmentDisclosure").text("cwd") or builder.cwd
        )
        builder.add_text("system", row.text("systemPrompt"))
    elif kind == "context.append_message":
        _read_message(builder, row.child("message"))
    elif kind == "context.apply_compaction":
        builder.add_text("system", row.text("summary"))
    elif told == "content.part":
        builder.add_content("assistant", event.get("part"))
    elif told == "tool.call":
        builder.add_call(event.text("toolCallId"), event.text("name"), event.get("args"))
    elif told == "tool.result":
        _add_result(builder, event.text("toolCallId"), event.child("result"))
    elif told == "step.end":
        sent = "inputOther inputCacheRead inputCacheCreation"
        builder.usage += read_usage(event.child("usage"), sent, "output", "inputCacheRead")
        builder.stop = event.text("finishReason") or builder.stop
        builder.use()


def _add_result(builder: TraceBuilder, call_id: str, result: Row) -> None:
    output = "\n".join(
        filter(
            None, (content_text(result.get("output")).rstrip("\n"), result.text("message", "note"))
        )
    )
    builder.add_result(
        call_id, output, status_of(not (result.get("isError") or result.get("is_error")))
    )


def _read_event(builder: TraceBuilder, kind: str, payload: Row) -> None:
    """A line of the `wire.jsonl` that Kimi CLI writes."""
    if kind in ("TurnBegin", "SteerInput"):
        builder.add_content("user", payload.get("user_input"))
    elif kind == "ContentPart":
        builder.add_content("assistant", payload)
    elif kind == "ToolCall":
        builder.add_tool_calls(Row(tool_calls=[payload]))
    elif kind == "ToolResult":
        _add_result(builder, payload.text("tool_call_id"), payload.child("return_value", "result"))
    elif kind == "ToolCallPart":
        builder.add_arguments(payload.text("arguments_part"))
    elif kind == "StatusUpdate":
        sent = "input_other input_cache_read input_cache_creation"
        builder.usage += read_usage(
            payload.child("token_usage"), sent, "output", "input_cache_read"
        )
    elif kind == "SubagentEvent":
        builder.subagent = (
            payload.text("agent_id", "task_tool_call_id", "parent_tool_call_id") or "subagent"
        )
        event = payload.child("event")
        _read_event(builder, event.text("type"), event.child("payload"))


FORMAT = Format("kimi", "Kimi session", read, detects, noise=NOISE)
