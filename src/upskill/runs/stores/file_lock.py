"""A lock file that one process holds at a time; it is released when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def file_lock(path: Path) -> Generator[bool]:
    """Hold the lock while the block runs; False where another process has it.

    Where the platform or the file system has no locks, everyone gets it.
    """
    while fcntl is not None:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
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


def _is_same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
