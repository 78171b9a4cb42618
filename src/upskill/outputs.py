"""Outputs: files and folders that a person names, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError


@contextmanager
def whole_file(path: str | Path) -> Generator[BinaryIO]:
    """The file gets its name, and the rights of the one it replaces, once it is whole. A link is replaced."""
    target = Path(path)
    if target.exists() and not target.is_symlink() and not target.is_file():
        raise UsageError(f"{target}: is not a file that can be replaced", "Name another place.")
    with _write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644 & ~_umask()
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
def whole_folder(path: str | Path, marker: str) -> Generator[Path]:
    """An empty folder to fill, which gets its name once everything is in it.

    An existing one is replaced only if it is empty, or if `marker` shows that we wrote it and nobody changed it.
    """
    target = Path(path)
    if os.path.lexists(target) and (refusal := _not_ours(target, marker)):
        raise UsageError(f"{target}: {refusal}", "Name a folder that is not there yet, or an unchanged export.")
    with replaced_folder(target) as fresh:
        yield fresh
        (fresh / marker).touch()  # the last: whatever is newer is somebody else's
        fresh.chmod(0o755 & ~_umask())


@contextmanager
def replaced_folder(target: Path, carry: Callable[[Path, Path], None] | None = None) -> Generator[Path]:
    """An empty folder that then replaces whatever has its name; `carry` may move something from the old one."""
    with _write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name[:50]}.", dir=target.parent))
        fresh, old = work / "new", work / "old"
        try:
            fresh.mkdir()
            yield fresh
            if os.path.lexists(target):
                target.rename(old)
            fresh.rename(target)
            if carry and os.path.lexists(old):
                carry(old, target)
        except BaseException:  # Ctrl-C, too: the old folder comes back before anything else happens
            if os.path.lexists(old) and not os.path.lexists(target):
                old.rename(target)
            if not os.path.lexists(old):
                shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)


def _not_ours(target: Path, marker: str) -> str:
    """Empty if the folder may be replaced."""
    if target.is_symlink() or not target.is_dir():
        return "is not a folder"
    mark = target / marker
    if not mark.is_file():
        return "has something else in it" if any(target.iterdir()) else ""
    made = mark.stat().st_mtime_ns
    for folder, _, files in os.walk(target):
        for name in files:
            if os.lstat(path := os.path.join(folder, name)).st_mtime_ns > made:  # noqa: PTH118 - may be very many
                return f"{os.path.relpath(path, target)} in it was added or changed after it was exported"
    return ""


@contextmanager
def _write_errors(target: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}", "Nothing was changed.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
