"""A transcript pasted into a text file: headings or prefixes say who speaks, and `$ ` comes before a command."""

from __future__ import annotations

import re
from typing import Literal

from upskill.traces import StepKind
from upskill.traces.formats import Format, Sample, TraceBuilder, text_lines
from upskill.traces.values import continue_command, typed_status

SPEAKERS: dict[str, StepKind] = {
    **dict.fromkeys(("user", "human", "me", "you", "person", "prompt", "question", "task"), "user"),
    **dict.fromkeys(("assistant", "ai", "agent", "model", "answer", "bot", "response"), "assistant"),
    **dict.fromkeys(("claude", "codex", "chatgpt", "gpt", "gemini", "cursor", "copilot", "opencode"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("thinking", "reasoning", "thought"), "thinking"),
}
TOOLS = ("tool", "tool call", "command", "run", "bash", "shell")
OUTPUTS = ("output", "tool result", "result", "tool output", "stdout", "stderr")
CONSOLE = ("", "console", "shell-session", "terminal", "bash", "sh", "shell", "zsh")
_NAMES = "|".join(sorted(map(re.escape, (*SPEAKERS, *TOOLS, *OUTPUTS)), key=len, reverse=True))
# "## User", "**User:** text", "User: text", "[Thinking] text"
_HEADING = re.compile(rf"^#{{1,6}}\s*[^\w\s]*\s*({_NAMES})\b:?\s*$", re.I)
_BOLD = re.compile(rf"^\*\*({_NAMES})\b:?\*\*:?\s*(.*)$", re.I)
_PREFIX = re.compile(rf"^({_NAMES}):(?:\s+(.*))?$", re.I)
_BRACKET = re.compile(r"^\[(thinking|tool call|tool result)\]\s*(.*)$", re.I)
_COMMAND = re.compile(r"^(?:\$|❯|[\w.-]+@[\w.-]+:[^\s$#]*[$#]) (.+)$")
_FENCE = re.compile(r"^(```+|~~~+)\s*([\w-]*)\s*$")
# As Claude Code shows it on a terminal.
_BULLET = re.compile(r"^[⏺●] (.*)$")
_BULLET_CALL = re.compile(r"^(\w+)\((.*)\)$")
_CORNER = re.compile(r"^\s*⎿\s*(.*)$")


def detects(sample: Sample) -> bool:
    if b"\0" in sample.data or sample.text.lstrip()[:1] in ("{", "["):
        return False
    return any(_speaker(line) or _COMMAND.match(line) or _BULLET.match(line) for line in sample.text.splitlines())


def _speaker(line: str) -> tuple[str, str] | None:
    """Who speaks from this line on, and the rest of the line."""
    for pattern in (_HEADING, _BOLD, _PREFIX, _BRACKET):
        if match := pattern.match(line):
            return match[1].lower(), (match[2] or "") if pattern.groups > 1 else ""
    return None


class _Reader(TraceBuilder):
    """Collects lines until someone else speaks, or until a command begins."""

    kind: StepKind | None = None  # nobody has spoken yet: what comes before is a title
    tool, command = "shell", ""
    fence = ""  # the fence of the block we are in
    block: Literal["console", "output", "text"] = "text"

    def fill(self) -> None:
        for line in text_lines(self.path):
            self.line(line)
        self.flush()

    def line(self, line: str) -> None:
        if (fence := _FENCE.match(line)) and self._read_fence(fence):
            return
        inside = bool(self.fence)
        if (not inside or self.block == "console") and (command := _COMMAND.match(line)):
            self._begin_command(command[1])
        elif not self.lines and (longer := continue_command(self.command, line)):
            self.command = longer
        elif inside:
            self.lines.append(line)
        elif speaker := _speaker(line):
            self._begin_turn(*speaker)
        elif bullet := _BULLET.match(line):
            self.flush()
            if call := _BULLET_CALL.match(bullet[1]):
                self.tool, self.command = call[1], call[2]
            else:
                self.kind, self.lines = "assistant", [bullet[1]]
        else:
            corner = _CORNER.match(line) if self.command else None
            self.lines.append(corner[1] if corner else line)

    def _read_fence(self, fence: re.Match[str]) -> bool:
        """Note a fence around a block; False if it is only a line inside one."""
        if self.fence:
            if fence[2] or not fence[1].startswith(self.fence):
                return False
            self.fence = ""
            if self.command:
                self.flush(next_kind=self.kind or "assistant")
            else:
                self.lines.append(fence[0])
            return True
        self.fence = fence[1]
        self.block = "console" if fence[2].lower() in CONSOLE else "text"
        if self.command and not any(line.strip() for line in self.lines):
            self.block = "output"  # of the command, in its own block
            self.lines.clear()
            return True
        if self.command:
            self.flush(next_kind=self.kind or "assistant")
        self.lines.append(fence[0])
        return True

    def _begin_command(self, command: str) -> None:
        if self.fence and self.lines and _FENCE.match(self.lines[-1]):
            self.lines.pop()  # the block holds commands, not text
        self.flush(next_kind=self.kind)
        self.command = command

    def _begin_turn(self, name: str, text: str) -> None:
        if name in OUTPUTS and self.command:
            self.lines = [text] if text else []
            return
        self.flush()
        if name in TOOLS and text.strip().strip("`"):
            self.kind, self.command = "assistant", text.strip().strip("`")
        else:
            self.kind, self.lines = SPEAKERS.get(name, "assistant"), [text] if text else []

    def flush(self, next_kind: StepKind | None = None) -> None:
        text = "\n".join(self.lines).strip("\n")
        if self.command:
            self.add_done(self.tool, {"command": self.command}, text, typed_status(self.command, text))
        elif self.kind is not None:
            self.add_text(self.kind, text)
        self.lines, self.tool, self.command, self.kind = [], "shell", "", next_kind


FORMAT = Format("markdown", "text transcript", _Reader.fill, detects, builder=_Reader)
