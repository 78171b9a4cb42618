"""A Skill, read leniently: what a client would load also loads here, with warnings, and every file survives."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from upskill.errors import UsageError, did_you_mean
from upskill.plain import canonical, counted
from upskill.skills import frontmatter, security
from upskill.skills.files import (
    IGNORED_NAMES,
    MANIFEST,
    SkillFile,
    decode_text,
    describe_error,
    find_file,
    find_manifest,
    hash_files,
    read_folder,
    write_folder,
)
from upskill.skills.frontmatter import Problem, Profile
from upskill.skills.markdown import blank_code
from upskill.skills.seen import METADATA, add_seen, without_seen

# In the folders of the specification: what is named there is meant to be in the skill, inside a command, too.
_NAMED = re.compile(
    r"(?<![\w/.~$}>@%*-])(?:\./)?(?P<path>(?:scripts|references|assets)/[\w./-]*\w\.[A-Za-z]\w*)(?![\w/*{<])"
)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<path>[^()\s<>]+)\)")
_ELSEWHERE = re.compile(
    r"[A-Za-z][\w+.-]*:|[/#~]|.*[{}$*<>|\\…]|.*\.\.\."
)  # addresses, anchors, patterns
MAX_SHOWN = 5


def missing_files(body: str, paths: Iterable[str]) -> list[str]:
    """The files that a body links to, or names in the usual folders, and that are not among these paths."""
    there = set(paths)
    folders = {path[: slash.start()] for path in there for slash in re.finditer("/", path)}
    links = (unquote(link["path"].partition("#")[0]) for link in _LINK.finditer(blank_code(body)))
    mentioned = [path for path in links if path and not _ELSEWHERE.match(path) and "." in path]
    mentioned += [mention["path"] for mention in _NAMED.finditer(body)]
    paths = dict.fromkeys(path for path in map(normpath, mentioned) if not path.startswith(".."))
    return [path for path in paths if path not in there | folders]


# What only evaluation reads. The student never sees it, so a change here does not make it a different skill to learn.
SUITE_FILES = ("evals/", "eval_queries.json")
RECEIPT, REPLIES = "evals/receipt.json", "evals/replies.jsonl.gz"
BADGE, CARD = "evals/badge.svg", "skill-card.md"  # made from a receipt
HIDDEN_FROM_STUDENTS = (METADATA, CARD, *SUITE_FILES)


@dataclass(frozen=True)
class Skill:
    name: str
    description: str
    body: str
    frontmatter: Mapping[str, Any]  # every scalar as it was written
    files: tuple[SkillFile, ...]  # SKILL.md among them, sorted by path
    folder: Path | None = None
    folders: tuple[str, ...] = ()  # the empty ones: they are saved, but not part of any hash

    def __repr__(self) -> str:
        return f"Skill({self.name!r}, {counted(len(self.files), 'file')}, ~{self.tokens} tokens)"

    @classmethod
    def load(cls, path: str | Path) -> Skill:
        """UsageError if no client could use it."""
        return cls._read(*_open(path))

    @classmethod
    def inspect(cls, path: str | Path) -> Skill:
        """Read a skill folder that may lack its description, so that `problems` can tell whatever else is wrong."""
        return cls._read(*_open(path), describes_itself=False)

    @classmethod
    def _read(
        cls,
        files: Iterable[SkillFile],
        where: str,
        folder: Path | None = None,
        folders: tuple[str, ...] = (),
        *,
        describes_itself: bool = True,
    ) -> Skill:
        files = tuple(sorted(files, key=lambda file: file.path))
        manifest = find_manifest(files, where)
        where = f"{where}/{manifest.path}"
        head, body = frontmatter.split(decode_text(manifest, where), where)
        fields = frontmatter.parse(head, where, [])
        description = _text_field(fields, "description")
        if describes_itself and not description:
            raise UsageError(
                f"{where}: no description",
                "Add `description:` to the frontmatter: what the skill does and when to use it.",
            )
        return cls(
            name=_text_field(fields, "name") or (folder.name if folder else ""),
            description=description,
            body=body,
            frontmatter=fields,
            files=files,
            folder=folder,
            folders=folders,
        )

    @classmethod
    def from_files(cls, files: Iterable[SkillFile], where: str) -> Skill:
        """A skill that is not in a folder; `where` is for messages."""
        return cls._read(files, where)

    @classmethod
    def new(cls, name: str, description: str, body: str, **fields: Any) -> Skill:
        text = frontmatter.render(
            {"name": name, "description": description, **fields}, body.strip() + "\n"
        )
        return cls._read([SkillFile(MANIFEST, _encode(text))], name)

    @property
    def fingerprint(self) -> str:
        """A hash of the whole folder: paths, contents, executable bits and links."""
        return hash_files(filter(None, map(without_seen, self.files)))

    @property
    def visible_hash(self) -> str:
        """A hash of what a student can see: skills with the same one teach the same."""
        return hash_files(
            file for file in self.files if not file.path.startswith(HIDDEN_FROM_STUDENTS)
        )

    @property
    def text_hash(self) -> str:
        """A hash of what students read, whatever the skill's name, and however its words are spaced."""
        unread = ("name", "license", "metadata")
        fields = {name: value for name, value in self.frontmatter.items() if name not in unread}
        manifest = SkillFile(MANIFEST, f"{canonical(fields)} {self.body}".encode())
        files = [manifest, *filter(None, map(self.file, self.resources))]
        return hash_files(replace(file, data=b" ".join(file.data.split())) for file in files)

    @property
    def resources(self) -> tuple[str, ...]:
        """The files beside SKILL.md that an agent may open."""
        return tuple(
            file.path
            for file in self.files
            if not file.path.startswith(HIDDEN_FROM_STUDENTS)
            and file.path.lower() != MANIFEST.lower()
        )

    @property
    def tokens(self) -> int:
        """An estimate of what loading the body costs."""
        return estimate_tokens(self.body)

    def file(self, path: str) -> SkillFile | None:
        return next((file for file in self.files if file.path == path), None)

    def read(self, path: str) -> bytes | None:
        """The content of the file at this path, through the skill's own links; None if there is none."""
        file = find_file(self.files, path)
        return file.data if file else None

    def is_runnable(self, path: str) -> bool:
        """Whether the file at this path is executable, through the skill's own links."""
        file = find_file(self.files, path)
        return file is not None and file.executable

    def with_body(self, body: str) -> Skill:
        return self._with_manifest(body.strip())

    def with_description(self, description: str) -> Skill:
        return self._with_manifest(description=description.strip())

    def with_name(self, name: str) -> Skill:
        """It has no folder yet."""
        return replace(self, folder=None)._with_manifest(name=name)

    def _with_manifest(self, new_body: str | None = None, **fields: str) -> Skill:
        manifest = find_manifest(self.files, self.name)
        before = decode_text(manifest, manifest.path)
        head, body = frontmatter.split(before, manifest.path)
        for name, value in fields.items():
            head = frontmatter.replace_value(head.strip("\n"), name, value)
        stripped, gap = head.strip("\n"), "" if body and f"\n---\n{body}" in before else "\n"
        text = f"---\n{stripped}\n---\n{gap}{body if new_body is None else new_body}\n"
        is_crlf = manifest.data.partition(b"\n")[0].endswith(b"\r")
        return self.with_file(
            manifest.path, _encode(text.replace("\n", "\r\n") if is_crlf else text)
        )

    def with_file(self, path: str, data: bytes, *, executable: bool = False) -> Skill:
        inner = PurePosixPath(path)
        is_text = "\0" not in path and not any(0xD800 <= ord(letter) < 0xE000 for letter in path)
        if (
            inner.is_absolute()
            or not inner.parts
            or {"..", *IGNORED_NAMES} & set(inner.parts)
            or not is_text
        ):
            raise UsageError(
                f"{path!r} is not a path inside a skill",
                "Use a path relative to the skill's folder.",
            )
        others = [file for file in self.files if file.path != str(inner)]
        files = [*others, SkillFile(str(inner), data, executable)]
        folders = tuple(folder for folder in self.folders if not inner.is_relative_to(folder))
        return self._read(files, str(self.folder or self.name), self.folder, folders)

    def with_seen(self, case_ids: Iterable[str], text_hash: str) -> Skill:
        """With these cases in its record, where it is yet to be saved; else see `mark_seen`."""
        record = add_seen(self.read(METADATA) or b"", dict.fromkeys(case_ids, text_hash))
        return self.with_file(METADATA, record) if record else self

    def without_file(self, path: str) -> Skill:
        files = [file for file in self.files if file.path != path]
        return self._read(files, str(self.folder or self.name), self.folder, self.folders)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the whole folder, all or nothing."""
        target = Path(folder)
        if os.path.lexists(target) and not overwrite:
            raise UsageError(
                f"{target}: already exists", "Choose another folder, or pass overwrite=True."
            )
        write_folder(target, self.files, self.folders)
        return target

    def require_valid(self) -> None:
        """UsageError if a client would refuse it; its folder may have any name."""
        errors = [
            problem.message
            for problem in self.problems("clients")
            if problem.level == "error" and problem.rule != "name-folder"
        ]
        if errors:
            hint = "Run `upskill validate` to see every problem."
            raise UsageError(f"{self.name}: not a valid skill: {errors[0]}", hint)

    def problems(self, profile: Profile = "strict") -> list[Problem]:
        """`strict` agrees with the reference validator; `clients` only warns of client fields and of lenient YAML.

        Both add what could be an attack (the rules `hidden` and `security`), which that validator does not look for.
        """
        manifest = find_manifest(self.files, self.name)
        text = decode_text(manifest, manifest.path)
        problems = [*frontmatter.manifest_problems(manifest)]
        fields, syntax, is_ambiguous = frontmatter.read_fields(text, manifest.path, profile)
        if is_ambiguous:
            message = "the frontmatter contains a ---, where some readers stop reading"
            problems.append(Problem("warning", "frontmatter-end", message))
        for problem in syntax:
            is_warning = problem.is_style and profile == "clients"
            problems.append(replace(problem, level="warning") if is_warning else problem)
        problems += frontmatter.field_problems(fields, profile)
        problems += frontmatter.name_problems(
            fields.get("name"), self.folder.name if self.folder else None
        )
        problems += frontmatter.description_problems(fields.get("description"))
        problems = [
            replace(each, line=_line_of(each.field, text)) if each.field else each
            for each in problems
        ]
        if not self.body:
            message = "the body is empty: there is nothing to learn"
            problems.append(Problem("warning", "body-empty", message))
        if self.body.count("\n") >= 500 or self.tokens > 5000:
            message = f"the body is long (~{self.tokens} tokens); keep it under 500 lines and 5,000 tokens"
            problems.append(Problem("warning", "body-length", message))
        if missing := missing_files(self.body, (file.path for file in self.files)):
            more = f" and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else ""
            no_file = f"the skill has no such file{'s' if len(missing) > 1 else ''}"
            message = f"the instructions name {', '.join(missing[:MAX_SHOWN])}{more}, and {no_file}"
            problems.append(Problem("warning", "missing-file", message))
        problems += security.hidden_text(self._shipped)
        problems += security.risky_commands(self._shipped)
        return problems

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the skill is run; `problems` has more."""
        return tuple(
            problem.message for problem in self.problems("clients") if problem.rule != "security"
        )

    @property
    def hidden_text(self) -> tuple[str, ...]:
        """What a model reads in the skill and a person does not see, with its file and line."""
        return tuple(problem.message for problem in security.hidden_text(self._shipped))

    @property
    def _shipped(self) -> Iterator[SkillFile]:
        """What somebody else's agent may read: the card is no part of a trial, but of what `pack` makes."""
        return (
            file
            for file in self.files
            if file.path == CARD or not file.path.startswith(HIDDEN_FROM_STUDENTS)
        )


