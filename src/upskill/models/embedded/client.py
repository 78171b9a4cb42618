"""Talks to one embedded server: answers come as they are written, and the state of its slot is saved and restored."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import aiohttp

from upskill.errors import ModelError
from upskill.models import Address, ModelContext, Reply, Request, ToolCall
from upskill.models.embedded.process import ServerProcess
from upskill.models.embedded.repetition import is_repeating
from upskill.models.endpoints import Endpoint
from upskill.models.http.openai import ChatCompletionsModel
from upskill.models.http.transport import Response, Timeouts, Transport, TransportError
from upskill.plain import as_mapping, dict_or_empty, is_deep, list_or_empty

ENDPOINT = Endpoint("local", "", (), key_required=False, prices="free")
OnProgress = Callable[[int, int], None]  # tokens of a prompt that have been read, and all of them


class EmbeddedServer:
    """One server. `holds` names the state of its slot, where that is a state which others may need."""

    def __init__(self, address: Address, weights: Path, context_size: int, states: Path, context: ModelContext) -> None:
        self.address = address
        self.weights = weights
        self.context_size = context_size
        self.states = states
        # A retry cannot help a server that has died; the next call starts a new one.
        self.context = replace(context, retries=0)
        self.holds = ""
        self.model: StreamedModel | None = None
        self.process: ServerProcess | None = None
        self._transport = StreamedTransport(lambda done, total: context.reading(address.name, done, total))

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_running

    async def start(self) -> None:
        """Start it unless it runs. Only before a request: what a server that died knew cannot be gone on with."""
        if self.model is None or not self.is_running:
            await self.stop()
            self.process = ServerProcess(self.weights, self.context_size, self.states)
            self._base_url, self._key = await self.process.wait_until_ready()
            self.model = StreamedModel(
                self.address, ENDPOINT, f"{self._base_url}/v1", self._key, self.context, transport=self._transport
            )

    async def reply(self, request: Request, *, from_state: bool) -> Reply:
        """The answer to a prompt, which is read from the state in the slot or from its beginning."""
        model, process = self._alive()
        self.holds = ""
        model.from_state = from_state
        try:
            return await model.reply(request)
        except ModelError as error:
            if error.status is None and await process.wait_for_exit(within=10.0):
                raise process.exit_error() from error
            raise

    async def save(self, file: str) -> bool:
        """Save the state of the slot in this file; False where that cannot be done, as on a full disk."""
        done = (await self._post("/slots/0?action=save", {"filename": file})).status == 200
        if not done:
            (self.states / file).unlink(missing_ok=True)
        return done

    async def restore(self, file: str) -> bool:
        return (await self._post("/slots/0?action=restore", {"filename": file})).status == 200

    async def takes_system_alone(self) -> bool:
        """Whether the model's chat template can write a system message without a question after it."""
        body = {"messages": [{"role": "system", "content": "Be brief."}]}
        return (await self._post("/apply-template", body)).status == 200

    async def _post(self, path: str, body: Mapping[str, Any]) -> Response:
        self._alive()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            return await self._transport.send(f"{self._base_url}{path}", headers, Timeouts(), json.dumps(body).encode())
        except TransportError as error:
            raise ModelError(error.message) from error

    def _alive(self) -> tuple[StreamedModel, ServerProcess]:
        if self.model is None or self.process is None:
            raise ModelError(f"{self.address.name} is closed")
        if not self.process.is_running:
            raise self.process.exit_error()
        return self.model, self.process

    async def stop(self) -> None:
        model, process, self.model, self.process, self.holds = self.model, self.process, None, None, ""
        if model is not None:
            await model.close()
        if process is not None:
            await process.stop()

    async def close(self) -> None:
        await self.stop()
        await self._transport.release()


