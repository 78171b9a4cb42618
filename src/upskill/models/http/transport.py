"""A Transport sends one HTTP request and returns its response, so that nothing above depends on an HTTP library.

`WreqTransport` keeps one pool of connections per event loop, shared by all models of the process. Imported only when a
model over HTTP is opened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import wreq
from wreq import exceptions
from wreq.redirect import Policy

from upskill.errors import UpskillError
from upskill.models.endpoints import is_loopback
from upskill.record import record

MAX_CONNECTIONS = 1024  # sockets in total; an endpoint's limiter decides how many of them it gets
IDLE_TIMEOUT = timedelta(seconds=60)
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


class WreqTransport:
    """The connections of one event loop, with a count of their users: the last to release them closes them."""

    def __init__(self) -> None:
        self._clients: dict[tuple[float, bool], wreq.Client] = {}  # by seconds to connect, and whether over TLS
        self._runtime: wreq.Runtime | None = None
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._users = 0

    def acquire(self) -> WreqTransport:
        self._users += 1
        return self

    async def release(self) -> None:
        self._users -= 1
        if self._users <= 0:
            self._users = 0
            self._clients.clear()
            self._runtime = None

    def _client(self, connect: float, secure: bool) -> wreq.Client:
        if (client := self._clients.get((connect, secure))) is not None:
            return client
        if self._runtime is None:
            # A thread of our own, not the one of the library: a forked process gets another.
            self._runtime = wreq.Runtime(workers=1, work_steal=False, thread_name="upskill-http")
        client = self._clients[connect, secure] = wreq.Client(
            runtime=self._runtime,
            connect_timeout=timedelta(seconds=connect),
            dns_options=wreq.DnsOptions(system_dns=True),
            http1_only=True,
            no_proxy=True,  # `proxy_for` says which
            pool_idle_timeout=IDLE_TIMEOUT,
            redirect=Policy.none(),
            tls_verify=trusted_certificates() if secure else True,
        )
        return client

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Response:
        return await self._send(wreq.Method.POST, url, headers, body, timeouts, None)

    async def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts, into: IO[bytes] | None = None
    ) -> Response:
        return await self._send(wreq.Method.GET, url, headers, None, timeouts, into)

    async def _send(
        self,
        method: wreq.Method,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeouts: Timeouts,
        into: IO[bytes] | None,
    ) -> Response:
        started = asyncio.get_running_loop().time()
        began = False
        try:
            async with asyncio.timeout_at(started + min(timeouts.first_byte, timeouts.total)) as waiting, self._free:
                client = self._client(timeouts.connect, url.startswith("https:"))
                response = await client.request(method, url, headers=headers, body=body, **_proxied(url))
                began = True
                if timeouts.first_byte < timeouts.total:
                    waiting.reschedule(started + timeouts.total)
                status = response.status.as_int()
                async with response:
                    if into is not None and status == 200:
                        await _read_into(response, into)
                        return Response(status, Headers(response.headers), b"")
                    return Response(status, Headers(response.headers), await _read(response))
        except TimeoutError as error:
            if began:
                raise TransportError(f"the answer had not ended after {timeouts.total:g} s", "timeout") from error
            waited = min(timeouts.first_byte, timeouts.total)
            raise TransportError(f"no answer had begun after {waited:g} s", "timeout") from error
        except (*NOT_CONNECTED, *CUT) as error:
            raise _transport_error(error, timeouts) from error
        except RuntimeError as error:
            if not str(error).startswith("Invalid header"):
                raise
            message = "no connection: a header has characters that HTTP does not allow, such as a line break in a key"
            raise TransportError(message, "connect") from None


class Headers(Mapping[str, str]):
    """The headers of a response, whatever the case of their names; the first where one is repeated."""

    def __init__(self, raw: wreq.HeaderMap) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        value = self._raw.get(name)
        if value is None:
            raise KeyError(name)
        return str(value, "latin-1")

    def __iter__(self) -> Iterator[str]:
        return (str(name, "latin-1") for name in list(self._raw.keys()))

    def __len__(self) -> int:
        return self._raw.keys_len()


NOT_CONNECTED = (
    exceptions.BuilderError,
    exceptions.ConnectionError,
    exceptions.ProxyConnectionError,
    exceptions.TimeoutError,  # only the one to connect is wreq's
    exceptions.TlsError,
    ValueError,  # from `urlsplit`
)
CUT = (
    exceptions.BodyError,
    exceptions.ConnectionResetError,
    exceptions.DecodingError,
    exceptions.RequestError,
    exceptions.UpgradeError,
)
CAUSES = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not trusted (SSL_CERT_FILE can name a file of others)",
    "ProxyAuthRequired": "the proxy wants a name and a password",
    "IncompleteMessage": "the server closed it",
    "kind: Builder": "not a URL that can be asked",
}
SYSTEM_MESSAGE = re.compile(r'(?:message|error): "([^"]+)"')


def _transport_error(error: Exception, timeouts: Timeouts) -> TransportError:
    """Picks the words out of the debugging text that wreq's errors consist of, which can hold the key of a proxy."""
    text = str(error)
    found = SYSTEM_MESSAGE.search(text)
    cause = next((words for sign, words in CAUSES.items() if sign in text), found[1] if found else type(error).__name__)
    if isinstance(error, ValueError):
        cause = text
    if "TimedOut" in text:
        return TransportError(f"no connection within {timeouts.connect:g} s", "connect")
    if isinstance(error, NOT_CONNECTED):
        return TransportError(f"no connection: {cause}", "connect")
    return TransportError(f"the connection was cut before the answer ended: {cause}", "disconnect")


