"""The room in which a trial is graded: a fresh sandbox with what the student delivered, and nothing else of its.

What is delivered is read when none of the student's processes lives, never through a link, and carried over as regular
files. A repository is carried as its objects, refs and index; its settings and hooks stay behind.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from upskill.checks.workspace import ENVIRONMENT, in_words, with_only
from upskill.sandboxes import SYSTEM_PATH, Entry, Limits, MiB, Sandbox, format_size

MAX_FILES = 5_000  # that are delivered, repositories apart
MAX_ENTRIES = 10_000  # of a workspace that are looked at
MAX_BYTES = 256 * MiB  # of all that is delivered
SECONDS = 60.0  # for making files readable
LONG_AGO = "198001010000"
ALL = "**"

# What steers a tool without being named to it, by the files that show that a case brings this tool.
SETTINGS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("*.py",): ("sitecustomize.py", "usercustomize.py", "*.pth", "pyvenv.cfg"),
    ("test_*.py", "*_test.py", "conftest.py"): (
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
    ),
    ("[Mm]akefile", "GNUmakefile"): ("[Mm]akefile", "GNUmakefile"),
    ("package.json",): ("package.json", "node_modules", "*.config.*js", ".npmrc", ".mocharc*"),
    ("go.mod", "*_test.go"): ("go.mod", "go.work", "vendor"),
    ("Cargo.toml",): ("Cargo.toml", "build.rs", "rust-toolchain*", ".cargo"),
    ("CMakeLists.txt",): ("CMakeLists.txt", "CMakeCache.txt", "CTestCustom.c*"),
    ("*.t",): (".proverc",),
}

# What git keeps in a repository, but for settings, hooks, and what would have objects or files looked for elsewhere.
_KEPT_BY_GIT = re.compile(
    r"HEAD|packed-refs|index|sharedindex\.\w+|config|(?:refs|logs)/.*"
    r"|objects/[0-9a-f]{2}/\w+|objects/pack/pack-\w+\.(?:pack|idx)"
)
_LEFT = "left-by-student"  # a folder for the files whose content is not taken as it is
_READ_ANEW = ("index", "config")
_KEYS = (
    r"user\..*|branch\..*|remote\..*\.(url|fetch|pushurl)|core\.(repositoryformatversion|bare)"
    r"|extensions\.objectformat"
)
# The index is written anew from its entries: flags that hide changes, and what it remembers of files, are the student's
# word. $1 is the repository, $2 its work tree.
_SET_UP_GIT = f"""
top=$PWD; cd "$1" && mkdir -p objects refs || exit
if [ -f {_LEFT}/config ]; then
  git config -f {_LEFT}/config --no-includes --name-only --list | grep -ixE '{_KEYS}' | sort -u |
  while IFS= read -r key; do
    git config -f {_LEFT}/config --no-includes --get-all "$key" |
    while IFS= read -r value; do git config -f config --add "$key" "$value"; done
  done
fi
if [ -f {_LEFT}/index ]; then
  GIT_INDEX_FILE={_LEFT}/index git --git-dir=. ls-files --stage -z > {_LEFT}/entries
  git --git-dir=. update-index -z --index-info < {_LEFT}/entries
fi
rm -rf {_LEFT} sharedindex.*
cd "$top/$2" && git update-index -q --refresh
"""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Which paths of a workspace come from the student."""

    patterns: tuple[str, ...]
    left_behind: tuple[str, ...] = ()  # names of settings that the student's are not taken for

    def __contains__(self, path: str) -> bool:
        parts = path.split("/")
        named = [PurePosixPath(pattern).parts for pattern in self.patterns if pattern != ALL]
        if any(_fits(parts, pattern) for pattern in named):
            return True
        return ALL in self.patterns and not any(
            _is_one_of(each, self.left_behind) for each in parts
        )

    def place_in_repository(self, folder: str, path: str) -> str:
        """Where a file of this repository is carried to; empty where it stays behind."""
        top, parts = PurePosixPath(folder).parts, PurePosixPath(path).parts
        inside = [
            pattern
            for pattern in [PurePosixPath(each).parts for each in self.patterns]
            if pattern[: len(top)] == top and len(pattern) > len(top)
        ]
        if any(_fits(parts, pattern) for pattern in inside):
            return path
        name = path.removeprefix(f"{folder}/")
        if not (inside or folder in self) or not _KEPT_BY_GIT.fullmatch(name):
            return ""
        return f"{folder}/{_LEFT}/{name}" if name in _READ_ANEW else path


