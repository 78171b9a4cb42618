"""What holds for a call over HTTP, whichever library sends it; the servers here are sockets that we write to."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from upskill.models.http.transport import (
    Response,
    Timeouts,
    TransportError,
    acquire_transport,
    trusted_certificates,
)

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler, secure: bool = False) -> AsyncGenerator[str]:
    """The address of a server that reads the heads of requests, and does with them and the connection what it likes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await handle(await reader.readuntil(b"\r\n\r\n"), reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    context = None
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    yield f"{'https' if secure else 'http'}://localhost:{server.sockets[0].getsockname()[1]}"
    server.close()


async def get(url: str, timeouts: Timeouts | None = None) -> Response:
    transport = acquire_transport()
    try:
        return await transport.send(url, {"Accept": "application/json"}, timeouts or Timeouts())
    finally:
        await transport.release()


def answering(data: bytes) -> Handler:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(data)

    return handle


def cutting(data: bytes) -> Handler:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return handle


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["waiting", "reading"])
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_call_that_is_given_up_drops_its_connection(
    begun: bytes, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(begun)
        asked.set()
        assert await reader.read(1) == b""  # the end of the connection
        dropped.set()

    transport = acquire_transport()  # stays open, as a run's does when one trial is given up
    async with serving(handle) as url:
        call = asyncio.create_task(transport.send(url, {}, Timeouts(first_byte=3600, total=3600)))
        await asked.wait()
        await asyncio.sleep(0.05)  # for the beginning of the answer to be read
        with monkeypatch.context() as patch:
            if how == "cancelled":
                call.cancel()
            else:
                patch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + 3600)
            with pytest.raises(asyncio.CancelledError if how == "cancelled" else TransportError):
                await call
        await dropped.wait()
    await transport.release()


async def test_connections_are_closed_when_the_last_model_is() -> None:
    dropped = asyncio.Event()

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK)
        if await reader.read(1) == b"":
            dropped.set()

    async with serving(handle) as url:
        assert (await get(url)).body == b"ok"
        await dropped.wait()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "dropped connection"),
        (BEGUN, "dropped connection"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "dropped connection",
        ),
        (b"hello there\r\n\r\n", "unreadable body"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
            "unreadable body",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
            "unreadable body",
        ),
    ],
    ids=["at once", "in the body", "in the chunks", "no HTTP", "no gzip", "brotli"],
)
async def test_half_an_answer_is_none(data: bytes, kind: str) -> None:
    async with serving(cutting(data)) as url:
        with pytest.raises(
            TransportError, match=r"(dropped before the answer was complete|cannot be read): [^{]*$"
        ) as caught:
            await get(url)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/", "(Connection refused|Connect call failed)"),
        ("http://no-such-host.invalid/", "(name|Name|address)"),
        ("http://[::1/", ""),
        ("http://", ""),
    ],
)
async def test_a_server_that_cannot_be_reached_is_told_in_words(url: str, words: str) -> None:
    with pytest.raises(TransportError, match=f"^no connection: [^{{]*{words}") as caught:
        await get(url)
    assert caught.value.kind == "no connection"


async def test_a_key_with_a_line_break_is_told_and_not_shown() -> None:
    transport = acquire_transport()
    async with serving(answering(OK)) as url:
        with pytest.raises(TransportError, match=r"no connection: .*header") as caught:
            await transport.send(url, {"Authorization": "Bearer open\nsesame"}, Timeouts(), b"{}")
    await transport.release()
    assert "sesame" not in caught.value.message


async def test_what_a_proxy_is_opened_with_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://somebody:pass-word@127.0.0.1:9")
    with pytest.raises(TransportError, match="no connection") as caught:
        await get("https://behind-a-proxy.example/")
    assert "pass-word" not in caught.value.message


async def test_a_redirect_is_not_followed_and_no_cookie_sent_back() -> None:
    heads: list[bytes] = []

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        heads.append(head)
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: /else\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
        )

    transport = acquire_transport()
    async with serving(handle) as url:
        for _ in range(2):
            response = await transport.send(f"{url}/here", {}, Timeouts())
            assert (response.status, response.headers["LOCATION"]) == (302, "/else")
    await transport.release()
    assert len(heads) == 2
    assert all(b" /here " in head and b"cookie" not in head.lower() for head in heads)


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("upskill.models.http.transport.MAX_BODY", 100_000)
    packed = gzip.compress(bytes(100_001), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with serving(answering(head + packed)) as url:
        with pytest.raises(TransportError, match="larger than") as caught:
            await get(url)
    assert caught.value.kind == "too large"


async def test_a_download_goes_into_its_file_from_the_beginning() -> None:
    transport = acquire_transport()
    with tempfile.TemporaryFile() as into:
        into.write(b"what an earlier attempt left")
        async with serving(answering(OK)) as url:
            response = await transport.send(url, {}, Timeouts(), into=into)
        assert (response.body, into.read()) == (b"", b"ok")
    await transport.release()


async def test_a_certificate_is_trusted_where_the_environment_names_its_authority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def get_with(authority: str) -> str:
        monkeypatch.setenv("SSL_CERT_FILE", authority)
        trusted_certificates.cache_clear()
        try:
            return (await get(url)).body.decode()
        except TransportError as error:
            return f"{error.kind} {error.message}"
        finally:
            trusted_certificates.cache_clear()

    async with serving(answering(OK), secure=True) as url:
        assert await get_with(str(CERTIFICATES / "authority.pem")) == "ok"
        assert "no connection: SSL_CERT_FILE is /no/such/file" in await get_with("/no/such/file")
        assert "no connection: the server's certificate is not trusted" in await get_with("")
