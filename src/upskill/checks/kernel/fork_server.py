"""The fork server: imports PyTorch (which takes seconds) once, touches no GPU, and forks runners and referees.

A keeper between server and worker kills the worker and all it started when the pipe closes, even if upskill is gone.
A suite may be anyone's: if the trial's sandbox is bubblewrap, so is the server's, with the GPU and nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from upskill.checks.kernel import runner
from upskill.checks.kernel.device import Device

ROLES = {"runner": runner.serve_runner, "referee": runner.serve_referee}
NO_DEVICE = 100  # an error of the driver: it works, and there is no GPU
MAX_REQUEST = 2**18  # bytes of a request


# The compiler of PyTorch takes as long to import as PyTorch, and every trial that is timed wants it.
PRELOADED = ("torch", "torch._dynamo", "torch._inductor.compile_fx")


def main(make: Callable[[], Device] = Device, preload: Sequence[str] = PRELOADED) -> None:
    for name in preload[:1] if "--little" in sys.argv else preload:
        with suppress(Exception):  # a worker says what is missing
            import_module(name)
    if "--little" not in sys.argv and not _can_fork():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], "--little"])  # noqa: S606 - itself
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need nobody to wait for them
    while True:
        request, descriptors, *_ = socket.recv_fds(control, MAX_REQUEST, 8)
        if not request:  # whoever started us has ended
            os._exit(0)
        if os.fork() == 0:
            control.close()
            _keep(json.loads(request), descriptors, make)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(request: dict[str, Any], descriptors: list[int], make: Callable[[], Device]) -> NoReturn:
    stdin, printed, channel, store, status, lifeline = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    keeper = os.getpid()
    worker = os.fork()
    with suppress(
        OSError
    ):  # a group of its own, so that it can be killed with all that it starts; both see to it
        os.setpgid(worker, worker)
    if worker == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends when its keeper does
        if os.getppid() != keeper:  # it was faster
            os._exit(1)
        os.close(status)
        os.close(lifeline)
        for source, target in ((stdin, 0), (printed, 1), (printed, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
        runner.main(make, ROLES[request["role"]], channel, store)
    for descriptor in (stdin, printed, channel, store):
        os.close(descriptor)
    running = os.pidfd_open(worker)
    ready, _, _ = select.select(
        [lifeline, running], [], []
    )  # nothing is ever written to `lifeline`: it is closed
    if running not in ready:
        with suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)
    _, ended = os.waitpid(worker, 0)
    with suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)  # what it started and left
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _can_fork() -> bool:
    """Whether a process forked from here can use the driver: not if an import has started it already."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    probe = os.fork()
    if probe == 0:
        os._exit(0 if driver.cuInit(0) in (0, NO_DEVICE) else 1)
    return os.waitpid(probe, 0)[1] == 0


if __name__ == "__main__":
    main()
