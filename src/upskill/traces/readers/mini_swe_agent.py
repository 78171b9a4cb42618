"""mini-swe-agent: `*.traj.json`. Commands are function calls, or in its first version code blocks in the text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty
from upskill.traces import Trace, Usage
from upskill.traces.formats import Format, Sample, load_document
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    content_text,
    float_or_none,
    get_dict,
    get_dicts,
    get_float,
    get_list,
    get_str,
    iso_time,
    read_usage,
    status_of,
)

_BLOCK = re.compile(r"^```(?:mswea_bash_command|bash)[ \t]*\n(.*?)\n```[ \t]*$", re.S | re.M)
_CODE = re.compile(r"<returncode>\s*(-?\d+)\s*</returncode>")
_OUTPUT = re.compile(r"<output>\n?(.*)</output>", re.S)
_REJECTED = re.compile(
    r"(?:Command not executed\. (?:The user rejected your command with the following message:|Switching to human mode)"
    r"|Interrupted by user:)\s*(.*)",
    re.S,
)
# What the program tells a model that gave no command, or several.
REFUSALS = ("Please always provide EXACTLY ONE action", "Tool call error", "Format error")


def detects(sample: Sample) -> bool:
    document = sample.document
    fields = as_mapping(document) or {}
    if get_str(fields, "trajectory_format").startswith("mini-swe-agent") or "mini_version" in get_dict(fields, "info"):
        return True
    messages = [dict_or_empty(item) for item in (as_list(document) or get_list(fields, "messages"))[:20]]
    return any(
        message.get("role") == "user" and _CODE.match(content_text(message.get("content"))) for message in messages
    )


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "mini-swe-agent")
    document = load_document(path)
    fields = as_mapping(document) or {}
    info = get_dict(fields, "info")
    config = get_dict(info, "config")
    builder.model = get_str(get_dict(config, "model"), "model_name")
    builder.cwd = get_str(get_dict(config, "environment"), "cwd")
    builder.session = get_str(fields, "instance_id")
    builder.stop = get_str(info, "exit_status")
    reader = _Reader(builder)
    for item in as_list(document) or get_list(fields, "messages"):
        reader.message(dict_or_empty(item))
    cost = get_float(get_dict(info, "model_stats"), "instance_cost")
    builder.usage = replace(reader.usage, cost_usd=cost if reader.usage.total_tokens else None)
    return builder.build()


class _Reader:
    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.waiting: list[str] = []  # calls without a result
        self.number = 0
        self.usage = Usage()

    def message(self, message: dict[str, Any]) -> None:
        role, text = get_str(message, "role"), content_text(message.get("content"))
        extra = get_dict(message, "extra")
        seconds = float_or_none(extra.get("timestamp"))
        at = iso_time(seconds * 1000) if seconds else ""
        if role == "assistant":
            self.answer(message, text, at)
        elif self.waiting and role == "user" and (rejected := _REJECTED.match(text)):
            for call in self.waiting:
                self.builder.add_result(call, text.removesuffix(rejected[1]).strip(), "error", at=at)
            self.waiting.clear()
            self.builder.add_text("user", rejected[1], at=at)
        elif self.waiting and role in ("user", "tool", "exit"):
            call = get_str(message, "tool_call_id")
            self.waiting.remove(call if call in self.waiting else (call := self.waiting[0]))
            self.result(call, extra, text, at)
        elif role == "exit" or extra.get("interrupt_type") == "FormatError" or text.lstrip().startswith(REFUSALS):
            self.builder.add_text("system", text, at=at)
        else:
            self.builder.add_content(role, message.get("content"), at=at)

    def answer(self, message: dict[str, Any], text: str, at: str) -> None:
        extra = get_dict(message, "extra")
        usage = get_dict(get_dict(extra, "response"), "usage")
        counts = usage | get_dict(usage, "prompt_tokens_details")
        self.usage += read_usage(counts, "prompt_tokens", "completion_tokens", "cached_tokens")
        self.builder.add_text("thinking", get_str(message, "reasoning_content"), at=at)
        calls = self.calls_of(message)
        if not calls and len(blocks := list(_BLOCK.finditer(text))) == 1:
            calls = [("", "bash", {"command": blocks[0][1]})]
        if not get_list(message, "tool_calls") and calls:
            text = _BLOCK.sub("", text)  # the command is told by its call
        self.builder.add_text("assistant", text.strip("\n"), at=at)
        for call_id, tool, arguments in calls:
            self.number += 1
            self.waiting.append(call_id or f"command {self.number}")
            self.builder.add_call(self.waiting[-1], tool, arguments, at=at)

    def calls_of(self, message: dict[str, Any]) -> list[tuple[str, str, object]]:
        calls: list[tuple[str, str, object]] = []
        for call in get_dicts(message, "tool_calls"):
            function = get_dict(call, "function")
            calls.append((get_str(call, "id"), get_str(function, "name"), function.get("arguments")))
        return calls or [
            (get_str(action, "tool_call_id"), "bash", {"command": get_str(action, "command")})
            for action in get_dicts(get_dict(message, "extra"), "actions")
        ]

    def result(self, call: str, extra: dict[str, Any], text: str, at: str) -> None:
        code, output = extra.get("returncode"), text
        if (written := _CODE.search(text)) and not isinstance(code, int):
            code = int(written[1])
        if isinstance(extra.get("raw_output"), str):
            output = extra["raw_output"]
        elif written and (inside := _OUTPUT.search(text)):
            output = inside[1]
        self.builder.add_result(call, output, status_of(code), at=at)


FORMAT = Format("mini-swe-agent trajectory", read, detects)
