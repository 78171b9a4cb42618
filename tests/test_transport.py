"""What holds for a call over HTTP, whichever library sends it; the servers here are sockets that we write to."""

from __future__ import annotations

import asyncio
import gzip
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from upskill.models.http.transport import MAX_BODY, Response, Timeouts, TransportError, acquire_transport

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
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return handle


def cutting(data: bytes) -> Handler:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return handle


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["waiting", "reading"])
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_call_that_is_given_up_drops_its_connection(
    begun: bytes, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if await reader.read(1) == b"":
            dropped.set()

    async with serving(handle) as url:
        assert (await get(url)).body == b"ok"
        await dropped.wait()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        BEGUN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"hello there\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
    ],
    ids=["at once", "in the body", "in the chunks", "no HTTP", "no gzip"],
)
async def test_half_an_answer_is_none(data: bytes) -> None:
    async with serving(cutting(data)) as url:
        with pytest.raises(TransportError, match=r"cut before the answer ended: [^{]*$") as caught:
            await get(url)
    assert caught.value.kind == "disconnect"


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
    assert caught.value.kind == "connect"


async def test_a_key_with_a_line_break_is_told_and_not_shown() -> None:
    transport = acquire_transport()
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as url:
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

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /else\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")

    transport = acquire_transport()
    async with serving(handle) as url:
        for _ in range(2):
            response = await transport.send(f"{url}/here", {}, Timeouts())
            assert (response.status, response.headers["LOCATION"]) == (302, "/else")
    await transport.release()
    assert len(heads) == 2
    assert all(b" /here " in head and b"cookie" not in head.lower() for head in heads)


async def test_headers_are_found_whatever_their_case() -> None:
    data = b"HTTP/1.1 429 Slow\r\nReTry-After: 5\r\nretry-after: 9\r\nX-Place: caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(data)) as url:
        response = await get(url)
    assert (response.headers["retry-after"], response.headers.get("RETRY-AFTER")) == ("5", "5")
    assert response.headers.get("X-Place", "").startswith("caf")
    assert {"retry-after", "x-place", "content-length"} == {name.lower() for name in response.headers}
    assert "x-other" not in response.headers
    assert response.headers.get("x-other") is None


async def test_answers_come_in_every_form() -> None:
    packed = gzip.compress(b"ok")
    forms = {
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        "continued": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "packed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(packed), packed),
        "until the end": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    }
    for name, data in forms.items():
        async with serving((cutting if name == "until the end" else answering)(data)) as url:
            response = await get(url)
        assert (response.status, response.body) == (200, b"ok"), name
    async with serving(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as url:
        assert (await get(url)).body == b""


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_not_kept() -> None:
    packed = gzip.compress(bytes(MAX_BODY + 1), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with serving(answering(head + packed)) as url:
        with pytest.raises(TransportError, match="larger than") as caught:
            await get(url)
    assert caught.value.kind == "too large"


async def test_a_download_goes_into_its_file_from_the_beginning() -> None:
    transport = acquire_transport()
    with tempfile.TemporaryFile() as into:
        into.write(b"what an earlier attempt left")
        async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as url:
            response = await transport.send(url, {}, Timeouts(), into=into)
        assert (response.body, into.read()) == (b"", b"ok")
    await transport.release()


# In processes of their own.

CALL = """
import asyncio, os, sys
import time
from upskill.models.http.transport import Timeouts, TransportError, acquire_transport

async def call(times=1):
    transport = acquire_transport()
    try:
        calls = [transport.send(sys.argv[1], {}, Timeouts()) for _ in range(times)]
        return await asyncio.gather(*calls)
    finally:
        await transport.release()
"""


async def run_python(code: str, url: str, **environment: str) -> tuple[int | None, str, str]:
    names = ("PATH", "PYTHONPATH", "HOME", "TMPDIR")
    known = {name: os.environ[name] for name in names if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CALL + code, url),
        env=known | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_certificate_is_trusted_where_the_environment_names_its_authority() -> None:
    code = """
try:
    print(asyncio.run(call())[0].body)
except TransportError as error:
    print(error.kind, error.message)
"""
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), secure=True) as url:
        _, unknown, _ = await run_python(code, url)
        _, known, err = await run_python(code, url, SSL_CERT_FILE=str(CERTIFICATES / "authority.pem"))
        _, missing, _ = await run_python(code, url, SSL_CERT_FILE="/no/such/file")
    assert unknown.startswith("connect no connection: ")
    assert "certificate" in unknown
    assert known == "b'ok'\n", err
    assert "SSL_CERT_FILE is /no/such/file" in missing


async def test_a_forked_process_can_call_too() -> None:
    code = """
asyncio.run(call())
if (child := os.fork()) == 0:
    answer = asyncio.run(call())[0].body
    os._exit(0 if answer == b"ok" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.run(call())[0].body)
"""
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as url:
        assert (await run_python(code, url))[:2] == (0, "0 b'ok'\n")


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "return", "sys.exit(3)"])
async def test_a_process_ends_with_calls_in_flight_and_says_nothing_of_them(end: str) -> None:
    code = f"""
async def main():
    calls = asyncio.create_task(call(256))
    await asyncio.sleep(0.5)
    {end}

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with serving(handle) as url:
        code_, out, err = await run_python(code, url)
    assert err == ""
    assert (code_, out) == ((3, "") if "exit" in end else (0, "interrupted\n" if "raise" in end else ""))
