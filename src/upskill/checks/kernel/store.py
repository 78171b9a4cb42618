"""The file that a runner hands outputs over in: without a name, and read and written by several threads at once.

The outputs of one trial come to gigabytes of memory that is touched for the first time, which is what takes the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

CHUNK = 2**22
MOST_THREADS = 8


def write(store: int, data: memoryview, at: int) -> None:
    """Put these bytes at a place of the file."""
    _in_chunks(len(data), lambda first, last: _write(store, data[first:last], at + first))


def read(store: int, at: int, target: memoryview) -> None:
    """Fill this memory with what the file has from a place on."""
    _in_chunks(len(target), lambda first, last: _read(store, target[first:last], at + first))


def _in_chunks(size: int, work: Callable[[int, int], None]) -> None:
    if size <= CHUNK:
        work(0, size)
        return
    bounds = [(first, min(first + CHUNK, size)) for first in range(0, size, CHUNK)]
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1, len(bounds))) as threads:
        for done in [threads.submit(partial(work, *pair)) for pair in bounds]:
            done.result()


def _write(store: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(store, data, at)
        data, at = data[written:], at + written


def _read(store: int, target: memoryview, at: int) -> None:
    while target:
        count = os.preadv(store, [target], at)
        if not count:
            raise EOFError("the runner stored less than it says")
        target, at = target[count:], at + count
