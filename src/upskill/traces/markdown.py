"""A transcript that was pasted into a text file: headings or prefixes for who speaks, `$ ` before a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from upskill.errors import UsageError
from upskill.traces import StepKind, Trace
from upskill.traces.reading import Format, Recording, Sample, exit_status

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
    said = [line for line in sample.text.splitlines() if _speaker(line) or _COMMAND.match(line) or _BULLET.match(line)]
    return bool(said)


def _speaker(line: str) -> tuple[str, str] | None:
    """Who speaks from this line on, and what is said on it."""
    for pattern in (_HEADING, _BOLD, _PREFIX, _BRACKET):
        if found := pattern.match(line):
            name = found[1].lower()
            return name, (found[2] or "") if pattern.groups > 1 else ""
    return None


def read(path: Path) -> Trace:
    recording = Recording(path, "markdown")
    reader = _Reader(recording)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline=None) as stream:
            for line in stream:
                reader.line(line.removesuffix("\n"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    reader.flush()
    return recording.trace()


class _Reader:
    """Collects lines until someone else speaks, or until a command begins."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.kind: StepKind | None = None  # nobody has spoken: what stands before is a title
        self.told: list[str] = []
        self.tool, self.command = "shell", ""
        self.fence = ""  # the mark that ends the block we are in
        self.block: Literal["console", "output", "text"] = "text"

    def line(self, line: str) -> None:
        if (fence := _FENCE.match(line)) and self._mark(fence):
            return
        inside = bool(self.fence)
        if (not inside or self.block == "console") and (found := _COMMAND.match(line)):
            self._begin(found[1])
        elif inside:
            self.told.append(line)
        elif speaker := _speaker(line):
            self._speak(*speaker)
        elif found := _BULLET.match(line):
            self.flush()
            if call := _BULLET_CALL.match(found[1]):
                self.tool, self.command = call[1], call[2]
            else:
                self.kind, self.told = "assistant", [found[1]]
        elif self.command and (found := _CORNER.match(line)):
            self.told.append(found[1])
        else:
            self.told.append(line)

    def _mark(self, fence: re.Match[str]) -> bool:
        """Takes note of a mark around a block; False when it is only a line in one."""
        if self.fence:
            if fence[2] or not fence[1].startswith(self.fence):
                return False
            self.fence = ""
            if self.command:
                self.flush(then=self.kind or "assistant")
            else:
                self.told.append(fence[0])
            return True
        self.fence = fence[1]
        self.block = "console" if fence[2].lower() in CONSOLE else "text"
        if self.command and not any(line.strip() for line in self.told):
            self.block = "output"  # of the command, in a block of its own
            self.told.clear()
            return True
        if self.command:
            self.flush(then=self.kind or "assistant")
        self.told.append(fence[0])
        return True

    def _begin(self, command: str) -> None:
        if self.fence and self.told and _FENCE.match(self.told[-1]):
            self.told.pop()  # the block holds commands, not words
        self.flush(then=self.kind)
        self.command = command

    def _speak(self, name: str, rest: str) -> None:
        if name in OUTPUTS and self.command:
            self.told = [rest] if rest else []
            return
        self.flush()
        if name in TOOLS and rest.strip().strip("`"):
            self.kind, self.command = "assistant", rest.strip().strip("`")
        else:
            self.kind, self.told = SPEAKERS.get(name, "assistant"), [rest] if rest else []

    def flush(self, then: StepKind | None = None) -> None:
        text = "\n".join(self.told).strip("\n")
        if self.command:
            number = str(len(self.recording.steps))
            self.recording.call(number, self.tool, {"command": self.command})
            self.recording.result(number, text, exit_status(text))
        elif self.kind is not None:
            self.recording.say(self.kind, text)
        self.told, self.tool, self.command, self.kind = [], "shell", "", then


FORMAT = Format("text transcript", read, detects)
