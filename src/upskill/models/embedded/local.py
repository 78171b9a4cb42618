"""The embedded model: llama.cpp in processes of our own, called over loopback like any other chat completions server.

How a model rounds depends on which tokens are read together. So that an answer depends on its request alone, a prompt
is always read in the same steps: the system message (which holds the skill), then each earlier turn. After each step
the state is saved for every server: a skill is read once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from upskill.errors import ModelError, UsageError
from upskill.installation import add_extra
from upskill.models import Address, Model, ModelContext, Reply, Request, Unanswered
from upskill.models.embedded.capacity import Capacity, capacity_for, record_speed, usable_cores
from upskill.models.embedded.client import EmbeddedServer
from upskill.models.embedded.local_models import LocalModel, find_local_model
from upskill.models.embedded.weight_files import find_gguf
from upskill.models.embedded.weights import pull_weights
from upskill.plain import compact, counted, digest_text

MAX_STATE_BYTES = 1 << 30  # of saved states in all
STATES_PREFIX = "upskill-states-"
DEFAULT_CONTEXT_SIZE = 8_192  # tokens, for a file that is not in the table
DEFAULT_TOKEN_BYTES = 64 << 10  # of context, for a file that is not in the table
OVERFLOW = re.compile(r"\((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")
TOO_LONG_HINT = (
    "Shorten the skill or the case, or use a model with a longer context (`upskill models`)."
)


async def find_weights(address: Address, context: ModelContext) -> tuple[Path, LocalModel | None]:
    """The weights of a row of the table, the default one, or a GGUF file; may download them. Nothing is loaded."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(
            f"{address.name!r} needs the `xllamacpp` package, which is not installed",
            f"Run `{add_extra('local')}`.",
        )
    if address.model.endswith(".gguf") or "/" in address.model or address.model.startswith("~"):
        return find_gguf(address.model), None
    row = find_local_model(address.model)
    return await pull_weights(row, context), row


async def open_model(address: Address, context: ModelContext) -> Model:
    """Find the weights and load them."""
    path, row = await find_weights(address, context)
    name = row.name if row else path.name
    context_size, token_bytes = (
        (row.context, row.context_bytes) if row else (DEFAULT_CONTEXT_SIZE, DEFAULT_TOKEN_BYTES)
    )
    room = capacity_for(path.stat().st_size, token_bytes, context_size, context.servers)
    if room.context < context_size or room.servers < (context.servers or usable_cores()):
        size = f"{counted(room.servers, 'server')} with a context of {room.context:,} tokens"
        context.tell(f"{address.name}: memory is low, so it runs {size}")
    model = EmbeddedModel(replace(address, model=name), path, room, context)
    try:
        context.progress(f"loading {address.name}", 0, 1)
        await model.start()
        context.progress(f"loading {address.name}", 1, 1)
    except BaseException as error:
        await model.close()
        if isinstance(error, ModelError):
            raise UsageError(f"{path} cannot be used: {error.message}", error.hint) from error
        raise
    return model


