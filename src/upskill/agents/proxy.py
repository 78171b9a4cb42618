"""The proxy is a program's only way out of its sandbox: to the API of the model under test.

Requests are forwarded with the real key, which never enters the sandbox; answers are streamed back, metered and
entered in the ledger. The bounds of the trial are enforced here. The program has a random key of the trial, without
which nothing is forwarded, so other processes cannot spend the real one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from secrets import token_urlsafe
from socket import socket
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp import web

from upskill.agents import Bounds
from upskill.agents.allow_list import CONTENT_FIELDS, RequestFilter, Wire, points_outside
from upskill.errors import CeilingReached, ModelError, UsageError
from upskill.models import Address, Role, Unanswered
from upskill.models.endpoints import ENDPOINTS, first_set
from upskill.models.failures import (
    FAILURES,
    PROXY_ERRORS,
    proxy_failure,
    status_failure,
    why_no_answer,
)
from upskill.models.http.model import STATUS_HINTS
from upskill.models.http.transport import CONNECT_TIMEOUT, is_unreadable, proxy_for
from upskill.models.ledger import Ledger
from upskill.models.parsing import (
    collect_secrets,
    count_or_zero,
    estimate_tokens,
    parse_arguments,
    redact,
    safe_excerpt,
    unanswered_stop,
)
from upskill.models.prices import Price, Prices, price_for
from upskill.plain import compact, dict_or_empty, list_or_empty, load_json
from upskill.traces import NO_USAGE, Step, Usage
from upskill.traces.values import content_text

log = logging.getLogger(__name__)

ANTHROPIC = "https://api.anthropic.com"
# The paths of each API that ask the model, below the base URL, and those that cost nothing.
MODEL_PATHS: dict[Wire, tuple[str, ...]] = {
    "messages": ("messages",),
    "responses": ("responses",),
    "chat": ("chat/completions",),
    "gemini": ("models/{model}:streamGenerateContent", "models/{model}:generateContent"),
}
FREE_PATHS: dict[Wire, tuple[str, ...]] = {
    "messages": ("messages/count_tokens",),
    "responses": (),
    "chat": (),
    "gemini": ("models/{model}:countTokens",),
}
GEMINI_REFUSALS = ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII")
RETURNED_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key")
MAX_BODY_BYTES = 16 * 1024 * 1024  # bytes
MAX_CONCURRENT = 16  # requests; each is held in memory, and a student may send any number
READ_TIMEOUT = 600.0  # seconds between two chunks of an answer
ERROR_KINDS = {401: "authentication_error", 403: "permission_error"}
FATAL_STATUSES = (401, 403, 404)
# The request is to blame. After the first answer it is not the agent's own, but one of the student's commands.
REQUEST_STATUSES = (400, 404, 405, 406, 411, 413, 414, 415, 422, 431)
CHAT_CONTENT = ("content", "tool_calls", "function_call", "reasoning_content", "reasoning")
MAX_PLAIN_BYTES = 16 * 1024 * 1024  # of an answer that is not a stream


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


def upstream_for(
    address: Address, wire: Wire, keys: Mapping[str, str], prices: Prices | None = None
) -> Upstream:
    """A missing key is reported when the model is opened."""
    if address.provider == "anthropic":
        name, key = "ANTHROPIC_API_KEY", keys.get("ANTHROPIC_API_KEY", "").strip()
        base_url = messages_url(address.base_url or keys.get("ANTHROPIC_BASE_URL", "") or ANTHROPIC)
        headers = {"x-api-key": key}
    else:
        endpoint = ENDPOINTS[address.endpoint or "openai"]
        configured = first_set(keys, endpoint.url_variables)
        base_url = (address.base_url or configured or endpoint.base_url).rstrip("/")
        key = first_set(keys, endpoint.key_variables)
        name = next(iter(endpoint.key_variables), "")
        if wire == "messages":
            base_url = messages_url(base_url)
        elif wire == "gemini":
            base_url = base_url.removesuffix("/openai")
        else:
            base_url = base_url.removesuffix("/" + MODEL_PATHS[wire][0])
        names = {"messages": ("Authorization", "x-api-key"), "gemini": ("x-goog-api-key",)}.get(
            wire, ("Authorization",)
        )
        headers = {
            name: f"Bearer {key}" if name == "Authorization" else key for name in names if key
        }
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(
            f"{address.name!r}: the base URL {base_url!r} does not begin with http:// or https://"
        )
    price = price_for(address, prices)
    return Upstream(
        wire, base_url, headers, address.model, price, collect_secrets(key, keys), key_name=name
    )


def messages_url(url: str) -> str:
    return url.rstrip("/").removesuffix("/messages").removesuffix("/v1") + "/v1"


@dataclass
class Proxy:
    """Serves one trial, and has its usage and errors once the program has ended."""

    upstream: Upstream
    bounds: Bounds = field(default_factory=Bounds)
    ledger: Ledger | None = None
    marker: str = ""  # the trial ends when a request contains this
    role: Role = "student"  # in the ledger
    url: str = ""  # for programs inside, once it is served
    key: str = field(default_factory=token_urlsafe)  # of this trial: each request must have it
    usage: Usage = NO_USAGE
    turns: int = 0  # how often the model answered
    stop: str = ""  # the bound that was reached: turns, tokens or activated
    ceiling: CeilingReached | None = None
    model_error: ModelError | None = None  # why the model gave no answer; None once it did again
    calls: dict[str, Step] = field(
        default_factory=dict[str, Step]
    )  # of tools, by id, as the model was told of them
    asked: bool = False  # a call to the model has left
    # An answer that may have been on its way was lost: the trial is missing, and nothing is asked again.
    lost: ModelError | None = None
    filter: RequestFilter = field(init=False)
    _pending: int = 0
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))
    _session: aiohttp.ClientSession | None = None

    def __post_init__(self) -> None:
        self.filter = RequestFilter(self.upstream.wire)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            f"not sent to the model, because students may not: {what}"
            for what in self.filter.dropped
        )

    @asynccontextmanager
    async def serve(self, proxy_socket: socket) -> AsyncGenerator[None]:
        self.url = f"http://127.0.0.1:{proxy_socket.getsockname()[1]}/v1"
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle_in_turn)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
        )
        async with aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as self._session:
            await runner.setup()
            try:
                await web.SockSite(runner, proxy_socket).start()
                yield
            finally:
                await runner.cleanup()

    async def _handle_in_turn(self, request: web.Request) -> web.StreamResponse:
        async with self._slots:
            return await self._handle(request)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        places = [request.query.get("key", "")]
        places += [request.headers.get(name, "") for name in KEY_HEADERS]
        given = [place.removeprefix("Bearer ").encode(errors="replace") for place in places]
        if not any(compare_digest(key, self.key.encode()) for key in given):
            return _refuse(request, "this is not the key of the trial", 401)
        # Compared as a whole: a prefix could lead anywhere the key is valid.
        path, wire = re.sub("^/v1(beta)?/", "", request.path), self.upstream.wire
        if wire == "gemini":
            path = re.sub("^models/[^/:]+:", "models/{model}:", path)
        unused = UsageMeter(wire, self.upstream.price, {})
        if (request.method, path) == ("GET", "models"):
            return await self._forward(request, path, None, unused)
        if request.method != "POST" or path not in (*MODEL_PATHS[wire], *FREE_PATHS[wire]):
            return _refuse(request, "only the model can be reached from here")
        try:
            body = dict_or_empty(load_json(await request.read()))
        except ValueError:
            body = {}
        if not body:
            return _refuse(request, "the request is not a JSON object, or is nested too deeply")
        if any(points_outside(body.get(name)) for name in CONTENT_FIELDS):
            return _refuse(request, "students cannot fetch anything from elsewhere")
        body = self.filter.body(body)
        if (
            self.upstream.model and wire != "gemini"
        ):  # this trial is about one model, whatever others the program uses
            body["model"] = self.upstream.model
        if path not in MODEL_PATHS[wire]:
            return await self._forward(request, path, body, unused)
        return await self._ask(request, path, body)

    async def _ask(
        self, request: web.Request, path: str, body: dict[str, Any]
    ) -> web.StreamResponse:
        for number, call in tool_calls(body).items():
            known = self.calls.setdefault(number, call)
            # If two requests disagree, one may be a student's own: then what the program reports holds.
            is_same = (known.tool, known.arguments) == (call.tool, call.arguments)
            self.calls[number] = call if is_same else Step("tool")
        if self.marker and self.marker in compact(body):
            self.stop = self.stop or "activated"
        if reason := self._limit_reached():
            return _error_response(400, reason)
        if self.upstream.wire == "chat" and body.get("stream"):
            body["stream_options"] = dict_or_empty(body.get("stream_options")) | {
                "include_usage": True
            }
        meter = UsageMeter(self.upstream.wire, self.upstream.price, body)
        self.asked = True
        self._pending += 1
        try:
            return await self._forward(request, path, body, meter)
        finally:
            self._pending -= 1
            self.turns += meter.answered
            if meter.answered or meter.model_error:
                self.model_error = meter.model_error
            # A bad request got no answer, and its program may know how to ask better.
            may_be_lost = meter.failure not in ("", "other status")
            if meter.model_error and may_be_lost and FAILURES[meter.failure].reached:
                self.lost = self.lost or meter.model_error
            if meter.started:
                usage = meter.usage()
                self.usage = self.usage + usage
                log.debug("%d + %d tokens", usage.input_tokens, usage.output_tokens)
                if self.ledger:
                    self.ledger.record(self.role, usage)

    def _limit_reached(self) -> str:
        if self.lost is not None:
            return "this trial ends here: an answer was lost"
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

    async def _forward(
        self, request: web.Request, path: str, body: dict[str, Any] | None, meter: UsageMeter
    ) -> web.StreamResponse:
        assert self._session is not None
        url = f"{self.upstream.base_url}/{path.replace('{model}', quote(self.upstream.model, safe=''))}"
        query = self.filter.query(request.query)
        if (
            self.upstream.wire == "gemini"
        ):  # its streams are one list without this, which nothing reads while it comes
            query = {"alt": "sse"} if "stream" in path else {}
        if query:
            url += f"?{urlencode(query)}"
        headers, data = self.filter.headers(request.headers), None
        if self.upstream.beta:
            headers["anthropic-beta"] = ",".join(
                filter(None, [headers.get("anthropic-beta"), self.upstream.beta])
            )
        headers |= self.upstream.headers
        if body is not None:
            headers["content-type"] = "application/json"
            data = compact(body).encode("utf-8", "replace")
        try:
            async with self._session.request(
                request.method,
                url,
                headers=headers,
                data=data,
                proxy=proxy_for(url),
                allow_redirects=False,
            ) as answer:
                log.debug("%s %s: %d", request.method, request.path, answer.status)
                if answer.status != 200:
                    return await self._forward_error(answer, meter)
                if failure := proxy_failure(answer.headers):
                    message, hint = PROXY_ERRORS[failure]
                    meter.fail(ModelError(message, hint, status=200), failure)
                    return _error_response(502, message)
                return await self._stream(request, answer, meter)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            meter.fail(
                ModelError(f"no answer from the model's server: {self._describe(error)}"),
                _failure_of(error),
            )
            return _error_response(502, self._describe(error))

    async def _forward_error(
        self, answer: aiohttp.ClientResponse, meter: UsageMeter
    ) -> web.Response:
        text = redact((await answer.read()).decode("utf-8", "replace"), self.upstream.secrets)
        message = safe_excerpt(_error_message(text), self.upstream.secrets) or "no further details"
        error = self._model_error(f"the server answered {answer.status}", message, answer.status)
        failure = "" if isinstance(error, Unanswered) else status_failure(answer.status, message)
        # Otherwise the trial goes on, but the program may ask again.
        is_ours = not failure or not (self.turns and answer.status in REQUEST_STATUSES)
        meter.fail(error if is_ours else None, failure)
        return web.Response(
            status=answer.status, body=text.encode(), headers=_returned_headers(answer)
        )

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, meter: UsageMeter
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=_returned_headers(answer))
        await response.prepare(request)
        meter.started = True
        try:
            async for chunk in answer.content.iter_any():
                meter.feed(chunk)
                try:
                    await response.write(chunk)
                except ConnectionError:  # the program hung up; the answer so far was paid for
                    return response
        except (aiohttp.ClientError, TimeoutError) as error:
            broken_off = ModelError(
                f"the model's server broke off its answer: {self._describe(error)}"
            )
            meter.fail(broken_off, _failure_of(error))
            if request.transport is not None:
                request.transport.abort()  # a regular end would make half an answer look complete
            return response
        meter.end()
        if meter.error:
            message = safe_excerpt(meter.error, self.upstream.secrets)
            broken_off = self._model_error("the model's server broke off its answer", message, 200)
            meter.fail(
                broken_off,
                "" if isinstance(broken_off, Unanswered) else meter.failure or "error in a 200",
            )
        else:
            meter.answered, meter.failure = True, ""
            if meter.refused:
                meter.model_error = Unanswered("the provider refused", stop="refusal", status=200)
        with suppress(ConnectionError):
            await response.write_eof()
        return response

    def _model_error(self, what: str, message: str, status: int) -> ModelError:
        error = f"{what}: {message}"
        if stop := unanswered_stop(message, status):
            return Unanswered(error, stop=stop, status=status)
        hint = STATUS_HINTS.get(status, "").format(key=self.upstream.key_name or "the key")
        return ModelError(error, hint, status=status, fatal=status in FATAL_STATUSES)

    def _describe(self, error: Exception) -> str:
        return safe_excerpt(str(error) or type(error).__name__, self.upstream.secrets)


def _returned_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in RETURNED_HEADERS if name in answer.headers}


def _refuse(request: web.Request, reason: str, status: int = 403) -> web.Response:
    log.debug("%s %s: refused: %s", request.method, request.path[:200], reason)
    return _error_response(status, reason)


def _error_response(status: int, message: str) -> web.Response:
    """An error that the clients of all APIs understand and do not retry."""
    kind = ERROR_KINDS.get(status, "invalid_request_error")
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return web.json_response(error, status=status, headers={"x-should-retry": "false"})


def _error_message(text: str) -> str:
    try:
        answer = dict_or_empty(load_json(text))
    except ValueError:
        return text
    return str(_error_in(answer) or answer.get("detail") or text)


def _error_in(data: Mapping[str, Any]) -> str:
    error = data.get("error") or dict_or_empty(data.get("response")).get("error")
    if isinstance(error, str):
        return error
    return str(dict_or_empty(error).get("message") or dict_or_empty(error).get("code") or "")


def _first_choice(data: Mapping[str, Any]) -> dict[str, Any]:
    return dict_or_empty(
        next(iter(list_or_empty(data.get("choices") or data.get("candidates"))), None)
    )


def _finish_reason(data: Mapping[str, Any]) -> str:
    """Why an answer ended, where this part of it says so: in the words of its API."""
    response = dict_or_empty(data.get("response") or data)
    status = str(response.get("status") or "")
    reasons = (
        _first_choice(data).get("finish_reason") or _first_choice(data).get("finishReason"),
        dict_or_empty(data.get("promptFeedback")).get("blockReason"),
        data.get("stop_reason"),
        dict_or_empty(data.get("delta")).get("stop_reason"),
        dict_or_empty(response.get("incomplete_details")).get("reason"),
        status if status in ("completed", "incomplete", "failed", "cancelled") else "",
    )
    return next((str(reason) for reason in reasons if reason), "")


def tool_calls(body: Mapping[str, Any]) -> dict[str, Step]:
    """The calls and results in the history that a request repeats, whichever API it is for."""
    calls: dict[str, Step] = {}
    unnumbered: list[Step] = []  # Gemini's models give ids to some of their calls
    history = next((body[name] for name in ("messages", "input", "contents") if name in body), ())
    for message in map(dict_or_empty, list_or_empty(history)):
        inner = [
            item
            for name in ("content", "parts", "tool_calls")
            for item in list_or_empty(message.get(name))
        ]
        for block in map(dict_or_empty, (message, *inner)):
            call = dict_or_empty(block.get("functionCall") or block.get("function")) or block
            result = dict_or_empty(block.get("functionResponse")) or block
            arguments = next(
                (call[name] for name in ("args", "arguments", "input") if name in call), None
            )
            names = ("call_id", "tool_call_id", "tool_use_id", "id")
            number = next(
                (
                    str(holder[name])
                    for holder in (result, call)
                    for name in names
                    if name in holder
                ),
                "",
            )
            if call.get("name") and arguments is not None:
                name = "__".join(str(call[key]) for key in ("namespace", "name") if call.get(key))
                step = Step("tool", tool=name, arguments=parse_arguments(arguments))
                if number:
                    calls[number] = step
                else:
                    unnumbered.append(step)
            elif output := result.get("response") or result.get("output") or result.get("content"):
                if "functionResponse" in block:
                    output = dict_or_empty(output).get("output") or output
                    if number not in calls and unnumbered:
                        calls[number] = unnumbered.pop(0)
                if number in calls:
                    calls[number] = replace(calls[number], output=content_text(output))
    return calls


def _failure_of(error: Exception) -> str:
    """The row of FAILURES."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "no connection"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "unreadable body" if is_unreadable(error) else "dropped connection"