class StreamedModel(ChatCompletionsModel):
    """The chat completions of llama.cpp, with what only a server of our own is asked for."""

    from_state = False  # whether the next prompt continues the state of the slot
    empty_is_an_error = False  # a small model that writes nothing but blanks has answered all the same
    timings: Mapping[str, Any] = {}  # of the last answer

    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        body = super().build_body(request, unsupported_params)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        body = {"temperature": 0.0, "seed": 0} | body  # llama.cpp would draw by chance where nobody says how
        return body | {"cache_prompt": self.from_state, "return_progress": True, "timings_per_token": True}

    def rejected_param(self, error: str, body: Mapping[str, Any]) -> str:
        return ""  # it supports them all, whatever an error mentions

    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        self.timings = dict_or_empty(answer.get("timings"))
        reply = super().parse_reply(answer, request)
        if request.tools and not reply.calls and (calls := written_calls(reply.text)):
            return replace(reply, text="", calls=calls, stop="tools" if reply.stop == "end" else reply.stop)
        return reply


def written_calls(text: str) -> tuple[ToolCall, ...]:
    """Calls that were written as JSON, often in a code block, instead of in the form of the model's own template.

    A tool that does not exist is called all the same: whoever runs it says so, and the model can do better.
    """
    found: list[ToolCall] = []
    for block in re.findall(r"```(?:json)?\s*(.*?)```", text, re.DOTALL) or [text]:
        rest = str(block).strip()
        while rest.startswith("{"):
            try:
                value, end = json.JSONDecoder().raw_decode(rest)
            except (ValueError, RecursionError):
                break
            written = dict_or_empty(value)
            name, arguments = written.get("name"), as_mapping(written.get("arguments"))
            if not isinstance(name, str) or arguments is None or is_deep(arguments):
                break
            found.append(ToolCall("", name, arguments))
            rest = rest[end:].strip()
    return tuple(found)


class StreamedTransport(Transport):
    """Reads an answer as it is written, and stops one that repeats itself.

    There is no limit of time as long as the server lives: it is our own process, and its end ends the connection. Never
    through a proxy, even where the environment sets one for everything.
    """

    def __init__(self, on_progress: OnProgress) -> None:
        super().__init__()
        self._on_progress = on_progress

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A new connection for each request: the server drops idle ones, and a write to such a one is lost.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True), timeout=aiohttp.ClientTimeout(total=None)
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
            raise TransportError(f"the connection was cut before the answer ended: {cause}", "disconnect") from error

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
        return 200, answer.plain()


class StreamedAnswer:
    """An answer that is put together from its pieces."""

    TAIL = 2_000  # characters at its end that are looked at for repetition

    def __init__(self) -> None:
        self.text: list[str] = []
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
            self._add_text(delta.get("content"), self.text)
            for piece in map(dict_or_empty, list_or_empty(delta.get("tool_calls"))):
                self._add_call(piece)

    def _add_text(self, piece: object, into: list[str]) -> None:
        if isinstance(piece, str) and piece:
            into.append(piece)
            self.tail = (self.tail + piece)[-self.TAIL :]

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        call = self.calls.setdefault(int(piece.get("index", 0)), {"id": "", "name": "", "arguments": list[str]()})
        function = dict_or_empty(piece.get("function"))
        call["id"] = str(piece.get("id") or call["id"])
        call["name"] = str(function.get("name") or call["name"])
        self._add_text(function.get("arguments"), call["arguments"])

    def plain(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text)}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": "".join(call["arguments"])},
                }
                for _, call in sorted(self.calls.items())
            ]
        usage = self.usage or self._usage_so_far()
        choices = [{"index": 0, "message": message, "finish_reason": self.finish}]
        return {"choices": choices, "usage": usage, "timings": self.timings}

    def _usage_so_far(self) -> dict[str, Any]:
        """Of an answer that was stopped: the server states its usage only at the end."""
        cached, read, written = (int(self.timings.get(field, 0)) for field in ("cache_n", "prompt_n", "predicted_n"))
        return {
            "prompt_tokens": cached + read,
            "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            kind, _, data = line.partition(b":")
            if kind in (b"data", b"error") and data.strip() not in (b"", b"[DONE]"):
                event: Any = json.loads(data)
                yield {"error": event} if kind == b"error" else dict_or_empty(event)
