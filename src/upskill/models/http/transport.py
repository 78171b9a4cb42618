"""A Transport sends one HTTP request and returns its response, so that nothing above depends on an HTTP library.

`AiohttpTransport` keeps one session per event loop, shared by all models of the process, with keep-alive and a bounded
pool. Imported only when a model over HTTP is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import IO, Literal, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp

from upskill.errors import UpskillError
from upskill.models.endpoints import is_loopback
from upskill.record import record

MAX_CONNECTIONS = 1024  # sockets in total; an endpoint's limiter decides how many of them it gets
CONNECT_TIMEOUT = 15.0  # seconds
MAX_BODY = 32 * 1024 * 1024  # bytes; no model's response comes near it

logger = logging.getLogger(__name__)


@record
class Response:
    status: int
    headers: Mapping[str, str]  # case-insensitive
    body: bytes


@record
class Timeouts:
    """In seconds: to connect, to the first byte of the response, and to the last."""

    connect: float = CONNECT_TIMEOUT
    first_byte: float = 300.0
    total: float = 300.0


class TransportError(UpskillError):
    """No complete response: not connected, disconnected after the request was sent, timed out, or too large."""

    def __init__(self, message: str, kind: Literal["connect", "disconnect", "timeout", "too large"]) -> None:
        super().__init__(message)
        self.kind = kind


class Transport(Protocol):
    """Raises TransportError when there is no complete response; any status is a response."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Response: ...

    async def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts, into: IO[bytes] | None = None
    ) -> Response:
        """With `into`, the body of a 200 is written there, however large, and not into the Response."""
        ...


class AiohttpTransport:
    """The session of one event loop, with a count of its users: the last to release it closes it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    def acquire(self) -> AiohttpTransport:
        self._users += 1
        return self

    async def release(self) -> None:
        self._users -= 1
        if self._users <= 0:
            self._users = 0
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return self._session

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Response:
        return await self._send("POST", url, headers, body, timeouts, None)

    async def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts, into: IO[bytes] | None = None
    ) -> Response:
        return await self._send("GET", url, headers, None, timeouts, into)

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeouts: Timeouts,
        into: IO[bytes] | None,
    ) -> Response:
        started = asyncio.get_running_loop().time()
        began = False
        try:
            async with asyncio.timeout_at(started + min(timeouts.first_byte, timeouts.total)) as waiting:
                async with self._open_session().request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    timeout=_connect_within(timeouts.connect),
                    proxy=proxy_for(url),
                    allow_redirects=False,
                ) as response:
                    began = True
                    if timeouts.first_byte < timeouts.total:
                        waiting.reschedule(started + timeouts.total)
                    if into is not None and response.status == 200:
                        await _read_into(response.content, into)
                        return Response(response.status, response.headers, b"")
                    return Response(response.status, response.headers, await _read(response.content))
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportError(f"no connection within {timeouts.connect:g} s", "connect") from error
        except TimeoutError as error:
            if began:
                raise TransportError(f"the answer had not ended after {timeouts.total:g} s", "timeout") from error
            waited = min(timeouts.first_byte, timeouts.total)
            raise TransportError(f"no answer had begun after {waited:g} s", "timeout") from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise TransportError(f"no connection: {error}", "connect") from error
        except (aiohttp.ClientError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise TransportError(f"the connection was cut before the answer ended: {cause}", "disconnect") from error


@lru_cache(maxsize=64)
def _connect_within(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=seconds)  # the rest is timed where it is sent


@lru_cache(maxsize=64)
def proxy_for(url: str) -> str | None:
    """The proxy that the environment sets for this URL. Cached: aiohttp's own look-up uses a thread for each call."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


async def _read(content: aiohttp.StreamReader) -> bytes:
    if content.is_eof() and content.total_bytes <= MAX_BODY:  # short ones come together with their headers
        return content.read_nowait()
    chunks: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY:
            raise TransportError(f"the answer is larger than {MAX_BODY:,} bytes", "too large")
    return b"".join(chunks)


async def _read_into(content: aiohttp.StreamReader, into: IO[bytes]) -> None:
    into.seek(0)
    into.truncate()  # an earlier attempt may have left a part
    async for chunk in content.iter_any():
        into.write(chunk)
    into.seek(0)


async def encode_form(fields: Mapping[str, str], file_name: str, file: bytes) -> tuple[str, bytes]:
    """Fields and a file as multipart/form-data: the content type and the body."""
    form = aiohttp.FormData(fields)
    form.add_field("file", file, filename=file_name, content_type="application/octet-stream")
    payload = form()
    return str(payload.headers["Content-Type"]), await payload.as_bytes()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, AiohttpTransport] = WeakKeyDictionary()


def acquire_transport() -> AiohttpTransport:
    """The shared transport of the running event loop; call `release` once when done."""
    return _shared.setdefault(asyncio.get_running_loop(), AiohttpTransport()).acquire()