def _open(path: str | Path) -> tuple[list[SkillFile], str, Path, tuple[str, ...]]:
    folder = Path(path)
    try:
        if folder.name.lower() == "skill.md" and folder.is_file():
            folder = folder.parent
    except OSError as error:  # a folder above it cannot be read, or the name is too long
        raise UsageError(f"{path}: {describe_error(error)}") from error
    if not os.path.lexists(folder):
        beside = (manifest.parent.name for manifest in folder.parent.glob(f"*/{MANIFEST}"))
        hint = did_you_mean(
            folder.name, beside, otherwise="A skill is a folder with a SKILL.md in it."
        )
        raise UsageError(f"{path}: no such folder", hint)
    try:
        folder = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{path}: {describe_error(error)}", "Check where its symbolic links point."
        ) from error
    if not folder.is_dir():
        raise UsageError(f"{path}: not a folder", "A skill is a folder with a SKILL.md in it.")
    files, folders = read_folder(folder)
    return files, str(path), folder, folders


def _line_of(field: str, text: str) -> int:
    place = re.search(rf"^\s*[\"']?{re.escape(field)}[\"']?\s*:", text, re.M)
    return text.count("\n", 0, place.start(0)) + 1 + place[0].count("\n") if place else 1


def _text_field(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value.strip() if isinstance(value, str) else ""


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"contains half a character ({error.object[error.start]!r}), which UTF-8 cannot store"
        ) from error


