"""The API keys and base URLs that models may use, from the environment and from a `.env` file.

They are never put into the environment, so no process we start inherits a key from the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from upskill.inputs import read_input_text
from upskill.models.endpoints import ENDPOINTS

ENV_LINE = re.compile(r"""^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$""")
KEY_VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    *(name for row in ENDPOINTS.values() for name in (*row.key_variables, *row.url_variables)),
)


def find_keys(
    environment: Mapping[str, str] = os.environ, env_file: Path = Path(".env")
) -> dict[str, str]:
    """Every known variable that is set, not to nothing. The environment wins over the file."""
    lines = read_input_text(env_file).splitlines() if env_file.is_file() else []
    keys = {match[1]: _unquoted(match[2]) for match in map(ENV_LINE.match, lines) if match}
    return {
        name: value for name in KEY_VARIABLES if (value := environment.get(name) or keys.get(name))
    }


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else value[1:]
    return re.split(r"\s#", value, maxsplit=1)[0].strip() if not value.startswith("#") else ""
