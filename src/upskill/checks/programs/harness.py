"""The harness calls the function of a `python` check inside the sandbox and says what came of it.

It is given to a Python in there as text, so it leans on the standard library alone. What it was told is gone from the
disk, and its memory closed to others, before the function is called: a student's program finds no way to answer.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

MOST = 2000  # characters of a reason


def call(said: dict[str, Any]) -> dict[str, Any]:
    """What the function says: passed, with a reason; or an error, when it does not say."""
    names: dict[str, Any] = {"__name__": "checks", "__file__": said["file"]}
    try:
        exec(compile(said["source"], said["file"], "exec"), names)  # noqa: S102 - what the suite's author wrote
        function = names.get(said["function"])
        if not callable(function):
            return _verdict(error=f"has no function {said['function']!r}")
        result: Any = function(*said["arguments"])
    except AssertionError as error:
        return _verdict(False, str(error) or _line_of(error, said))
    except BaseException as error:  # also an exit: whatever it is, it is not a verdict
        last = "".join(traceback.format_exception_only(type(error), error)).strip()
        return _verdict(error=f"{said['function']} broke: {last} {_line_of(error, said)}".strip())
    passed, reason = result, ""
    with suppress(TypeError, ValueError):
        passed, reason = result
    if not isinstance(passed, bool):
        return _verdict(error=f"{said['function']} returned {passed!r:.200}; end it with `return True` or False")
    return _verdict(passed, str(reason))


def _verdict(passed: bool = False, reason: str = "", error: str = "") -> dict[str, Any]:
    return {"passed": passed, "reason": reason[:MOST], "error": error[:MOST]}


def _line_of(error: BaseException, said: dict[str, Any]) -> str:
    """The line of the check where it happened."""
    lines = said["source"].splitlines()
    here = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == said["file"]]
    return f"(line {here[-1]}: {lines[here[-1] - 1].strip()})" if here and here[-1] else ""


def _hide() -> None:
    """Close this process to others of the same user: its memory, its descriptors, what it was started with."""
    with suppress(Exception):
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE, where there is one


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        said = json.load(file)
    os.unlink(path)  # noqa: PTH108
    _hide()
    channel = os.dup(1)  # ours alone: children do not inherit it
    os.dup2(2, 1)  # what the function prints is no verdict
    verdict = json.dumps(call(said))
    os.write(channel, f"\n{said['token']}{verdict}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
