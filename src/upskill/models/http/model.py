"""What models over HTTP share: sending with retries, limits and a circuit breaker, and clear errors."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import unescape
from typing import IO, Any, cast
from urllib.parse import urlsplit

from upskill.errors import ModelError, UsageError
from upskill.models import Address, ModelContext, Reply, Request, Stop, Unanswered
from upskill.models.endpoints import ENDPOINTS, is_loopback
from upskill.models.failures import (
    FAILURES,
    OVERLOADED,
    PROXY_ERRORS,
    further_tries,
    proxy_failure,
    proxy_retries,
    status_failure,
    why_no_answer,
)
from upskill.models.http.transport import (
    Response,
    Timeouts,
    Transport,
    TransportError,
    acquire_transport,
)
from upskill.models.ledger import count_retry
from upskill.models.parsing import (
    collect_secrets,
    estimate_tokens,
    is_overflow,
    redact,
    safe_excerpt,
    smaller_limit,
    unanswered_stop,
)
from upskill.models.throttling import (
    MAX_RETRY_AFTER,
    PERMANENT,
    CircuitBreaker,
    backoff,
    limiter_for,
    parse_retry_after,
)
from upskill.plain import compact, dict_or_empty, load_json
from upskill.traces import Usage

# These are looked for in a server's errors.
MAX_ERROR = 16_000  # bytes of an error that are read
OUT_OF_CREDIT = r"(?i)insufficient_quota|exceeded your current quota|credit balance is too low"
UNSUPPORTED_PARAM = (
    r"(?i)unsupported|n[o']t support|unknown|unrecogni[sz]ed|unexpected|unavailable|not (permitted|allowed|available)|"
    r"extra_forbidden|deprecated|only the default|may only be|does not match any|too complex"
)
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": "upskill",
}
MIN_UPLOAD_RATE = 250_000  # bytes per second; a slower upload times out
DOWNLOAD_TIMEOUT = 3600.0  # seconds
logger = logging.getLogger(__name__)
STATUS_HINTS = {
    401: "The key was not accepted: check {key}.",
    403: "The key has no access to this model: check {key} and the account's permissions.",
    404: "Check the model's name, and the base URL if you set one.",
}


class HttpModel(ABC):
    """A model behind an HTTP API; each wire format is a subclass."""

    key_variable = ""  # named in hints

    def __init__(
        self,
        address: Address,
        url: str,
        key: str,
        context: ModelContext,
        transport: Transport | None = None,
    ) -> None:
        self.address = address
        self.url = url
        self.context = context
        self.timeouts = Timeouts(context.timeout, context.timeout)
        self.unsupported_params: frozenset[str] = (
            frozenset()
        )  # learned from the errors of this server
        self._shares_transport = transport is None
        self.transport = transport or acquire_transport()
        self._limiter = limiter_for(_origin(url), context.connections)
        self.breaker = CircuitBreaker(address.name, context.failures.get(address.name, 0))
        self._headers = HEADERS | self.auth_headers(key)
        self._secrets = collect_secrets(key, context.keys)
        self._lines_shown: set[str] = set()

    @abstractmethod
    def auth_headers(self, key: str) -> dict[str, str]: ...

    @abstractmethod
    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        """The body of the request, without the parameters that the server does not support."""

    @abstractmethod
    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        """The reply in the body of a 200; ModelError when there is no answer."""

    @abstractmethod
    def rejected_param(self, error: str, body: Mapping[str, Any]) -> str:
        """The parameter that an error rejects and that we can do without; or nothing."""

    async def reply(self, request: Request) -> Reply:
        self.breaker.check()
        started = time.monotonic()
        try:
            reply, attempts = await self._reply_with_retries(request)
        except Unanswered:
            raise
        except ModelError as error:
            if error.status in PERMANENT or (error.status == 429 and _is_final(error.message)):
                self.breaker.record_failure(error)
            raise
        self.breaker.record_success()
        seconds = time.monotonic() - started
        logger.info(
            "%s: replied in %.2f s (%d attempts): %s",
            self.address.name,
            seconds,
            attempts,
            reply.usage,
        )
        return replace(reply, seconds=seconds, attempts=attempts)

    async def close(self) -> None:
        if self._shares_transport:
            self._shares_transport = False
            await self.transport.release()

    async def send(
        self,
        url: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        into: IO[bytes] | None = None,
        once: bool = False,
    ) -> Response:
        """`once`: it is retried only where the server has certainly not started on it."""
        headers = self._headers | ({"Content-Type": content_type} if content_type else {})
        timeout = self.context.timeout + len(body or b"") / MIN_UPLOAD_RATE
        timeouts = Timeouts(timeout, DOWNLOAD_TIMEOUT if into is not None else timeout)
        return (await self._send_with_retries(url, headers, timeouts, body, into=into, once=once))[
            0
        ]

    def parse_response(self, response: Response, request: Request) -> Reply:
        if response.status != 200:
            raise self._status_error(response)
        return self._parse_paid_reply(response, request)

    def learn_from(
        self, response: Response, request: Request, unsupported_params: frozenset[str]
    ) -> bool:
        """Learn which other parameter is unsupported; True when a retry may help."""
        text = _error_text(response.body, with_fields=True)
        if not re.search(UNSUPPORTED_PARAM, text):
            return False
        param = self.rejected_param(text, self.build_body(request, unsupported_params))
        if not param or param in unsupported_params:
            return False
        self.tell_once(
            f"{self.address.name}: the server does not support {param}; continuing without it"
        )
        self.unsupported_params |= {param}
        return True

    async def _reply_with_retries(self, request: Request) -> tuple[Reply, int]:
        unsupported_params, limited = self.unsupported_params, request

        def encoded() -> bytes:
            return encode(self.build_body(limited, unsupported_params))

        def without_rejected_param(response: Response) -> bytes | None:
            nonlocal unsupported_params, limited
            if response.status not in (400, 422):
                return None
            if limit := smaller_limit(_error_text(response.body), limited.max_output_tokens):
                limited = replace(limited, max_output_tokens=limit)
            elif not self.learn_from(response, request, unsupported_params):
                return None
            unsupported_params = self.unsupported_params
            return encoded()

        response, attempts = await self._send_with_retries(
            self.url, self._headers, self.timeouts, encoded(), rewrite=without_rejected_param
        )
        return self._parse_paid_reply(response, request), attempts

    async def _send_with_retries(
        self,
        url: str,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        body: bytes | None,
        *,
        into: IO[bytes] | None = None,
        once: bool = False,
        rewrite: Callable[[Response], bytes | None] | None = None,
    ) -> tuple[Response, int]:
        """The 200, and how many HTTP calls it took. `rewrite` may change the body after an error."""
        attempts = tries = 0
        while True:
            attempts += 1
            tries += 1
            started = await self._limiter.acquire()
            try:
                response = await self.transport.send(url, headers, timeouts, body, into)
                self._log(url, body, response)
            except TransportError as error:
                if once and error.kind != "no connection":
                    raise ModelError(self.excerpt(error.message), failure=error.kind) from error
                wait = self._delay_after_error(error, tries)
            else:
                if response.status == 200:
                    self._limiter.record_success()
                    return response, attempts
                if once and response.status not in OVERLOADED:
                    raise self._status_error(response)
                if rewrite is not None and (rewritten := rewrite(response)) is not None:
                    body, wait = rewritten, 0.0
                    tries -= 1
                else:
                    wait = self._delay_after_response(response, tries, started)
            finally:
                self._limiter.release()
            await asyncio.sleep(wait)
            count_retry()

    def _log(self, url: str, body: bytes | None, response: Response) -> None:
        """Without headers, which hold the key."""
        method = "GET" if body is None else "POST"
        logger.info(
            "%s: %s %s: %d", self.address.name, method, url.partition("?")[0], response.status
        )
        if logger.isEnabledFor(logging.DEBUG):
            sent, received = (
                redact(data.decode("utf-8", "replace"), self._secrets)
                for data in (body or b"", response.body)
            )
            logger.debug(
                "%s: sent %s, received %s",
                self.address.name,
                sent or "nothing",
                received or "nothing",
            )

    def _parse_paid_reply(self, response: Response, request: Request) -> Reply:
        """The reply; an error says what was paid all the same."""
        answer = self._decode(response)
        try:
            self._check_proxy(response.headers)
            reply = self.parse_reply(answer, request)
        except ModelError as error:
            if answer.get("usage"):
                error.usage = _with_proxy_cost(self.parse_usage(answer, request), response.headers)
            raise
        return replace(
            reply,
            usage=_with_proxy_cost(reply.usage, response.headers),
            proxy_retries=proxy_retries(response.headers),
        )

    def _check_proxy(self, headers: Mapping[str, str]) -> None:
        """ModelError where a LiteLLM proxy let another model answer."""
        failure = proxy_failure(headers)
        if failure == "another model":
            message, hint = PROXY_ERRORS[failure]
            message = f"{message}: {headers.get('x-litellm-model-group', 'unnamed')}"
            raise ModelError(message, hint, status=200, failure=failure)

    @abstractmethod
    def parse_usage(self, answer: dict[str, Any], request: Request, output: str = "") -> Usage:
        """The tokens used, estimated from `output` where the response does not say."""

    def estimate_usage(
        self, input_tokens: int, output_tokens: int, request: Request, output: str
    ) -> tuple[int, int]:
        if input_tokens and (output_tokens or not output):
            return input_tokens, output_tokens
        self.tell_once(
            f"{self.address.name}: the server does not report its token usage; it is estimated from the length of the"
            " text"
        )
        prompt = "".join(message.text for message in request.messages)
        return input_tokens or estimate_tokens(prompt), output_tokens or estimate_tokens(output)

    def _delay_after_error(self, error: TransportError, tries: int) -> float:
        """Seconds until the next attempt; raises the ModelError when there is none."""
        is_absent = error.kind == "no connection" and is_loopback(self.url)
        if is_absent or not self._may_retry(error.kind, tries):
            raise self._unreachable(error) from error
        return self._log_retry(self.excerpt(error.message), backoff(tries + 1))

    def _unreachable(self, error: TransportError) -> ModelError:
        server, row = _origin(self.url), ENDPOINTS.get(self.address.endpoint)
        message, hint = self.excerpt(error.message), ""
        if error.kind == "no connection":
            hint = f"Is the server at {server} running?"
            if row and row.start and is_loopback(self.url):
                message = f"{row.title} is not running: nothing answers at {server}; start it with `{row.start}`"
                hint = ""
        return ModelError(message, hint, failure=error.kind)

    def _delay_after_response(self, response: Response, tries: int, started: float) -> float:
        """Seconds until the next attempt; raises the ModelError when there is none."""
        error = self._status_error(response)
        is_final = isinstance(error, Unanswered) or _is_final(_error_text(response.body))
        wait = parse_retry_after(response.headers)
        is_long = wait is not None and wait > MAX_RETRY_AFTER
        if response.status in OVERLOADED:
            self._limiter.record_overload(started, None if is_long else wait)
        may_retry = response.headers.get("x-should-retry") != "false" and not is_final
        error.is_final = is_long or not may_retry
        if error.is_final or not self._may_retry(error.failure, tries):
            if is_long:
                error.hint = (
                    f"The server asks you to wait {wait:.0f} s. Then run the same command again."
                )
            raise error
        delay = max(wait, 0.001) if wait is not None else backoff(tries + 1)
        return self._log_retry(f"the server answered {response.status}", delay)

    def _may_retry(self, failure: str, tries: int) -> bool:
        """Never where the model may have been asked: who needs no first answer asks with a PatientModel."""
        may_pass = tries <= further_tries(failure, self.context.retries)
        return may_pass and not FAILURES[failure].reached

    def _log_retry(self, reason: str, delay: float) -> float:
        logger.info("%s: %s; retrying in %.1f s", self.address.name, reason, delay)
        return delay

    def _status_error(self, response: Response) -> ModelError:
        status, text = response.status, _error_text(response.body)
        message = f"the server answered {status}: {self.excerpt(text) or 'no details'}"
        if status == 200:
            message = f"the server returned 200 with an error: {self.excerpt(text)}"
        failure = "error in a 200" if status == 200 else status_failure(status, text)
        if stop := unanswered_stop(text, status):
            hint = (
                "The prompt is too long for this model: shorten the case or the skill."
                if stop == "context"
                else ""
            )
            return Unanswered(message, hint, stop=stop, status=status)
        hint = STATUS_HINTS.get(404 if failure == "no such model" else status, "")
        if failure == "wrong key" and not hint:
            hint = STATUS_HINTS[401]
        hint = hint.format(key=self.key_variable or "the key")
        if re.search(OUT_OF_CREDIT, text):
            hint = "The account has no credit left."
        return ModelError(message, hint, status=status, failure=failure)

    def _decode(self, response: Response) -> dict[str, Any]:
        """The JSON object of a 200, which some servers also use for errors."""
        if not response.body.strip():
            raise ModelError(
                "the server returned 200 with an empty body", status=200, failure="unreadable body"
            )
        try:
            answer: Any = json.loads(response.body)
        except (ValueError, RecursionError):
            excerpt = self.excerpt(_error_text(response.body))
            kind = (
                "an HTML page"
                if response.body.lstrip()[:1] == b"<"
                else "something that is not JSON"
            )
            hint = "Is the base URL right?" if kind == "an HTML page" else ""
            message = f"the server returned 200 with {kind}: {excerpt}"
            raise ModelError(message, hint, status=200, failure="unreadable body") from None
        answer = dict_or_empty(answer)
        if answer.get("error") or answer.get("type") == "error":
            raise self._status_error(response)
        return answer

    def check_whole(self, answer: dict[str, Any], reason: object, *, is_empty: bool) -> None:
        """ModelError for a body that holds no whole answer."""
        if why := why_no_answer(None if reason is None else str(reason), is_empty=is_empty):
            raise ModelError(
                f"{why}: {self.excerpt(json.dumps(answer))}", status=200, failure="no answer"
            )

    def output_limit_error(self, reason: str, stop: Stop = "length") -> Unanswered:
        """For a model that reached its limit before the first word of the answer."""
        return Unanswered(
            f"the model used up its output tokens before answering (stop reason {reason!r})",
            "Allow more with --set max_output_tokens=N.",
            stop=stop,
        )

    def tell_once(self, line: str) -> None:
        if line not in self._lines_shown:
            self._lines_shown.add(line)
            self.context.tell(line)

    def excerpt(self, text: str) -> str:
        return safe_excerpt(text, self._secrets)


def missing_key(provider: str, variable: str) -> UsageError:
    return UsageError(
        f"no API key for {provider}: {variable} is not set",
        f"Set it with `export {variable}=...`, or add {variable}=... to .env. The `local` model needs no key.",
    )


def check_base_url(address: Address, url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f"{address.name!r}: the base URL {url!r} does not start with http:// or https://"
        )
    return url


def encode(body: Mapping[str, Any]) -> bytes:
    return compact(body).encode("utf-8", "replace")


def _with_proxy_cost(usage: Usage, headers: Mapping[str, str]) -> Usage:
    """What a LiteLLM proxy paid; its being on this machine does not make it free."""
    if "x-litellm-version" not in headers:
        return usage
    try:
        return replace(usage, cost_usd=float(headers["x-litellm-response-cost"]))
    except (KeyError, ValueError):
        return replace(usage, cost_usd=usage.cost_usd or None)


def _is_final(error: str) -> bool:
    """Whether an error says that a retry would end in the same way."""
    return bool(re.search(OUT_OF_CREDIT, error)) or is_overflow(error)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def _error_text(body: bytes, *, with_fields: bool = False) -> str:
    """The error message in a response, in whichever of the usual forms it comes."""
    text = body[:MAX_ERROR].decode("utf-8", "replace").strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        plain = (
            title.group(1)
            if title
            else re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)
        )
        return unescape(plain).strip()
    try:
        answer: Any = load_json(text)
    except ValueError:
        return text
    if with_fields:
        return json.dumps(answer, ensure_ascii=False)
    if isinstance(answer, list):  # Gemini wraps its errors in a list
        answer = next(iter(cast("list[Any]", answer)), "")
    fields = dict_or_empty(cast("object", answer))
    error: Any = fields.get("error") or fields.get("message") or fields.get("detail") or text
    inner = dict_or_empty(error)
    words = (inner.get("code"), inner.get("type"))
    code = next(
        (word for word in words if isinstance(word, str) and word and not word.isdecimal()), ""
    )
    message: Any = inner.get("message") or error
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    return f"{message} ({code})" if code not in message else message
