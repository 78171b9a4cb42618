"""Runs one command without a sandbox, and leaves nothing of it behind.

`confine.py DESCRIPTOR` reads its task as JSON from there. It adopts the processes that the command leaves behind and
kills them when the command ends, on SIGTERM, and when its parent dies. It is started without upskill's packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36
library = ctypes.CDLL(None, use_errno=True)


def exec_command(task: dict[str, Any]) -> None:
    os.setsid()
    for name, value in task["limits"].items():
        limit: int = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901
        resource.setrlimit(limit, (value, value))
    os.chdir(task["folder"])
    library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.umask(0o022)
    for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(task["argv"][0], task["argv"], task["environment"])  # noqa: S606


def descendants() -> list[int]:
    processes, waiting = list[int](), [os.getpid()]
    while waiting:
        with suppress(OSError):
            process = waiting.pop()
            for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                with open(f"/proc/{process}/task/{thread}/children", encoding="utf-8") as file:  # noqa: PTH123
                    fresh = [int(word) for word in file.read().split()]
                processes += fresh
                waiting += fresh
    return processes


def kill_all() -> None:
    while True:
        for process in descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        task: dict[str, Any] = json.loads(file.read())
    code = 126
    library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def on_terminate(*_: object) -> None:
        kill_all()
        os._exit(137)

    signal.signal(signal.SIGTERM, on_terminate)
    library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != task["parent"]:  # it died before we could ask for a signal
        os._exit(137)
    child = os.fork()
    if child == 0:
        try:
            exec_command(task)
        except BaseException as error:
            program = task["argv"][0]
            # A folder on the PATH that we may not read means "permission denied" even for a program that is not there.
            here = os.path.exists(program) if "/" in program else not isinstance(error, OSError)  # noqa: PTH110
            os.write(2, f"{program}: {error if here else 'command not found'}\n".encode())
            os._exit(126 if here else 127)
    while True:
        process, status = os.waitpid(-1, 0)  # adopted processes, too
        if process == child:
            code = os.waitstatus_to_exitcode(status)
            break
    kill_all()
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
