"""The Markdown that opencode's `/export` writes of a session."""

from __future__ import annotations

import re

from upskill.traces import Status, StepKind
from upskill.traces.formats import TraceBuilder

HEAD = re.compile(r"\A# [^\n]*\n+\*\*Session ID:\*\* (ses_\w+)\n")
_MARK = re.compile(
    r"^(?:(?<=---\n\n)## (User|Assistant)(?: \((.*)\))?|(_Thinking:_)|\*\*Tool: (.+)\*\*) *$", re.M
)
_BLOCK = re.compile(r"^\*\*(Input|Output|Error):\*\*\n```\w*\n", re.M)


def read_markdown(builder: TraceBuilder, text: str) -> None:
    if head := HEAD.match(text):
        builder.session = head[1]
    parts = list(zip(*[iter(_MARK.split(text)[1:])] * 5, strict=True))
    kind: StepKind = "user"
    for number, (speaker, about, thinks, tool, body) in enumerate(parts, start=1):
        if speaker:
            kind = "user" if speaker == "User" else "assistant"
            builder.model = "".join((about or "").split(" · ")[1:2]) or builder.model
        rest = body
        if tool:
            rest = _read_call(builder, f"call {number}", tool, body)
        # Nothing separates a thought from the answer after it. A thought before a call has none.
        is_thought = thinks and number < len(parts) and parts[number][3]
        builder.add_text(
            "thinking" if is_thought else kind, rest.strip().removesuffix("---").strip()
        )


def _read_call(builder: TraceBuilder, name: str, tool: str, text: str) -> str:
    """Add a call with its result; the text after it."""
    blocks, end = dict[str, str](), 0
    while block := _BLOCK.search(text, end):
        # An output may have fences of its own.
        end = (text.find if block[1] == "Input" else text.rfind)("\n```", block.end() - 1)
        end = len(text) if end < 0 else end
        blocks[block[1]], end = text[block.end() : end], end + 4
    builder.add_call(name, tool, blocks.get("Input", ""))
    if output := blocks.get("Error") or blocks.get("Output"):
        done: Status = "unknown" if tool == "bash" else "ok"  # a command's exit code is not told
        builder.add_result(name, output, "error" if "Error" in blocks else done)
    return text[end:]
