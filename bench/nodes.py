"""A Ray cluster of several nodes on this machine, each a process of its own that can be killed, for benchmarks.

`Cluster` is a context: it ends every process that descends from it, also those that Ray has left behind.
"""

from __future__ import annotations

import ctypes
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

OBJECT_STORE = 80_000_000  # bytes; hardly used
WORKING = b"ray::upskill trials"  # the title of a process that runs a chunk
PR_SET_CHILD_SUBREAPER = 36


def descendants(*pids: int) -> list[int]:
    """All processes below these, and these themselves."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(
                int(stat.parent.name)
            )
    found = list(pids)
    for one in found:
        found += children.get(one, [])
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_working(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(WORKING)
    return False


class Cluster:
    """A head without CPUs, to which the driver belongs, and worker nodes at loopback addresses of their own."""

    def __init__(self, nodes: int, cpus: int = 1) -> None:
        self.cpus = cpus
        self.folder = Path(
            tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        )  # paths of sockets have to be short
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        # What loses its parent becomes a child of this process, and so can be ended by it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._started = 0
        # For whoever joins: nobody else who is on this machine may.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0"}
        port = self.address.partition(":")[2]
        self.head = self._start(
            "127.0.0.1", "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"
        )
        self.nodes: list[subprocess.Popen[bytes]] = []
        try:
            self._wait_for(1)
            for number in range(nodes):
                self.nodes.append(self.add_node())
                self._wait_for(number + 2)
        except BaseException:  # nobody would close what was never handed over
            self.close()
            raise

    def add_node(self) -> subprocess.Popen[bytes]:
        self._started += 1
        host = f"127.0.{1 + self._started // 200}.{1 + self._started % 200}"
        return self._start(host, f"--address={self.address}", f"--num-cpus={self.cpus}")

    def workers(self) -> list[int]:
        """The processes that run a chunk at the moment."""
        return [pid for pid in descendants(*(node.pid for node in self.nodes)) if is_working(pid)]

    def kill_worker(self, random: random.Random) -> bool:
        """Kill one that runs a chunk; False where none does."""
        if found := self.workers():
            kill([random.choice(found)])
        return bool(found)

    def kill_node(self, random: random.Random) -> None:
        """Kill a node with all that belongs to it, and start another one in its place."""
        place = random.randrange(len(self.nodes))
        kill(descendants(self.nodes[place].pid))
        self.nodes[place].wait()
        self.replace_ended()

    def replace_ended(self) -> None:
        self.nodes = [node if node.poll() is None else self.add_node() for node in self.nodes]

    def close(self) -> None:
        while left := [
            pid for pid in descendants(os.getpid()) if pid != os.getpid() and self._is_ours(pid)
        ]:
            kill(left)
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, host: str, *given: str) -> subprocess.Popen[bytes]:
        script = Path(sys.executable).with_name("ray")
        common = [
            f"--node-ip-address={host}",
            f"--object-store-memory={OBJECT_STORE}",
            "--block",
            "--log-style=record",
        ]
        folder = ["--temp-dir", str(self.folder)] if "--head" in given else []
        with (self.folder / "started.log").open("ab") as log:
            return subprocess.Popen(
                [script, "start", *given, *common, *folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for us, and we end it
            )

    def _wait_for(self, running: int) -> None:
        """Until so many have said that they run. Ray gives up a node after 30 seconds: then there is another one."""
        log = self.folder / "started.log"
        while log.read_text(encoding="utf-8").count("Ray runtime started") < running:
            if self.head.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8"))
            self.replace_ended()
            time.sleep(0.1)

    def _is_ours(self, pid: int) -> bool:
        """Whether Ray is what runs there, and not another thing that this process has started, nor one that ended."""
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            return words.startswith(b"ray::") or b"/ray" in words or bytes(self.folder) in words
        return False
