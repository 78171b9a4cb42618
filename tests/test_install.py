"""Install puts a skill where an agent looks for it and never loses what someone changed there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import Upskill
from upskill import Skill, UsageError
from upskill.skills.install import RECORD, Installation, find_target, install


def made(folder: Path, body: str = "Body.", name: str = "my-skill") -> Path:
    skill = Skill.new(name, "Does things.", body).with_file(
        "scripts/run.sh", b"#!/bin/sh\n", executable=True
    )
    return skill.save(folder / name, overwrite=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (["--to", "opencode"], ".agents/skills"),
        (["--to", "opencode", "--global"], "~/.config/opencode/skills"),
        (["--to", "cursor", "--project", "project"], "project/.cursor/skills"),
    ],
)
def test_a_skill_goes_where_the_agent_looks(
    home: Path, upskill: Upskill, options: list[str], place: str
) -> None:
    source = made(home / "skills")
    (home / "project").mkdir()
    done = upskill("install", source, *options, "--json")
    folder = Path(place).expanduser() / "my-skill"
    assert done.code == 0
    assert done.json == {
        "agent": options[1],
        "folder": str(folder),
        "done": "installed",
        "kept": None,
        "proven": False,
    }
    assert contents(folder) == contents(source)
    assert (folder / "scripts" / "run.sh").stat().st_mode & 0o100
    assert Path.home().is_relative_to(home.parent)


def test_tests_of_a_skill_are_copied_only_when_asked_for(home: Path, upskill: Upskill) -> None:
    skill = Skill.load(made(home / "skills"))
    for path in (
        "evals/suite.yaml",
        "evals/files/a.txt",
        "eval_queries.json",
        "skill_meta.json",
        "references/a.md",
    ):
        skill = skill.with_file(path, b"{}")
    source, place = skill.save(home / "skills" / "tested"), home / ".claude" / "skills" / "my-skill"
    command = ("install", source, "--to", "claude-code")
    assert upskill(*command).out.startswith("installed: ")
    assert sorted(contents(place)) == ["SKILL.md", "references/a.md", "scripts/run.sh"]
    assert upskill(*command).out.startswith("unchanged: ")
    assert upskill(*command, "--with-evals").out.startswith("updated: ")
    assert contents(place) == contents(source)
    assert upskill(*command).out.startswith("updated: ")
    assert not (place / "evals").exists()


def test_an_unknown_agent_is_a_usage_error_that_suggests_one(home: Path, upskill: Upskill) -> None:
    done = upskill("install", made(home / "skills"), "--to", "claude")
    assert done.code == 2
    assert done.err == "upskill: no agent named 'claude'\n  Did you mean 'claude-code'?\n"
    with pytest.raises(UsageError, match="no agent named 'emacs'"):
        find_target("emacs")


def test_the_same_again_is_unchanged_and_a_newer_one_is_an_update(tmp_path: Path) -> None:
    there = tmp_path / "there"
    first = Skill.load(made(tmp_path / "skills"))
    assert install(first, there) == Installation(there / "my-skill", "installed")
    assert install(first, there) == Installation(there / "my-skill", "unchanged")
    second = Skill.load(made(tmp_path / "skills", "Better."))
    assert install(second, there) == Installation(there / "my-skill", "updated")
    assert Skill.load(there / "my-skill").fingerprint == second.fingerprint
    assert sorted(path.name for path in there.iterdir()) == [RECORD, "my-skill"]
    # And back: what is there is what we put there.
    assert install(first, there).status == "updated"


@pytest.mark.parametrize(
    "change", ["edited", "added", "removed", "run bit", "broken", "not ours", "a file", "a link"]
)
def test_a_changed_skill_is_never_overwritten_silently(tmp_path: Path, change: str) -> None:
    there = tmp_path / "there"
    target = there / "my-skill"
    install(Skill.load(made(tmp_path / "skills")), there)
    manifest = target / "SKILL.md"
    if change == "edited":
        manifest.write_text(manifest.read_text() + "My own words.\n")
    elif change == "added":
        (target / "mine.txt").write_text("mine")
    elif change == "removed":
        shutil.rmtree(target / "scripts")
    elif change == "run bit":
        manifest.chmod(0o755)
    elif change == "broken":
        manifest.unlink()
    elif change == "not ours":
        (there / RECORD).unlink()
    else:
        shutil.move(target, tmp_path / "moved")
        if change == "a file":
            target.write_text("mine")
        else:
            target.symlink_to(tmp_path / "moved")
    before = contents(tmp_path)
    newer = Skill.load(made(tmp_path / "newer", "Better."))
    with pytest.raises(UsageError, match="this skill has changed since it was installed") as error:
        install(newer, there)
    assert "--force" in error.value.hint
    assert {
        name: data for name, data in contents(tmp_path).items() if not name.startswith("newer/")
    } == before


def test_force_replaces_and_keeps_the_old_one_beside_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    target = there / "my-skill"
    install(Skill.load(made(tmp_path / "skills")), there)
    kept: list[Path] = []
    for number in range(3):  # within one second, too
        (target / "mine.txt").write_text(f"mine {number}")
        done = install(
            Skill.load(made(tmp_path / "skills", f"Better {number}.")), there, force=True
        )
        assert done.status == "replaced"
        assert done.kept is not None
        kept.append(done.kept)
        assert not (target / "mine.txt").exists()
    assert [(folder / "mine.txt").read_text() for folder in kept] == ["mine 0", "mine 1", "mine 2"]
    assert len(set(kept)) == 3
    assert install(Skill.load(made(tmp_path / "skills", "Next.")), there).status == "updated"


def test_the_command_says_where_the_old_one_went(home: Path, upskill: Upskill) -> None:
    source = made(home / "skills")
    assert upskill("install", source, "--to", "generic").code == 0
    (home / ".agents/skills/my-skill/mine.txt").write_text("mine")
    made(home / "skills", "Better.")
    refused = upskill("install", source, "--to", "generic")
    assert (refused.code, refused.out) == (2, "")
    assert "moves the old one to .upskill-kept/" in refused.err
    forced = upskill("install", source, "--to", "generic", "--force")
    assert (forced.code, forced.out) == (0, "replaced: .agents/skills/my-skill\n")
    (kept,) = home.glob(".agents/skills/.upskill-kept/my-skill-*")
    assert str(kept.relative_to(home)) in forced.err


def test_a_replacement_that_breaks_leaves_the_old_one_in_place(tmp_path: Path) -> None:
    there = tmp_path / "there"
    made(there)
    skill = (
        Skill.load(made(tmp_path / "skills", "Better.")).with_file("a", b"").with_file("a/b", b"")
    )
    before = contents(there)
    with pytest.raises(UsageError, match="cannot be written"):
        install(skill, there, force=True)
    assert contents(there) == before


def test_an_invalid_skill_is_not_installed(tmp_path: Path) -> None:
    skill = Skill.new("My_Skill", "Does things.", "Body.")
    with pytest.raises(
        UsageError, match="My_Skill: not a valid skill: name 'My_Skill' has capital letters"
    ) as error:
        install(skill, tmp_path / "there")
    assert error.value.hint == "Run `upskill validate` to see every problem."
    assert not (tmp_path / "there").exists()


def test_the_folder_is_named_like_the_skill(tmp_path: Path) -> None:
    source = tmp_path / "draft-3"
    shutil.copytree(made(tmp_path / "skills"), source)
    assert install(Skill.load(source), tmp_path / "there").folder.name == "my-skill"


@pytest.mark.parametrize("record", ["{", "[]", '{"my-skill": 1}', "\ufeff"])
def test_a_broken_record_only_makes_it_more_careful(tmp_path: Path, record: str) -> None:
    there = tmp_path / "there"
    install(Skill.load(made(tmp_path / "skills")), there)
    (there / RECORD).write_text(record)
    with pytest.raises(UsageError, match="or upskill did not install it"):
        install(Skill.load(made(tmp_path / "skills", "Better.")), there)


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file")
    with pytest.raises(UsageError, match="cannot be written"):
        install(Skill.load(made(tmp_path / "skills")), tmp_path / "there")
    (tmp_path / "other" / RECORD).mkdir(parents=True)
    with pytest.raises(UsageError, match=f"{RECORD}: not a regular file"):
        install(Skill.load(made(tmp_path / "skills")), tmp_path / "other")
    assert {path.name for path in (tmp_path / "other").iterdir()} == {RECORD, "my-skill"}
