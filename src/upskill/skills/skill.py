"""A Skill is a folder with a SKILL.md in the Agent Skills format.

It is read leniently (what any client would load, loads here, with warnings), validated strictly (`problems`), and
kept losslessly: every file, unknown frontmatter fields and run bits survive load, save and load again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from upskill.errors import UsageError
from upskill.skills import frontmatter
from upskill.skills.frontmatter import Level, Problem

MANIFEST = "SKILL.md"
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
CLIENT_FIELDS = (
    "argument-hint",
    "user-invocable",
    "disable-model-invocation",
    "model",
    "context",
    "agent",
    "hooks",
    "paths",
    "effort",
)
_NEWLINE = "\n"
LARGEST_MANIFEST = 1_000_000  # bytes; a body of this size is over 200,000 tokens
LARGEST_FOLDER = 256_000_000
MOST_FILES = 10_000
NOT_PART_OF_A_SKILL = {".git", "__pycache__", ".DS_Store"}
# What only evaluation reads. The student never sees it, so a change here does not make a different skill to learn.
INVISIBLE = ("skill_meta.json", "evals/", "eval_queries.json")

Profile = Literal["strict", "clients"]


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of the folder; `link` is set instead of `data` when it is a symbolic link to another of its files."""

    path: str
    data: bytes = b""
    executable: bool = False
    link: str = ""


