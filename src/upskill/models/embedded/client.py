"""One embedded server: starts, watches and stops its process, and talks to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import aiohttp

from upskill.errors import ModelError
from upskill.models import Address, ModelContext, Reply, Request, ToolCall
from upskill.models.endpoints import Endpoint
from upskill.models.http.openai import ChatCompletionsModel
from upskill.models.http.transport import Response, Timeouts, Transport, TransportError
from upskill.models.parsing import safe_excerpt
from upskill.plain import as_mapping, dict_or_empty, is_deep, list_or_empty

logger = logging.getLogger(__name__)
STOP_TIMEOUT = 2.0
END_TIMEOUT = 30.0  # for one that is about to end; on a busy machine that has to wait its turn
LOG_LINES = 40  # of the server's log to keep
# When an answer counts as repeating itself, in characters:
MAX_PERIOD = 160  # of what is repeated
MIN_REPEATS = 6
MIN_SPAN = 240  # of the repetition in all: a row of zeros or dashes in an answer is shorter
BLANK_SPAN = 120  # spaces and empty lines
ENDPOINT = Endpoint("local", "", (), key_required=False, prices="free")
OnProgress = Callable[[int, int], None]  # tokens of a prompt read, in all


class EmbeddedServer:
    """One server: its process, which ends with ours, and what is sent to it."""

    def __init__(
        self,
        address: Address,
        weights: Path,
        context_size: int,
        states: Path,
        context: ModelContext,
    ) -> None:
        self.address = address
        self.weights = weights
        self.context_size = context_size
        self.states = states
        # A retry cannot help a server that has died; the next call starts a new one.
        self.context = replace(context, retries=0)
        self.holds = ""  # the state of its slot, where others may need it
        self.model: StreamedModel | None = None
        self.process: Process | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._transport = StreamedTransport(
            lambda done, total: context.reading(address.name, done, total)
        )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Start it unless it runs. Only before a request: a new one knows nothing."""
        if self.model is not None and self.is_running:
            return
        await self.stop()
        command = [
            sys.executable,
            "-P",
            "-m",
            "upskill.models.embedded.server",
            "--model",
            str(self.weights),
        ]
        self.process = process = await asyncio.create_subprocess_exec(
            *(*command, "--context", str(self.context_size), "--states", str(self.states)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
            start_new_session=True,  # Ctrl-C is not for the server
        )
        logger.info("local model server starting: %s, pid %d", self.weights, process.pid)
        self._log.clear()
        self._log_reader = asyncio.create_task(self._read_log(process))
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            if not line:
                raise await self._exit_error(process, was_ready=False)
        except BaseException:
            await self.stop(within=0.0)
            raise
        ready: Mapping[str, Any] = json.loads(line)
        logger.info(
            "local model server ready: %s, pid %d, port %s",
            self.weights.name,
            process.pid,
            ready["port"],
        )
        self._base_url, self._key = f"http://127.0.0.1:{ready['port']}", str(ready["key"])
        self.model = StreamedModel(
            self.address,
            ENDPOINT,
            f"{self._base_url}/v1",
            self._key,
            self.context,
            transport=self._transport,
        )

    async def reply(self, request: Request, *, from_state: bool) -> Reply:
        model, process = await self._alive()
        self.holds = ""
        model.from_state = from_state
        try:
            return await model.reply(request)
        except ModelError as error:
            if error.status is None and await _has_ended(process, within=10.0):
                raise await self._exit_error(process) from error
            raise

    async def save(self, file: str) -> bool:
        """Save the state of the slot in this file; False if that fails, as on a full disk."""
        done = await self._post("/slots/0?action=save", {"filename": file})
        if not done:
            (self.states / file).unlink(missing_ok=True)
        return done

    async def restore(self, file: str) -> bool:
        return await self._post("/slots/0?action=restore", {"filename": file})

    async def takes_system_alone(self) -> bool:
        """Whether the chat template takes a system message without a question."""
        return await self._post(
            "/apply-template", {"messages": [{"role": "system", "content": "Be brief."}]}
        )

    async def _post(self, path: str, body: Mapping[str, Any]) -> bool:
        await self._alive()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        url, content = f"{self._base_url}{path}", json.dumps(body).encode()
        try:
            return (await self._transport.send(url, headers, Timeouts(), content)).status == 200
        except TransportError as error:
            raise ModelError(error.message) from error

    async def _alive(self) -> tuple[StreamedModel, Process]:
        if self.model is None or self.process is None:
            raise ModelError(f"{self.address.name} is closed")
        if self.process.returncode is not None:
            raise await self._exit_error(self.process)
        return self.model, self.process

    async def _exit_error(self, process: Process, *, was_ready: bool = True) -> ModelError:
        await _has_ended(process, within=END_TIMEOUT)
        await asyncio.wait([self._log_reader], timeout=END_TIMEOUT)  # for its last lines
        code = process.returncode or 0
        end = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return ModelError(
            f"the server for the local model {self.weights.name} {end}{self._log_excerpt(was_ready)}",
            "The next call starts it again. Did it run out of memory?" if code < 0 else "",
        )

    def _log_excerpt(self, was_ready: bool) -> str:
        """The first errors of its log where it never got ready, otherwise the last."""
        # The engine writes errors from a thread, before or after the traceback.
        lines = [line for line in self._log if not re.match(r"[\d.]+ [WI] ", line)]
        if not was_ready:
            lines.sort(key=lambda line: not re.match(r"[\d.]+ E ", line))
        messages = list(dict.fromkeys(re.sub(r"^[\d.]+ E +", "", line) for line in lines))
        excerpt = messages[-3:] if was_ready else messages[:3]
        return ": " + safe_excerpt(" / ".join(excerpt), ()) if excerpt else ""

    async def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        partial = b""
        while chunk := await process.stderr.read(65_536):  # a line may be too long
            *lines, partial = (partial + chunk).split(b"\n")
            self._log.extend(line.decode("utf-8", "replace").rstrip() for line in lines)

    async def stop(self, within: float = STOP_TIMEOUT) -> None:
        process, self.process, self.model, self.holds = self.process, None, None, ""
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()  # the server ends when its standard input does
            await _has_ended(process, within=within)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            logger.info(
                "local model server stopped: pid %d, exit code %s", process.pid, process.returncode
            )

    async def close(self) -> None:
        await self.stop()
        await self._transport.release()


async def _has_ended(process: Process, *, within: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await process.wait()
    return process.returncode is not None


class StreamedModel(ChatCompletionsModel):
    """The chat completions of llama.cpp, with what only a server of our own is asked for."""

    from_state = False  # whether the next prompt continues the state of the slot
    empty_is_an_error = False  # blanks of a small model are an answer
    timings: Mapping[str, Any] = {}  # of the last answer

    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        body = super().build_body(request, unsupported_params)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        body = {"temperature": 0.0, "seed": 0} | body  # nothing is left to chance
        return body | {
            "cache_prompt": self.from_state,
            "return_progress": True,
            "timings_per_token": True,
        }

    def rejected_param(self, error: str, body: Mapping[str, Any]) -> str:
        return ""  # it supports them all, whatever an error mentions

    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        self.timings = dict_or_empty(answer.get("timings"))
        reply = super().parse_reply(answer, request)
        if request.tools and not reply.calls and (calls := written_calls(reply.text)):
            return replace(
                reply, text="", calls=calls, stop="tools" if reply.stop == "end" else reply.stop
            )
        return reply


def written_calls(text: str) -> tuple[ToolCall, ...]:
    """Calls written as JSON, often in a code block, instead of in the template's form."""
    calls: list[ToolCall] = []
    for block in re.findall(r"```(?:json)?\s*(.*?)```", text, re.DOTALL) or [text]:
        remaining = str(block).strip()
        while remaining.startswith("{"):
            try:
                value, end = json.JSONDecoder().raw_decode(remaining)
            except (ValueError, RecursionError):
                break
            call = dict_or_empty(value)
            name, arguments = call.get("name"), as_mapping(call.get("arguments"))
            if not isinstance(name, str) or arguments is None or is_deep(arguments):
                break
            calls.append(ToolCall("", name, arguments))
            remaining = remaining[end:].strip()
    return tuple(calls)


class StreamedTransport(Transport):
    """Reads an answer as it is written, stops one that repeats itself, and has no limit of time and no proxy."""

    def __init__(self, on_progress: OnProgress) -> None:
        super().__init__()
        self._on_progress = on_progress

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A new connection for each request: the server drops idle ones.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        body: bytes | None = None,
        into: IO[bytes] | None = None,
    ) -> Response:
        try:
            async with self._open_session().post(url, headers=headers, data=body) as response:
                if response.content_type != "text/event-stream":
                    return Response(response.status, response.headers, await response.read())
                status, answer = await self._collect(response.content)
                return Response(status, response.headers, json.dumps(answer).encode())
        except (aiohttp.ClientError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise TransportError(
                f"the connection dropped before the answer was complete: {cause}",
                "dropped connection",
            ) from error

    async def _collect(self, content: aiohttp.StreamReader) -> tuple[int, dict[str, Any]]:
        """The answer as one document, and the status it would have had."""
        answer = StreamedAnswer()
        async for event in _events(content):
            if error := event.get("error"):
                code = dict_or_empty(error).get("code")
                return code if isinstance(code, int) else 500, event
            if progress := dict_or_empty(event.get("prompt_progress")):
                self._on_progress(int(progress.get("processed", 0)), int(progress.get("total", 0)))
            answer.add(event)
            if is_repeating(answer.tail):
                answer.finish = "repetition"
                break
        return 200, answer.as_document()


class StreamedAnswer:
    """An answer that is put together from its pieces."""

    TAIL = 2_000  # characters at its end that are looked at for repetition

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[int, dict[str, Any]] = {}
        self.tail = ""
        self.finish = ""
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        self.usage = dict_or_empty(event.get("usage")) or self.usage
        self.timings = dict_or_empty(event.get("timings")) or self.timings
        for choice in map(dict_or_empty, list_or_empty(event.get("choices"))):
            self.finish = str(choice.get("finish_reason") or self.finish)
            delta = dict_or_empty(choice.get("delta"))
            piece = str(delta.get("content") or "")
            self.text += piece
            for call_piece in map(dict_or_empty, list_or_empty(delta.get("tool_calls"))):
                piece += self._add_call(call_piece)
            self.tail = (self.tail + piece)[-self.TAIL :]

    def _add_call(self, piece: Mapping[str, Any]) -> str:
        """Returns what it adds to the arguments."""
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.calls.setdefault(int(piece.get("index", 0)), empty)
        function = dict_or_empty(piece.get("function"))
        arguments = str(function.get("arguments") or "")
        call["id"] = str(piece.get("id") or call["id"])
        call["function"]["name"] = str(function.get("name") or call["function"]["name"])
        call["function"]["arguments"] += arguments
        return arguments

    def as_document(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [call for _, call in sorted(self.calls.items())]
        usage = self.usage
        if not usage:  # it was stopped, and the server states its usage only at the end
            cached, read, written = (
                int(self.timings.get(name, 0)) for name in ("cache_n", "prompt_n", "predicted_n")
            )
            details = {"cached_tokens": cached}
            usage = {
                "prompt_tokens": cached + read,
                "completion_tokens": written,
                "prompt_tokens_details": details,
            }
        choices = [{"index": 0, "message": message, "finish_reason": self.finish}]
        return {"choices": choices, "usage": usage, "timings": self.timings}


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    partial = b""
    async for chunk in content.iter_any():
        *lines, partial = (partial + chunk).split(b"\n")
        for line in lines:
            kind, _, data = line.partition(b":")
            if kind in (b"data", b"error") and data.strip() not in (b"", b"[DONE]"):
                event: Any = json.loads(data)
                yield {"error": event} if kind == b"error" else dict_or_empty(event)


def is_repeating(text: str) -> bool:
    """Whether a text ends in the same words over and over, or in nothing but blanks."""
    if len(text) - len(text.rstrip()) >= BLANK_SPAN:
        return True
    for period in range(1, MAX_PERIOD + 1):
        span = max(MIN_SPAN, MIN_REPEATS * period)
        if len(text) < span:
            return False
        tail = text[-span:]
        if tail[period:] == tail[:-period]:
            return True
    return False
