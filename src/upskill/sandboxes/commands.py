"""A command as a model may write it, and as a program can be started with it."""

from __future__ import annotations

from collections.abc import Sequence

MAX_ARGUMENT_BYTES = 128 * 1024 - 1  # one argument of a program, as Linux has it


def to_argv(command: str | Sequence[str], shell: Sequence[str]) -> list[str]:
    """Text is given to this shell. A half of a character that is none becomes a question mark."""
    words = [*shell, command] if isinstance(command, str) else list(command)
    return [word.encode("utf-8", "replace").decode() for word in words]


def why_unrunnable(argv: list[str]) -> str:
    """Why nothing can be started with it; empty when something can."""
    if not argv:
        return "there is no command"
    if any("\0" in word for word in argv):
        return "a command cannot hold a NUL byte"
    if any(len(word.encode()) > MAX_ARGUMENT_BYTES for word in argv):
        return f"a command cannot be longer than {MAX_ARGUMENT_BYTES:,} bytes; write it to a file and run that"
    return ""
