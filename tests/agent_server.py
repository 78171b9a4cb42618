"""An imitation of the streaming APIs that agent programs speak: Responses, chat completions, messages and Gemini's.

It plays a model that works: it runs lines of shell through whatever tool the program offers for that, one a turn, and
then says its answer. It keeps all that it was asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

# What every turn uses, by the account of each API.
INPUT, CACHED, OUTPUT, REASONING = 100, 70, 7, 4
SHELLS = {
    "exec_command": "cmd",
    "shell_command": "command",
    "Bash": "command",
    "bash": "command",
    "mcp__acp__Bash": "command",
    "run_shell_command": "command",
}
OPENERS = ("Skill", "skill", "activate_skill")
# What else some of them insist on.
MORE = {"exec_command": {}, "mcp__acp__Bash": {"description": "works", "timeout": 600_000}}


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    query: str = ""

    @property
    def text(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the program offers; none where it only asks for a title."""
        listed = self._listed
        found = [tool.get("name") or tool.get("function", {}).get("name") for tool in listed]
        within = [
            f"{tool['name']}/{inner['name']}" for tool in listed for inner in tool.get("tools", ())
        ]
        return [name for name in (*found, *within) if name]

    def schema(self, tool: str) -> str:
        found = [
            listed
            for listed in self._listed
            if tool in (listed.get("name"), listed.get("function", {}).get("name"))
        ]
        return json.dumps(found)

    @property
    def _listed(self) -> list[dict[str, Any]]:
        return [
            inner
            for tool in self.body.get("tools", ())
            for inner in tool.get("functionDeclarations", [tool])
        ]

    @property
    def results(self) -> int:
        """How many tool calls the model has made so far."""
        blocks = [
            block
            for message in next(
                (
                    self.body[name]
                    for name in ("messages", "input", "contents")
                    if name in self.body
                ),
                (),
            )
            for block in (
                message,
                *(message["content"] if isinstance(message.get("content"), list) else ()),
            )
            for block in (block, *message.get("parts", ()))
        ]
        return sum(
            block.get("role") == "tool"
            or "functionResponse" in block
            or block.get("type")
            in ("tool_result", "function_call_output", "custom_tool_call_output")
            for block in blocks
        )


