"""A transcript pasted into a text file: headings or prefixes say who speaks, and `$ ` comes before a command.

Documentation has commands in it too, and now and then a dialog. So a text is recognized by its speakers alone: a
person and an agent, marked alike, with only a title before the first of them; or by the marks of Claude Code.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import dropwhile
from typing import Any, Literal

from upskill.traces import StepKind
from upskill.traces.formats import Format, Sample, TraceBuilder, text_lines
from upskill.traces.values import continue_command, typed_status

SPEAKERS: dict[str, StepKind] = {
    **dict.fromkeys(("user", "human", "me", "you", "person", "prompt", "task"), "user"),
    **dict.fromkeys(("assistant", "ai", "agent", "bot", "response"), "assistant"),
    **dict.fromkeys(
        ("claude", "codex", "chatgpt", "gpt", "gemini", "cursor", "copilot", "opencode"),
        "assistant",
    ),
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
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.S)
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env", ".properties")
_TITLE = re.compile(
    r"\s*$|\s*[#>|*_<=-]|[\w ]{1,30}: "
)  # headings, front matter, when it was exported
_FENCE = re.compile(r"^(```+|~~~+)\s*([\w-]*)\s*$")
# As Claude Code shows it on a terminal.
_BULLET = re.compile(r"^[⏺●] (.*)$")
_TYPED = re.compile(r"^[>❯] (.*)$")
_BULLET_CALL = re.compile(r"^(\w+)\((.*)\)$", re.S)
_CUT_CALL = re.compile(r"^(Bash)\((.*)$", re.S)  # a long script is cut off, with its bracket
_TIMEOUT = re.compile(r"\s+timeout: \d+\w+(?: \d+\w+)*$")
_CORNER = re.compile(r"^\s*⎿\s*(.*)$")
_NAMED = re.compile(r'(\w+): "([^"]*)"')


def detects(sample: Sample) -> bool:
    if not sample.is_text or sample.path.suffix.lower() in _SETTINGS:
        return False
    lines = _FRONT_MATTER.sub("", sample.prose.lstrip()).splitlines()
    if any(map(_BULLET.match, lines)) and any(map(_CORNER.match, lines)):
        return True
    lines = list(dropwhile(lambda line: not _mark(line) and _TITLE.match(line), lines))
    mark = _mark(lines[0]) if lines else ""
    turns = Counter(
        SPEAKERS[speaker[0]]
        for line in lines
        if mark == _mark(line) != "" and (speaker := _speaker(line))
    )
    # A page may have a section on users and one on agents, beside others; an answer has headings of its own.
    alone = not any(
        mark.startswith("#") and line.startswith(f"{mark} ") and not _mark(line) for line in lines
    )
    return min(turns["user"], turns["assistant"]) >= (1 if alone else 2)


def _mark(line: str) -> str:
    """How a line marks who speaks: `##`, `**` or `:`; empty if nobody begins to speak there."""
    named = _speaker(line)
    if named is None or SPEAKERS.get(named[0]) not in ("user", "assistant"):
        return ""
    if named[0] in ("prompt", "response", "task") and not re.search(
        r"^[#*].*:", line
    ):  # a section, or a setting
        return ""
    return (
        "**"
        if line.startswith("**")
        else ":"
        if line[0] != "#"
        else line[: len(line) - len(line.lstrip("#"))]
    )


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
    pasted = False  # from the terminal of Claude Code
    bullet = False  # the lines are those of a bullet
    block: Literal["console", "output", "text"] = "text"

    def fill(self) -> None:
        self.pasted = any(map(_CORNER.match, text_lines(self.path)))
        for line in text_lines(self.path):
            self.line(line)
        self.flush()

    def line(self, line: str) -> None:
        if (fence := _FENCE.match(line)) and self._read_fence(fence):
            return
        inside = bool(self.fence)
        if self.pasted and not inside and (typed := _TYPED.match(line)):
            self._begin_turn("user", typed[1])
        elif (not inside or self.block == "console") and (command := _COMMAND.match(line)):
            self._begin_command(command[1])
        elif not self.lines and (longer := continue_command(self.command, line)):
            self.command = longer
        elif inside:
            self.lines.append(line)
        elif speaker := _speaker(line):
            self._begin_turn(*speaker)
        elif bullet := _BULLET.match(line):
            self.flush()
            if call := _BULLET_CALL.match(_TIMEOUT.sub("", bullet[1])):
                self.tool, self.command = call[1], call[2]
            else:
                self.kind, self.lines, self.bullet = "assistant", [bullet[1]], True
        else:
            corner = _CORNER.match(line)
            if corner and self.bullet:
                self._join_call()
            self.lines.append(corner[1] if corner and self.command else line)

    def _join_call(self) -> None:
        """A bullet that an output follows is a call, although its lines are wrapped."""
        first, *rest = self.lines
        lines = [_TIMEOUT.sub("", first), *(line.strip() for line in rest)]
        text = ("\n" if "<<" in first else " ").join(lines)
        if "" not in lines and (call := _BULLET_CALL.match(text) or _CUT_CALL.match(text)):
            self.tool, self.command, self.lines = call[1], call[2], []

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
            self.add_done(self.tool, self._arguments(), text, typed_status(self.command, text))
        elif self.kind is not None:
            self.add_text(self.kind, text)
        else:
            self.title = self.title or text
            self.leave_out(
                "line before the first speaker", sum(bool(line.strip()) for line in self.lines)
            )
        self.lines, self.tool, self.command, self.kind, self.bullet = (
            [],
            "shell",
            "",
            next_kind,
            False,
        )

    def _arguments(self) -> dict[str, Any]:
        if self.tool in ("shell", "Bash"):
            return {"command": self.command}
        if self.tool in ("Read", "Write", "Update", "Edit"):
            return {"file_path": self.command}
        return dict(_NAMED.findall(self.command)) or {"input": self.command}


FORMAT = Format("markdown", "text transcript", _Reader.fill, detects, builder=_Reader)
