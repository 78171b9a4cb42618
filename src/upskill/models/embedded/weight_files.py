"""Where weights are, whether they are intact, and which ones a name refers to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from upskill.errors import UsageError
from upskill.inputs import open_input
from upskill.models import Address
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS, LocalModel
from upskill.plain import read_json

WeightsState = Literal["ready", "absent", "damaged"]
MAGIC = b"GGUF"
MAX_WEIGHTS_BYTES = 10**12
# Part of the identity: raise it when the same weights would answer differently than before.
GENERATION = 2  # one thread, prompts read in fixed steps


def cache_folder() -> Path:
    """`UPSKILL_CACHE`, or the cache folder of this system."""
    if folder := os.environ.get("UPSKILL_CACHE"):
        try:
            return Path(folder).expanduser()
        except RuntimeError as error:
            raise UsageError(
                f"{folder} is not a folder: {error}", "Set UPSKILL_CACHE to the path of a folder."
            ) from error
    common = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or common).expanduser() / "upskill"


def weights_path(model: LocalModel) -> Path:
    return cache_folder() / "weights" / model.file


def sibling(path: Path, ending: str) -> Path:
    """What belongs to weights: `lock`, `verified` (the stamp), `part` (unfinished) or `fetch` (a package)."""
    return path.with_name(f"{path.name}.{ending}")


def find_gguf(name: str) -> Path:
    """A person's own weights; UsageError unless they are a GGUF file."""
    path = Path(name).expanduser()
    hint = "local:/path/to/model.gguf takes a GGUF file; `upskill models` lists the named models."
    with open_input(path, most=MAX_WEIGHTS_BYTES, hint=hint) as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UsageError(f"{path} is not a GGUF file: it does not start with GGUF")
    return path.resolve()


def weights_state(model: LocalModel) -> WeightsState:
    """Whether the weights are here and intact. Only a file that has changed is hashed."""
    path = weights_path(model)
    try:
        return "ready" if _is_intact(model, path) else "damaged"
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def bytes_on_disk(model: LocalModel) -> int:
    """What the weights take, with an unfinished download of them."""
    path = weights_path(model)
    return sum(map(size_on_disk, (path, sibling(path, "part"), sibling(path, "fetch"))))


def size_on_disk(path: Path) -> int:
    """Bytes; links are not followed."""
    if path.is_symlink():
        return 0
    if path.is_dir():
        return sum(map(size_on_disk, path.iterdir()))
    return path.stat().st_size if path.is_file() else 0


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def move_into_place(download: Path, path: Path, expected: str | None, origin: str) -> None:
    """Verify a download and move it into place. What is wrong is deleted."""
    actual = sha256_of(download)
    if expected not in (None, actual):
        download.unlink()
        raise UsageError(
            f"the download from {origin} has the wrong SHA-256: {actual}, not {expected}",
            "The file was discarded. Try again. If it happens again, a proxy or mirror is changing files.",
        )
    download.replace(path)
    _write_stamp(path, actual)


def _is_intact(model: LocalModel, path: Path) -> bool:
    stamp = read_json(sibling(path, "verified"))  # of the last check
    expected = model.sha256 or stamp.get("sha256")
    if stamp == _file_stamp(path) | {"sha256": expected}:
        return True
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    if expected is not None:
        if (model.sha256 and path.stat().st_size != model.size) or sha256_of(path) != expected:
            return False
        _write_stamp(path, expected)
    return True


def _file_stamp(path: Path) -> dict[str, Any]:
    facts = path.stat()
    return {"size": facts.st_size, "changed": facts.st_mtime_ns}


def _write_stamp(path: Path, sha256: str) -> None:
    with suppress(OSError):  # a read-only shared folder: it is computed again next time
        sibling(path, "verified").write_text(
            json.dumps(_file_stamp(path) | {"sha256": sha256}), encoding="utf-8"
        )


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """The same, computed once in a process for a file that stays as it is."""
    facts = path.stat()
    return _sha256_at(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=16)
def _sha256_at(path: Path, _size: int, _changed: int) -> str:
    return sha256_of(path)


def weights_identity(address: Address) -> list[object]:
    """The SHA-256 of the weights at this address, or their name at the hub."""
    name = address.model or DEFAULT_LOCAL_MODEL
    if row := LOCAL_MODELS.get(name):
        return [GENERATION, row.sha256 or row.file]
    try:
        return [GENERATION, known_sha256(find_gguf(name))]
    except (OSError, UsageError):  # whoever opens it says why
        return [GENERATION, name]
