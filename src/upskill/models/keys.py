"""The API keys and base URLs that models may use, from the environment and from a `.env` file.

Models get them as a plain mapping. They are never put into the environment, so no process we start inherits a key from
the file; other variables of the file are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from upskill.inputs import read_input_text
from upskill.models.endpoints import ENDPOINTS

ENV_LINE = re.compile(r"""^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$""")
KEY_VARIABLES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            *(name for row in ENDPOINTS.values() for name in (*row.key_variables, *row.url_variables)),
        )
    )
)


def find_keys() -> dict[str, str]:
    """The keys of this process's environment and of `.env` in the current folder."""
    return read_keys(os.environ, Path(".env"))


def read_keys(environment: Mapping[str, str], env_file: Path | None = None) -> dict[str, str]:
    """Every known variable that is set. The environment wins over the file; an empty value counts as not set."""
    found = read_env_file(env_file) if env_file is not None and env_file.is_file() else {}
    found |= {name: environment[name] for name in KEY_VARIABLES if environment.get(name)}
    return found


def read_env_file(path: Path) -> dict[str, str]:
    """The known variables among the KEY=VALUE lines of a file."""
    text = read_input_text(path)
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = ENV_LINE.match(line)
        if match and match.group(1) in KEY_VARIABLES and (value := _unquoted(match.group(2))):
            found[match.group(1)] = value
    return found


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else value[1:]
    return re.split(r"\s#", value, maxsplit=1)[0].strip() if not value.startswith("#") else ""
