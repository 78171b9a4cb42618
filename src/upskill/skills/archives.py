"""Archives of skills: a zip with the same bytes on every machine, and reading one that may be hostile."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from upskill.errors import UsageError
from upskill.skills.files import (
    IGNORED_NAMES,
    MANIFEST,
    MAX_FILES,
    MAX_FOLDER_BYTES,
    MAX_MANIFEST_BYTES,
    SkillFile,
)
from upskill.skills.skill import Skill

OURS = b"upskill pack"  # the comment of our archives: they may be overwritten
SUFFIXES = (".skill", ".zip", ".tar.gz", ".tgz")
MAX_RATIO = 200  # of text; logs compress by 20
SPARE = 1_000_000  # bytes that any archive may unpack to
MAX_NAME = 1000
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error),
    *(EOFError, OSError, NotImplementedError, RuntimeError, ValueError, OverflowError),
)


def zip_files(files: Iterable[SkillFile]) -> bytes:
    """Without compression, since what a deflate library writes depends on its version."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = OURS
        for file in sorted(files, key=lambda file: file.path.encode()):
            info = zipfile.ZipInfo(file.path)  # dated 1980-01-01
            info.create_system = 3  # Unix, also when written elsewhere
            info.external_attr = (stat.S_IFREG | (0o755 if file.executable else 0o644)) << 16
            archive.writestr(info, file.data)
    return packed.getvalue()


def load_archive(path: str | Path) -> Skill:
    """The skill in a .skill, .zip or .tar.gz, at its root or in its one folder. Nothing is written."""
    files = {PurePosixPath(file.path): file for file in read_archive(path)}
    folders = [inner.parent for inner in files if inner.name in (MANIFEST, "skill.md")]
    roots = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    if len(roots) != 1:
        there = f"{len(roots)} skills" if roots else f"no {MANIFEST}"
        hint = (
            "Unpack it, and install each skill."
            if roots
            else "A skill is a folder with a SKILL.md in it."
        )
        raise UsageError(f"{path}: contains {there}", hint)
    [root] = roots
    if len(root.parts) > 1 or any(not inner.is_relative_to(root) for inner in files):
        raise UsageError(
            f"{path}: contains more than the skill", f"Unpack it, and install the folder {root}."
        )
    if any(
        len(files[at].data) > MAX_MANIFEST_BYTES
        for at in files
        if at.parent == root and at.name.lower() == "skill.md"
    ):
        raise UsageError(
            f"{path}: {MANIFEST} is larger than {MAX_MANIFEST_BYTES // 10**6} MB",
            "Move details into references/.",
        )
    inside = [
        SkillFile(str(at.relative_to(root)), file.data, file.executable)
        for at, file in files.items()
    ]
    return Skill.from_files(inside, str(path))


def read_archive(path: str | Path) -> list[SkillFile]:
    """Its files. UsageError for whatever could escape, overwrite or overflow."""
    try:
        size = Path(path).stat().st_size
        limit = min(MAX_FOLDER_BYTES, size * MAX_RATIO + SPARE)
        entries = (
            _zip_entries(Path(path), limit)
            if zipfile.is_zipfile(path)
            else _tar_entries(Path(path), limit)
        )
        files: list[SkillFile] = []
        taken: dict[
            str, tuple[str, bool]
        ] = {}  # by name as a case-blind disk sees it: the name, and if it is a file
        for name, file in entries:
            if len(taken) > MAX_FILES:
                raise _refusal(f"contains more than {MAX_FILES:,} files")
            parts = _check_name(name)
            if file is not None and not parts:
                raise _refusal("contains a file without a name")
            if {*IGNORED_NAMES, "__MACOSX"} & set(parts):
                continue
            for depth in range(1, len(parts) + 1):
                _take("/".join(parts[:depth]), file is not None and depth == len(parts), taken)
            if file is not None:
                files.append(SkillFile("/".join(parts), *file))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error
    except _BROKEN as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(
            f"{path}: cannot be unpacked: {why}",
            f"Pass one of these types of file: {', '.join(SUFFIXES)}.",
        ) from error
    return files


_Content = tuple[bytes, bool]  # data, executable


def _zip_entries(path: Path, limit: int) -> Iterator[tuple[str, _Content | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, mode = info.orig_filename, info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refusal(f"{name!r} is a link or a device")
            if info.flag_bits & 1:
                raise _refusal("is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _refusal("uses an unsupported kind of compression")
            limit -= info.file_size
            if limit < 0:
                raise _bomb()
            yield name, None if name.endswith("/") else (archive.read(info), bool(mode & 0o100))


def _tar_entries(path: Path, limit: int) -> Iterator[tuple[str, _Content | None]]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
            data = stream.read(limit + 1)
    if len(data) > limit:
        raise _bomb()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            if member.isdir():
                yield member.name, None
            elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and (
                content := archive.extractfile(member)
            ):
                yield member.name, (content.read(), bool(member.mode & 0o100))
            else:  # also hard links and sparse files, whose content is larger than the archive
                raise _refusal(f"{member.name!r} is a link or a device")


def _check_name(name: str) -> list[str]:
    """The parts of a path inside the skill; none for its root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    escapes = (
        name.startswith("/") or ".." in parts or "\\" in name or (len(name) > 1 and name[1] == ":")
    )
    if escapes or len(name) > MAX_NAME or not name.isprintable():  # NUL, and half a character
        raise _refusal(f"{name[:80]!r} is not a path inside a skill")
    return parts


def _take(name: str, is_file: bool, taken: dict[str, tuple[str, bool]]) -> None:
    folded = unicodedata.normalize("NFC", name).casefold()
    other, was_file = taken.get(folded, ("", False))
    if other and other != name:
        raise _refusal(f"{other!r} and {name!r} are the same file on some machines")
    if other and (is_file or was_file):
        raise _refusal(f"contains {name!r} twice")
    taken[folded] = (name, is_file)


def _bomb() -> UsageError:
    return _refusal(
        f"unpacks to more than {MAX_FOLDER_BYTES // 10**6} MB, or to more than {MAX_RATIO} times its size"
    )


def _refusal(why: str) -> UsageError:
    return UsageError(why, "Nothing was written. Ask whoever made the archive.")