@dataclass(frozen=True)
class Skill:
    name: str
    description: str
    body: str
    frontmatter: Mapping[str, Any]  # every scalar as the text that was written
    files: tuple[SkillFile, ...]  # SKILL.md among them, in order of path
    folder: Path | None = None
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # the empty ones; they survive saving, and no fingerprint knows of them
    _notes: tuple[Problem, ...] = field(default=(), repr=False)  # on SKILL.md as a file
    _syntax: tuple[Problem, ...] = field(default=(), repr=False)  # on the YAML of its frontmatter

    @classmethod
    def load(cls, path: str | Path) -> Skill:
        """Read a skill folder (or its SKILL.md); UsageError when no client could use it."""
        folder = Path(path)
        try:
            if folder.name.lower() == "skill.md" and folder.is_file():
                folder = folder.parent
        except OSError as error:  # a folder above it is closed to us, or the name is too long
            raise UsageError(f"{path}: {_words(error)}") from error
        if not os.path.lexists(folder):
            raise UsageError(f"{path}: no such folder", "A skill is a folder with a SKILL.md in it.")
        try:
            folder = folder.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise UsageError(f"{path}: {_words(error)}", "Check where its links lead.") from error
        if not folder.is_dir():
            raise UsageError(f"{path}: is not a folder", "A skill is a folder with a SKILL.md in it.")
        files, folders = _read_folder(folder)
        return cls._read(files, str(path), folder, folders)

    @classmethod
    def _read(
        cls, files: Iterable[SkillFile], where: str, folder: Path | None = None, folders: tuple[str, ...] = ()
    ) -> Skill:
        files = tuple(sorted(files, key=lambda file: file.path))
        manifest = _manifest_of(files, where)
        where = f"{where}/{manifest.path}"
        text = _text_of(manifest, where)
        head, body = frontmatter.split(text, where)
        notes: list[Problem] = []
        if manifest.path != MANIFEST:
            notes.append(Problem("warning", f"{manifest.path} should be called {MANIFEST}"))
        if manifest.data.startswith(b"\xef\xbb\xbf"):
            notes.append(Problem("error", f"{manifest.path} starts with a byte order mark; save it as plain UTF-8"))
        syntax: list[Problem] = []
        fields = frontmatter.parse(head, where, syntax)
        description = fields.get("description")
        if not isinstance(description, str) or not description.strip():
            raise UsageError(
                f"{where}: has no description",
                "Add `description:` to the frontmatter: what the skill does and when to use it.",
            )
        name = fields.get("name")
        if not isinstance(name, str) or not name.strip():
            name = folder.name if folder else ""
        made = cls(
            name.strip(), description.strip(), body, fields, files, folder, (), folders, tuple(notes), tuple(syntax)
        )
        return replace(made, warnings=tuple(problem.message for problem in made.problems("clients")))

    @classmethod
    def new(cls, name: str, description: str, body: str, **fields: Any) -> Skill:
        """A skill that is not on disk yet."""
        text = frontmatter.render({"name": name, "description": description, **fields}, body.strip() + "\n")
        return cls._read([SkillFile(MANIFEST, _encoded(text))], name)

    @property
    def fingerprint(self) -> str:
        """A hash of the whole folder: paths, contents, run bits and links."""
        return _hash(self.files)

    @property
    def visible_hash(self) -> str:
        """A hash of the part a student can see: two skills with equal `taught` teach the same."""
        return _hash(file for file in self.files if not file.path.startswith(INVISIBLE))

    @property
    def resources(self) -> tuple[str, ...]:
        """The files beside SKILL.md that an agent may open."""
        return tuple(
            file.path
            for file in self.files
            if not file.path.startswith(INVISIBLE) and file.path.lower() != MANIFEST.lower()
        )

    @property
    def tokens(self) -> int:
        """An estimate of what loading the body costs."""
        return estimate_tokens(self.body)

    def file(self, path: str) -> SkillFile | None:
        return next((file for file in self.files if file.path == path), None)

    def read(self, path: str) -> bytes | None:
        """What is in the file at this path, through the skill's own links; None when there is none."""
        found = _followed(self.files, path)
        return found.data if found else None

    def is_runnable(self, path: str) -> bool:
        """Whether the file at this path is a program, through the skill's own links."""
        found = _followed(self.files, path)
        return found is not None and found.executable

    def with_body(self, body: str) -> Skill:
        """The same skill with other instructions; the frontmatter stays as it was written."""
        manifest = _manifest_of(self.files, self.name)
        head, _ = frontmatter.split(_text_of(manifest, manifest.path), manifest.path)
        return self.with_file(manifest.path, _encoded(f"---\n{head.strip(_NEWLINE)}\n---\n\n{body.strip()}\n"))

    def with_description(self, description: str) -> Skill:
        """The same skill with another description; everything else stays as it was written."""
        manifest = _manifest_of(self.files, self.name)
        head, body = frontmatter.split(_text_of(manifest, manifest.path), manifest.path)
        head = frontmatter.with_value(head.strip(_NEWLINE), "description", description.strip())
        return self.with_file(manifest.path, _encoded(f"---\n{head.strip(_NEWLINE)}\n---\n\n{body}\n"))

    def with_name(self, name: str) -> Skill:
        """The same skill under another name; everything else stays as it was written. It has no folder yet."""
        manifest = _manifest_of(self.files, self.name)
        head, body = frontmatter.split(_text_of(manifest, manifest.path), manifest.path)
        head = frontmatter.with_value(head.strip(_NEWLINE), "name", name)
        data = _encoded(f"---\n{head.strip(_NEWLINE)}\n---\n\n{body}\n")
        return replace(self, folder=None).with_file(manifest.path, data)

    def with_file(self, path: str, data: bytes, *, executable: bool = False) -> Skill:
        """The same skill with this file added or replaced."""
        place = PurePosixPath(path)
        if (
            place.is_absolute()
            or not place.parts
            or {"..", *NOT_PART_OF_A_SKILL} & set(place.parts)
            or "\0" in path
            or any(0xD800 <= ord(letter) < 0xE000 for letter in path)
        ):
            raise UsageError(f"{path!r} is not a path inside a skill", "Use a path relative to the skill's folder.")
        kept = [file for file in self.files if file.path != str(place)]
        files = [*kept, SkillFile(str(place), data, executable)]
        folders = tuple(folder for folder in self.folders if not place.is_relative_to(folder))
        return self._read(files, str(self.folder or self.name), self.folder, folders)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the whole folder, all or nothing."""
        target = Path(folder)
        if os.path.lexists(target) and not overwrite:
            raise UsageError(f"{target}: exists already", "Choose another folder, or say that it may be replaced.")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        except OSError as error:
            raise UsageError(f"{target}: cannot be written: {_words(error)}") from error
        try:
            for file in self.files:
                _write(fresh / file.path, file)
            for empty in self.folders:
                (fresh / empty).mkdir(parents=True, exist_ok=True)
            fresh.chmod(0o755)
            _swap(fresh, target)
        except OSError as error:
            raise UsageError(f"{target}: cannot be written: {_words(error)}", "Nothing was changed.") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return target

    def problems(self, profile: Profile = "strict") -> list[Problem]:
        """What is wrong by the specification.

        `strict` comes to the same verdict as the reference validator; with `clients`, fields that clients have
        added of their own are warnings.
        """
        fields, found, syntax = self.frontmatter, list(self._notes), list(self._syntax)
        manifest = _manifest_of(self.files, self.name)
        text = _text_of(manifest, manifest.path)
        cut = frontmatter.reference_split(text)
        if cut is not None and cut[0].strip() != frontmatter.split(text, manifest.path)[0].strip():
            found.append(Problem("warning", "--- stands inside the frontmatter, where some readers end it"))
            if profile == "strict":
                fields, syntax = _cut_short(cut[0])
        found += syntax
        found += _field_problems(fields, profile)
        found += _name_problems(fields.get("name"), self.folder.name if self.folder else None)
        found += _description_problems(fields.get("description"))
        if not self.body:
            found.append(Problem("warning", "the body is empty: there is nothing to learn"))
        if self.body.count("\n") >= 500 or self.tokens > 5000:
            found.append(
                Problem("warning", f"the body is long (~{self.tokens} tokens); under 500 lines and 5,000 is the advice")
            )
        return found


def estimate_tokens(text: str) -> int:
    """Roughly how many tokens a model sees: a quarter of the UTF-8 bytes, which is near for English and code."""
    return (len(text.encode()) + 3) // 4


def find_skills(folder: str | Path) -> Iterator[Path]:
    """The skill folders below a folder, in order; a skill inside a skill is a resource of it."""
    waiting = [Path(folder)]
    while waiting:
        here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise UsageError(f"{here}: cannot be read: {_words(error)}", "Name a folder with skills in it.") from error
        if any(entry.name in (MANIFEST, "skill.md") and entry.is_file() for entry in entries):
            yield here
            continue
        folders = [
            here / entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and entry.name not in NOT_PART_OF_A_SKILL
        ]
        waiting += reversed(folders)


def load_skills(places: Iterable[str | Path]) -> list[Skill]:
    """The skills at these places; each is a skill, or a folder of skills."""
    skills: list[Skill] = []
    for place in places:
        found = [Skill.load(folder) for folder in find_skills(place)]
        if not found:
            raise UsageError(f"{place}: has no skill in it", "A skill is a folder with a SKILL.md in it.")
        skills += found
    return skills


def _words(error: Exception) -> str:
    if isinstance(error, RuntimeError):  # Path.resolve before Python 3.13
        return "its symbolic links run in a circle"
    return getattr(error, "strerror", None) or str(error)


def _read_folder(root: Path) -> tuple[list[SkillFile], tuple[str, ...]]:
    """Every file, and the folders that have none."""
    files: list[SkillFile] = []
    empty: list[str] = []
    total = 0
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{root}: a file's name is not UTF-8: {name!r}", "Rename it.") from error
        info = path.lstat()
        total += info.st_size
        if total > LARGEST_FOLDER or len(files) + len(empty) >= MOST_FILES:
            raise UsageError(
                f"{root}: is too large for a skill (over {LARGEST_FOLDER // 10**6} MB or {MOST_FILES:,} files)",
                "Is this the right folder? Keep data sets outside of the skill.",
            )
        if stat.S_ISDIR(info.st_mode):
            empty.append(name)
        else:
            files.append(_read_file(root, path, name, info))
    return files, tuple(sorted(empty))


def _walk(root: Path) -> Iterator[Path]:
    """What is not a folder, and the folders in which nothing is."""
    waiting = [root]
    while waiting:
        here = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(here) if entry.name not in NOT_PART_OF_A_SKILL]
        except OSError as error:
            raise UsageError(f"{here}: cannot be read: {_words(error)}") from error
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
            inside = end.is_relative_to(root) and not NOT_PART_OF_A_SKILL & set(end.relative_to(root).parts)
        except (OSError, RuntimeError) as error:
            why = "runs in a circle" if not isinstance(error, FileNotFoundError) else f"leads nowhere ({target})"
            raise UsageError(f"{path}: this symbolic link {why}", "Remove it, or put the file itself there.") from error
        if not inside or Path(target).is_absolute():
            raise UsageError(
                f"{path}: this symbolic link leads out of the skill ({target})", "Put the file itself there."
            )
        return SkillFile(name, link=target)
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path}: is neither a file nor a folder", "Remove it from the skill.")
    if name.lower() == MANIFEST.lower() and info.st_size > LARGEST_MANIFEST:
        raise UsageError(
            f"{path}: is {info.st_size / 1e6:.1f} MB; a SKILL.md may have {LARGEST_MANIFEST / 1e6:.0f} MB",
            "Instructions are read whole by the model: move details into references/.",
        )
    try:
        return SkillFile(name, path.read_bytes(), bool(info.st_mode & 0o100))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {_words(error)}") from error


def _manifest_of(files: Iterable[SkillFile], where: str) -> SkillFile:
    """SKILL.md under the name it has; where that is a link, with what the link leads to."""
    for name in (MANIFEST, "skill.md"):
        found = _followed(files, name)
        if found:
            return replace(found, path=name)
    raise UsageError(f"{where}: has no {MANIFEST}", "A skill is a folder with a SKILL.md in it.")


def _followed(files: Iterable[SkillFile], path: str) -> SkillFile | None:
    """The file that a path leads to, through links to files and to folders."""
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
    found = by_path.get(str(at))
    return found if not waiting else None


def _text_of(file: SkillFile, where: str) -> str:
    try:
        text = file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: is not UTF-8 text (byte {error.start})", "Save it as UTF-8.") from error
    if "\0" in text:
        raise UsageError(f"{where}: holds zero bytes, so it is not a text file", "Save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"half a character ({error.object[error.start]!r}) cannot be saved as UTF-8") from error


def _cut_short(head: str) -> tuple[Mapping[str, Any], list[Problem]]:
    """The fields as far as the reference validator reads, and what it says of their YAML."""
    notes: list[Problem] = []
    try:
        return frontmatter.parse(head, MANIFEST, notes), notes
    except UsageError as error:
        return {}, [Problem("error", f"{error.message} (as far as the first ---)")]


def _field_problems(fields: Mapping[str, Any], profile: Profile) -> Iterator[Problem]:
    for key, value in fields.items():
        if key not in FIELDS:
            level: Level = "warning" if profile == "clients" and key in CLIENT_FIELDS else "error"
            kind = "a client's own field" if key in CLIENT_FIELDS else "not a field of the specification"
            yield Problem(level, f"{key!r} is {kind}")
        elif key == "metadata":
            if not isinstance(value, Mapping):
                yield Problem("warning", "metadata should be a list of `name: text` lines")
        elif not isinstance(value, str):
            yield Problem(
                "error" if key in ("name", "description", "compatibility") else "warning", f"{key} is not text"
            )
    compatibility = fields.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > 500:
        yield Problem("error", f"compatibility is longer than 500 characters ({len(compatibility)})")


def _name_problems(written: object, folder: str | None) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "name is missing")
        return
    name = unicodedata.normalize("NFKC", written.strip())
    if len(name) > 64:
        yield Problem("error", f"name is longer than 64 characters ({len(name)})")
    if name != name.lower():
        yield Problem("error", f"name {name!r} has capital letters")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        yield Problem("error", f"name {name!r} has characters other than letters, digits and -")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield Problem("error", f"name {name!r} starts or ends with - or has two in a row")
    if folder is not None and unicodedata.normalize("NFKC", folder) != name:
        yield Problem("error", f"name {name!r} differs from the folder's name {folder!r}")


def _description_problems(written: object) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "description is missing")
    elif len(written) > 1024:
        yield Problem("error", f"description is longer than 1024 characters ({len(written)})")


def _hash(files: Iterable[SkillFile]) -> str:
    total = hashlib.sha256()
    for file in files:
        kind = "link" if file.link else "run" if file.executable else "file"
        data = file.link.encode() if file.link else file.data
        for part in (file.path.encode(), kind.encode(), hashlib.sha256(data).digest()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def _write(path: Path, file: SkillFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.link:
        path.symlink_to(file.link)
        return
    path.write_bytes(file.data)
    path.chmod(0o755 if file.executable else 0o644)


def _swap(fresh: Path, target: Path) -> None:
    if not os.path.lexists(target):
        fresh.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old / "old")
    try:
        fresh.rename(target)
    except BaseException:  # also Ctrl-C: what was there comes back before anything else happens
        (old / "old").rename(target)
        old.rmdir()
        raise
    _keep_histories(old / "old", target)
    shutil.rmtree(old, ignore_errors=True)


def _keep_histories(old: Path, new: Path) -> None:
    """Move each .git over: it is no part of the skill, and the person's all the same."""
    if old.is_symlink() or not old.is_dir():
        return
    for folder, folders, files in os.walk(old):
        if ".git" in (*folders, *files):
            place = new / Path(folder).relative_to(old)
            place.mkdir(parents=True, exist_ok=True)
            (Path(folder) / ".git").rename(place / ".git")
            folders[:] = [name for name in folders if name != ".git"]
