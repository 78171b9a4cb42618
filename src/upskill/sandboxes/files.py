"""A workspace from outside, opened without falling for anything the student planted.

Each part of a path is opened relative to the folder before it, never through a link, and `..` is refused. So whatever
is swapped meanwhile, no step can lead out.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import pwd
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from upskill.errors import SandboxError
from upskill.inputs import read_input
from upskill.sandboxes import DiskUsage, Entry, Limits, MiB, Sandbox, Setup


def unused_user() -> int | None:
    """A user id that nobody has, a different one each time; None if we are not root."""
    if os.geteuid() != 0:
        return None
    first, _, count = (
        int(word) for word in Path("/proc/self/uid_map").read_text(encoding="utf-8").split()[:3]
    )
    # Near the top of the mapped range: a container may have no more than 65,536 users.
    top = min(first + count, 2**31) - 1000
    while True:
        user = top - secrets.randbelow(min(2**24, (top - first) // 16))
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIBC = ctypes.CDLL(None)
CHUNK = 1 << 20
MAX_DEPTH = 64


class Folder:
    """A folder held open. `root` is its path inside; `owner` is the student's user id, if we are root."""

    def __init__(self, descriptor: int, root: str, owner: int | None = None) -> None:
        self.descriptor = descriptor
        self.root = root
        self.owner = owner

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def parts(self, path: str) -> list[str]:
        """The names that a path consists of; PermissionError if it could lead out."""
        printed = path.encode("utf-8", "replace").decode()
        if "\0" in path:
            raise OSError(errno.EINVAL, "a path cannot contain a NUL byte", printed)
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise OSError(errno.EINVAL, "a path cannot contain half a character", printed) from None
        if path == self.root or path.startswith(self.root + "/"):
            path = path[len(self.root) :].lstrip("/")
        elif path.startswith("/"):
            raise PermissionError(errno.EPERM, f"leads out of {self.root}", printed)
        names = [name for name in path.split("/") if name not in ("", ".")]
        if ".." in names:
            raise PermissionError(errno.EPERM, f"leads out of {self.root}", printed)
        if len(names) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "too many folders deep", printed)
        return names

    def read(self, path: str, max_bytes: int) -> bytes:
        *folders, name = self._named(path)
        with self._enter(folders) as folder:
            # Without O_NONBLOCK a FIFO would keep us waiting for a writer that never comes.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            file = _opened(name, flags, folder, path)
            try:
                status = os.fstat(file)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "is a folder", path)
                if not stat.S_ISREG(status.st_mode):
                    raise PermissionError(errno.EPERM, "is not a regular file", path)
                if status.st_size > max_bytes:
                    message = f"has {status.st_size:,} bytes; at most {max_bytes:,} are read"
                    raise OSError(errno.EFBIG, message, path)
                content = bytearray()
                while chunk := os.read(file, min(CHUNK, max_bytes + 1 - len(content))):
                    content += chunk
                if len(content) > max_bytes:  # it grew while we read
                    raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes", path)
                return bytes(content)
            finally:
                os.close(file)

    def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        """What was there is replaced, never written into."""
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        *folders, name = self._named(path)
        fresh = f".{secrets.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._enter(folders, make=True) as folder:
            try:
                with os.fdopen(
                    os.open(fresh, flags, 0o755 if executable else 0o644, dir_fd=folder), "wb"
                ) as file:
                    file.write(data)
                os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(fresh, dir_fd=folder)
                raise type(error)(error.errno, error.strerror, path) from None

    def list(self, path: str, max_entries: int) -> list[Entry]:
        names = self.parts(path)
        entries: list[Entry] = []
        with self._enter(names) as folder:
            self._walk(
                folder, "".join(name + "/" for name in names), entries, max_entries, len(names)
            )
        return sorted(entries, key=lambda entry: entry.path)

    def _walk(
        self, folder: int, prefix: str, entries: list[Entry], max_entries: int, depth: int
    ) -> None:
        with os.scandir(folder) as scanned:
            for entry in scanned:
                if len(entries) >= max_entries:
                    return
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted meanwhile
                    continue
                kind = _kind(status.st_mode)
                size, executable = (
                    (status.st_size, bool(status.st_mode & 0o100)) if kind == "file" else (0, False)
                )
                entries.append(Entry(prefix + entry.name, kind, size, executable))
                if kind != "folder" or depth >= MAX_DEPTH:
                    continue
                with suppress(OSError):  # swapped for something else, or not readable
                    inner = os.open(entry.name, FOLDER, dir_fd=folder)
                    try:
                        self._walk(inner, f"{prefix}{entry.name}/", entries, max_entries, depth + 1)
                    finally:
                        os.close(inner)

    def _named(self, path: str) -> list[str]:
        names = self.parts(path)
        if not names:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return names

    @contextmanager
    def _enter(self, names: Sequence[str], *, make: bool = False) -> Generator[int]:
        """A descriptor of the last of these folders, each opened from the one before it.

        The thread acts as the student: a tmpfs of another user namespace takes no files from root. No await inside.
        """
        with ExitStack() as cleanup:
            if self.owner is not None:
                cleanup.callback(LIBC.setfsgid, LIBC.setfsgid(self.owner))
                cleanup.callback(LIBC.setfsuid, LIBC.setfsuid(self.owner))
            folder = self.descriptor
            for name in (".", *names):
                if make and name != ".":
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=folder)
                folder = _opened(name, FOLDER, folder, "/".join(names))
                cleanup.callback(os.close, folder)
            yield folder


