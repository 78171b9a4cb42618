"""The embedded model: llama.cpp in a process of its own, asked over loopback like any other chat completions server.

It has one slot, so one answer is made at a time and the prompt that two requests share is read once. With equal
settings the same request gets the same answer, whatever was asked before and in whichever process.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
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
from upskill.models.embedded.local_models import find
from upskill.models.embedded.weights import is_gguf, pull
from upskill.models.endpoints import Endpoint
from upskill.models.http.model import PromptTooLong
from upskill.models.http.openai import ChatCompletionsModel
from upskill.models.http.transport import AiohttpTransport, Timeouts
from upskill.models.parsing import safe_excerpt

ENDPOINT = Endpoint("local", "", (), key_required=False, prices="free")
CONTEXT_OF_A_FILE = 8_192  # tokens, or as many as the model was trained with where that is less
LONGEST_START = 300.0  # seconds; a large model on a slow disk
LONGEST_END = 2.0
LINES = 40  # of the server's log that are kept
OVERFLOW = re.compile(r"\((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")


async def open_model(address: Address, context: ModelContext) -> Model:
    """Start the embedded model: the default row for an empty name, a row of the table, or a GGUF file.

    Fetches weights that are not here yet, unless that is forbidden.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(
            f"{address.name!r} needs the package xllamacpp, which is not installed",
            'Run `pip install "upskill[local]"`.',
        )
    if is_path(address.model):
        path, context_size = _check_file(address.model), CONTEXT_OF_A_FILE
        name = path.name
    else:
        row = find(address.model)
        path, context_size, name = await pull(row, context), row.context, row.name
    model = Embedded(replace(address, model=name), path, context_size, context)
    try:
        await model.start()
    except ModelError as error:
        raise UsageError(f"{path} cannot be used: {error.message}", error.hint) from error
    return model


def is_path(name: str) -> bool:
    """Whether a local model's name means a file rather than a row of the table."""
    return name.endswith(".gguf") or "/" in name or os.sep in name or name.startswith("~")


