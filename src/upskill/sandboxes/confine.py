"""Runs one command without namespaces, and leaves nothing of it behind.

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

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_SET_SECCOMP = 1, 38, 36, 22
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
PATH_BENEATH, NET_PORT = 1, 2
# Rights of Landlock; ALL_RIGHTS by the version of its interface.
READ_FILES, READ = 0x4, 0x4 | 0x8 | 0x1  # read a file; read, list and execute
FILE_RIGHTS = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000  # the only ones that a rule on a file may name
ALL_RIGHTS = {3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
CONNECT, BIND = 0x2, 0x1
SCOPES = 0x3  # no abstract sockets and no signals to the outside

library = ctypes.CDLL(None, use_errno=True)


class Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class PortRule(ctypes.Structure):
    _fields_ = [("rights", ctypes.c_uint64), ("port", ctypes.c_uint64)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def landlock_version() -> int:
    """Which version of the interface this kernel has; 0 if none, or if it is switched off."""
    return max(0, library.syscall(CREATE_RULESET, None, 0, 1))


def apply_landlock(allowed: dict[str, Any]) -> None:
    """From here on only these paths and this port, and no process outside."""
    version = landlock_version()
    rules = Ruleset(
        ALL_RIGHTS[min(version, 5)],
        (CONNECT | BIND) if version >= 4 else 0,
        SCOPES if version >= 6 else 0,
    )
    size = ctypes.sizeof(Ruleset) if version >= 6 else 16 if version >= 4 else 8
    ruleset = checked(library.syscall(CREATE_RULESET, ctypes.byref(rules), size, 0))
    for right, paths in (
        (READ, allowed["read"]),
        (READ_FILES | 0x2, allowed["devices"]),
        (rules.files, allowed["write"]),
    ):
        for path in paths:
            with suppress(FileNotFoundError):
                held = os.open(path, os.O_PATH | os.O_CLOEXEC)
                rights = right & rules.files & (rules.files if os.path.isdir(path) else FILE_RIGHTS)  # noqa: PTH112
                rule = PathRule(rights, held)
                checked(library.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0))
                os.close(held)
    if allowed["proxy_port"] and version >= 4:
        port = PortRule(CONNECT, allowed["proxy_port"])
        checked(library.syscall(ADD_RULE, ruleset, NET_PORT, ctypes.byref(port), 0))
    checked(library.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def apply_seccomp(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program, len(program))
    loaded = Program(len(program) // 8, ctypes.addressof(instructions))
    checked(library.prctl(PR_SET_SECCOMP, 2, ctypes.byref(loaded), 0, 0))


def exec_command(task: dict[str, Any]) -> None:
    os.setsid()
    for name, value in task["limits"].items():
        limit: int = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901
        resource.setrlimit(limit, (value, value))
    os.chdir(task["folder"])
    user = task["user"]
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    checked(library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if task["landlock"] is not None:
        apply_landlock(task["landlock"])
        apply_seccomp(bytes.fromhex(task["filter"]))
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


def kill_all(user: int | None) -> None:
    """With a user of their own all are killed at once, so that no fork gets away."""
    while True:
        if user is not None:
            helper = os.fork()
            if helper == 0:
                with suppress(OSError):
                    os.setresuid(user, user, user)
                    os.kill(-1, signal.SIGKILL)
                os._exit(0)
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
        kill_all(task["user"])
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
    kill_all(task["user"])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
