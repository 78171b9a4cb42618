"""mini-swe-agent: `*.traj.json`. Commands are function calls, or in its first version code blocks in the text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from upskill.plain import as_list
from upskill.traces.formats import Format, Sample, TraceBuilder, load_document
from upskill.traces.values import Row, as_row, content_text, iso_time, read_usage, status_of

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
    document = as_row(sample.document)
    if document.text("trajectory_format").startswith(
        "mini-swe-agent"
    ) or "mini_version" in document.child("info"):
        return True
    rows = map(as_row, (as_list(sample.document) or document.array("messages"))[:20])
    return any(
        row.get("role") == "user" and _CODE.match(content_text(row.get("content"))) for row in rows
    )


class _Reader(TraceBuilder):
    number = 0

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path, agent)
        self.waiting: list[str] = []  # calls without a result

    def fill(self) -> None:
        document = load_document(self.path)
        fields = as_row(document)
        info = fields.child("info")
        config = info.child("config")
        self.model = config.child("model").text("model_name")
        self.cwd = config.child("environment").text("cwd")
        self.session = fields.text("instance_id")
        self.stop = info.text("exit_status")
        for item in self.watch(as_list(document) or fields.array("messages")):
            self.message(as_row(item))
        cost = info.child("model_stats").number("instance_cost")
        self.usage = replace(self.usage, cost_usd=cost if self.usage.total_tokens else None)

    def message(self, message: Row) -> None:
        role, text = message.text("role"), content_text(message.get("content"))
        extra = message.child("extra")
        self.at = iso_time((extra.number("timestamp") or 0) * 1000)
        if role == "assistant":
            self.answer(message, text)
        elif self.waiting and role == "user" and (rejected := _REJECTED.match(text)):
            for call in self.waiting:
                self.add_result(call, text.removesuffix(rejected[1]).strip(), "error")
            self.waiting.clear()
            self.add_text("user", rejected[1])
        elif self.waiting and role in ("user", "tool", "exit"):
            call = message.text("tool_call_id")
            self.waiting.remove(call if call in self.waiting else (call := self.waiting[0]))
            self.result(call, extra, text)
        elif (
            role == "exit"
            or extra.get("interrupt_type") == "FormatError"
            or text.lstrip().startswith(REFUSALS)
        ):
            self.add_text("system", text)
        else:
            self.add_content(role, message.get("content"))

    def answer(self, message: Row, text: str) -> None:
        extra = message.child("extra")
        usage = extra.child("response").child("usage")
        counts = Row(usage | usage.child("prompt_tokens_details"))
        self.usage += read_usage(counts, "prompt_tokens", "completion_tokens", "cached_tokens")
        self.add_text("thinking", message.text("reasoning_content"))
        calls: list[tuple[str, str, object]] = []
        for call in message.children("tool_calls"):
            function = call.child("function")
            calls.append((call.text("id"), function.text("name"), function.get("arguments")))
        if not calls:
            for action in extra.children("actions"):
                calls.append(
                    (action.text("tool_call_id"), "bash", {"command": action.text("command")})
                )
            if not calls and len(blocks := _BLOCK.findall(text)) == 1:
                calls = [("", "bash", {"command": blocks[0]})]
            if calls:
                text = _BLOCK.sub("", text)  # the command is told by its call
        self.add_text("assistant", text.strip("\n"))
        for call_id, tool, arguments in calls:
            self.number += 1
            self.waiting.append(call_id or f"command {self.number}")
            self.add_call(self.waiting[-1], tool, arguments)

    def result(self, call: str, extra: Row, text: str) -> None:
        code, output = extra.get("returncode"), text
        if (written := _CODE.search(text)) and not isinstance(code, int):
            code = int(written[1])
        if isinstance(extra.get("raw_output"), str):
            output = extra["raw_output"]
        elif written and (inside := _OUTPUT.search(text)):
            output = inside[1]
        self.add_result(call, output, status_of(code))


FORMAT = Format(
    "mini-swe-agent", "mini-swe-agent trajectory", _Reader.fill, detects, builder=_Reader
)
