"""Which weights a local model's name stands for, so that results of one model are never taken for those of another."""

from __future__ import annotations

from pathlib import Path

from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.embedded.weight_files import check_gguf, known_sha256

# Part of the identity: raise it when the same weights would answer differently than before.
GENERATION = 2  # one thread, prompts read in fixed steps


def weights_identity(address: Address) -> list[object]:
    """What the name at this address means here: the SHA-256 of its weights, or the file that the hub has under it."""
    name = address.model or DEFAULT_LOCAL_MODEL
    if row := LOCAL_MODELS.get(name):
        return [GENERATION, row.sha256 or row.file]
    path = Path(name).expanduser()
    try:
        check_gguf(path)
        return [GENERATION, known_sha256(path)]
    except (OSError, UsageError):  # the model cannot be opened either, and whoever opens it says why
        return [GENERATION, name]
