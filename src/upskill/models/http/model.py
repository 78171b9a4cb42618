"""What the two wire formats of our own share: one call with retries, and an error for every reply that is no answer.

A format says how a request is written, how an answer is read, and which complaints of a server it can learn from;
everything about sending, waiting, retrying, stopping and telling is here, once.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Any, cast
from urllib.parse import urlsplit

from upskill.errors import ModelError, UsageError
from upskill.models import Address, ModelContext, Reply, Request
from upskill.models.http.throttling import (
    MAX_RETRY_AFTER,
    OVERLOADED,
    PERMANENT,
    RETRYABLE,
    CircuitBreaker,
    PromptTooLong,
    backoff,
    limiter_for,
    parse_retry_after,
)
from upskill.models.http.transport import (
    CONNECT_TIMEOUT,
    AiohttpTransport,
    Response,
    Timeouts,
    Transport,
    TransportError,
    acquire_transport,
)
from upskill.models.ledger import admit_another
from upskill.models.parsing import collect_secrets, safe_excerpt
from upskill.plain import compact, dict_or_empty
from upskill.traces import Usage

CONTEXT_OVERFLOW = re.compile(
    r"context[ _](length|size|window)|maximum context|prompt is too long|too many (input )?tokens|exceed_context|"
    r"input length .*exceed|exceeds? the (model'?s )?(maximum )?(context|number of tokens)",
    re.IGNORECASE,
)
OUT_OF_CREDIT = re.compile(r"insufficient_quota|exceeded your current quota|credit balance is too low", re.IGNORECASE)
UNSUPPORTED_PARAM = re.compile(
    r"unsupported|n[o']t support|unknown|unrecogni[sz]ed|unexpected|unavailable|not (permitted|allowed|available)|"
    r"extra_forbidden|deprecated|only the default|may only be|does not match any|too complex",
    re.IGNORECASE,
)
MIN_UPLOAD_RATE = 250_000  # bytes a second that an upload may take its time for
DOWNLOAD_TIMEOUT = 3600.0  # seconds
STATUS_HINTS = {
    401: "The key was not accepted: check {key}.",
    403: "The key may not use this model: check {key} and what its account may use.",
    404: "Check the model's name, and the base URL if one was given.",
}


class HttpModel(ABC):
    """A model behind an HTTP API. A format inherits this and fills in `write`, `read`, `learn` and `headers`."""

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
        self.timeouts = Timeouts(min(CONNECT_TIMEOUT, context.timeout), context.timeout, context.timeout)
        self.unsupported_params: frozenset[str] = (
            frozenset()
        )  # what this server does not take, learned from its complaints
        self._owned_transport = acquire_transport() if transport is None else None
        self.transport: Transport = transport or cast("AiohttpTransport", self._owned_transport)
        self._limiter = limiter_for(_origin(url), context.connections)
        self._breaker = CircuitBreaker(address.name)
        self._headers = self.build_headers(key)
        self._secrets = collect_secrets(key, context.keys)
        self._told_lines: set[str] = set()

    @abstractmethod
    def build_headers(self, key: str) -> dict[str, str]: ...

    @abstractmethod
    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        """The body of the call, without what the server is known not to take."""

    @abstractmethod
    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        """The reply in the body of a 200; ModelError when it is none that could be judged."""

    @abstractmethod
    def rejected_param(self, complaint: str, body: Mapping[str, Any]) -> str:
        """The lesson in a server's complaint about this body, or nothing."""

    async def reply(self, request: Request) -> Reply:
        self._breaker.check()
        started = time.monotonic()
        try:
            reply, attempts = await self._reply_with_retries(request)
        except PromptTooLong:
            raise
        except ModelError as error:
            if error.status in PERMANENT or (error.status == 429 and not _is_retryable(error.status, error.message)):
                self._breaker.record_failure(error)
            raise
        self._breaker.record_success()
        return replace(reply, seconds=time.monotonic() - started, attempts=attempts)

    async def close(self) -> None:
        own, self._owned_transport = self._owned_transport, None
        if own is not None:
            await own.release()

    async def send(
        self,
        url: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        into: IO[bytes] | None = None,
        once: bool = False,
    ) -> Response:
        """The 200 of a call beside the model's own, with the same retries: a GET, or a POST of this body.

        `into` takes the body of the answer. `once` is for what may not be done twice: it is tried again only where
        the server has certainly not begun with it.
        """
        headers = self._headers | ({"Content-Type": content_type} if content_type else {})
        patience = self.context.timeout + len(body or b"") / MIN_UPLOAD_RATE
        timeouts = Timeouts(self.timeouts.connect, patience, DOWNLOAD_TIMEOUT if into is not None else patience)
        tries = 0
        while True:
            tries += 1
            started = await self._limiter.acquire()
            try:
                if body is None:
                    response = await self.transport.get(url, headers, timeouts, into)
                else:
                    response = await self.transport.post(url, headers, body, timeouts)
            except TransportError as error:
                if once and error.kind != "connect":
                    raise ModelError(self.excerpt(error.message)) from error
                wait = self._delay_after_error(error, tries)
            else:
                if response.status == 200:
                    self._limiter.record_success()
                    return response
                if once and response.status not in OVERLOADED:
                    raise self._status_error(response.status, _error_text(response.body))
                wait = self._delay_after_response(response, tries, started)
            finally:
                self._limiter.release()
            await asyncio.sleep(wait)

    def parse_response(self, response: Response, request: Request) -> Reply:
        """The reply in an answer that came another way than by `reply`: out of a batch."""
        if response.status != 200:
            raise self._status_error(response.status, _error_text(response.body))
        return self.parse_reply(self._decode(response, request), request)

    def learn_from(self, response: Response, request: Request, unsupported_params: frozenset[str]) -> bool:
        """Learn from a complaint about a request written under these lessons; True when asking again may help."""
        learned = self._unsupported_param(response, self.build_body(request, unsupported_params))
        if not learned or learned in unsupported_params:
            return False
        self.unsupported_params |= {learned}
        return True

    async def _reply_with_retries(self, request: Request) -> tuple[Reply, int]:
        """The reply and the number of HTTP calls it took: again for what heals, and once for each thing learned."""
        attempts = tries = 0
        unsupported_params = self.unsupported_params
        body = self.build_body(request, unsupported_params)
        data = encode(body)
        while True:
            attempts += 1
            tries += 1
            started = await self._limiter.acquire()
            try:
                response = await self.transport.post(self.url, self._headers, data, self.timeouts)
            except TransportError as error:
                wait = self._delay_after_error(error, tries)
            else:
                if response.status == 200:
                    self._limiter.record_success()
                    return self._parse_paid_reply(self._decode(response, request), request), attempts
                learned = self._unsupported_param(response, body) if response.status in (400, 422) else ""
                if learned and learned not in unsupported_params:
                    unsupported_params = self.unsupported_params = self.unsupported_params | {learned}
                    body = self.build_body(request, unsupported_params)
                    data = encode(body)
                    tries -= 1
                    wait = 0.0
                else:
                    wait = self._delay_after_response(response, tries, started)
            finally:
                self._limiter.release()
            if wait:
                await asyncio.sleep(wait)
            admit_another()

    def _parse_paid_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        """The reply in an answer; an answer that cannot be judged was paid for too, and its error says how much."""
        try:
            return self.parse_reply(answer, request)
        except ModelError as error:
            if answer.get("usage"):
                error.usage = self.parse_usage(answer, request)
            raise

    @abstractmethod
    def parse_usage(self, answer: dict[str, Any], request: Request, said: str = "") -> Usage:
        """What an answer used, by its own account."""

    def _delay_after_error(self, cut: TransportError, tries: int) -> float:
        """Seconds until the next try, or the ModelError that there will be none."""
        host = urlsplit(self.url).hostname or ""
        at_home = host in ("localhost", "::1") or host.startswith("127.")
        allowed = self.context.retries
        if cut.kind == "too large" or (cut.kind == "connect" and at_home):
            allowed = 0
        elif cut.kind == "timeout":
            allowed = min(allowed, 1)  # it may be at work on the first still, and each try takes the whole time
        if tries > allowed:
            hint = f"Is the server at {_origin(self.url)} running?" if cut.kind == "connect" else ""
            raise ModelError(self.excerpt(cut.message), hint) from cut
        return backoff(tries + 1)

    def _delay_after_response(self, response: Response, tries: int, started: float) -> float:
        """Seconds until the next try after a status that is no answer, or the ModelError that there will be none."""
        status = response.status
        complaint = _error_text(response.body)
        wait = parse_retry_after(response.headers)
        busy = status in OVERLOADED
        if busy:
            self._limiter.record_overload(started, wait if wait is not None and wait <= MAX_RETRY_AFTER else None)
        # An overloaded server gets twice the retries: the limiter has to find the right number of calls first.
        allowed = self.context.retries * (2 if busy else 1)
        heals = _is_retryable(status, complaint) and response.headers.get("x-should-retry") != "false"
        if not heals or tries > allowed or (wait or 0.0) > MAX_RETRY_AFTER:
            error = self._status_error(status, complaint)
            if wait is not None and wait > MAX_RETRY_AFTER:
                error.hint = f"The server asks to come back in {wait:.0f} s; run the same command again then."
            raise error
        return max(wait or 0.0, 0.001) if wait is not None else backoff(tries + 1)

    def _status_error(self, status: int, complaint: str) -> ModelError:
        words = self.excerpt(complaint) or "no further word"
        message = f"the server answered {status}: {words}"
        if CONTEXT_OVERFLOW.search(complaint) and status in (400, 413, 422, 500):
            return PromptTooLong(
                message, "The prompt is too long for this model: shorten the case or the skill.", status=status
            )
        hint = STATUS_HINTS.get(status, "").format(key=self.key_variable or "the key")
        if OUT_OF_CREDIT.search(complaint):
            hint = "The account has no credit left."
        return ModelError(message, hint, status=status)

    def _unsupported_param(self, response: Response, body: Mapping[str, Any]) -> str:
        complaint = _error_text(response.body, whole=True)
        if not UNSUPPORTED_PARAM.search(complaint):
            return ""
        lesson = self.rejected_param(complaint, body)
        if lesson and lesson not in self._told_lines:
            self._told_lines.add(lesson)
            self.context.tell(f"{self.address.name}: the server does not take {lesson}; going on without it")
        return lesson

    def _decode(self, response: Response, request: Request) -> dict[str, Any]:
        """The JSON object in a 200, which some servers also use for their errors."""
        if not response.body.strip():
            raise ModelError("the server answered 200 with an empty body", status=200)
        try:
            answer: Any = json.loads(response.body)
        except ValueError:
            words = self.excerpt(_error_text(response.body))
            kind = "an HTML page" if response.body.lstrip()[:1] == b"<" else "something that is not JSON"
            hint = "Is the base URL the API's own?" if kind == "an HTML page" else ""
            raise ModelError(f"the server answered 200 with {kind}: {words}", hint, status=200) from None
        answer = dict_or_empty(answer)
        if answer.get("error") or answer.get("type") == "error":
            complaint = _error_text(response.body)
            error = self._status_error(200, complaint)
            error.message = f"the server answered 200 with an error: {self.excerpt(complaint)}"
            raise error
        return answer

    def output_limit_error(self, reason: str) -> ModelError:
        """For an answer that ran into its limit before its first word."""
        return ModelError(
            f"the model used up its output tokens before it answered (stopped by {reason!r})",
            "Allow more with --max-output-tokens.",
        )

    def tell_once(self, line: str) -> None:
        if line not in self._told_lines:
            self._told_lines.add(line)
            self.context.tell(line)

    def excerpt(self, text: str) -> str:
        return safe_excerpt(text, self._secrets)