@dataclass(frozen=True)
class Use:
    """A tool call that the model makes."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Refuse:
    """A status that is no answer."""

    status: int
    words: str


Turn = str | Use | Refuse
Plays = Callable[[Asked], Turn]


def working(
    lines: Sequence[str], answer: str = "All done.", *, opens: str = "", then: Sequence[str] = ()
) -> Plays:
    """A model that runs the lines and answers. Where the catalog has the skill of this name, it opens that first and
    runs the lines of `then` as well."""

    def play(asked: Asked) -> Turn:
        shell = next((tool for tool in asked.tools if tool in SHELLS), "")
        if not shell:
            return "A title"
        offered = bool(opens) and opens in asked.text
        to_do: list[Turn] = [
            Use(shell, _line(shell, line)) for line in (*lines, *(then if offered else ()))
        ]
        if offered:
            opener = next((tool for tool in asked.tools if tool in OPENERS), "")
            read = Use(shell, _line(shell, f"cat ~/.agents/skills/{opens}/SKILL.md"))
            argument = "skill" if '"skill": {' in asked.schema(opener) else "name"
            to_do.insert(0, Use(opener, {argument: opens}) if opener else read)
        return [*to_do, answer][min(asked.results, len(to_do))]

    return play


def _line(shell: str, line: str) -> dict[str, Any]:
    return {SHELLS[shell]: line, **MORE.get(shell, {"description": "works"})}


class AgentServer:
    """`plays` says what the model does next; `key` is the only one that is let in."""

    def __init__(self, plays: Plays | None = None, key: str = "") -> None:
        self.plays: Plays = plays or (lambda _: "PONG")
        self.key = key
        self.asked: list[Asked] = []
        self.strange: list[str] = []  # what was asked for beside these APIs
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body: dict[str, Any] = json.loads(data) if data.lstrip()[:1] == b"{" else {}
        asked = Asked(
            request.method, request.path, dict(request.headers), body, request.query_string
        )
        path, _, method = request.path.rpartition("/")[2].rpartition(":")
        speak = SPEAKERS.get(method)
        if request.method != "POST" or speak is None:
            self.strange.append(f"{request.method} {request.path}")
            return web.json_response({"error": {"message": "not here"}}, status=404)
        self.asked.append(asked)
        header = "x-goog-api-key" if speak is _gemini else "x-api-key"
        given = request.headers.get(header) or request.headers.get(
            "Authorization", ""
        ).removeprefix("Bearer ")
        wrong = _wrong_in_gemini(asked) if speak is _gemini else ""
        if self.key and given != self.key:
            turn: Turn = Refuse(401, "that key is not known")
        else:
            turn = Refuse(400, wrong) if wrong else self.plays(asked)
        if isinstance(turn, Refuse):
            kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
                turn.status, "api_error"
            )
            error = {"type": "error", "error": {"type": kind, "message": turn.words}}
            return web.json_response(error, status=turn.status, headers={"x-should-retry": "false"})
        number = len(self.asked)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in speak(path or str(body.get("model")), turn, number):
            name = f"event: {event['type']}\n" if "type" in event else ""
            await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if speak is _chat:
            await response.write(b"data: [DONE]\n\n")
        return response


def _messages(model: str, turn: str | Use, number: int) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": CACHED}
    usage["cache_creation_input_tokens"] = INPUT - CACHED - 10
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list[Any](),
    }
    begun: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": turn}
    if isinstance(turn, Use):
        begun = {"type": "tool_use", "id": f"toolu_{number}", "name": turn.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
    ended = {
        "stop_reason": "tool_use" if isinstance(turn, Use) else "end_turn",
        "stop_sequence": None,
    }
    yield {"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": begun}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": OUTPUT}}
    yield {"type": "message_stop"}


def _responses(model: str, turn: str | Use, number: int) -> Iterator[dict[str, Any]]:
    content = [{"type": "output_text", "text": turn, "annotations": list[Any]()}]
    item: dict[str, Any] = {
        "type": "message",
        "id": f"m{number}",
        "role": "assistant",
        "status": "completed",
    }
    item["content"] = content
    if isinstance(turn, Use):
        item = {
            "type": "function_call",
            "id": f"f{number}",
            "call_id": f"call_{number}",
            "status": "completed",
        }
        namespace, _, name = turn.tool.rpartition("/")
        item |= {"name": name, "arguments": json.dumps(turn.arguments)} | (
            {"namespace": namespace} if namespace else {}
        )
    usage = {
        "input_tokens": INPUT,
        "input_tokens_details": {"cached_tokens": CACHED},
        "total_tokens": INPUT + OUTPUT,
    }
    usage |= {"output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": REASONING}}
    response = {
        "id": f"r{number}",
        "object": "response",
        "status": "completed",
        "model": model,
        "output": [item],
    }
    place = {"item_id": item["id"], "output_index": 0}
    empty: dict[str, Any] = {"arguments": ""} if isinstance(turn, Use) else {"content": []}
    begun = item | empty | {"status": "in_progress"}
    yield {
        "type": "response.created",
        "response": response | {"status": "in_progress", "output": []},
    }
    yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
    if isinstance(turn, Use):
        yield place | {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
    else:
        yield place | {"type": "response.output_text.delta", "content_index": 0, "delta": turn}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response | {"usage": usage}}


def _chat(model: str, turn: str | Use, number: int) -> Iterator[dict[str, Any]]:
    chunk = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": model}
    delta: dict[str, Any] = {"role": "assistant", "content": turn}
    if isinstance(turn, Use):
        function = {"name": turn.tool, "arguments": json.dumps(turn.arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    usage |= {"prompt_tokens_details": {"cached_tokens": CACHED}}
    usage |= {"completion_tokens_details": {"reasoning_tokens": REASONING}}
    finish = "tool_calls" if isinstance(turn, Use) else "stop"
    yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    yield chunk | {"choices": [], "usage": usage}


def _gemini(model: str, turn: str | Use, number: int) -> Iterator[dict[str, Any]]:
    part: dict[str, Any] = {"text": turn}
    if isinstance(turn, Use):
        numbered = {"id": f"call_{number}"} if number % 2 else {}  # only some models give ids
        part = {"functionCall": {**numbered, "name": turn.tool, "args": turn.arguments}}
    usage = {
        "promptTokenCount": INPUT,
        "cachedContentTokenCount": CACHED,
        "totalTokenCount": INPUT + OUTPUT,
    }
    usage |= {"candidatesTokenCount": OUTPUT - REASONING, "thoughtsTokenCount": REASONING}
    chunk = {"responseId": f"g{number}", "modelVersion": model}
    yield chunk | {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
    ended = {
        "index": 0,
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": "STOP",
    }
    yield chunk | {"candidates": [ended], "usageMetadata": usage}


def _wrong_in_gemini(asked: Asked) -> str:
    """What Google's server would refuse, or would answer in a form that no program expects."""
    pending: list[dict[str, Any]] = []
    for content in asked.body.get("contents", ()):
        if content.get("role") not in ("user", "model"):
            return f"no role {content.get('role')!r}"
        for part in content["parts"]:
            if "functionCall" in part:
                pending.append(part["functionCall"])
            elif "functionResponse" in part:
                names = [call["name"] for call in pending]
                if part["functionResponse"]["name"] not in names:
                    return "a function response without its call"
                del pending[names.index(part["functionResponse"]["name"])]
            elif "text" not in part:
                return f"a part of another kind: {sorted(part)}"
    return (
        "calls without responses"
        if pending
        else ""
        if asked.query == "alt=sse"
        else "not a stream of events"
    )


SPEAKERS = {
    "messages": _messages,
    "responses": _responses,
    "completions": _chat,
    "streamGenerateContent": _gemini,
}


@contextmanager
def agent_server(plays: Plays | None = None, key: str = "") -> Generator[AgentServer]:
    """The server in a thread of its own, for whatever asks it from this process or another."""
    server = AgentServer(plays, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(300)
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
