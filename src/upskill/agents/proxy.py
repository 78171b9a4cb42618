"""The proxy is an agent program's only way out of its sandbox: to the API of the model under test, and nowhere else.

It serves the sandbox's proxy socket. Requests are forwarded with the real key, which never enters the sandbox; answers
are streamed back, metered, priced and entered in the ledger. The bounds of the trial are enforced here.
"""

from __future__ import annotations

import asyncio
import json
import logging
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

log = logging.getLogger(__name__)

Wire = Literal["messages", "responses", "chat"]
ANTHROPIC = "https://api.anthropic.com"
# The path of each API that asks the model, below the base URL, and those that cost nothing.
MODEL_PATHS: dict[Wire, str] = {"messages": "messages", "responses": "responses", "chat": "chat/completions"}
FREE_PATHS: dict[Wire, tuple[str, ...]] = {"messages": ("messages/count_tokens",), "responses": (), "chat": ()}
# Headers of the program that are not forwarded: credentials, which we add, and those about its own connection.
DROPPED_HEADERS = frozenset(
    [
        *("authorization", "x-api-key", "api-key", "cookie", "host", "content-length", "content-encoding", "expect"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "accept-encoding", "forwarded"),
        *("openai-organization", "openai-project", "chatgpt-account-id"),
    ]
)
RETURNED_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
# Tools that the provider itself runs, some of them on the network, which is closed to students.
PROVIDER_TOOLS = (
    *("web_search", "web_fetch", "x_search", "live_search", "browser_search", "google_search", "url_context"),
    *("code_execution", "code_interpreter", "file_search", "mcp", "image_gen"),
)
# Fields of a request that ask for such tools.
PROVIDER_TOOL_FIELDS = ("mcp_servers", "web_search_options", "search_parameters", "plugins")
MAX_BODY_BYTES = 16 * 1024 * 1024  # bytes
MAX_CONCURRENT = 16  # requests; each is held in memory, and a student may send any number
READ_TIMEOUT = 600.0  # seconds between two chunks of an answer
FATAL_STATUSES = (401, 403, 404)
MAX_REFUSALS = 100  # that are recorded


@dataclass(frozen=True, slots=True)
class Upstream:
    """The API of the model under test. `base_url` ends before `MODEL_PATHS`; an empty `model` allows any."""

    wire: Wire
    base_url: str
    headers: Mapping[str, str]
    model: str
    price: Price
    secrets: tuple[str, ...] = ()
    beta: str = ""  # added to the program's own anthropic-beta
    key_name: str = ""  # the variable that hints name


def upstream_for(address: Address, wire: Wire, keys: Mapping[str, str], prices: Prices | None = None) -> Upstream:
    """The API of a model with a key or a base URL. A missing key is reported when the model is opened."""
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
        base_url = messages_url(base_url) if wire == "messages" else base_url.removesuffix("/" + MODEL_PATHS[wire])
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if key and wire == "messages":
            headers["x-api-key"] = key
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(f"{address.name!r}: the base URL {base_url!r} does not begin with http:// or https://")
    price = price_for(address, prices)
    return Upstream(wire, base_url, headers, address.model, price, collect_secrets(key, keys), key_name=name)


def messages_url(url: str) -> str:
    """The base URL of the messages API, in whichever form a person wrote it."""
    return url.rstrip("/").removesuffix("/messages").removesuffix("/v1") + "/v1"