# Where systems keep the certificates they trust, in one file.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def trusted_certificates() -> wreq.CertStore | bool:
    """Those in SSL_CERT_FILE, or those of this machine. True where it has no such file: those of Mozilla, with wreq."""
    named = os.environ.get("SSL_CERT_FILE")
    for place in [named] if named else BUNDLES:
        try:
            return wreq.CertStore.from_pem_stack(Path(place).read_bytes())
        except OSError as error:
            if named:
                raise TransportError(f"no connection: SSL_CERT_FILE is {place}: {error.strerror}", "connect") from None
    return True


@lru_cache(maxsize=64)
def proxy_for(url: str) -> str | None:
    """The proxy that the environment sets for this URL."""
    if is_loopback(url):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - slow, and not for servers of this machine

    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


@lru_cache(maxsize=64)
def _proxied(url: str) -> dict[str, Any]:
    proxy = proxy_for(url)
    return {"proxy": wreq.Proxy.all(proxy)} if proxy else {}


async def _read(response: wreq.Response) -> bytes:
    if (response.content_length or MAX_BODY + 1) <= MAX_BODY:  # None where it is compressed
        return bytes(await response.bytes())
    chunks: list[bytes] = []
    size = 0
    async with response.stream() as stream:
        async for chunk in stream:
            if not isinstance(chunk, wreq.HeaderMap):  # of trailers
                chunks.append(bytes(chunk))
                size += len(chunk)
                if size > MAX_BODY:
                    raise TransportError(f"the answer is larger than {MAX_BODY:,} bytes", "too large")
    return b"".join(chunks)


async def _read_into(response: wreq.Response, into: IO[bytes]) -> None:
    into.seek(0)
    into.truncate()  # an earlier attempt may have left a part
    async with response.stream() as stream:
        async for chunk in stream:
            if not isinstance(chunk, wreq.HeaderMap):  # of trailers
                into.write(chunk)
    into.seek(0)


def encode_form(fields: Mapping[str, str], file_name: str, file: bytes) -> tuple[str, bytes]:
    """Fields and a file as multipart/form-data: the content type and the body."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file_name}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    body = b"".join(["".join(parts).encode(), head.encode(), file, f"\r\n--{boundary}--\r\n".encode()])
    return f"multipart/form-data; boundary={boundary}", body


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WreqTransport] = WeakKeyDictionary()


def acquire_transport() -> WreqTransport:
    """The shared transport of the running event loop; call `release` once when done."""
    return _shared.setdefault(asyncio.get_running_loop(), WreqTransport()).acquire()
