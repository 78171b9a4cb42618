"""Which skills a branch changed: the skills in the working tree beside those of the commit it started from."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from upskill.errors import UsageError
from upskill.skills.files import MANIFEST
from upskill.skills.skill import BADGE, RECEIPT, REPLIES, SUITE_FILES, Skill, find_skills

# What CI systems say about the branch that a change is for, in the order in which they are asked.
_BASE_VARIABLES = (
    "CI_MERGE_REQUEST_DIFF_BASE_SHA",
    "GITHUB_BASE_REF",
    "CHANGE_TARGET",
    "BITBUCKET_PR_DESTINATION_BRANCH",
)
_MAIN_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
Kind = Literal["new", "changed", "renamed", "unchanged"]


@dataclass(frozen=True)
class SkillChange:
    """One skill of the working tree, and what it was before."""

    path: str  # of its folder, from the root of the repository
    head: Skill
    base: Skill | None = None  # None: it is new, or nothing about it has changed
    base_path: str = ""  # where it was; empty: it is new
    touched: bool = False  # a file of it differs

    @property
    def skill_changed(self) -> bool:
        """Whether a student would read something else: its name alone is not that."""
        return self.base is not None and _read_by_students(self.base) != _read_by_students(self.head)

    @property
    def kind(self) -> Kind:
        if not self.base_path:
            return "new"
        if self.touched and (self.skill_changed or _suite_files(self.base) != _suite_files(self.head)):
            return "changed"
        return "renamed" if self.base_path != self.path else "unchanged"


def _read_by_students(skill: Skill) -> object:
    return skill.description, skill.body, {path: skill.read(path) for path in skill.resources}


def _suite_files(skill: Skill | None) -> dict[str, bytes]:
    files = skill.files if skill else ()
    proofs = (RECEIPT, REPLIES, BADGE)
    return {file.path: file.data for file in files if file.path.startswith(SUITE_FILES) and file.path not in proofs}


@contextmanager
def changed_skills(
    folders: Iterable[str | Path], base_ref: str | None = None
) -> Generator[tuple[str, list[SkillChange]]]:
    """The commit that is compared with, and every skill below these folders; base versions are there until the end."""
    places = [Path(folder).resolve() for folder in folders]
    if missing := next((place for place in places if not place.is_dir()), None):
        raise UsageError(f"{missing}: no such folder", "Name the folder of your skills.")
    root = Path(_git(places[0], "rev-parse", "--show-toplevel").strip())
    commit = _base_commit(root, base_ref)
    paths = [place.relative_to(root).as_posix() if place.is_relative_to(root) else str(place) for place in places]
    heads = {found.resolve().relative_to(root).as_posix(): found for place in places for found in find_skills(place)}
    before = {
        str(PurePosixPath(path).parent)
        for path in _git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit).split("\0")
        if PurePosixPath(path).name.lower() == MANIFEST.lower()
    }
    differing = _differing(root, commit)
    renames = _renames(root, commit, paths)
    origins: dict[str, str] = {}  # by the path of a skill: where it was
    for path in heads:
        origins[path] = path if path in before else renames.get(path, "")
    touched = {path for path in heads if origins[path] != path or any(_is_below(file, path) for file in differing)}
    with tempfile.TemporaryDirectory(prefix="upskill-base-") as folder:
        needed = sorted(origins[path] for path in touched if origins[path])
        _unpack(root, commit, needed, Path(folder))
        changes = [
            SkillChange(
                path,
                Skill.load(found),
                Skill.load(Path(folder) / origins[path]) if path in touched and origins[path] else None,
                origins[path],
                path in touched,
            )
            for path, found in sorted(heads.items())
        ]
        yield commit, changes


def _git(folder: Path, *arguments: str) -> str:
    return _run(folder, *arguments).decode("utf-8", "surrogateescape")


def _run(folder: Path, *arguments: str) -> bytes:
    line = ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(line, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"git cannot be started: {error.strerror}", "Install git.") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(
            f"git {arguments[0]}: {said[-1] if said else 'failed'}", "Run it in a clone of the repository."
        )
    return done.stdout


def _base_commit(root: Path, base_ref: str | None) -> str:
    """Where this branch left the other; on that branch itself, the commit before."""
    named = base_ref or next(filter(None, map(os.environ.get, _BASE_VARIABLES)), "")
    for ref in [named, f"origin/{named}"] if named else _MAIN_BRANCHES:
        try:
            commit = _git(root, "merge-base", ref, "HEAD").strip()
        except UsageError:
            continue
        if base_ref or commit != _git(root, "rev-parse", "HEAD").strip():
            return commit
        break
    else:
        if named:
            hint = "Fetch it first (in GitHub Actions: `fetch-depth: 0`), or name another with --base-ref."
            raise UsageError(f"{named}: is no commit that this branch has in common", hint)
    try:
        return _git(root, "rev-parse", "--verify", "HEAD~1").strip()
    except UsageError as error:
        raise UsageError("there is no earlier commit to compare with", "Name one with --base-ref.") from error


def _differing(root: Path, commit: str) -> list[str]:
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return [path for path in (tracked + untracked).split("\0") if path]


def _renames(root: Path, commit: str, paths: Iterable[str]) -> dict[str, str]:
    """By the new folder of a skill: the old one."""
    fields = _git(root, "diff", "--name-status", "--diff-filter=R", "-M50%", "-z", commit, "--", *paths).split("\0")
    renames: dict[str, str] = {}
    for _, old, new in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        if PurePosixPath(new).name.lower() == MANIFEST.lower():
            renames[str(PurePosixPath(new).parent)] = str(PurePosixPath(old).parent)
    return renames


def _is_below(file: str, folder: str) -> bool:
    return folder == "." or file.startswith(f"{folder}/")


def _unpack(root: Path, commit: str, paths: list[str], into: Path) -> None:
    if not paths:
        return
    packed = _run(root, "archive", "--format=tar", commit, "--", *paths)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(into, filter="data")