@dataclass
class Proxy:
    """Serves one trial, and has its usage and errors once the program has ended."""

    upstream: Upstream
    bounds: Bounds = field(default_factory=Bounds)
    ledger: Ledger | None = None
    marker: str = ""  # the trial ends when a request contains this
    usage: Usage = NO_USAGE
    turns: int = 0  # how often the model answered
    stop: str = ""  # the bound that was reached: turns, tokens or activated
    ceiling: CeilingReached | None = None
    model_error: ModelError | None = None  # why the model gave no answer; None once it did again
    refusals: list[str] = field(default_factory=list[str])  # requests for anything but the model
    _pending: int = 0
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))
    _session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def serve(self, proxy_socket: socket) -> AsyncGenerator[str]:
        """Serve on this socket; yields the base URL for programs inside."""
        port = proxy_socket.getsockname()[1]
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle_in_turn)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as self._session:
            await runner.setup()
            try:
                await web.SockSite(runner, proxy_socket).start()
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                await runner.cleanup()

    async def _handle_in_turn(self, request: web.Request) -> web.StreamResponse:
        async with self._slots:
            return await self._handle(request)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        # Compared as a whole: a prefix could lead anywhere the key is valid.
        path, wire = request.path.removeprefix("/v1/"), self.upstream.wire
        if (request.method, path) == ("GET", "models"):
            return await self._forward(request, path, None, None)
        if request.method != "POST" or path not in (MODEL_PATHS[wire], *FREE_PATHS[wire]):
            return self._refuse(request, "only the model can be reached from here")
        try:
            body = dict_or_empty(json.loads(await request.read()))
        except (ValueError, RecursionError):
            body = {}
        if not body or is_deep(body):
            return self._refuse(request, "the request is not a JSON object, or is nested too deeply")
        if reason := _reason_to_refuse(body):
            return self._refuse(request, reason)
        if self.upstream.model:  # this trial is about one model, whatever others the program uses
            body["model"] = self.upstream.model
            body.pop("models", None)  # fallbacks for a router
        if path != MODEL_PATHS[wire]:
            return await self._forward(request, path, body, None)
        return await self._ask(request, path, body)

    async def _ask(self, request: web.Request, path: str, body: dict[str, Any]) -> web.StreamResponse:
        if self.marker and self.marker in compact(body):
            self.stop = self.stop or "activated"
        if reason := self._limit_reached():
            return _error_response(400, reason)
        if self.upstream.wire == "chat" and body.get("stream"):
            body["stream_options"] = dict_or_empty(body.get("stream_options")) | {"include_usage": True}
        meter = _UsageMeter(self.upstream, body)
        self._pending += 1
        try:
            return await self._forward(request, path, body, meter)
        finally:
            self._pending -= 1
            if meter.started:
                used = meter.usage()
                self.usage = self.usage + used
                log.debug("%d + %d tokens", used.input_tokens, used.output_tokens)
                if self.ledger:
                    self.ledger.record("student", used)

    def _limit_reached(self) -> str:
        """Why no further request is let through; empty if one is."""
        if self.turns + self._pending >= self.bounds.turns:
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

    def _refuse(self, request: web.Request, reason: str) -> web.Response:
        if len(self.refusals) < MAX_REFUSALS:  # a student may send any number
            self.refusals.append(f"{request.method} {request.path[:200]}: {reason}")
        log.debug("%s %s: refused: %s", request.method, request.path[:200], reason)
        return _error_response(403, reason)

    async def _forward(
        self, request: web.Request, path: str, body: dict[str, Any] | None, meter: _UsageMeter | None
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
                log.debug("%s %s: %d", request.method, request.path, answer.status)
                if answer.status != 200:
                    return await self._forward_error(answer, meter)
                return await self._stream(request, answer, meter)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if meter is not None:
                self.model_error = ModelError(f"no answer from the model's server: {self._describe(error)}")
            return _error_response(502, self._describe(error))

    def _headers(self, request: web.Request) -> dict[str, str]:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED_HEADERS}
        if self.upstream.beta:
            beta = [kept.pop(name) for name in list(kept) if name.lower() == "anthropic-beta"]
            kept["anthropic-beta"] = ",".join([*beta, self.upstream.beta])
        return kept | dict(self.upstream.headers)

    async def _forward_error(self, answer: aiohttp.ClientResponse, meter: _UsageMeter | None) -> web.Response:
        text = (await answer.read()).decode("utf-8", "replace")
        for secret in self.upstream.secrets:
            text = text.replace(secret, "***")
        if meter is not None:
            message = safe_excerpt(_error_message(text), self.upstream.secrets) or "no further details"
            hint = STATUS_HINTS.get(answer.status, "").format(key=self.upstream.key_name or "the key")
            self.model_error = ModelError(
                f"the server answered {answer.status}: {message}",
                hint,
                status=answer.status,
                fatal=answer.status in FATAL_STATUSES,
            )
        return web.Response(status=answer.status, body=text.encode(), headers=_returned_headers(answer))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, meter: _UsageMeter | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=_returned_headers(answer))
        await response.prepare(request)
        if meter is not None:
            meter.started = True
        try:
            async for chunk in answer.content.iter_any():
                if meter is not None:
                    meter.feed(chunk)
                try:
                    await response.write(chunk)
                except ConnectionError:  # the program hung up; the answer so far was paid for
                    return response
        except (aiohttp.ClientError, TimeoutError) as error:
            if meter is not None:
                self.model_error = ModelError(f"the model's server broke off its answer: {self._describe(error)}")
            if request.transport is not None:
                request.transport.abort()  # a regular end would make half an answer look complete
            return response
        if meter is not None:
            meter.end()
            if meter.error:
                message = safe_excerpt(meter.error, self.upstream.secrets)
                self.model_error = ModelError(f"the model's server broke off its answer: {message}", status=200)
            else:
                self.model_error = None
                self.turns += 1
        with suppress(ConnectionError):
            await response.write_eof()
        return response

    def _describe(self, error: Exception) -> str:
        return safe_excerpt(str(error) or type(error).__name__, self.upstream.secrets)


def _returned_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in RETURNED_HEADERS if name in answer.headers}


