"""Starts what a trial starts beside a GPU, on the CPU stand-in, and waits to be killed.

Each of its processes writes a line into the named pipe `STAND_IN_HELD` and keeps that open.

    python run_to_be_killed.py KIND_OF_SANDBOX TASK
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import cpu_stand_in
from upskill.checks.kernel import gpu_process

HOLD = "import os, signal\nheld = os.open(os.environ['STAND_IN_HELD'], os.O_WRONLY)\n"
TASK = (
    HOLD
    + "os.write(held, b'task\\n' if os.fork() else b'started by the task\\n')\nsignal.pause()\n"
)
WATCHED = HOLD + "os.write(held, b'watched\\n')\nsignal.pause()\n"
LINES = {"server", "task", "started by the task", "watched"}

if __name__ == "__main__":
    kind, task = sys.argv[1:]
    gpu_process.SERVER = (sys.executable, cpu_stand_in.__file__)
    gpu_process.WATCHED = (sys.executable, "-c", WATCHED)
    gpu_process.SHOWN = (str(Path(__file__).parent), str(Path(os.environ["STAND_IN_HELD"]).parent))
    gpu_process.KEPT_PREFIXES += ("STAND_IN_",)
    store = os.memfd_create("outputs")
    runner = gpu_process.GpuProcess("runner", store, kind)
    watched = gpu_process.GpuProcess("watched", store, kind, ("/usr/bin/env",))
    source = (
        Path(task).read_text(encoding="utf-8").replace("from __future__ import annotations\n", "")
        + TASK
    )
    runner.say({"mode": "check", "arch": "sm_90a", "task": source})
    signal.pause()
