"""Which weights a local model's name stands for, so that results of one model are never taken for those of another."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from upskill.models import Address
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.embedded.weight_files import sha256_of

# Part of the identity: raise it when the same weights would answer differently than before.
GENERATION = 2  # one thread, prompts read in fixed steps


def weights_identity(address: Address) -> list[object]:
    """What the name at this address means here: the SHA-256 of its weights, or the file that the hub has under it."""
    name = address.model or DEFAULT_LOCAL_MODEL
    if row := LOCAL_MODELS.get(name):
        return [GENERATION, row.sha256 or row.file]
    path = Path(name).expanduser()
    try:
        facts = path.stat()
        return [GENERATION, _sha256_at(path, facts.st_size, facts.st_mtime_ns)]
    except OSError:  # the model cannot be opened either, and whoever opens it says why
        return [GENERATION, name]


@lru_cache(maxsize=16)
def _sha256_at(path: Path, _size: int, _changed: int) -> str:
    """Computed once for a file that stays as it is."""
    return sha256_of(path)