def threads() -> int:
    """All cores that this process may use but one, which is ours and the other programs'."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores, _cores_of_container(cores)) - 1)


class Embedded:
    """A Model whose server is started when needed: at the beginning, and again after it died."""

    def __init__(self, address: Address, weights: Path, context_size: int, context: ModelContext) -> None:
        self.address = address
        self.weights = weights
        self.context_size = context_size
        # A server that has died is started again by the next call; trying again on the wire cannot heal it.
        self.context = replace(context, retries=0)
        self._transport = Loopback()
        self._served: Served | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def start(self) -> Served:
        """The running server."""
        async with self._starting:
            if self._closed:
                raise ModelError(f"{self.address.name} is closed")
            if self._served is None or not self._served.process.lives:
                await self._stop()
                process = Process(self.weights, self.context_size)
                base_url, key = await process.ready()
                wire = ChatCompletionsModel(
                    self.address, ENDPOINT, f"{base_url}/v1", key, self.context, transport=self._transport
                )
                self._served = Served(process, wire, base_url, key)
            return self._served

    async def reply(self, request: Request) -> Reply:
        async with _turn():
            served = await self.start()
            try:
                reply = await served.wire.reply(request)
            except PromptTooLong as error:
                raise self._overlong(error) from error
            except ModelError as error:
                if self._closed:
                    raise ModelError(f"{self.address.name} was closed before it answered") from error
                if error.status is None and await served.process.ended(within=1.0):
                    raise served.process.obituary() from error
                raise
        if reply.stop == "length" and reply.usage.output_tokens < request.max_output_tokens:
            raise PromptTooLong(
                f"the context was full after {reply.usage.output_tokens} tokens of the answer: the prompt takes "
                f"{reply.usage.input_tokens} tokens, and {reply.usage.total_tokens} fit into {self.address.name}",
                TOO_LONG,
            )
        return replace(reply, model=self.address.model)

    async def count_tokens(self, text: str) -> int:
        """How many tokens this model reads a text as."""
        async with _turn():
            served = await self.start()
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {served.key}"}
            body = json.dumps({"content": text, "add_special": False}).encode()
            response = await self._transport.post(f"{served.base_url}/tokenize", headers, body, Timeouts())
        answer: Mapping[str, Any] = json.loads(response.body)
        return len(answer["tokens"])

    async def close(self) -> None:
        self._closed = True
        await self._stop()
        await self._transport.release()

    async def _stop(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            await served.wire.close()
            await served.process.stop()

    def _overlong(self, error: PromptTooLong) -> PromptTooLong:
        found = OVERFLOW.search(error.message)
        if found is None:
            return error
        needs, fits = map(int, found.groups())
        return PromptTooLong(
            f"the prompt needs {needs} tokens, and {fits} fit into {self.address.name}", TOO_LONG, status=error.status
        )


TOO_LONG = "Shorten the skill or the case, or take a model with a longer context (`upskill models`)."


@dataclass(frozen=True, slots=True)
class Served:
    """A running server and the way to it."""

    process: Process
    wire: ChatCompletionsModel
    base_url: str
    key: str


class Process:
    """The server's process. Its log goes to us and not to the terminal; it ends with us, however we end."""

    def __init__(self, weights: Path, context: int) -> None:
        self.weights = weights
        self._began = False
        command = [sys.executable, "-P", "-m", "upskill.models.embedded.server"]
        command += ["--model", str(weights), "--context", str(context), "--threads", str(threads())]
        # In the thread of the event loop: Linux ends the child together with the thread that started it.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
            start_new_session=True,  # Ctrl-C is for us; we stop the server when we are done
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
        self._log: deque[str] = deque(maxlen=LINES)
        self._reading = threading.Thread(target=self._read_log, name="log of the local model", daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def lives(self) -> bool:
        return self._child.poll() is None

    async def ready(self) -> tuple[str, str]:
        """Where it listens, and the key it asks for; ModelError when it ended instead."""
        assert self._child.stdout is not None
        try:
            async with asyncio.timeout(LONGEST_START):
                line = await asyncio.to_thread(self._child.stdout.readline)
        except BaseException:
            self._child.kill()  # which also ends the thread that waits for the line
            await self.stop()
            raise
        if not line:
            await self.ended(within=LONGEST_END)
            await self.stop()
            raise self.obituary()
        self._began = True
        said: Mapping[str, Any] = json.loads(line)
        return f"http://127.0.0.1:{said['port']}", str(said["key"])

    async def ended(self, *, within: float) -> bool:
        """Wait a moment for the process to end; whether it did."""
        deadline = time.monotonic() + within
        while self.lives and time.monotonic() < deadline:  # noqa: ASYNC110  a process sends no event
            await asyncio.sleep(0.01)
        return not self.lives

    async def stop(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.close()  # it ends with its standard input
            await self.ended(within=LONGEST_END)
        finally:
            if self.lives:
                self._child.kill()
            self._child.wait()
            self._reading.join(LONGEST_END)
            self._child.stdout.close()

    def obituary(self) -> ModelError:
        """The error for an answer that never came because the server had died."""
        self._reading.join(LONGEST_END)  # its last words are still on their way
        code = self._child.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ModelError(
            f"the server of the local model {self.weights.name} {how}{self._words()}",
            "It starts again with the next call. Was the memory used up?" if code < 0 else "",
        )

    def _words(self) -> str:
        """What its log says of the end: where it never began, the first complaint is the reason, otherwise the last."""
        plain = [re.sub(r"^[\d.]+ [EWI] +", "", line) for line in self._log if not re.match(r"[\d.]+ [WI] ", line)]
        lines = list(dict.fromkeys(plain))
        words = lines[-3:] if self._began else lines[:3]
        return ": " + safe_excerpt(" / ".join(words), ()) if words else ""

    def _read_log(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as log:
            for line in log:
                self._log.append(line.decode("utf-8", "replace").rstrip())


class Loopback(AiohttpTransport):
    """Straight to this machine, also where the environment names a proxy for everything."""

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession()
        return self._session


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _turn() -> asyncio.Lock:
    """One answer at a time: a server has one slot, and two servers at work would be two threads for each core."""
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
    """The share of the machine that a container was given, which counting cores does not show."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no container, or "max"
        return otherwise