def settings_of(brought: Iterable[str]) -> tuple[str, ...]:
    """The settings of those tools of which a case brings files."""
    names = [PurePosixPath(path).name for path in brought]
    return tuple(
        setting
        for marks, settings in SETTINGS.items()
        if any(_is_one_of(name, marks) for name in names)
        for setting in settings
    )


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a pattern names this path or a folder above it.

    Only a full name stands for a dotfile, a setting of a tool, or a name that reads as an option.
    """
    if not pattern:
        return not any(map(_is_special, path))
    if not path:
        return False
    if path[0] == pattern[0]:
        return _fits(path[1:], pattern[1:])
    if pattern[0] == ALL and _fits(path, pattern[1:]):
        return True
    if _is_special(path[0]) or not fnmatchcase(path[0], pattern[0]):
        return False
    return _fits(path[1:], pattern if pattern[0] == ALL else pattern[1:])


def _is_special(name: str) -> bool:
    return name.startswith((".", "-")) or any(_is_one_of(name, each) for each in SETTINGS.values())


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a student left, as far as it is graded."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    executable: frozenset[str] = frozenset()
    empty_folders: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    problem: str = ""  # why nothing of it can be graded


async def collect(sandbox: Sandbox, outputs: Outputs, kept: Mapping[str, str]) -> Delivery:
    """Take what a student delivers out of its sandbox; `kept` are the files that the case brings itself."""
    try:
        return await _collect(sandbox, outputs, kept)
    except OSError as error:
        return Delivery(problem=f"{error.filename}: {in_words(error)}")


async def _collect(sandbox: Sandbox, outputs: Outputs, kept: Mapping[str, str]) -> Delivery:
    await sandbox.run(["chmod", "-R", "u+rwX", "."], Limits(wall=SECONDS))
    entries = await sandbox.list("", MAX_ENTRIES + 1)
    if len(entries) > MAX_ENTRIES:
        return Delivery(problem=f"more than {MAX_ENTRIES:,} files and folders were left")
    repositories = sorted(_find_repositories(entries), key=len)
    work: dict[str, Entry] = {}
    history: dict[str, Entry] = {}
    left_out: list[str] = []
    for entry in entries:
        inside = [folder for folder in repositories if entry.path.startswith(f"{folder}/")]
        if entry.kind == "folder":
            continue
        if inside:
            place = outputs.place_in_repository(inside[0], entry.path)
            if place and entry.kind == "file":
                history[place] = entry
        elif entry.kind == "file" and entry.path in outputs:
            work[entry.path] = entry
        elif entry.path not in kept or not await _is_as_brought(sandbox, entry, kept[entry.path]):
            left_out.append(entry.path)
    delivered = {**work, **history}
    folders = {parent for path in {*delivered, *kept} for parent in _folders_above(path)}
    empty = [
        entry.path
        for entry in entries
        if entry.kind == "folder" and entry.path not in folders and entry.path in outputs
    ]
    problem = ""
    if len(work) + len(empty) > MAX_FILES:
        problem = f"more than {MAX_FILES:,} files were delivered"
    elif sum(entry.size for entry in delivered.values()) > MAX_BYTES:
        problem = f"more than {format_size(MAX_BYTES)} were delivered"
    elif clashing := sorted(folders & {*delivered, *kept}):
        problem = f"{clashing[0]} is a file, and the case has files in a folder of this name"
    if problem:
        return Delivery(left_out=tuple(left_out), problem=problem)
    files = {place: await sandbox.read(entry.path, MAX_BYTES) for place, entry in delivered.items()}
    return Delivery(
        files=files,
        executable=frozenset(place for place, entry in delivered.items() if entry.executable),
        empty_folders=tuple(empty),
        repositories=tuple(folder for folder in repositories if f"{folder}/HEAD" in files),
        left_out=tuple(left_out),
    )


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _find_repositories(entries: Iterable[Entry]) -> Iterator[str]:
    folders = {entry.path for entry in entries if entry.kind == "folder"}
    for folder in folders:
        if f"{folder}/objects" in folders and f"{folder}/refs" in folders:
            yield folder


async def _is_as_brought(sandbox: Sandbox, entry: Entry, content: str) -> bool:
    data = content.encode("utf-8", "surrogateescape")
    return (
        entry.kind == "file"
        and entry.size == len(data)
        and await sandbox.read(entry.path, len(data)) == data
    )


async def furnish(room: Sandbox, delivery: Delivery, brought: Collection[str]) -> None:
    """Make the empty folders and the repositories of a room whose files are there.

    What the student added is older than all that the case brought: what it built passes for nothing that is up to date.
    """
    await _for_each(room, delivery.empty_folders, "mkdir", "-p", "--")
    added = {*delivery.files, *delivery.empty_folders}.difference(brought)
    await _for_each(room, added, "touch", "-t", LONG_AGO, "--")
    for folder in delivery.repositories:
        work_tree = str(PurePosixPath(folder).parent)
        alone = with_only(**ENVIRONMENT, PATH=SYSTEM_PATH)
        await room.run([*alone, "/bin/sh", "-c", _SET_UP_GIT, "sh", folder, work_tree])


async def _for_each(room: Sandbox, paths: Collection[str], *command: str) -> None:
    if paths:
        names = "\0".join(paths).encode("utf-8", "surrogateescape")
        await room.run(["xargs", "-0", *command], stdin=names)
