"""aider: `.aider.chat.history.md`, a Markdown file with all chats of a project.

The file alone means its latest chat; `.aider.chat.history.md/2025-01-31T10:20:30` is the one that began then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from upskill.traces import Usage
from upskill.traces.formats import Format, Sample, TraceBuilder, read_text
from upskill.traces.values import exit_status

FILE = ".aider.chat.history.md"
_BEGAN = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)[ \t]*$", re.M)
_USER: str = "#### "  # how their lines begin
_PROGRAM: str = "> "
_ASSISTANT: str = "model"
_TYPED = re.compile(r"(?:/(?:run|test|git)\s+|!\s*)(\S.*)", re.S)  # commands of the person
_MODEL = re.compile(r"(?:Main model|Models?): (\S+) with ")
_EDITED = re.compile(r"Applied edit to (.+)")
_RUNNING = re.compile(r"Running (.+)")
_TOKENS = re.compile(r"Tokens: ([\d.,]+)(k?) sent.*?([\d.,]+)(k?) received")
_QUESTION = re.compile(
    r"Cost: \$|Add .*(?:to the chat\?|output to the chat)"
)  # told elsewhere, or between the two
_COST = re.compile(r"Cost: \$([\d.]+)")
BY_PROGRAM = ("# Fix any errors below", "I ran this command:")


def detects(sample: Sample) -> bool:
    is_typed = re.search(rf"^{_USER}", sample.text, re.M) is not None
    return _BEGAN.search(sample.prose) is not None or (sample.path.name == FILE and is_typed)


class _Reader(TraceBuilder):
    who = ""
    cost: float | None = None
    command = ""  # that was run last, if it may still get its output

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path, agent)
        self.counts = [0, 0]

    def fill(self) -> None:
        text = read_text(self.path).replace("\r\n", "\n")
        heads = list(_BEGAN.finditer(text))
        names = ["beginning", *(f"{head[1]}T{head[2]}" for head in heads)]
        starts, ends = (
            [0, *(head.end() for head in heads)],
            [*(head.start() for head in heads), len(text)],
        )
        chats = {
            name: text[start:end] for name, start, end in zip(names, starts, ends, strict=True)
        }
        # Many are started and left without a word.
        used = {name: chat for name, chat in chats.items() if f"\n{_USER}" in "\n" + chat} or chats
        self.leave_out(
            "chat without messages", sum(bool(text.strip()) for text in chats.values()) - len(used)
        )
        name = self.choose_session(list(used), "chats", latest=True)
        self.started = name if heads else ""
        for who, line in _marked_lines(used[name]):
            if who != self.who and (line.strip() or who != _ASSISTANT):
                self.flush()
                self.who = who
            elif self.who == _USER != who:  # an empty line of a message is marked; this one ends it
                self.flush()
                self.who = ""
            self.lines.append(line)
        self.flush()
        if any(self.counts):
            self.usage = Usage(*self.counts, cost_usd=self.cost)

    def flush(self) -> None:
        text, who = "\n".join(self.lines).strip("\n"), self.who
        self.lines = []
        if who == _USER:
            self.user(text)
        elif who == _PROGRAM:
            self.program(text)
        else:
            if text.strip():
                self.command = ""
            self.add_text("assistant", text)

    def user(self, text: str) -> None:
        self.command = ""
        if typed := _TYPED.fullmatch(text.strip()):
            self.run(typed[1])
        else:
            self.add_text("system" if text.lstrip().startswith(BY_PROGRAM) else "user", text)

    def run(self, command: str) -> None:
        self.command = f"command {len(self.steps)}"
        self.add_call(self.command, "shell", {"command": command})

    def program(self, text: str) -> None:
        lines: list[str] = []
        for line in [*text.split("\n"), ""]:
            edited, running, tokens = (
                _EDITED.fullmatch(line),
                _RUNNING.fullmatch(line),
                _TOKENS.search(line),
            )
            if model := _MODEL.match(line):
                self.model = model[1]
            if edited or running or tokens:
                self.note(lines)
            if edited:
                self.add_done("edit", {"path": edited[1]}, line, "ok")
            elif running:
                self.run(running[1])
            elif tokens:
                sent, received = _number(tokens[1], tokens[2]), _number(tokens[3], tokens[4])
                self.counts = [self.counts[0] + sent, self.counts[1] + received]
            else:
                lines.append(line)
            if cost := _COST.search(line):
                self.cost = (self.cost or 0.0) + float(cost[1].rstrip("."))
        self.note(lines)

    def note(self, lines: list[str]) -> None:
        self.leave_out(
            "question or cost from aider", sum(bool(_QUESTION.match(line)) for line in lines)
        )
        text = "\n".join(line for line in lines if not _QUESTION.match(line)).strip("\n")
        lines.clear()
        if text.strip() and self.command:
            self.add_result(self.command, text, exit_status(text))
            self.command = ""
        else:
            self.add_text("system", text)


def _marked_lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line with who wrote it.

    Lines of the person and the program end in two spaces, unless an editor removed them. Of several lines that the
    program writes at once, only the first is marked, and the last ends in two spaces.
    """
    lines = text.split("\n")
    strict = re.search(rf"^{_USER}.*  $", text, re.M) is not None
    who = ""
    until = -1
    for number, line in enumerate(lines):
        if number <= until:
            yield _PROGRAM, line.rstrip()
            continue
        ends, answering = line.endswith("  ") or not strict, who == _ASSISTANT
        if line.startswith(_USER.strip()) and ends:
            who = _USER
        elif line.startswith(_PROGRAM.strip()) and ends:
            who = _PROGRAM
        elif line.startswith("> Tokens:") or (line.startswith(_PROGRAM) and not answering):
            later = range(number + 1, len(lines))
            mark = next((n for n in later if lines[n].startswith((_USER, _PROGRAM))), len(lines))
            ending = [n for n in range(number + 1, mark) if lines[n].endswith("  ")]
            # What a command printed may have such lines too.
            until = (
                (ending[0] if line.startswith("> Tokens:") else ending[-1]) if ending else number
            )
            who = _PROGRAM
        elif line.strip():
            who = _ASSISTANT
        elif who == _USER:
            who = ""
        yield (
            who or _ASSISTANT,
            line.removeprefix(who).rstrip() if who in (_USER, _PROGRAM) else line,
        )


def _number(digits: str, thousands: str) -> int:
    return int(float(digits.replace(",", "").rstrip(".") or 0) * (1000 if thousands else 1))


FORMAT = Format("aider", "aider chat history", _Reader.fill, detects, builder=_Reader)
