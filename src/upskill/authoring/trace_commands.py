"""The shell commands in a trace: what a tool call runs, whether it failed, and the line that says why."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from upskill.plain import as_list
from upskill.traces import Step

# Programs that everyone knows and that mostly inspect things: their success teaches nothing.
INSPECTION_PROGRAMS = frozenset(
    (
        *("ls", "cat", "pwd", "cd", "echo", "head", "tail", "wc", "grep", "rg", "find", "mkdir", "sed", "awk", "sort"),
        *("uniq", "tree", "stat", "file", "which", "type", "env", "printenv", "printf", "true", "sleep", "date", "du"),
        *("whoami", "touch", "rm", "cp", "mv", "chmod", "less", "more", "diff", "test", "export", "source", "set"),
        *("clear", "history", "df"),
    )
)
SHELLS = ("bash", "sh", "zsh", "dash", "fish", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/env")
_SHELL_TOOL = re.compile(r"bash|shell|terminal|exec|run_|command|console|^sh$", re.I)
_EDITOR_COMMANDS = ("create", "view", "str_replace", "insert", "undo_edit")
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|\bcommand not found\b|\bNo such file or directory\b"
    r"|^(?:\S+: )*(?:error|fatal):|^\S*(?:Error|Exception):"
    r"|^exit(?:ed with)? (?:code|status):? [1-9]|\bpermission denied\b",
    re.I | re.M,
)
_EXIT_LINE = re.compile(r"^\[?(?:Exit code:? \d+|exit status \d+|Process exited with code \d+)\]?$", re.I)
_ERROR_LINE = re.compile(r"error|fatal|fail|cannot|can't|not |missing|unknown|invalid|denied|required|exception", re.I)


def shell_command(step: Step) -> str:
    """The shell command that a tool call runs; empty when it runs none."""
    if step.kind != "tool":
        return ""
    given = step.arguments
    value: Any = None
    for name in ("command", "cmd", "commands", "script"):
        if given.get(name):
            value = given[name]
            break
    if value is None and _SHELL_TOOL.search(step.tool):
        value = given.get("input") or given.get("code")
    if isinstance(value, str) and value in _EDITOR_COMMANDS and "path" in given:
        return ""
    listed = as_list(value)
    if listed is not None:
        words = [str(word) for word in listed]
        return _unwrapped(words) or shlex.join(words)
    if not isinstance(value, str):
        return ""
    return _unwrapped(split_words(value)) or value.strip()


def _unwrapped(words: Iterable[str]) -> str:
    """The command inside `bash -lc '…'`."""
    listed = list(words)
    if len(listed) == 3 and listed[0] in SHELLS and re.fullmatch(r"-[a-z]*c", listed[1]):
        return listed[2].strip()
    return ""


def split_words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())


def program_and_verb(words: tuple[str, ...]) -> str:
    """`git commit` of `git commit -m x`. Two commands with the same program and verb try to do the same thing."""
    plain = [word for word in words if not re.match(r"^\w+=", word)]  # without variables in front
    if not plain:
        return ""
    head = PurePosixPath(plain[0]).name or plain[0]
    rest = plain[1:]
    if re.fullmatch(r"python[\d.]*|node|ruby|perl|sudo|npx|uvx?|poetry|time", head) and rest:
        inner = [word for word in rest if not word.startswith("-")]
        return f"{head} {inner[0]}" if inner else head
    verb = rest[0] if rest and re.fullmatch(r"[a-zA-Z][\w:.-]*", rest[0]) and "." not in rest[0] else ""
    return f"{head} {verb}".strip()


def step_failed(step: Step) -> bool:
    """Whether a call failed, by its status or, where that is unknown, by its output."""
    if step.status == "unknown":
        return bool(_FAILED.search(step.output[-20_000:]))
    return step.status == "error"


def error_line(output: str) -> str:
    """The line of an output that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _EXIT_LINE.match(line.strip())]
    if not lines:
        return ""
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return lines[-1]
    return next((line for line in lines if _ERROR_LINE.search(line)), lines[-1])


def only_inspects(words: tuple[str, ...]) -> bool:
    """Whether a command just inspects things, which teaches nothing."""
    return not words or PurePosixPath(words[0]).name in INSPECTION_PROGRAMS
