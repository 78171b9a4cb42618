from __future__ import annotations

import os
from pathlib import Path

import pytest

from upskill.errors import UsageError
from upskill.models.keys import find_keys

ENV = """\
# keys of this project
OPENAI_API_KEY=sk-plain
export ANTHROPIC_API_KEY="sk-ant quoted"   # the teacher
HF_TOKEN='hf_single'
GROQ_API_KEY = gsk_spaces # a comment
MISTRAL_API_KEY=with#hash
OPENAI_BASE_URL=http://localhost:9/v1?a=b
GEMINI_API_KEY=
TOGETHER_API_KEY=#nothing
DATABASE_PASSWORD=hunter2
not a line
"""


def test_only_known_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("\ufeff" + ENV.replace("\n", "\r\n"), encoding="utf-8")
    assert find_keys({}, file) == {
        "OPENAI_API_KEY": "sk-plain",
        "ANTHROPIC_API_KEY": "sk-ant quoted",
        "HF_TOKEN": "hf_single",
        "GROQ_API_KEY": "gsk_spaces",
        "MISTRAL_API_KEY": "with#hash",
        "OPENAI_BASE_URL": "http://localhost:9/v1?a=b",
    }


def test_the_environment_wins_and_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("OPENAI_API_KEY=from-file\nHF_TOKEN=from-file\n", encoding="utf-8")
    before = dict(os.environ)
    environment = {"OPENAI_API_KEY": "from-environment", "HF_TOKEN": "", "PATH": "/bin"}
    assert find_keys(environment, file) == {
        "OPENAI_API_KEY": "from-environment",
        "HF_TOKEN": "from-file",
    }
    assert dict(os.environ) == before
    assert find_keys({}, tmp_path / "no file") == {}


def test_a_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(UsageError, match=": not UTF-8 text"):
        find_keys({}, file)
