"""Weights of a few bytes, their row in the table, and the packages that they are fetched from."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from upskill.models import ModelContext
from upskill.models.embedded.local_models import LocalModel, Package, Packages

WEIGHTS = b"GGUF" + bytes(range(256)) * 4
PIECES = WEIGHTS[:500], WEIGHTS[500:]
NAMES = "tiny-one", "tiny-two"


@dataclass
class Heard:
    """What the person was told, and how the bar moved."""

    lines: list[str] = field(default_factory=list[str])
    bar: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def context(self, **settings: Any) -> ModelContext:
        return ModelContext(
            tell=self.lines.append,
            progress=lambda _, done, total: self.bar.append((done, total)),
            **settings,
        )


def tiny(**changes: Any) -> LocalModel:
    """The row of weights that lie in two packages."""
    parts = [
        Package(name, "1.0", "*/data/part*.bin", len(piece))
        for name, piece in zip(NAMES, PIECES, strict=True)
    ]
    model = LocalModel(
        name="tiny",
        origins=(Packages(tuple(parts)),),
        file="tiny.gguf",
        size=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        license="MIT",
        card="https://example.com/tiny",
        context=512,
        context_bytes=1_000,
        advice="small",
    )
    return replace(model, **changes)


def write_wheel(folder: Path, name: str, *members: tuple[str, bytes]) -> Path:
    """Write the wheel of a package, which depends on one that nobody has: fetching that would fail."""
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nobody-has-this-package\n"
    folder.mkdir(exist_ok=True)
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, content in members:
            wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


class FakePip:
    """A program called pip that takes wheels out of a folder, in a hundredth of the time of the real one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log = folder / "asked"
        for name, piece in zip(NAMES, PIECES, strict=True):
            self.add(name, (f"{name}/data/part01.bin", piece))
        write_program(
            folder / "bin" / "pip",
            f'echo "$2" >> {self.log}',
            "for last; do :; done",
            f'[ ! -e {folder}/"$2".slow ] || {{ echo $$ > {folder}/pid; exec /bin/sleep 1000; }}',
            f'/bin/cp {folder}/"$2".whl "$last" || {{ echo "ERROR: No such package: $2" >&2; exit 1; }}',
        )
        monkeypatch.setitem(sys.modules, "pip", None)
        monkeypatch.setenv("PATH", str(folder / "bin"))

    def add(self, name: str, *members: tuple[str, bytes]) -> Path:
        return write_wheel(self.folder, name, *members).rename(self.folder / f"{name}==1.0.whl")

    @property
    def asked(self) -> list[str]:
        """The packages that it was asked for, in order."""
        return self.log.read_text().replace("==1.0", "").split() if self.log.exists() else []


def write_program(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"tiny.gguf.lock"}
