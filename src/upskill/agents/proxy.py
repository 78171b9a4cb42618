"""The proxy is an agent program's only way out of its sandbox: to the API of the model under test, and nowhere else.

It is served on the sandbox's door. What the program asks for is forwarded with the real key, which never enters the
sandbox; the answer is streamed back, counted, priced and entered in the ledger, and the bounds of the trial hold here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Literal

import aiohttp
from aiohttp import web

from upskill.agents import Bounds
from upskill.errors import CeilingReached, ModelError, UsageError
from upskill.models import Address
from upskill.models.endpoints import ENDPOINTS
from upskill.models.http.model import STATUS_HINTS
from upskill.models.http.transport import CONNECT_TIMEOUT, proxy_for
from upskill.models.ledger import Ledger
from upskill.models.parsing import collect_secrets, count_or_zero, estimate_tokens, safe_excerpt
from upskill.models.prices import Price, Prices, price_for
from upskill.plain import compact, dict_or_empty, is_deep, list_or_empty
from upskill.traces import NO_USAGE, Usage

Wire = Literal["messages", "responses", "chat"]
ANTHROPIC = "https://api.anthropic.com"
# The one path of each API that asks the model, below the base URL.
ASKS: dict[Wire, str] = {"messages": "messages", "responses": "responses", "chat": "chat/completions"}
FREE: dict[Wire, tuple[str, ...]] = {"messages": ("messages/count_tokens",), "responses": (), "chat": ()}
# Of what the program sends: credentials are ours to give, and the rest belongs to one connection only.
DROPPED = frozenset(
    [
        *("authorization", "x-api-key", "api-key", "cookie", "host", "content-length", "content-encoding", "expect"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "accept-encoding", "forwarded"),
        *("openai-organization", "openai-project", "chatgpt-account-id"),
    ]
)
RETURNED = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
# Tools that the provider itself runs, some of them on the network, which a student does not have.
PROVIDER_RUN = (
    *("web_search", "web_fetch", "x_search", "live_search", "browser_search", "google_search", "url_context"),
    *("code_execution", "code_interpreter", "file_search", "mcp", "image_gen"),
)
# The same, where a field of the request asks for it.
PROVIDER_SIDE = ("mcp_servers", "web_search_options", "search_parameters", "plugins")
LARGEST_BODY = 16 * 1024 * 1024  # bytes
MOST_AT_ONCE = 16  # requests; each is held in memory, and a student may send as many as it likes
LONGEST_SILENCE = 600.0  # seconds between two parts of an answer
FATAL = (401, 403, 404)
MOST_REFUSED = 100  # that are remembered


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the model is, and what opens it. `base_url` ends before `ASKS`; with an empty `model` any may be asked."""

    wire: Wire
    base_url: str
    headers: Mapping[str, str]
    model: str
    price: Price
    secrets: tuple[str, ...] = ()
    beta: str = ""  # joins the anthropic-beta of the program
    key_name: str = ""  # named in hints


def upstream_of(address: Address, wire: Wire, keys: Mapping[str, str], prices: Prices | None = None) -> Upstream:
    """The API of a model that is reached with a key, or at a base URL. Opening the model tells of a missing key."""
    if address.provider == "anthropic":
        name, key = "ANTHROPIC_API_KEY", keys.get("ANTHROPIC_API_KEY", "").strip()
        base_url = messages_url(address.base_url or keys.get("ANTHROPIC_BASE_URL", "") or ANTHROPIC)
        headers = {"x-api-key": key}
    else:
        endpoint = ENDPOINTS[address.endpoint or "openai"]
        given = (keys.get(variable, "") for variable in endpoint.url_variables)
        base_url = (address.base_url or next(filter(None, given), "") or endpoint.base_url).rstrip("/")
        key = next(filter(None, (keys.get(variable, "").strip() for variable in endpoint.key_variables)), "")
        name = endpoint.key_variables[0] if endpoint.key_variables else ""
        base_url = messages_url(base_url) if wire == "messages" else base_url.removesuffix("/" + ASKS[wire])
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if key and wire == "messages":
            headers["x-api-key"] = key
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(f"{address.name!r}: the base URL {base_url!r} does not begin with http:// or https://")
    price = price_for(address, prices)
    return Upstream(wire, base_url, headers, address.model, price, collect_secrets(key, keys), key_name=name)


