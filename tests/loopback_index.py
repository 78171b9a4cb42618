"""A package index on loopback, in a thread of its own: it counts what is asked for, and can hold, cut or swap files."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LoopbackIndex:
    """A simple index, as pip and uv read it. Usable as a context manager."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []  # names of files, as they were asked for
        self.held: set[str] = set()  # these are not answered before `release`
        self.cut: set[str] = set()  # these break off in the middle
        self.together = 0  # answer only once so many are asked for at the same time
        self.most_at_once = 0
        self._at_once = 0
        self._changed = threading.Condition()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def do_HEAD(self) -> None:
                index.answer(self, head=True)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    def __enter__(self) -> LoopbackIndex:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add_wheel(self, module: str, *members: tuple[str, bytes]) -> str:
        name = f"{module}-1.0-py3-none-any.whl"
        self.files[name] = wheel(module, *members)
        return name

    def add_sdist(self, module: str, setup: str) -> str:
        name = f"{module}-1.0.tar.gz"
        self.files[name] = archive(
            {
                f"{module}-1.0/setup.py": setup.encode(),
                f"{module}-1.0/PKG-INFO": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n".encode(),
            }
        )
        return name

    def release(self) -> None:
        with self._changed:
            self.held.clear()
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Until this many files have been asked for."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, 600), self.asked

    def answer(self, request: BaseHTTPRequestHandler, *, head: bool = False) -> None:
        kind, _, name = request.path.strip("/").partition("/")
        if kind == "simple":
            links = [
                f'<a href="/files/{file}#sha256={hashlib.sha256(content).hexdigest()}">{file}</a>'
                for file, content in self.files.items()
                if file.split("-")[0].replace("_", "-") == name
            ]
            self._send(request, "".join(links).encode(), 200 if links else 404, head=head)
        elif head or request.headers.get("Range"):  # uv asks for parts of a wheel, and takes a no for an answer
            self._send(request, b"", 405, head=head)
        else:
            self._send_file(request, name)

    def _send_file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        with self._changed:
            self.asked.append(name)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._changed.notify_all()
            self._changed.wait_for(lambda: name not in self.held and self.most_at_once >= self.together, 1200)
        try:
            self._send(request, self.files[name], cut=name in self.cut)
        except OSError:
            pass  # whoever asked is gone
        finally:
            with self._changed:
                self._at_once -= 1

    def _send(
        self, request: BaseHTTPRequestHandler, body: bytes, status: int = 200, *, head: bool = False, cut: bool = False
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Type", "text/html" if request.path.startswith("/simple") else "application/zip")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if not head:
            request.wfile.write(body[: len(body) // 2] if cut else body)


def wheel(module: str, *members: tuple[str, bytes]) -> bytes:
    info = f"{module}-1.0.dist-info"
    # A dependency that nobody has: fetching it would fail.
    about = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\nRequires-Dist: nobody-has-this-package\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
        file.writestr(f"{info}/METADATA", about)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return packed.getvalue()


def archive(members: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()
