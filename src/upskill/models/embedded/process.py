"""The process of one embedded server: started, watched and stopped."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from upskill.errors import ModelError
from upskill.models.parsing import safe_excerpt

logger = logging.getLogger(__name__)
STOP_TIMEOUT = 2.0
END_TIMEOUT = 30.0  # for one that is about to end; on a busy machine that has to wait its turn
LOG_LINES = 40  # of the server's log to keep


class ServerProcess:
    """The server's process. Its log is read here and not shown; it ends with this process, however that ends."""

    def __init__(self, weights: Path, context: int, states: Path) -> None:
        self.weights = weights
        self._was_ready = False
        command = [sys.executable, "-P", "-m", "upskill.models.embedded.server"]
        command += ["--model", str(weights), "--context", str(context), "--states", str(states)]
        # Started in the thread of the event loop: Linux ends the child together with the thread that started it.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
            start_new_session=True,  # Ctrl-C must not reach the server: we stop it when we are done
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
        logger.info("local model server starting: %s, pid %d", weights, self.pid)
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._log_reader = threading.Thread(target=self._read_log, name="local model log", daemon=True)
        self._log_reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    async def wait_until_ready(self) -> tuple[str, str]:
        """Its base URL and API key; ModelError when it ended instead."""
        assert self._child.stdout is not None
        try:
            line = await asyncio.to_thread(self._child.stdout.readline)  # ends with the process at the latest
        except BaseException:
            self._child.kill()  # also unblocks the thread that waits for the line
            await self.stop()
            raise
        if not line:
            await self.wait_for_exit(within=END_TIMEOUT)
            await self.stop()
            raise self.exit_error()
        self._was_ready = True
        ready: Mapping[str, Any] = json.loads(line)
        logger.info("local model server ready: %s, pid %d, port %s", self.weights.name, self.pid, ready["port"])
        return f"http://127.0.0.1:{ready['port']}", str(ready["key"])

    async def wait_for_exit(self, *, within: float) -> bool:
        """Wait up to so many seconds for the process to end; whether it did."""
        deadline = time.monotonic() + within
        while self.is_running and time.monotonic() < deadline:  # noqa: ASYNC110  a process sends no event
            await asyncio.sleep(0.01)
        return not self.is_running

    async def stop(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.close()  # the server ends when its standard input does
            await self.wait_for_exit(within=STOP_TIMEOUT)
        finally:
            if self.is_running:
                self._child.kill()
            self._child.wait()
            logger.info("local model server stopped: pid %d, exit code %s", self.pid, self._child.returncode)
            self._log_reader.join(STOP_TIMEOUT)
            self._child.stdout.close()

    def exit_error(self) -> ModelError:
        """The error for a reply that never came because the server died."""
        self._log_reader.join(END_TIMEOUT)  # for its last lines
        code = self._child.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ModelError(
            f"the server of the local model {self.weights.name} {how}{self._log_excerpt()}",
            "The next call starts it again. Did it run out of memory?" if code < 0 else "",
        )

    def _log_excerpt(self) -> str:
        """What its log says about the end: the first errors where it never got ready, otherwise the last.

        The engine writes its errors from a thread, before or after the traceback that they end in.
        """
        told = [line for line in self._log if not re.match(r"[\d.]+ [WI] ", line)]
        if not self._was_ready:
            told.sort(key=lambda line: not re.match(r"[\d.]+ E ", line))
        lines = list(dict.fromkeys(re.sub(r"^[\d.]+ E +", "", line) for line in told))
        shown = lines[-3:] if self._was_ready else lines[:3]
        return ": " + safe_excerpt(" / ".join(shown), ()) if shown else ""

    def _read_log(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as log:
            for line in log:
                self._log.append(line.decode("utf-8", "replace").rstrip())