def messages_url(url: str) -> str:
    """The base of the messages API, whichever of its forms a person has written."""
    return url.rstrip("/").removesuffix("/messages").removesuffix("/v1") + "/v1"


@dataclass
class Proxy:
    """Serves one trial. What came of it is read from here when the program has ended."""

    upstream: Upstream
    bounds: Bounds = field(default_factory=Bounds)
    ledger: Ledger | None = None
    marker: str = ""  # the trial ends when this has come before the model
    usage: Usage = NO_USAGE
    turns: int = 0  # how often the model answered
    stop: str = ""  # the bound that was reached: turns, tokens, or activated
    ceiling: CeilingReached | None = None
    trouble: ModelError | None = None  # why the model last gave no answer; None once it did again
    refused: list[str] = field(default_factory=list[str])  # what was asked for beside the model
    _asking: int = 0
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    _session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def served(self, proxy_socket: socket) -> AsyncGenerator[str]:
        """Serve on this socket; gives the base URL as it is inside."""
        port = proxy_socket.getsockname()[1]
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve_in_turn)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=LONGEST_SILENCE)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as self._session:
            await runner.setup()
            try:
                await web.SockSite(runner, proxy_socket).start()
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                await runner.cleanup()

    async def _serve_in_turn(self, request: web.Request) -> web.StreamResponse:
        async with self._room:
            return await self._serve(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        # Compared as a whole: a path that is only begun with could lead anywhere the key does.
        path, wire = request.path.removeprefix("/v1/"), self.upstream.wire
        if (request.method, path) == ("GET", "models"):
            return await self._forward(request, path, None, None)
        if request.method != "POST" or path not in (ASKS[wire], *FREE[wire]):
            return self._refuse(request, "only the model is reached from here")
        try:
            body = dict_or_empty(json.loads(await request.read()))
        except (ValueError, RecursionError):
            body = {}
        if not body or is_deep(body):
            return self._refuse(request, "the request is not a JSON object, or one that is nested too deeply")
        if why := _reaching_out(body):
            return self._refuse(request, why)
        if self.upstream.model:  # whatever the program asks for beside its main model, this trial is about one
            body["model"] = self.upstream.model
            body.pop("models", None)  # others that a router may fall back to
        if path != ASKS[wire]:
            return await self._forward(request, path, body, None)
        return await self._ask(request, path, body)

    async def _ask(self, request: web.Request, path: str, body: dict[str, Any]) -> web.StreamResponse:
        if self.marker and self.marker in compact(body):
            self.stop = self.stop or "activated"
        if said := self._over():
            return _error(400, said)
        if self.upstream.wire == "chat" and body.get("stream"):
            body["stream_options"] = dict_or_empty(body.get("stream_options")) | {"include_usage": True}
        meter = _Meter(self.upstream, body)
        self._asking += 1
        try:
            return await self._forward(request, path, body, meter)
        finally:
            self._asking -= 1
            if meter.begun:
                used = meter.used()
                self.usage = self.usage + used
                if self.ledger:
                    self.ledger.record("student", used)

    def _over(self) -> str:
        """Why no further question is let through; empty when one is."""
        if self.turns + self._asking >= self.bounds.turns:
            self.stop = self.stop or "turns"
        elif self.bounds.tokens is not None and self.usage.total_tokens >= self.bounds.tokens:
            self.stop = self.stop or "tokens"
        if self.stop:
            return f"this trial ends here ({self.stop})"
        try:
            if self.ledger:
                self.ledger.count_call()
        except CeilingReached as reached:
            self.ceiling = reached
            return reached.message
        return ""

    def _refuse(self, request: web.Request, why: str) -> web.Response:
        if len(self.refused) < MOST_REFUSED:  # a student may ask without end
            self.refused.append(f"{request.method} {request.path[:200]}: {why}")
        return _error(403, why)

    async def _forward(
        self, request: web.Request, path: str, body: dict[str, Any] | None, meter: _Meter | None
    ) -> web.StreamResponse:
        assert self._session is not None
        url = f"{self.upstream.base_url}/{path}"
        if request.query_string:
            url += f"?{request.query_string}"
        data = compact(body).encode("utf-8", "replace") if body is not None else None
        try:
            async with self._session.request(
                request.method,
                url,
                headers=self._headers(request),
                data=data,
                proxy=proxy_for(url),
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    return await self._pass_on_trouble(answer, meter)
                return await self._stream(request, answer, meter)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if meter is not None:
                self.trouble = ModelError(f"no answer from the model's server: {self._words(error)}")
            return _error(502, self._words(error))

    def _headers(self, request: web.Request) -> dict[str, str]:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        if self.upstream.beta:
            beta = [kept.pop(name) for name in list(kept) if name.lower() == "anthropic-beta"]
            kept["anthropic-beta"] = ",".join([*beta, self.upstream.beta])
        return kept | dict(self.upstream.headers)

    async def _pass_on_trouble(self, answer: aiohttp.ClientResponse, meter: _Meter | None) -> web.Response:
        text = (await answer.read()).decode("utf-8", "replace")
        for secret in self.upstream.secrets:
            text = text.replace(secret, "***")
        if meter is not None:
            said = safe_excerpt(_complaint(text), self.upstream.secrets) or "no further word"
            hint = STATUS_HINTS.get(answer.status, "").format(key=self.upstream.key_name or "the key")
            self.trouble = ModelError(
                f"the server answered {answer.status}: {said}",
                hint,
                status=answer.status,
                fatal=answer.status in FATAL,
            )
        return web.Response(status=answer.status, body=text.encode(), headers=_returned(answer))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, meter: _Meter | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=_returned(answer))
        await response.prepare(request)
        if meter is not None:
            meter.begun = True
        try:
            async for chunk in answer.content.iter_any():
                if meter is not None:
                    meter.feed(chunk)
                try:
                    await response.write(chunk)
                except ConnectionError:  # the program hung up; what was answered until then was paid for
                    return response
        except (aiohttp.ClientError, TimeoutError) as error:
            if meter is not None:
                self.trouble = ModelError(f"the model's server broke off its answer: {self._words(error)}")
            if request.transport is not None:
                request.transport.abort()  # an end like any other would make half an answer a whole one
            return response
        if meter is not None:
            meter.end()
            if meter.error:
                said = safe_excerpt(meter.error, self.upstream.secrets)
                self.trouble = ModelError(f"the model's server broke off its answer: {said}", status=200)
            else:
                self.trouble = None
                self.turns += 1
        with suppress(ConnectionError):
            await response.write_eof()
        return response

    def _words(self, error: Exception) -> str:
        return safe_excerpt(str(error) or type(error).__name__, self.upstream.secrets)


def _returned(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in RETURNED if name in answer.headers}


def _reaching_out(body: Mapping[str, Any]) -> str:
    """Why a request would have the provider reach the network for a student; empty where it would not."""
    tools = [dict_or_empty(tool) for tool in list_or_empty(body.get("tools"))]
    kinds = [str(tool.get("type") or "").rpartition(":")[2] for tool in tools]  # some routers put their name before it
    hosted = any("container" in str(dict_or_empty(tool.get("environment")).get("type")) for tool in tools)
    if hosted or any(body.get(name) for name in PROVIDER_SIDE) or any(kind.startswith(PROVIDER_RUN) for kind in kinds):
        return "tools that the provider runs are not for a student"
    if any(_is_fetched(block) for name in ("messages", "input", "system") for block in _blocks(body.get(name))):
        return "what lies on the network is not for a student, so nothing is fetched for it"
    return ""


def _blocks(value: object) -> Iterator[dict[str, Any]]:
    """Messages, and the parts of their content and of results in it. What a tool was called with is data of its own."""
    for item in list_or_empty(value):
        block = dict_or_empty(item)
        yield block
        for inner in ("content", "output"):
            yield from _blocks(block.get(inner))


def _is_fetched(block: Mapping[str, Any]) -> bool:
    """Whether a part of a message is one that the provider gets from an address: a picture, a document."""
    if dict_or_empty(block.get("source")).get("type") == "url":
        return True
    named = (value for name, value in block.items() if name.endswith("_url"))
    addresses = (dict_or_empty(value).get("url") or value for value in named)
    return any(isinstance(address, str) and not address.startswith("data:") for address in addresses)


def _error(status: int, said: str) -> web.Response:
    """An error in a form that the clients of all three APIs can read, and do not ask again after."""
    kind = "permission_error" if status == 403 else "invalid_request_error"
    error = {"type": "error", "error": {"type": kind, "message": said}}
    return web.json_response(error, status=status, headers={"x-should-retry": "false"})


def _complaint(text: str) -> str:
    try:
        answer = dict_or_empty(json.loads(text))
    except ValueError:
        return text
    return str(_error_of(answer) or answer.get("detail") or text)


def _error_of(data: Mapping[str, Any]) -> str:
    """What is wrong, by an error in any of the three APIs; empty where the data is none."""
    error = data.get("error") or dict_or_empty(data.get("response")).get("error")
    if isinstance(error, str):
        return error
    return str(dict_or_empty(error).get("message") or dict_or_empty(error).get("code") or "")


class _Meter:
    """Reads along while an answer goes by, whole or as a stream of events, for what it says it used."""

    def __init__(self, upstream: Upstream, body: Mapping[str, Any]) -> None:
        self.upstream = upstream
        self.asked = estimate_tokens(compact(body))
        self.begun = False
        self.error = ""
        self._told: dict[str, Any] = {}
        self._events = 0
        self._plain = bytearray()  # an answer that is not a stream
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(self._rest)
        self._rest = b""
        if self._plain:
            self._read(bytes(self._plain))

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._events += 1
            if b'"usage"' in line or b'"error"' in line:  # else one token of many
                self._read(line[5:])
        elif not self._events and len(self._plain) < LARGEST_BODY and not line.startswith((b"event:", b":", b"id:")):
            self._plain += line + b"\n"

    def _read(self, text: bytes) -> None:
        try:
            data = dict_or_empty(json.loads(text))
        except (ValueError, RecursionError):
            return
        for place in (dict_or_empty(data.get("message")), dict_or_empty(data.get("response")), data):
            # The counts of a later event are of the whole answer; what it leaves out stays as it was.
            self._told |= {name: value for name, value in dict_or_empty(place.get("usage")).items() if value}
        self.error = _error_of(data) or self.error

    def used(self) -> Usage:
        told, wire = self._told, self.upstream.wire
        if not told:  # a stream has about one token in an event
            given = self._events or estimate_tokens(self._plain.decode("utf-8", "replace"))
            return Usage(self.asked, given, cost_usd=self.upstream.price.cost(self.asked, given))
        if wire == "messages":
            cached, written = (count_or_zero(told.get(f"cache_{how}_input_tokens")) for how in ("read", "creation"))
            taken, given = (
                count_or_zero(told.get("input_tokens")) + cached + written,
                count_or_zero(told.get("output_tokens")),
            )
            return Usage(taken, given, cached, 0, self.upstream.price.cost(taken, given, cached, written))
        names = ("input", "output") if wire == "responses" else ("prompt", "completion")
        taken, given = (count_or_zero(told.get(f"{name}_tokens")) for name in names)
        cached = count_or_zero(dict_or_empty(told.get(f"{names[0]}_tokens_details")).get("cached_tokens"))
        reasoning = count_or_zero(dict_or_empty(told.get(f"{names[1]}_tokens_details")).get("reasoning_tokens"))
        cost = told.get("cost")  # of the routers that say it
        if not isinstance(cost, int | float):
            cost = self.upstream.price.cost(taken, given, cached)
        return Usage(taken, given, min(cached, taken), min(reasoning, given), cost)