def _opened(name: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        is_link = False
        with suppress(OSError):
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR) and is_link:
            raise PermissionError(
                errno.EPERM, "is a link, and links are not followed", path
            ) from None
        if error.errno == errno.ENXIO:  # a socket
            raise PermissionError(errno.EPERM, "is not a regular file", path) from None
        raise type(error)(error.errno, error.strerror, path) from None


def _kind(mode: int) -> Literal["file", "folder", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def folder_usage(path: Path, limits: Limits) -> DiskUsage:
    """Bytes on disk below a folder, plus a little for every file, up to the limits; links are not followed."""
    written, files, waiting = 0, 0, [str(path)]
    while waiting:
        with (
            suppress(OSError),
            os.scandir(waiting.pop()) as entries,
        ):  # deleted meanwhile, or not readable
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    written, files = written + status.st_blocks * 512 + 1024, files + 1
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                if files > limits.files:
                    return DiskUsage(written, files)
    return DiskUsage(written, files)


class FolderSandbox(Sandbox):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._folders: dict[str, Folder] = {}  # by their path inside

    async def read(self, path: str, max_bytes: int = 16 * MiB) -> bytes:
        await asyncio.sleep(0)  # thousands of files must not keep other trials waiting
        return self._folder(path).read(path, max_bytes)

    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        await asyncio.sleep(0)
        self._folder(path).write(path, content, executable=executable)

    async def list(self, path: str = "", max_entries: int = 10_000) -> list[Entry]:
        return await asyncio.to_thread(self._folder(path).list, path, max_entries)

    def _folder(self, path: str) -> Folder:
        if self.workspace not in self._folders:
            raise SandboxError("the sandbox was stopped, and its files are gone")
        for root, folder in self._folders.items():
            if path.startswith(root + "/"):
                return folder
        return self._folders[self.workspace]

    async def _write_setup_files(self) -> None:
        for root, files in (
            (self.workspace, self._setup.files),
            (self.home, self._setup.home_files),
        ):
            for path, content in files.items():
                await asyncio.sleep(0)
                self._folders[root].write(path, content, executable=path in self._setup.runnable)

    def _close_folders(self) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
        if self.proxy_socket is not None:
            self.proxy_socket.close()


async def copy_in(sandbox: Sandbox, folder: Path, to: str = "") -> list[str]:
    """Returns the links and so on that were left out."""
    left_out: list[str] = []
    for path in sorted(folder.rglob("*")):  # noqa: ASYNC240 - a case brings a few small files
        name = path.relative_to(folder).as_posix()
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            where = f"{to.rstrip('/')}/{name}" if to else name
            await sandbox.write(where, read_input(path), executable=bool(status.st_mode & 0o100))
        elif not stat.S_ISDIR(status.st_mode):
            left_out.append(name)
    return left_out