def missing_key(provider: str, variable: str) -> UsageError:
    return UsageError(
        f"no API key for {provider}: {variable} is not set",
        f"Set it with `export {variable}=...`, or write {variable}=... into .env; "
        "without any key, the model `local` works.",
    )


def check_base_url(address: Address, url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{address.name!r}: the base URL {url!r} does not begin with http:// or https://")
    return url


def encode(body: Mapping[str, Any]) -> bytes:
    return compact(body).encode("utf-8", "replace")


def _is_retryable(status: int, complaint: str) -> bool:
    return (
        status in RETRYABLE
        and not (status == 429 and OUT_OF_CREDIT.search(complaint))
        and not CONTEXT_OVERFLOW.search(complaint)
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def _error_text(body: bytes, *, whole: bool = False) -> str:
    """What a server says is wrong, in its own words, from any of the shapes that are in use."""
    text = body.decode("utf-8", "replace").strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        plain = title.group(1) if title else re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)
        return html.unescape(plain).strip()
    try:
        answer: Any = json.loads(text)
    except ValueError:
        return text
    if whole:
        return json.dumps(answer, ensure_ascii=False)
    if isinstance(answer, list):  # Gemini wraps its errors in a list
        answer = next(iter(cast("list[Any]", answer)), "")
    fields = dict_or_empty(cast("object", answer))
    said: Any = fields.get("error") or fields.get("message") or fields.get("detail") or text
    if isinstance(said, dict):
        inner = dict_or_empty(cast("object", said))
        code = inner.get("code") or inner.get("type")
        words: Any = inner.get("message") or inner
        if not isinstance(words, str):
            words = json.dumps(words, ensure_ascii=False)
        return f"{words} ({code})" if isinstance(code, str) and code not in words else words
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
