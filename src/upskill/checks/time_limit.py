"""A time limit for work that may never come to an end, such as a regular expression that backtracks without end.

A thread could not be stopped and a process for each match would cost more than all else about a check, but Python's
matcher looks for signals as it goes: a timer of this process interrupts it, in the main thread, at no cost to speak of.
It counts processor time, so a machine that is busy with other things ends nothing early. Elsewhere than in the main
thread, and where there are no such timers, the work is done in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from upskill.errors import CheckError

LIMIT = 2.0  # seconds
EVERY = 0.1
START = 30.0  # that a process may take to begin, on a busy machine
_TIMERS = hasattr(signal, "setitimer")
T = TypeVar("T")

# In the main thread of a process of its own, where the timer works.
_ELSEWHERE = """
import json, sys
from importlib import import_module
said = json.load(sys.stdin)
sys.path[:] = said["path"]
from upskill.checks import time_limit
json.dump(time_limit.alone(getattr(import_module(said["module"]), said["name"]), said), sys.stdout)
"""


class _TooLong(BaseException):
    """Not an Exception, so that nothing on the way takes it for one of its own."""


async def within_limit(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """What the function returns; CheckError when it takes too long. It is top-level, and takes and gives plain data."""
    try:
        if threading.current_thread() is threading.main_thread() and _TIMERS:
            return _interrupted(function, arguments, LIMIT)
        return await asyncio.to_thread(_elsewhere, function, arguments)
    except (_TooLong, subprocess.TimeoutExpired):
        raise CheckError(
            f"{what} did not come to an end within {LIMIT:g} s; write it so that nothing repeated is repeated again"
        ) from None


def _interrupted(function: Callable[..., T], arguments: Sequence[Any], limit: float) -> T:
    began = time.thread_time()
    over = False

    def look(*_: object) -> None:
        # The timer counts what all threads use, and others may be busy.
        if not over and time.thread_time() - began >= limit:
            raise _TooLong

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, EVERY, EVERY)
    try:
        return function(*arguments)
    finally:
        over = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def alone(function: Callable[..., T], said: dict[str, Any]) -> list[T]:
    """What the function returns, in a list; an empty one when it took too long."""
    try:
        arguments = said["arguments"]
        return [_interrupted(function, arguments, said["limit"]) if _TIMERS else function(*arguments)]
    except _TooLong:
        return []


def _elsewhere(function: Callable[..., T], arguments: Sequence[Any]) -> T:
    said = {
        "path": sys.path,
        "module": function.__module__,
        "name": function.__name__,
        "arguments": arguments,
        "limit": LIMIT,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", _ELSEWHERE],
        input=json.dumps(said),
        capture_output=True,
        text=True,
        timeout=LIMIT + START,
        check=False,
    )
    if done.returncode:
        raise CheckError(f"{function.__name__} broke: {done.stderr.strip()[-300:]}")
    result: list[T] = json.loads(done.stdout)
    if not result:
        raise _TooLong
    return result[0]
