"""Outputs: files and folders that a person names, written whole or not at all.

Files with the content of a run are *private*: only their owner can ever read them. Existing files keep their
permissions.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from upskill.errors import UsageError

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
# How the files begin that `report`, `export`, `runs`, `pack` and `eval --report` write.
_OURS = re.compile(
    rb"run,(?:created,)?skill,model,"  # CSV
    rb'|\{\s*"run": "[^"]+",.{0,1000}"skill": '  # JSON
    rb'|\{"format":"upskill-replies"'
    rb'|<\?xml [^>]*>\s*<testsuites name="upskill '  # JUnit
    rb"|### upskill: "  # Markdown
    rb'|<!doctype html>.{0,100}<meta name="generator" content="upskill"'
    rb'|<svg [^>]{0,300}class="up-picture"'
    rb"|.*\n  Read every answer(?: and [0-9,]+ more notes?)?: upskill show "  # what a terminal shows
    rb"|PK\x03\x04.*upskill pack\Z",
    re.S,
)
MAX_READ = 16_384  # bytes of a file's beginning, and of its end, where an archive says who wrote it


def open_private(path: str | Path, mode: str = "w") -> IO[Any]:
    """Open a file for writing; a new one is readable by its owner only."""
    encoding, errors = (None, None) if "b" in mode else ("utf-8", "backslashreplace")
    opener: Callable[[str, int], int] = lambda name, flags: os.open(name, flags, PRIVATE_FILE)  # noqa: E731
    return open(path, mode, encoding=encoding, errors=errors, opener=opener)


def make_private_folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def check_ours(path: str | Path, *, force: bool = False) -> None:
    """UsageError if the file exists, is not empty, and upskill did not write it."""
    target = Path(path)
    if force or not target.is_file():
        return
    content = b""
    with suppress(OSError, EOFError, zlib.error):  # a file that cannot be read is not ours
        with target.open("rb") as stream:
            content = stream.read(MAX_READ)
            stream.seek(max(len(content), target.stat().st_size - MAX_READ))
            content += stream.read()
        if content.startswith(b"\x1f\x8b"):
            with gzip.open(target) as stream:
                content = stream.read(MAX_READ)
    if target.stat().st_size and not _OURS.match(content):
        raise UsageError(
            f"{target}: already exists, and upskill did not write it",
            "Choose another file, or overwrite this one with --force.",
        )


@contextmanager
def whole_file(path: str | Path, *, private: bool = False) -> Generator[BinaryIO]:
    """The file gets its name, and the permissions of the one it replaces, once it is complete. A link is replaced.

    A device or a FIFO is written to directly.
    """
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target}: not a regular file", "Choose another file.")
    with _write_errors(target):
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                yield stream
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        usual = PRIVATE_FILE if private else 0o644 & ~_umask()
        mode = (
            target.stat().st_mode & 0o777 if target.exists() and not target.is_symlink() else usual
        )
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", dir=target.parent)
        fresh = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
            fresh.chmod(mode)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: str | Path, marker: str, *, force: bool = False) -> Generator[Path]:
    """An empty private folder to fill; it gets its name once it is complete.

    An existing one is replaced only if it is empty, or if `marker` shows that we wrote it and nobody changed it since;
    with `force`, changes are ignored.
    """
    target = Path(path)
    if os.path.lexists(target) and (refusal := _not_ours(target, marker, force=force)):
        raise UsageError(
            f"{target}: {refusal}", "Choose a new folder, or one with an unchanged export."
        )
    with replaced_folder(target, mode=PRIVATE_FOLDER) as fresh:
        yield fresh
        (fresh / marker).touch()  # last: anything newer is not ours


@contextmanager
def replaced_folder(
    target: Path, carry: Callable[[Path, Path], None] | None = None, *, mode: int = 0o777
) -> Generator[Path]:
    """An empty folder that then replaces whatever has its name; `carry` may move something from the old one."""
    with _write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name[:50]}.", dir=target.parent))
        fresh, old = work / "new", work / "old"
        try:
            fresh.mkdir(mode)
            yield fresh
            if os.path.lexists(target):
                target.rename(old)
            fresh.rename(target)
            if carry and os.path.lexists(old):
                carry(old, target)
        except BaseException:  # also on Ctrl-C: first put the old folder back
            if os.path.lexists(old) and not os.path.lexists(target):
                old.rename(target)
            if not os.path.lexists(old):
                shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)


def _not_ours(target: Path, marker: str, *, force: bool) -> str:
    """Empty if the folder may be replaced."""
    if target.is_symlink() or not target.is_dir():
        return "not a folder"
    mark = target / marker
    if not mark.is_file():
        return "contains files that upskill did not export" if any(target.iterdir()) else ""
    made = mark.stat().st_mtime_ns
    for folder, _, files in () if force else os.walk(target):
        for name in files:
            if os.lstat(path := os.path.join(folder, name)).st_mtime_ns > made:  # noqa: PTH118 - may be very many
                return f"{os.path.relpath(path, target)} was added or changed after the export"
    return ""


@contextmanager
def _write_errors(target: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{target}: cannot be written: {error.strerror or error}", "Nothing was changed."
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
