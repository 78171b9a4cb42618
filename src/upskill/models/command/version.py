"""Which version of a command-line agent is installed: answers of one version are never taken for another's."""

from __future__ import annotations

import shutil
from pathlib import Path

from upskill.models.embedded.weight_files import known_sha256
from upskill.plain import read_json


def program_version(name: str) -> str:
    """The version of the program of this name on the PATH, or the SHA-256 of its file; empty if it is not installed."""
    if (found := shutil.which(name)) is None:
        return ""
    path = Path(found).resolve()
    try:
        return package_version(path) or known_sha256(path)
    except OSError:  # it cannot be started either
        return ""


def package_version(path: Path) -> str:
    """The version of the package that a program came in; empty if it came in none."""
    for folder in path.parents:
        if version := read_json(folder / "package.json").get("version"):
            return str(version)
        if folder.name == "node_modules":
            break
    return ""