class UsageMeter:
    """What became of one request, and its usage, from a document or a stream of events."""

    def __init__(self, wire: Wire, price: Price, body: Mapping[str, Any]) -> None:
        self.wire = wire
        self.price = price
        self.input_estimate = estimate_tokens(compact(body))
        self.started = False
        self.answered = False
        self.model_error: ModelError | None = None
        self.failure = ""  # a row of FAILURES
        self.error = ""  # in the answer
        self.reason: str | None = None  # why the answer ended, in the provider's word
        self.is_empty = True  # no part of an answer has come
        self.refused = False
        self.is_readable = False  # there was a JSON object
        self._fields: dict[str, Any] = {}
        self._events = 0
        self._plain = bytearray()  # of an answer that is not a stream
        self._partial_line = b""

    def fail(self, error: ModelError | None, failure: str) -> None:
        self.model_error, self.failure = error, failure
        if error is not None:
            error.failure = failure

    def feed(self, chunk: bytes) -> None:
        lines = (self._partial_line + chunk).split(b"\n")
        self._partial_line = lines.pop()
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(self._partial_line)
        self._partial_line = b""
        if self._plain:
            self._read(bytes(self._plain))
        if not self._events and not self.is_readable and len(self._plain) < MAX_PLAIN_BYTES:
            self.error, self.failure = self.error or "it is not JSON", "unreadable body"
        elif not self.error and not self.refused and len(self._plain) < MAX_PLAIN_BYTES:
            is_empty = self.wire == "chat" and self.is_empty and self.reason != "length"
            self.error, self.failure = why_no_answer(self.reason, is_empty=is_empty), "no answer"

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._events += 1
            self._read(line[5:])
        elif (
            not self._events
            and len(self._plain) < MAX_PLAIN_BYTES
            and not line.startswith((b"event:", b":", b"id:"))
        ):
            self._plain += line + b"\n"

    def _read(self, text: bytes) -> None:
        try:
            data = dict_or_empty(load_json(text))
        except ValueError:
            return
        self.is_readable = bool(data)
        for holder in (
            dict_or_empty(data.get("message")),
            dict_or_empty(data.get("response")),
            data,
        ):
            usage = dict_or_empty(holder.get("usage") or holder.get("usageMetadata"))
            # Later events count the whole answer; what they leave out stays as it was.
            self._fields |= {name: value for name, value in usage.items() if value}
        choice = _first_choice(data)
        message = dict_or_empty(choice.get("message") or choice.get("delta"))
        self.is_empty = self.is_empty and all(message.get(name) is None for name in CHAT_CONTENT)
        self.reason = _finish_reason(data) or self.reason
        self.error = _error_in(data) or self.error
        self.refused = self.refused or self.reason in (
            "refusal",
            "content_filter",
            *GEMINI_REFUSALS,
        )

    def usage(self) -> Usage:
        fields, wire = self._fields, self.wire
        if not fields:  # about one token in each event of a stream
            output_tokens = self._events or estimate_tokens(self._plain.decode("utf-8", "replace"))
            cost = self.price.cost(self.input_estimate, output_tokens)
            return Usage(self.input_estimate, output_tokens, cost_usd=cost)
        if wire == "messages":
            cached, written = (
                count_or_zero(fields.get(f"cache_{how}_input_tokens"))
                for how in ("read", "creation")
            )
            input_tokens = count_or_zero(fields.get("input_tokens")) + cached + written
            output_tokens = count_or_zero(fields.get("output_tokens"))
            cost = self.price.cost(input_tokens, output_tokens, cached, written)
            return Usage(input_tokens, output_tokens, cached, 0, cost)
        if wire == "gemini":
            names = (
                "promptTokenCount",
                "toolUsePromptTokenCount",
                "candidatesTokenCount",
                "thoughtsTokenCount",
            )
            prompt, results, answer, reasoning = (count_or_zero(fields.get(name)) for name in names)
            cached = count_or_zero(fields.get("cachedContentTokenCount"))
            cost = self.price.cost(prompt + results, answer + reasoning, cached)
            return Usage(prompt + results, answer + reasoning, min(cached, prompt), reasoning, cost)
        names = ("input", "output") if wire == "responses" else ("prompt", "completion")
        input_tokens, output_tokens = (
            count_or_zero(fields.get(f"{name}_tokens")) for name in names
        )
        cached = count_or_zero(
            dict_or_empty(fields.get(f"{names[0]}_tokens_details")).get("cached_tokens")
        )
        reasoning = count_or_zero(
            dict_or_empty(fields.get(f"{names[1]}_tokens_details")).get("reasoning_tokens")
        )
        cost = fields.get("cost")  # some routers report it
        if not isinstance(cost, int | float):
            cost = self.price.cost(input_tokens, output_tokens, cached)
        return Usage(
            input_tokens,
            output_tokens,
            min(cached, input_tokens),
            min(reasoning, output_tokens),
            cost,
        )
