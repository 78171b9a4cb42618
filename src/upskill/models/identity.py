"""What stands behind an address on this machine, so that results of one model are never taken for those of another."""

from __future__ import annotations

import hashlib
from pathlib import Path

from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.models import Address
from upskill.skills.agent_specs import AGENT_SPECS


def identity_of(address: Address) -> list[object]:
    """The hash of a model's weights or of its script, or the version of its program.

    Empty where only a provider knows what answers; it may say so in its reply (`Reply.model`).
    """
    if address.provider == "local":
        from upskill.models.embedded.weight_files import weights_identity  # noqa: PLC0415 - only for embedded models

        return weights_identity(address)
    if address.provider == "scripted":
        return [_script_hash(Path(address.model))]
    if address.provider == "command" and (spec := AGENT_SPECS.get(address.endpoint)):
        from upskill.models.program import program_version  # noqa: PLC0415 - only for programs

        return [program_version(spec.program)]
    return []


def _script_hash(path: Path) -> str:
    try:
        return hashlib.sha256(read_input(path)).hexdigest()
    except UsageError:  # whoever opens it says why
        return ""
