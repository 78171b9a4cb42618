"""A hint that names a missing part says what works for the install at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path, PurePath
from typing import Any

import pytest

from upskill.installation import DISTRIBUTION, add_extra, command_for, requirement_elsewhere
from upskill.version import __version__

CLONE: dict[str, Any] = {"url": "file:///src/up%20skill", "dir_info": {"editable": True}}
WHEEL: dict[str, Any] = {
    "url": "file:///dist/skill_lift-0.2.0-py3-none-any.whl",
    "archive_info": {},
}
GIT: dict[str, Any] = {
    "url": "https://example.org/up.git",
    "vcs_info": {"vcs": "git", "commit_id": "0123abc"},
}


def test_each_kind_of_install_has_its_command() -> None:
    pip = f"{sys.executable} -m pip install"
    venv, home = PurePath("/code/.venv"), PurePath("/home/ann/.local/share")
    assert command_for("local", venv, {}) == f'{pip} "skill-lift[local]"'
    assert command_for("local", venv, CLONE) == f'{pip} --editable "/src/up skill[local]"'
    assert command_for("local", venv, WHEEL) == f'{pip} "skill-lift[local] @ {WHEEL["url"]}"'
    assert (
        command_for("local", venv, GIT)
        == f'{pip} "skill-lift[local] @ git+https://example.org/up.git@0123abc"'
    )
    assert (
        command_for("documents", home / "uv/tools/skill-lift", {})
        == 'uv tool install --force "skill-lift[documents]"'
    )
    assert (
        command_for("documents", home / "pipx/venvs/skill-lift", {})
        == 'pipx install --force "skill-lift[documents]"'
    )
    cached = PurePath("/home/ann/.cache/uv/archive-v0/abc")
    assert command_for("documents", cached, {}) == 'uvx --from "skill-lift[documents]" upskill'


def test_a_clone_on_the_path_alone_is_installed_from_where_it_is(tmp_path: Path) -> None:
    """With an interpreter that has no packages at all."""
    clone = Path(__file__).resolve().parents[1]
    path = f"import sys; sys.path.insert(0, {str(clone / 'src')!r})"
    program = f"{path}; from upskill import installation; print(installation.add_extra('local'))"
    argv = [sys.executable, "-S", "-c", program]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.strip().endswith(f'install --python {sys.executable} --editable "{clone}[local]"')


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        ({}, (f"skill-lift[local]=={__version__}", True)),
        (GIT, ("skill-lift[local] @ git+https://example.org/up.git@0123abc", True)),
        (WHEEL, (f"skill-lift[local] @ {WHEEL['url']}", False)),
        ("here", ("./wheels/up.whl[local]", True)),
    ],
)
def test_another_machine_installs_what_is_installed_here(
    origin: Any, requirement: tuple[str, bool], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the metadata of an installation say where it is from."""
    origin = {"url": (home / "wheels/up.whl").as_uri()} if origin == "here" else origin
    about = home / "site" / "skill_lift-0.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: skill-lift\nVersion: 0.0.0\n")
    if origin:
        (about / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(about.parent)
    assert requirement_elsewhere("local") == requirement


def test_the_name_is_not_that_of_another_package() -> None:
    assert DISTRIBUTION == "skill-lift"
    assert "upskill[" not in add_extra("local")
