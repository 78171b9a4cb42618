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

MAX_REASON = 2000  # characters of a reason


def call(request: dict[str, Any]) -> dict[str, Any]:
    """What the function says: passed, with a reason; or an error, when it does not say."""
    names: dict[str, Any] = {"__name__": "checks", "__file__": request["file"]}
    try:
        exec(compile(request["source"], request["file"], "exec"), names)  # noqa: S102 - what the suite's author wrote
        function = names.get(request["function"])
        if not callable(function):
            return _verdict(error=f"has no function {request['function']!r}")
        result: Any = function(*request["arguments"])
    except AssertionError as error:
        return _verdict(False, str(error) or _line_of(error, request))
    except BaseException as error:  # also an exit: whatever it is, it is not a verdict
        last = "".join(traceback.format_exception_only(type(error), error)).strip()
        return _verdict(
            error=f"{request['function']} raised an error: {last} {_line_of(error, request)}".strip()
        )
    passed, reason = result, ""
    with suppress(TypeError, ValueError):
        passed, reason = result
    if not isinstance(passed, bool):
        return _verdict(
            error=f"{request['function']} returned {passed!r:.200}; it must return True or False"
        )
    return _verdict(passed, str(reason))


def _verdict(passed: bool = False, reason: str = "", error: str = "") -> dict[str, Any]:
    return {"passed": passed, "reason": reason[:MAX_REASON], "error": error[:MAX_REASON]}


def _line_of(error: BaseException, request: dict[str, Any]) -> str:
    """The line of the check where it happened."""
    lines = request["source"].splitlines()
    here = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == request["file"]
    ]
    return f"(line {here[-1]}: {lines[here[-1] - 1].strip()})" if here and here[-1] else ""


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        request = json.load(file)
    os.unlink(path)  # noqa: PTH108
    with suppress(
        Exception
    ):  # close this process to others of the same user: its memory, its descriptors
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE, where there is one
    channel = os.dup(1)  # ours alone: children do not inherit it
    os.dup2(2, 1)  # what the function prints is no verdict
    verdict = json.dumps(call(request))
    os.write(channel, f"\n{request['token']}{verdict}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
