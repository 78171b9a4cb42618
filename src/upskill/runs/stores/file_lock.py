"""A lock file that one process holds at a time; it is released when the process ends, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TRIES = 3


@contextmanager
def file_lock(path: Path) -> Generator[bool]:
    """Hold the lock while the block runs; False where another process has it.

    Where the platform or the file system has no locks, everyone gets it.
    """
    tries = 0
    while fcntl is not None:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tries += 1
                if tries < TRIES:  # somebody may be asking `is_locked`, and that takes no time
                    time.sleep(0.02)
                    continue
                yield False
                return
            except OSError:  # a file system without locks
                path.unlink(missing_ok=True)
                break
            # The previous holder may have removed the file after we opened it and before we locked it.
            if not _is_same_file(file, path):
                continue
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return
    yield True


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    try:
        with path.open() as file:
            if fcntl is None:
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or no locks
        return False
    return False


def _is_same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