class EmbeddedModel:
    """A Model with a server for each core. Servers are started when there is work for them."""

    def __init__(
        self, address: Address, weights: Path, room: Capacity, context: ModelContext
    ) -> None:
        self.address = address
        self.weights = weights
        self.states = SavedStates()
        self.servers = [
            EmbeddedServer(address, weights, room.context, self.states.folder, context)
            for _ in range(room.servers)
        ]
        self._idle = list(self.servers)
        self._turn = asyncio.Semaphore(room.servers)
        self._in_steps = True
        self._speed = (0.0, 0.0)
        self._closed = False

    async def start(self) -> None:
        """Start one server, which shows that the weights can be used."""
        await self.servers[0].start()
        self._in_steps = await self.servers[0].takes_system_alone()

    async def reply(self, request: Request) -> Reply:
        async with self._idle_server() as server:
            try:
                continues = await self._read_steps(server, request)
                reply = await server.reply(request, from_state=continues)
            except Unanswered as error:
                raise self._prompt_too_long(error) from error
            except ModelError as error:
                if self._closed:
                    raise ModelError(f"{self.address.name} was closed before answering") from error
                raise
            self._note_speed(server)
        if reply.stop == "length" and reply.usage.output_tokens < request.max_output_tokens:
            unanswered = Unanswered(
                f"the context filled up after {reply.usage.output_tokens} tokens of the answer: the prompt takes "
                f"{reply.usage.input_tokens} of the {reply.usage.total_tokens} that {self.address.name} can hold",
                TOO_LONG_HINT,
                stop="context",
                text=reply.text,
            )
            unanswered.usage = reply.usage
            raise unanswered
        return replace(reply, model=self.address.model)

    async def close(self) -> None:
        self._closed = True
        for server in self.servers:
            await server.close()
        self.states.close()
        if all(self._speed):
            record_speed(self.weights.name, *self._speed)

    @asynccontextmanager
    async def _idle_server(self) -> AsyncGenerator[EmbeddedServer]:
        async with self._turn:
            if self._closed:
                raise ModelError(f"{self.address.name} is closed")
            server = max(self._idle, key=lambda each: each.is_running)
            self._idle.remove(server)
            try:
                await server.start()
                yield server
            finally:
                self._idle.append(server)

    async def _read_steps(self, server: EmbeddedServer, request: Request) -> bool:
        """Have a server read what is new of a prompt's beginning; whether there is one."""
        steps = steps_to(request) if self._in_steps else []
        names = [state_name(step) for step in steps]
        done = len(steps)
        while done and not await self._restore(server, names[done - 1]):
            done -= 1
        for number in range(done, len(steps)):
            name = names[number]
            async with self.states.being_read(name):  # others wait for the file
                if not await self._restore(server, name):
                    await server.reply(steps[number], from_state=number > 0)
                    self._note_speed(server)
                    if await server.save(name):
                        self.states.add(name)
                    server.holds = name
        return bool(steps)

    async def _restore(self, server: EmbeddedServer, name: str) -> bool:
        if server.holds == name:
            return True
        if not self.states.use(name):
            return False
        if not await server.restore(name):
            self.states.forget(name)
            return False
        server.holds = name
        return True

    def _note_speed(self, server: EmbeddedServer) -> None:
        """The best so far: what this machine can do when nothing else runs."""
        timings = server.model.timings if server.model else dict[str, Any]()
        reading, writing = self._speed
        if timings.get("prompt_n", 0) >= 64:
            reading = max(reading, float(timings.get("prompt_per_second", 0)))
        if timings.get("predicted_n", 0) >= 16:
            writing = max(writing, float(timings.get("predicted_per_second", 0)))
        self._speed = (reading, writing)

    def _prompt_too_long(self, error: Unanswered) -> Unanswered:
        match = OVERFLOW.search(error.message)
        if match is None:
            return error
        needs, fits = map(int, match.groups())
        return Unanswered(
            f"the prompt has {needs} tokens, but {self.address.name} can only hold {fits}",
            TOO_LONG_HINT,
            stop="context",
            status=error.status,
        )


def steps_to(request: Request) -> list[Request]:
    messages = request.messages
    ends = [1] if len(messages) > 1 and messages[0].role == "system" else []
    ends += [
        number
        for number, message in enumerate(messages)
        if message.role == "assistant" and number > 1
    ]
    if request.tools or any(
        message.role == "assistant" for message in messages
    ):  # more turns may follow
        ends.append(len(messages))
    return [
        replace(request, messages=messages[:end], schema=None, max_output_tokens=0) for end in ends
    ]


def state_name(step: Request) -> str:
    return digest_text(compact([step.messages, step.tools]))


class SavedStates:
    """The saved states of one model, in a temporary folder. The least used go first."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{STATES_PREFIX}{os.getpid()}-"))
        self.sizes: dict[str, int] = {}  # the least recently used first
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def being_read(self, name: str) -> asyncio.Lock:
        """Held while a server reads what others wait for."""
        return self._reading.setdefault(name, asyncio.Lock())

    def use(self, name: str) -> bool:
        """Also makes the state the most recently used."""
        if name in self.sizes:
            self.sizes[name] = self.sizes.pop(name)
        return name in self.sizes

    def add(self, name: str) -> None:
        with suppress(FileNotFoundError):  # someone removed it already
            self.sizes[name] = (self.folder / name).stat().st_size
        while len(self.sizes) > 1 and sum(self.sizes.values()) > MAX_STATE_BYTES:
            self.forget(next(iter(self.sizes)))

    def forget(self, name: str) -> None:
        self.sizes.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{STATES_PREFIX}*"):
        with suppress(ValueError, OSError):  # also that of somebody else's process
            try:
                os.kill(int(folder.name.removeprefix(STATES_PREFIX).partition("-")[0]), 0)
            except ProcessLookupError:
                shutil.rmtree(folder, ignore_errors=True)
