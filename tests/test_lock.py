"""skills-lock.json of `npx skills` is read, and kept true."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Upskill
from test_install import made
from upskill import Skill
from upskill.skills.lock import LOCK, find_locked, folder_hash

TRACE = Path(__file__).parent / "fixtures" / "traces" / "claude_code" / "tarn.jsonl"
NAMES = (
    "a.txt",
    "A.txt",
    "a-b.txt",
    "a_b.txt",
    "a/b.txt",
    "ab.txt",
    "B.txt",
    "Z/1.md",
    "10.md",
    "9.md",
    "a b",
    "~",
    "#",
)

# Read before a test has a home folder of its own.
NPM = {
    "npm_config_cache": str(Path.home() / ".npm"),
    "npm_config_userconfig": str(Path.home() / ".npmrc"),
}


def npx_skills(*arguments: object, folder: Path) -> None:
    """The real program; skips where npm cannot fetch it."""
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed")
    environment = os.environ | NPM | {"DISABLE_TELEMETRY": "1", "CI": "1"}
    command = ["npx", "--yes", "skills@1.5.18", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if "npm error" in done.stderr:
        pytest.skip(f"npm cannot fetch skills: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr


def locked_hash(project: Path, name: str = "my-skill") -> str:
    return json.loads((project / LOCK).read_text())["skills"][name]["computedHash"]


def test_the_hash_is_the_one_that_npx_skills_computes(home: Path) -> None:
    source = made(home / "source")
    for name in NAMES:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(f"This is {name}.")
    (source / "node_modules").mkdir()
    (source / "node_modules" / "left.out").write_text("x")
    (source / "link").symlink_to("SKILL.md")
    project = home / "project"
    project.mkdir()
    npx_skills("add", source, "--agent", "codex", "--yes", "--copy", folder=project)
    assert locked_hash(project) == folder_hash(source)


def test_npx_skills_takes_a_lock_that_install_has_updated(home: Path, upskill: Upskill) -> None:
    made(home / "old")
    npx_skills("add", home / "old" / "my-skill", "--agent", "codex", "--yes", "--copy", folder=home)
    assert find_locked(home / ".agents" / "skills" / "my-skill")
    made(home / "skills", "Better.")
    upskill("install", "skills/my-skill", "--to", "codex", "--force")
    shutil.rmtree(home / ".agents")
    npx_skills("experimental_install", folder=home)
    assert Skill.load(home / ".agents" / "skills" / "my-skill").body.strip() == "Better."


def lock(project: Path, installed: Path) -> None:
    entry = {
        "source": "acme/skills",
        "sourceType": "github",
        "computedHash": folder_hash(installed),
    }
    other = {"source": "x/y", "sourceType": "github", "computedHash": "0"}
    (project / LOCK).write_text(
        json.dumps({"version": 1, "skills": {"zebra": other, "my-skill": entry}})
    )


def test_install_records_where_a_locked_skill_comes_from_now(home: Path, upskill: Upskill) -> None:
    installed = made(home / ".agents" / "skills")
    lock(home, installed)
    made(home / "skills", "Better.")
    done = upskill("install", "skills/my-skill", "--to", "codex", "--force")
    assert f"{home}/{LOCK} now lists {home}/skills/my-skill as the skill's source." in done.err
    skills = json.loads((home / LOCK).read_text())["skills"]
    assert list(skills) == ["my-skill", "zebra"]
    assert skills["my-skill"] == {
        "source": "./skills/my-skill",
        "sourceType": "local",
        "computedHash": folder_hash(installed),
    }
    before = (home / LOCK).read_bytes()
    assert "skills-lock" not in upskill("install", "skills/my-skill", "--to", "codex").err
    assert (home / LOCK).read_bytes() == before


def test_a_lock_is_left_alone_while_another_agent_has_another_copy(
    home: Path, upskill: Upskill
) -> None:
    installed = made(home / ".agents" / "skills")
    made(home / ".claude" / "skills")
    lock(home, installed)
    before = (home / LOCK).read_bytes()
    made(home / "skills", "Better.")
    done = upskill("install", "skills/my-skill", "--to", "codex", "--force")
    assert (
        "differs from skills-lock.json, so `npx skills` may replace it with the one from acme/skills."
        in done.err
    )
    assert (home / LOCK).read_bytes() == before


def test_list_shows_which_skills_differ_from_the_lock(home: Path, upskill: Upskill) -> None:
    installed = made(home / ".agents" / "skills")
    made(home / ".agents" / "skills", name="unlocked")
    lock(home, installed)

    def states() -> dict[str, bool | None]:
        return {
            row["name"]: row["as_locked"]
            for row in upskill("list", ".agents/skills", "--json").json
        }

    assert states() == {"my-skill": True, "unlocked": None}
    assert "differs from" not in upskill("list", ".agents/skills").out
    (installed / "more.md").write_text("x")
    assert states() == {"my-skill": False, "unlocked": None}
    assert "differs from skills-lock.json" in upskill("list", ".agents/skills").out
    (installed / "\u00e4.md").write_text("x")
    assert states() == {"my-skill": None, "unlocked": None}


def test_generate_tells_that_it_changed_a_locked_skill(home: Path, upskill: Upskill) -> None:
    lock(home, home)
    done = upskill("generate", "--from", TRACE, "-m", "extract", "-o", ".agents/skills/my-skill")
    assert done.code == 0
    assert (
        ".agents/skills/my-skill differs from skills-lock.json, so `npx skills` may replace it"
        in done.err
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"skills": []}', '{"skills": {"my-skill": 1}}']
)
def test_a_lock_that_makes_no_sense_is_no_lock(content: str, home: Path) -> None:
    installed = made(home / ".agents" / "skills")
    (home / LOCK).write_text(content)
    assert find_locked(installed) is None
