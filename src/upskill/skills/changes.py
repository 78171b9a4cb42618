"""Which skills a branch changed: the skills in the working tree beside those of the commit it started from."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Literal

from upskill.errors import UsageError
from upskill.skills.files import MANIFEST, SkillFile
from upskill.skills.seen import without_seen
from upskill.skills.skill import (
    BADGE,
    CARD,
    HIDDEN_FROM_STUDENTS,
    RECEIPT,
    REPLIES,
    Skill,
    find_skills,
)

# What CI systems say about the branch that a change is for, in the order in which they are asked.
_BASE_VARIABLES = (
    "CI_MERGE_REQUEST_DIFF_BASE_SHA",
    "GITHUB_BASE_REF",
    "CHANGE_TARGET",
    "BITBUCKET_PR_DESTINATION_BRANCH",
)
_MAIN_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
SAME_SKILL = 0.4  # of the word pairs of the shorter text
SCHEMAS = "evals/schemas/"  # for editors, the same in every skill
LINK, SUBMODULE = "120000", "160000"  # git's modes
Kind = Literal["new", "changed", "renamed", "unchanged", "deleted"]


@dataclass(frozen=True)
class SkillChange:
    """A skill of the working tree beside what it was, or a skill that is gone."""

    path: str  # of its folder, from the root of the repository
    head: Skill | None  # None: it is gone, or `problem` says why nobody can use it
    base: Skill | None = None  # None: it is new
    base_path: str = ""  # where it was; empty: it is new
    problem: str = ""
    in_git: bool = True  # False: the branch will bring it only once it is added

    @property
    def name(self) -> str:
        return (
            (self.head.name if self.head else "")
            or (self.base.name if self.base else "")
            or Path(self.path).name
        )

    @property
    def skill_changed(self) -> bool:
        """Whether a student would read something else: its name alone is not that."""
        return self.base is not None and _read_by_students(self.base) != _read_by_students(
            self.head
        )

    @property
    def kind(self) -> Kind:
        if self.head is None and not self.problem:
            return "deleted"
        if self.base is None:
            return "new"
        if self.skill_changed or _suite_files(self.base) != _suite_files(self.head):
            return "changed"
        return "renamed" if self.base_path != self.path else "unchanged"


def _read_by_students(skill: Skill | None) -> object:
    if skill is None:
        return None
    fields = {
        name: value
        for name, value in skill.frontmatter.items()
        if name not in ("name", "license", "metadata")
    }
    return fields, skill.body, {skill.file(path) for path in skill.resources}


def _suite_files(skill: Skill | None) -> set[SkillFile]:
    made = (RECEIPT, REPLIES, BADGE, CARD)
    files = filter(None, map(without_seen, skill.files if skill else ()))
    return {
        file
        for file in files
        if file.path.startswith(HIDDEN_FROM_STUDENTS) and file.path not in made
    }


@contextmanager
def changed_skills(
    folders: Iterable[str | Path], base_ref: str | None = None
) -> Generator[tuple[str, list[SkillChange]]]:
    """The commit that is compared with, and every skill below these folders but installed copies of others.

    Base versions are there until the end.
    """
    places = [Path(folder).resolve() for folder in folders]
    if missing := next((place for place in places if not place.is_dir()), None):
        raise UsageError(f"{missing}: no such folder", "Pass the folder that holds your skills.")
    root = Path(_git(places[0], "rev-parse", "--show-toplevel").strip()).resolve()
    if outside := next((place for place in places if not place.is_relative_to(root)), None):
        raise UsageError(
            f"{outside}: outside the repository {root}", "Run `upskill ci` once per repository."
        )
    commit, changes = "", list[SkillChange]()
    with tempfile.TemporaryDirectory(prefix="upskill-base-") as folder:
        for commit in _base_commits(root, base_ref):
            before = Path(folder).resolve() / commit
            links, unknown = _check_out(root, commit, before)
            changes = sorted(
                _compare(root, before, places, links, unknown), key=lambda change: change.path
            )
            if any(change.kind != "unchanged" for change in changes):
                break
        yield commit, [change for change in changes if not _is_installed_copy(change, changes)]


def _is_installed_copy(change: SkillChange, changes: Iterable[SkillChange]) -> bool:
    """Of another skill in the repository, which has the test cases: `install` leaves them out."""
    if change.head is None or _suite_files(change.head):
        return False
    read = _read_by_students(change.head)
    originals = (
        other.head for other in changes if other.head and other.head.name == change.head.name
    )
    return any(
        _suite_files(original) and _read_by_students(original) == read for original in originals
    )


def repository_of(folder: Path) -> Path | None:
    """The top of the git repository that this folder is in."""
    top = _git_or_none(_existing(folder.absolute()), "rev-parse", "--show-toplevel")
    return Path(top.strip()).resolve() if top else None


def is_tracked(path: Path) -> bool:
    """Whether a branch can bring this file, or a file in this folder."""
    places = {path.absolute(), path.resolve()}  # git does not look behind a link
    return any(
        _git_or_none(_existing(place.parent), "ls-files", "--", f":(literal){place}")
        for place in places
    )


def changed_since(file: Path, commit: str) -> tuple[bool, bytes | None]:
    """Whether a branch that began at this commit changed a file, and its content there. Links are followed."""
    was_there, before = _content_at(commit, file)
    if not was_there and not is_tracked(file):
        return False, None
    return before != (file.read_bytes() if file.is_file() else None), before


def _content_at(commit: str, file: Path) -> tuple[bool, bytes | None]:
    folder = _existing(file.absolute().parent)
    entry = _git_or_none(folder, "ls-tree", commit, "--", file.name)
    if not entry:
        return False, None
    content = _run(folder, "show", f"{commit}:./{file.name}")
    if entry.startswith(LINK):
        return True, _content_at(commit, folder / os.fsdecode(content))[1]
    return True, content


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _git_or_none(folder: Path, *arguments: str) -> str | None:
    try:
        return _git(folder, *arguments)
    except UsageError:
        return None


def _compare(
    root: Path, before: Path, places: list[Path], links: list[str], unknown: list[str]
) -> Iterator[SkillChange]:
    ignored = _git(
        root, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"
    ).split("\0")[:-1]

    def is_ignored(path: str) -> bool:
        return any(_is_below(path, entry.rstrip("/")) for entry in ignored)

    found = {
        each.relative_to(root).as_posix(): None for place in places for each in find_skills(place)
    }
    for link in (
        links
    ):  # a link to a skill that is found by itself counts where it leads somewhere else now
        is_ours = any((root / link).is_relative_to(place) for place in places)
        if (
            is_ours
            and (root / link).is_symlink()
            and (root / link).readlink() != (before / link).readlink()
        ):
            found |= {link: None} if _is_skill(root / link, root) else {}
    heads = [path for path in found if not is_ignored(path)]
    gone: dict[str, Skill] = {}
    for folder in find_skills(before) if before.is_dir() else ():
        path = folder.relative_to(before).as_posix()
        is_ours = any((root / path).is_relative_to(place) for place in places)
        if path not in heads and (is_ours or not _is_skill(root / path, root)):
            gone |= {path: skill} if (skill := _load(folder)) else {}
    new: list[tuple[str, Skill]] = []
    for path in heads:
        base = _load(before / path) if _is_skill(before / path, before) else None
        try:
            loaded = _load_head(root, path, unknown)
        except UsageError as error:
            yield SkillChange(
                path, None, base, path if base else "", f"{error.message}. {error.hint}".strip()
            )
            continue
        kept = tuple(
            file for file in loaded.files if not is_ignored(str(PurePosixPath(path) / file.path))
        )
        head = replace(loaded, files=kept)
        if base:
            yield SkillChange(path, head, base, path)
        else:
            new.append((path, head))
    origins = _origins(new, gone)
    for path, head in new:
        origin = origins.get(path, "")
        yield SkillChange(
            path, head, gone.pop(origin, None), origin, in_git=is_tracked(root / path)
        )
    for path, base in gone.items():
        if any((root / path).is_relative_to(place) for place in places):
            files = (root / path).rglob("*") if (root / path).is_dir() else ()
            is_there = any(
                file.is_file() and not is_ignored(file.relative_to(root).as_posix())
                for file in files
            )
            problem = (
                "the SKILL.md was removed, but other files of the skill are still there"
                if is_there
                else ""
            )
            yield SkillChange(path, None, base, path, problem)


def _load_head(root: Path, path: str, unknown: list[str]) -> Skill:
    """UsageError if it cannot be compared."""
    if submodule := next((each for each in unknown if _is_below(path, each)), ""):
        hint = f"Fetch it: git -C {submodule} fetch --unshallow"
        raise UsageError("not compared: the submodule's earlier commit was not fetched", hint)
    if not (root / path).resolve().is_relative_to(root):
        raise UsageError("this link points outside the repository")
    return Skill.load(root / path)


def _is_skill(folder: Path, root: Path) -> bool:
    return folder.resolve().is_relative_to(root) and any(
        (folder / name).is_file() for name in (MANIFEST, "skill.md")
    )


def _load(folder: Path) -> Skill | None:
    try:
        return Skill.load(folder)
    except UsageError:  # the branch may be what repairs it
        return None


def _origins(new: list[tuple[str, Skill]], gone: Mapping[str, Skill]) -> dict[str, str]:
    """By the path of a skill that is not in the base: that of the one that is gone, and that it most likely was."""
    shared = {
        (path, old): 2.0
        if head.name == base.name
        else max(map(likeness, _texts(head), _texts(base)))
        for path, head in new
        for old, base in gone.items()
    }
    origins: dict[str, str] = {}
    for (path, old), alike in sorted(shared.items(), key=lambda item: -item[1]):
        if alike >= SAME_SKILL and path not in origins and old not in origins.values():
            origins[path] = old
    return origins


def _texts(skill: Skill) -> tuple[str, str]:
    files = (file for file in _suite_files(skill) if not file.path.startswith(SCHEMAS))
    return skill.body, " ".join(sorted(file.data.decode("utf-8", "replace") for file in files))


def likeness(text: str, other: str) -> float:
    """The share of the word pairs of the shorter text that the other has too."""
    words = [re.findall(r"\w+", each.casefold()) for each in (text, other)]
    if words[0] == words[1]:
        return float(bool(words[0]))
    pairs = [set(pairwise(each)) for each in words]
    return len(pairs[0] & pairs[1]) / max(1, min(map(len, pairs)))


def _git(folder: Path, *arguments: str) -> str:
    return _run(folder, *arguments).decode("utf-8", "surrogateescape")


def _run(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None, stdin: bytes = b""
) -> bytes:
    line = ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            line, input=stdin, capture_output=True, check=False, env={**os.environ, **(more or {})}
        )
    except OSError as error:
        raise UsageError(f"git cannot be started: {error.strerror}", "Install git.") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(
            f"git {arguments[0]}: {said[-1] if said else 'failed'}",
            "Run it inside the git repository that holds your skills.",
        )
    return done.stdout


def _base_commits(root: Path, base_ref: str | None) -> list[str]:
    """Where this branch left the other. On that branch itself: its tip, then the commit before.

    The first that a skill differs from is meant, else the last. The tip counts only if something is edited since.
    """
    head = _git(root, "rev-parse", "--verify", "HEAD").strip()
    named = base_ref or next(filter(None, map(os.environ.get, _BASE_VARIABLES)), "")
    for ref in [named, f"origin/{named}"] if named else _MAIN_BRANCHES:
        try:
            commit = _git(root, "merge-base", ref, "HEAD").strip()
        except UsageError:
            continue
        if base_ref or commit != head:
            return [commit]
        break
    else:
        if named:
            hint = "Fetch it first (in GitHub Actions: `fetch-depth: 0`), or choose another with --base-ref."
            raise UsageError(f"{named}: shares no commit with this branch", hint)
    edited = [head] if _git(root, "status", "--porcelain") else []
    if parent := _git_or_none(root, "rev-parse", "--verify", "HEAD~1"):
        return [*edited, parent.strip()]
    if not edited and _git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        hint = (
            "Fetch it first (in GitHub Actions: `fetch-depth: 0`), or choose one with --base-ref."
        )
        raise UsageError("the commit before this one is not in this clone", hint)
    return [head]


def _is_below(file: str, folder: str) -> bool:
    return file == folder or file.startswith(f"{folder}/")


def _check_out(root: Path, commit: str, into: Path) -> tuple[list[str], list[str]]:
    """Write the skills of a commit, and every link. (`git archive` would obey `export-ignore`.)

    Returns the links, and the submodules whose commit is not here.
    """
    entries = [
        entry.partition("\t")
        for entry in _git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    ]
    modes = {path: head.split()[0] for head, _, path in entries if path}
    skills = {
        str(PurePosixPath(path).parent)
        for path in modes
        if PurePosixPath(path).name.lower() == MANIFEST.lower()
    }
    links = [path for path, mode in modes.items() if mode == LINK]
    needed = [
        path
        for path in modes
        if "." in skills or not skills.isdisjoint(map(str, PurePosixPath(path).parents))
    ]
    into.parent.mkdir(parents=True, exist_ok=True)
    index = Path(f"{into}.index")
    _run(root, "read-tree", commit, more={"GIT_INDEX_FILE": str(index)})
    names = "\0".join({*needed, *links}).encode("utf-8", "surrogateescape")
    line = ("checkout-index", "-z", "--stdin", f"--prefix={into}/")
    _run(root, *line, more={"GIT_INDEX_FILE": str(index)}, stdin=names)
    index.unlink()
    unknown: list[str] = []
    for path, submodule in (
        (path, head.split()[2]) for head, _, path in entries if head.startswith(SUBMODULE)
    ):
        try:
            its_links, its_unknown = _check_out(root / path, submodule, into / path)
        except UsageError:
            unknown.append(path)
        else:
            links += [f"{path}/{each}" for each in its_links]
            unknown += [f"{path}/{each}" for each in its_unknown]
    return links, unknown
