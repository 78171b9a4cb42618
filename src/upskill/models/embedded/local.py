"""The embedded model: llama.cpp in its own process, called over loopback like any other chat completions server.

It has one slot: one answer at a time, and a prompt prefix that requests share is processed once. With equal settings
the same request gets the same answer, whatever was asked before and in whichever process.
"""

from __future__ import annotations

import asyncio
import importlib.util
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from upskill.errors import ModelError, UsageError
from upskill.models import Address, Model, ModelContext, Reply, Request
from upskill.models.embedded.local_models import find_local_model
from upskill.models.embedded.weights import is_gguf, pull_weights
from upskill.models.endpoints import Endpoint
from upskill.models.http.openai import ChatCompletionsModel
from upskill.models.http.throttling import PromptTooLong
from upskill.models.http.transport import AiohttpTransport, Timeouts
from upskill.models.parsing import safe_excerpt

logger = logging.getLogger(__name__)
ENDPOINT = Endpoint("local", "", (), key_required=False, prices="free")
DEFAULT_CONTEXT_SIZE = 8_192  # tokens, for a file that is not in the table; at most what the model was trained with
START_TIMEOUT = 300.0  # seconds; a large model on a slow disk
STOP_TIMEOUT = 2.0
LOG_LINES = 40  # of the server's log to keep
OVERFLOW = re.compile(r"\((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")


async def open_model(address: Address, context: ModelContext) -> Model:
    """Start the embedded model: the default one for an empty name, a row of the table, or a GGUF file.

    Downloads missing weights, unless offline.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(
            f"{address.name!r} needs the package xllamacpp, which is not installed",
            'Run `pip install "upskill[local]"`.',
        )
    if is_file_name(address.model):
        path, context_size = _check_file(address.model), DEFAULT_CONTEXT_SIZE
        name = path.name
    else:
        row = find_local_model(address.model)
        path, context_size, name = await pull_weights(row, context), row.context, row.name
    model = EmbeddedModel(replace(address, model=name), path, context_size, context)
    try:
        await model.start()
    except ModelError as error:
        raise UsageError(f"{path} cannot be used: {error.message}", error.hint) from error
    return model


def is_file_name(name: str) -> bool:
    """Whether a local model's name means a file rather than a row of the table."""
    return name.endswith(".gguf") or "/" in name or os.sep in name or name.startswith("~")


