from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from upskill.errors import UsageError
from upskill.outputs import replaced_folder
from upskill.plain import counted

MANIFEST = "SKILL.md"
MAX_MANIFEST_BYTES = 1_000_000  # a body of this size is over 200,000 tokens
MAX_FOLDER_BYTES = 256_000_000
MAX_FILES = 10_000
PREVIOUS = ".previous"  # beside skills: versions of them that were replaced
IGNORED_NAMES = {".git", "__pycache__", ".DS_Store", PREVIOUS}


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill; a symbolic link to another of its files has `link` instead of `data`."""

    path: str
    data: bytes = b""
    executable: bool = False
    link: str = ""

    def __repr__(self) -> str:
        return f"SkillFile({self.path!r}, {f'-> {self.link}' if self.link else counted(len(self.data), 'byte')})"


def read_folder(root: Path) -> tuple[list[SkillFile], tuple[str, ...]]:
    files: list[SkillFile] = []
    empty: list[str] = []
    total = 0
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{root}: a file's name is not UTF-8: {name!r}", "Rename it."
            ) from error
        info = path.lstat()
        total += info.st_size
        if total > MAX_FOLDER_BYTES or len(files) + len(empty) >= MAX_FILES:
            raise UsageError(
                f"{root}: too large for a skill (more than {MAX_FOLDER_BYTES // 10**6} MB or {MAX_FILES:,} files)",
                "Is this the right folder? Keep data sets outside the skill.",
            )
        if stat.S_ISDIR(info.st_mode):
            empty.append(name)
        else:
            files.append(_read_file(root, path, name, info))
    return files, tuple(sorted(empty))


def _walk(root: Path) -> Iterator[Path]:
    waiting = [root]
    while waiting:
        here = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(here) if entry.name not in IGNORED_NAMES]
        except OSError as error:
            raise UsageError(f"{here}: cannot be read: {describe_error(error)}") from error
        if not entries and here != root:
            yield here
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(here / entry.name)
            else:
                yield here / entry.name


def _read_file(root: Path, path: Path, name: str, info: os.stat_result) -> SkillFile:
    if stat.S_ISLNK(info.st_mode):
        target = str(path.readlink())
        try:
            end = path.resolve(strict=True)
            inside = end.is_relative_to(root) and not IGNORED_NAMES & set(
                end.relative_to(root).parts
            )
        except (OSError, RuntimeError) as error:
            why = (
                "is part of a loop"
                if not isinstance(error, FileNotFoundError)
                else f"points to a missing file ({target})"
            )
            raise UsageError(
                f"{path}: this symbolic link {why}",
                "Remove it, or replace it with the file itself.",
            ) from error
        if not inside or Path(target).is_absolute():
            why = f"points outside the skill ({target})"
            raise UsageError(
                f"{path}: this symbolic link {why}", "Replace it with the file itself."
            )
        return SkillFile(name, link=target)
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path}: neither a file nor a folder", "Remove it from the skill.")
    if name.lower() == MANIFEST.lower() and info.st_size > MAX_MANIFEST_BYTES:
        raise UsageError(
            f"{path}: {info.st_size / 1e6:.1f} MB; the limit for SKILL.md is {MAX_MANIFEST_BYTES / 1e6:.0f} MB",
            "The model reads all of it: move details into references/.",
        )
    try:
        return SkillFile(name, path.read_bytes(), bool(info.st_mode & 0o100))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {describe_error(error)}") from error


def find_manifest(files: Iterable[SkillFile], where: str) -> SkillFile:
    """SKILL.md under its actual name; a link has the data of its target."""
    for name in (MANIFEST, "skill.md"):
        if manifest := find_file(files, name):
            return replace(manifest, path=name)
    raise UsageError(f"{where}: no {MANIFEST}", "A skill is a folder with a SKILL.md in it.")


def find_file(files: Iterable[SkillFile], path: str) -> SkillFile | None:
    """The file at this path, through links to files and to folders."""
    by_path = {file.path: file for file in files}
    waiting, at, steps = path.split("/")[::-1], PurePosixPath(), 0
    while waiting and steps < 1000:
        steps += 1
        part = waiting.pop()
        if part == "..":
            at = at.parent
            continue
        link = by_path.get(str(at / part))
        if link and link.link:
            waiting += link.link.split("/")[::-1]
        else:
            at /= part
    return None if waiting else by_path.get(str(at))


def decode_text(file: SkillFile, where: str) -> str:
    try:
        text = file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where}: not UTF-8 text (byte {error.start})", "Save it as UTF-8."
        ) from error
    if "\0" in text:
        raise UsageError(f"{where}: not a text file: it contains NUL bytes", "Save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def hash_files(files: Iterable[SkillFile]) -> str:
    total = hashlib.sha256()
    for file in files:
        kind = "link" if file.link else "run" if file.executable else "file"
        data = file.link.encode() if file.link else file.data
        for part in (file.path.encode(), kind.encode(), hashlib.sha256(data).digest()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def write_folder(
    target: Path,
    files: Iterable[SkillFile],
    empty_folders: Iterable[str],
    keep_old_at: Path | None = None,
) -> None:
    """Write all files or none; what is replaced is kept if asked for."""

    def carry(old: Path, new: Path) -> None:
        if keep_old_at is None:
            _keep_git_folders(old, new)
        else:
            keep_old_at.parent.mkdir(parents=True, exist_ok=True)
            old.rename(keep_old_at)

    with replaced_folder(target, carry) as fresh:
        for file in files:
            path = fresh / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.link:
                path.symlink_to(file.link)
            else:
                path.write_bytes(file.data)
                path.chmod(0o755 if file.executable else 0o644)
        for empty in empty_folders:
            (fresh / empty).mkdir(parents=True, exist_ok=True)
        fresh.chmod(0o755)


def _keep_git_folders(old: Path, new: Path) -> None:
    """Move each .git over: not part of the skill, but the person's."""
    if old.is_symlink() or not old.is_dir():
        return
    for folder, folders, files in os.walk(old):
        if ".git" in (*folders, *files):
            parent = new / Path(folder).relative_to(old)
            parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / ".git").rename(parent / ".git")
            folders[:] = [name for name in folders if name != ".git"]


def describe_error(error: Exception) -> str:
    if isinstance(error, RuntimeError):  # Path.resolve before Python 3.13
        return "its symbolic links form a loop"
    return getattr(error, "strerror", None) or str(error)