def _reason_to_refuse(body: Mapping[str, Any]) -> str:
    """Why a request would make the provider use the network for a student; empty if it would not."""
    tools = [dict_or_empty(tool) for tool in list_or_empty(body.get("tools"))]
    kinds = [str(tool.get("type") or "").rpartition(":")[2] for tool in tools]  # some routers put their name before it
    hosted = any("container" in str(dict_or_empty(tool.get("environment")).get("type")) for tool in tools)
    hosted = hosted or any(body.get(name) for name in PROVIDER_TOOL_FIELDS)
    if hosted or any(kind.startswith(PROVIDER_TOOLS) for kind in kinds):
        return "tools that the provider runs are not for a student"
    if any(_is_fetched(block) for name in ("messages", "input", "system") for block in _blocks(body.get(name))):
        return "nothing is fetched from the network for a student"
    return ""


def _blocks(value: object) -> Iterator[dict[str, Any]]:
    """Messages, and the blocks of their content and of results in it, but not the arguments of tools."""
    for item in list_or_empty(value):
        block = dict_or_empty(item)
        yield block
        for inner in ("content", "output"):
            yield from _blocks(block.get(inner))


def _is_fetched(block: Mapping[str, Any]) -> bool:
    """Whether the provider would fetch this block from a URL: an image, a document."""
    if dict_or_empty(block.get("source")).get("type") == "url":
        return True
    named = (value for name, value in block.items() if name.endswith("_url"))
    addresses = (dict_or_empty(value).get("url") or value for value in named)
    return any(isinstance(address, str) and not address.startswith("data:") for address in addresses)


def _error_response(status: int, message: str) -> web.Response:
    """An error that the clients of all three APIs understand and do not retry."""
    kind = "permission_error" if status == 403 else "invalid_request_error"
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return web.json_response(error, status=status, headers={"x-should-retry": "false"})


def _error_message(text: str) -> str:
    try:
        answer = dict_or_empty(json.loads(text))
    except ValueError:
        return text
    return str(_error_in(answer) or answer.get("detail") or text)


def _error_in(data: Mapping[str, Any]) -> str:
    """The message of an error in any of the three APIs; empty if this is no error."""
    error = data.get("error") or dict_or_empty(data.get("response")).get("error")
    if isinstance(error, str):
        return error
    return str(dict_or_empty(error).get("message") or dict_or_empty(error).get("code") or "")


class _UsageMeter:
    """Reads the usage from an answer while it is forwarded, as one document or as a stream of events."""

    def __init__(self, upstream: Upstream, body: Mapping[str, Any]) -> None:
        self.upstream = upstream
        self.input_estimate = estimate_tokens(compact(body))
        self.started = False
        self.error = ""
        self._fields: dict[str, Any] = {}
        self._events = 0
        self._plain = bytearray()  # of an answer that is not a stream
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
            if b'"usage"' in line or b'"error"' in line:  # otherwise it is one token of many
                self._read(line[5:])
        elif not self._events and len(self._plain) < MAX_BODY_BYTES and not line.startswith((b"event:", b":", b"id:")):
            self._plain += line + b"\n"

    def _read(self, text: bytes) -> None:
        try:
            data = dict_or_empty(json.loads(text))
        except (ValueError, RecursionError):
            return
        for place in (dict_or_empty(data.get("message")), dict_or_empty(data.get("response")), data):
            # Later events count the whole answer; what they leave out stays as it was.
            self._fields |= {name: value for name, value in dict_or_empty(place.get("usage")).items() if value}
        self.error = _error_in(data) or self.error

    def usage(self) -> Usage:
        fields, wire = self._fields, self.upstream.wire
        if not fields:  # about one token in each event of a stream
            given = self._events or estimate_tokens(self._plain.decode("utf-8", "replace"))
            return Usage(self.input_estimate, given, cost_usd=self.upstream.price.cost(self.input_estimate, given))
        if wire == "messages":
            cached, written = (count_or_zero(fields.get(f"cache_{how}_input_tokens")) for how in ("read", "creation"))
            taken, given = (
                count_or_zero(fields.get("input_tokens")) + cached + written,
                count_or_zero(fields.get("output_tokens")),
            )
            return Usage(taken, given, cached, 0, self.upstream.price.cost(taken, given, cached, written))
        names = ("input", "output") if wire == "responses" else ("prompt", "completion")
        taken, given = (count_or_zero(fields.get(f"{name}_tokens")) for name in names)
        cached = count_or_zero(dict_or_empty(fields.get(f"{names[0]}_tokens_details")).get("cached_tokens"))
        reasoning = count_or_zero(dict_or_empty(fields.get(f"{names[1]}_tokens_details")).get("reasoning_tokens"))
        cost = fields.get("cost")  # some routers report it
        if not isinstance(cost, int | float):
            cost = self.upstream.price.cost(taken, given, cached)
        return Usage(taken, given, min(cached, taken), min(reasoning, given), cost)
