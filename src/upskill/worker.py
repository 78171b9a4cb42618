"""A process of our own for work whose time nobody knows beforehand, such as holding a text against a pattern.

The kernel ends it when the work takes too much processor time or memory, and another one takes its place: a thread
could not be ended, and would hold the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

SECONDS = 2.0  # of processor time
MEMORY = 1 << 31  # bytes
_P = ParamSpec("_P")
_T = TypeVar("_T")
_idle: list[subprocess.Popen[bytes]] = []


async def work(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    """What the function returns or raises; TimeoutError when it needs too much."""
    return await asyncio.to_thread(work_now, function, *arguments, **options)


def work_now(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    """The same, for callers that have nothing else to do."""
    process = _idle.pop() if _idle else _start()
    assert process.stdin is not None
    assert process.stdout is not None
    is_done = False
    try:
        pickle.dump((SECONDS, function, arguments, options), process.stdin)
        process.stdin.flush()
        failed, result = pickle.load(process.stdout)  # noqa: S301 - from our own process
        is_done = True
    except (OSError, EOFError, pickle.UnpicklingError):  # it was ended
        raise TimeoutError(f"longer than {SECONDS:g} s, or too much memory") from None
    finally:
        if is_done:
            _idle.append(process)
        else:
            process.kill()
            process.communicate()
    if failed:
        raise result
    return result


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "upskill.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours alone
    )


def _serve() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may garble the answers
    while True:
        try:
            seconds, function, arguments, options = pickle.load(sys.stdin.buffer)  # noqa: S301
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer: tuple[bool, Any]
        try:
            answer = (False, function(*arguments, **options))
        except MemoryError:
            os._exit(1)
        except Exception as error:  # the caller's to judge
            answer = (True, error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
