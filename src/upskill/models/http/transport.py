"""A Transport carries one HTTP request there and its answer back; nothing above it knows which library does it.

The one here is aiohttp: one session for each event loop, shared by every model of the process, with keep-alive and a
bounded pool. Imported only when a model on the wire is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Literal, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import uuid4
from weakref import WeakKeyDictionary

import aiohttp

from upskill.errors import UpskillError

POOL = 1024  # sockets in all; how many go to one endpoint is decided by its gate
CONNECT = 15.0  # seconds
LARGEST_BODY = 32 * 1024 * 1024  # bytes; no answer of a model is near it


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]  # looked up without regard to case
    body: bytes


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until there is a connection, until the answer begins, and until all of it is here."""

    connect: float = CONNECT
    first_byte: float = 300.0
    total: float = 300.0


class Undelivered(UpskillError):
    """No whole answer came back: `refused` before, `cut` after the request was sent, `late`, or `too large`."""

    def __init__(self, message: str, kind: Literal["refused", "cut", "late", "too large"]) -> None:
        super().__init__(message)
        self.kind = kind


class Transport(Protocol):
    """Raises Undelivered when no whole answer came back; any status is an answer."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Response: ...

    async def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts, into: IO[bytes] | None = None
    ) -> Response:
        """`into` takes the body of a 200 in place of the Response, however large it is."""
        ...


class AiohttpTransport:
    """The shared session of one event loop, counted: it is closed when the last model that took it lets go."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._takers = 0

    def take(self) -> AiohttpTransport:
        self._takers += 1
        return self

    async def let_go(self) -> None:
        self._takers -= 1
        if self._takers <= 0:
            self._takers = 0
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=POOL, keepalive_timeout=60),
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
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect)  # the rest is timed here, once
        now = asyncio.get_running_loop().time()
        began = False
        try:
            async with asyncio.timeout_at(now + min(timeouts.first_byte, timeouts.total)) as waiting:
                async with self._opened().request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    timeout=limits,
                    proxy=proxy_for(url),
                    allow_redirects=False,
                ) as response:
                    began = True
                    if timeouts.first_byte < timeouts.total:
                        waiting.reschedule(now + timeouts.total)
                    if into is not None and response.status == 200:
                        await _pour(response.content, into)
                        return Response(response.status, response.headers, b"")
                    return Response(response.status, response.headers, await _read(response.content))
        except aiohttp.ConnectionTimeoutError as error:
            raise Undelivered(f"no connection within {timeouts.connect:g} s", "refused") from error
        except TimeoutError as error:
            if began:
                raise Undelivered(f"the answer had not ended after {timeouts.total:g} s", "late") from error
            waited = min(timeouts.first_byte, timeouts.total)
            raise Undelivered(f"no answer had begun after {waited:g} s", "late") from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise Undelivered(f"no connection: {error}", "refused") from error
        except (aiohttp.ClientError, OSError) as error:
            said = str(error) or type(error).__name__
            raise Undelivered(f"the connection was cut before the answer ended: {said}", "cut") from error


@lru_cache(maxsize=64)
def proxy_for(url: str) -> str | None:
    """The proxy prescribed here, looked up once: aiohttp's own look-up passes through a thread at each call."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


async def _read(content: aiohttp.StreamReader) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_BODY:
            raise Undelivered(f"the answer is larger than {LARGEST_BODY:,} bytes", "too large")
    return b"".join(chunks)


async def _pour(content: aiohttp.StreamReader, into: IO[bytes]) -> None:
    into.seek(0)
    into.truncate()  # an earlier try may have been cut
    async for chunk in content.iter_any():
        into.write(chunk)
    into.seek(0)


def form(fields: Mapping[str, str], name: str, file: bytes) -> tuple[str, bytes]:
    """A file with some fields as multipart/form-data: its content type, and its body."""
    boundary = uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
        for field, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    parts += [
        head.encode(),
        b"Content-Type: application/octet-stream\r\n\r\n",
        file,
        f"\r\n--{boundary}--\r\n".encode(),
    ]
    return f"multipart/form-data; boundary={boundary}", b"".join(parts)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, AiohttpTransport] = WeakKeyDictionary()


def take_transport() -> AiohttpTransport:
    """The transport of the running event loop; whoever takes it lets go of it once."""
    return _shared.setdefault(asyncio.get_running_loop(), AiohttpTransport()).take()
