"""Outputs: files and folders that a person names, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError


@contextmanager
def whole_file(path: str | Path) -> Generator[BinaryIO]:
    """A file to write into, which gets its name once everything is in it.

    A link is replaced, not followed; whatever else is no regular file is refused.
    """
    target = Path(path)
    if target.exists() and not target.is_symlink() and not target.is_file():
        raise UsageError(f"{target}: is not a file that can be replaced", "Name another place.")
    with _said(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", dir=target.parent)
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        with _said(target):
            fresh.chmod(0o644 & ~_umask())
            fresh.replace(target)
    except OSError as error:  # of whoever writes: the disk is full, say
        raise _cannot_write(target, error) from error
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: str | Path, marker: str) -> Generator[Path]:
    """An empty folder to fill, which gets its name once everything is in it.

    An existing one is replaced only if it was written here before, which the file `marker` in it shows, or is empty.
    """
    target = Path(path)
    if os.path.lexists(target) and (
        target.is_symlink() or not target.is_dir() or (any(target.iterdir()) and not (target / marker).is_file())
    ):
        raise UsageError(
            f"{target}: has something else in it" if target.is_dir() else f"{target}: is not a folder",
            "Name a folder that is not there yet, or an export that may be replaced.",
        )
    with _said(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name[:50]}.", dir=target.parent))
    try:
        yield fresh
        with _said(target):
            (fresh / marker).touch()
            fresh.chmod(0o755 & ~_umask())
            if target.is_dir():
                target.rename(fresh.with_name(f"{fresh.name}.old"))
            fresh.rename(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(fresh.with_name(f"{fresh.name}.old"), ignore_errors=True)


@contextmanager
def _said(target: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_write(target, error) from error


def _cannot_write(target: Path, error: OSError) -> UsageError:
    return UsageError(f"{target}: cannot be written: {error.strerror or error}", "Nothing was changed.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