def thread_count() -> int:
    """All cores that this process may use but one, which is left for ourselves and other programs."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores, _cores_of_container(cores)) - 1)


class EmbeddedModel:
    """A Model whose server is started when needed: at first, and again after it died."""

    def __init__(self, address: Address, weights: Path, context_size: int, context: ModelContext) -> None:
        self.address = address
        self.weights = weights
        self.context_size = context_size
        # A retry cannot help a server that has died; the next call starts a new one.
        self.context = replace(context, retries=0)
        self._transport = LoopbackTransport()
        self._server: RunningServer | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def start(self) -> RunningServer:
        """The running server, started if needed."""
        async with self._starting:
            if self._closed:
                raise ModelError(f"{self.address.name} is closed")
            if self._server is None or not self._server.process.is_running:
                await self._stop()
                process = ServerProcess(self.weights, self.context_size)
                base_url, key = await process.wait_until_ready()
                model = ChatCompletionsModel(
                    self.address, ENDPOINT, f"{base_url}/v1", key, self.context, transport=self._transport
                )
                self._server = RunningServer(process, model, base_url, key)
            return self._server

    async def reply(self, request: Request) -> Reply:
        async with _exclusive_use():
            server = await self.start()
            try:
                reply = await server.model.reply(request)
            except PromptTooLong as error:
                raise self._prompt_too_long(error) from error
            except ModelError as error:
                if self._closed:
                    raise ModelError(f"{self.address.name} was closed before it answered") from error
                if error.status is None and await server.process.wait_for_exit(within=1.0):
                    raise server.process.exit_error() from error
                raise
        if reply.stop == "length" and reply.usage.output_tokens < request.max_output_tokens:
            raise PromptTooLong(
                f"the context was full after {reply.usage.output_tokens} tokens of the answer: the prompt takes "
                f"{reply.usage.input_tokens} tokens, and {reply.usage.total_tokens} fit into {self.address.name}",
                TOO_LONG_HINT,
            )
        return replace(reply, model=self.address.model)

    async def count_tokens(self, text: str) -> int:
        """How many tokens a text has for this model."""
        async with _exclusive_use():
            server = await self.start()
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
            body = json.dumps({"content": text, "add_special": False}).encode()
            response = await self._transport.post(f"{server.base_url}/tokenize", headers, body, Timeouts())
        answer: Mapping[str, Any] = json.loads(response.body)
        return len(answer["tokens"])

    async def close(self) -> None:
        self._closed = True
        await self._stop()
        await self._transport.release()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.model.close()
            await server.process.stop()

    def _prompt_too_long(self, error: PromptTooLong) -> PromptTooLong:
        found = OVERFLOW.search(error.message)
        if found is None:
            return error
        needs, fits = map(int, found.groups())
        return PromptTooLong(
            f"the prompt needs {needs} tokens, and {fits} fit into {self.address.name}",
            TOO_LONG_HINT,
            status=error.status,
        )


TOO_LONG_HINT = "Shorten the skill or the case, or take a model with a longer context (`upskill models`)."


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server and how to reach it."""

    process: ServerProcess
    model: ChatCompletionsModel
    base_url: str
    key: str


class ServerProcess:
    """The server's process. Its log is read here and not shown; it ends with this process, however that ends."""

    def __init__(self, weights: Path, context: int) -> None:
        self.weights = weights
        self._was_ready = False
        command = [sys.executable, "-P", "-m", "upskill.models.embedded.server"]
        command += ["--model", str(weights), "--context", str(context), "--threads", str(thread_count())]
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
            async with asyncio.timeout(START_TIMEOUT):
                line = await asyncio.to_thread(self._child.stdout.readline)
        except BaseException:
            self._child.kill()  # also unblocks the thread that waits for the line
            await self.stop()
            raise
        if not line:
            await self.wait_for_exit(within=STOP_TIMEOUT)
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
        self._log_reader.join(STOP_TIMEOUT)  # for its last lines
        code = self._child.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ModelError(
            f"the server of the local model {self.weights.name} {how}{self._log_excerpt()}",
            "The next call starts it again. Did it run out of memory?" if code < 0 else "",
        )

    def _log_excerpt(self) -> str:
        """What its log says about the end: the first errors where it never got ready, otherwise the last."""
        plain = [re.sub(r"^[\d.]+ [EWI] +", "", line) for line in self._log if not re.match(r"[\d.]+ [WI] ", line)]
        lines = list(dict.fromkeys(plain))
        shown = lines[-3:] if self._was_ready else lines[:3]
        return ": " + safe_excerpt(" / ".join(shown), ()) if shown else ""

    def _read_log(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as log:
            for line in log:
                self._log.append(line.decode("utf-8", "replace").rstrip())


class LoopbackTransport(AiohttpTransport):
    """Never through a proxy, even where the environment sets one for everything."""

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession()
        return self._session


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _exclusive_use() -> asyncio.Lock:
    """One answer at a time: a server has one slot, and two busy servers would run two threads per core."""
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _check_file(name: str) -> Path:
    path = Path(name).expanduser()
    try:
        if is_gguf(path):
            return path.resolve()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}",
            "local:/path/to/model.gguf takes a GGUF file; `upskill models` lists the models that have a name.",
        ) from error
    raise UsageError(f"{path} is not a GGUF file: it does not begin with the letters GGUF")


def _cores_of_container(otherwise: int) -> int:
    """The CPU quota of a container, which counting cores does not show."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no container, or "max"
        return otherwise