def estimate_tokens(text: str) -> int:
    """Roughly how many tokens a model sees: a quarter of the UTF-8 bytes, which is close for English and code."""
    return (len(text.encode()) + 3) // 4


def find_skills(folder: str | Path) -> Iterator[Path]:
    """The skill folders below a folder, sorted; a skill inside a skill is one of its resources.

    Links to skills that are found nowhere else come last, as `npx skills` installs them.
    """
    waiting, links, seen = [Path(folder)], list[Path](), set[Path]()
    while waiting:
        here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            why = f"{here}: cannot be read: {describe_error(error)}"
            raise UsageError(why, "Choose a folder with skills in it.") from error
        if any(entry.name in (MANIFEST, "skill.md") and entry.is_file() for entry in entries):
            seen.add(here.resolve())
            yield here
            continue
        links += [
            here / entry.name
            for entry in entries
            if entry.is_symlink() and entry.name not in IGNORED_NAMES
        ]
        folders = [
            here / entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and entry.name not in IGNORED_NAMES
        ]
        waiting += reversed(folders)
    for link in links:
        if (
            any((link / name).is_file() for name in (MANIFEST, "skill.md"))
            and (real := link.resolve()) not in seen
        ):
            seen.add(real)
            yield link


def load_skills(paths: Iterable[str | Path], beside: Skill | None = None) -> list[Skill]:
    """The skills at these paths, each of them a skill or a folder of skills; without `beside`, which is known."""
    skills: list[Skill] = []
    own = beside.folder.resolve() if beside and beside.folder else None
    for path in paths:
        folders = list(find_skills(path))
        if not folders:
            raise UsageError(
                f"{path}: no skill in it", "A skill is a folder with a SKILL.md in it."
            )
        skills += [Skill.load(folder) for folder in folders if Path(folder).resolve() != own]
    return skills
