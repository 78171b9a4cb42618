"""Inputs: files that a person names. Only regular files of bounded size are opened: a FIFO or device may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError

MAX_INPUT_BYTES = 100_000_000
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def open_input(path: str | Path, *, most: int = MAX_INPUT_BYTES, hint: str = "") -> BinaryIO:
    """UsageError at once unless it is a regular file of at most this many bytes."""
    try:
        # Opening a FIFO would block until someone writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        stream = (
            os.fdopen(descriptor, "rb")
            if stat.S_ISREG((info := os.fstat(descriptor)).st_mode)
            else None
        )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint) from error
    except ValueError as error:
        raise UsageError(f"{str(path)!r}: the path contains a null byte", hint) from error
    if stream is None:
        os.close(descriptor)
        kind = KINDS.get(stat.S_IFMT(info.st_mode), "a special file")
        raise UsageError(
            f"{path}: {kind}, not a file", hint or "Save its content to a file, and pass that file."
        )
    if info.st_size > most:
        stream.close()
        raise _too_large(path, most)
    return stream


def read_input(path: str | Path, *, most: int = MAX_INPUT_BYTES, hint: str = "") -> bytes:
    with open_input(path, most=most, hint=hint) as stream:
        try:
            data = stream.read(most + 1)  # system files report no size, and some never end
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}", hint) from error
    if len(data) > most:
        raise _too_large(path, most)
    return data


def read_input_text(path: str | Path, *, most: int = MAX_INPUT_BYTES, hint: str = "") -> str:
    try:
        return read_input(path, most=most, hint=hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text", "Save it as UTF-8.") from error


def _too_large(path: str | Path, most: int) -> UsageError:
    size = f"{most // 10**6} MB" if most >= 10**6 else f"{most:,} bytes"
    return UsageError(f"{path}: larger than {size}", "Is this the right file?")
