"""Sends an HTTP request, over connections that all models of an event loop share."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from upskill.errors import UpskillError
from upskill.models.endpoints import is_loopback

MAX_CONNECTIONS = 1024  # sockets in total
CONNECT_TIMEOUT = 15.0  # seconds
MAX_BODY = 32 * 1024 * 1024  # bytes; no model's response comes near it


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]  # case-insensitive
    body: bytes


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to the first byte of the response, and to the last."""

    first_byte: float = 300.0
    total: float = 300.0


class TransportError(UpskillError):
    """There is no complete response."""

    def __init__(
        self,
        message: str,
        kind: Literal[
            "no connection", "dropped connection", "timeout", "too large", "unreadable body"
        ],
    ) -> None:
        super().__init__(message)
        self.kind = kind


class Transport:
    """The connections of one event loop. The last to release them closes them."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    def acquire(self) -> Transport:
        self._users += 1
        return self

    async def release(self) -> None:
        self._users = max(0, self._users - 1)
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        body: bytes | None = None,
        into: IO[bytes] | None = None,
    ) -> Response:
        """TransportError when there is no complete response. `into` gets the body of a 200, however large."""
        wait = min(timeouts.first_byte, timeouts.total)
        connect = min(CONNECT_TIMEOUT, wait)
        started = asyncio.get_running_loop().time()
        began = False
        try:
            async with (
                asyncio.timeout_at(started + wait) as deadline,
                self._open_session().request(
                    "GET" if body is None else "POST",
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    proxy=proxy_for(url),
                    ssl=trusted_certificates() if url.startswith("https:") else True,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
                ) as response,
            ):
                began = True
                deadline.reschedule(started + timeouts.total)
                target = into if response.status == 200 else None
                return Response(response.status, response.headers, await _read(response, target))
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportError(f"no connection within {connect:g} s", "no connection") from error
        except TimeoutError as error:
            if began:
                raise TransportError(
                    f"the answer was not complete after {timeouts.total:g} s", "timeout"
                ) from error
            raise TransportError(f"no answer started within {wait:g} s", "timeout") from error
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            raise _transport_error(error, began=began) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def _transport_error(error: Exception, *, began: bool) -> TransportError:
    """The error in our words: those of aiohttp can hold the password of a proxy."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            cause = "the server's certificate is not trusted (SSL_CERT_FILE can point to other certificates)"
        case aiohttp.ClientConnectorError():
            cause = error.os_error.strerror or str(error.os_error)
        case aiohttp.ClientHttpProxyError(status=407):
            cause = "the proxy requires a username and password"
        case aiohttp.ClientHttpProxyError():
            cause = f"the proxy answered {error.status}"
        case aiohttp.InvalidURL():
            cause = "not a valid URL"
        case ValueError() if not began:  # of a URL or a header, which is not quoted
            cause = str(error)
        case _ if is_unreadable(error):
            cause = getattr(error.__cause__ or error, "message", "") or type(error).__name__
            return TransportError(f"the answer cannot be read: {cause}", "unreadable body")
        case _:
            cause = str(error) or type(error).__name__
            return TransportError(
                f"the connection dropped before the answer was complete: {cause}",
                "dropped connection",
            )
    return TransportError(f"no connection: {cause}", "no connection")


def is_unreadable(error: Exception) -> bool:
    """Whether a response is malformed, or in an encoding that cannot be decoded."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return False
    return isinstance(error, aiohttp.ClientResponseError) or isinstance(
        error.__cause__, ContentEncodingError
    )


# Where systems keep the certificates they trust, in one file.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@lru_cache(maxsize=1)
def trusted_certificates() -> ssl.SSLContext:
    if named := os.environ.get("SSL_CERT_FILE"):
        try:
            return ssl.create_default_context(cafile=named)
        except OSError as error:
            raise TransportError(
                f"no connection: SSL_CERT_FILE is {named}: {error.strerror}", "no connection"
            ) from None
    context = ssl.create_default_context()
    if bundle := next((path for path in BUNDLES if Path(path).is_file()), None):
        context.load_verify_locations(bundle)  # a Python from elsewhere may miss it
    return context


@lru_cache(maxsize=64)
def proxy_for(url: str) -> str | None:
    """The proxy that the environment sets for this URL; never for a server on this machine."""
    parts = urlsplit(url)
    return (
        None
        if is_loopback(url) or proxy_bypass(parts.hostname or "")
        else getproxies().get(parts.scheme)
    )


async def _read(response: aiohttp.ClientResponse, into: IO[bytes] | None) -> bytes:
    if into is not None:
        into.seek(0)
        into.truncate()  # an earlier attempt may have left a part
        async for chunk in response.content.iter_any():
            into.write(chunk)
        into.seek(0)
        return b""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            raise TransportError(f"the answer is larger than {MAX_BODY:,} bytes", "too large")
    return bytes(body)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Transport] = WeakKeyDictionary()


def acquire_transport() -> Transport:
    """The shared transport of the running event loop; call `release` once when done."""
    return _shared.setdefault(asyncio.get_running_loop(), Transport()).acquire()
