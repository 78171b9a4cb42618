"""Finds nvcc: on the PATH, where the CUDA toolkit puts it, or in the packages that `upskill[cuda]` installs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from upskill.errors import MissingTool
from upskill.installation import add_extra

SEEN_IN_A_SANDBOX = ("/usr/", "/bin/", "/lib/", "/lib64/")  # every kind shows these; anything else is mounted


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A CUDA compiler, with its headers and the folders that a sandbox has to be shown for it."""

    nvcc: str
    include: str
    mounts: tuple[Path, ...] = ()


def find_toolchain() -> Toolchain:
    """The first nvcc that is there; MissingTool where there is none."""
    for nvcc in _candidates():
        if nvcc.is_file():
            root = _root(nvcc)
            shown = f"{nvcc}".startswith(SEEN_IN_A_SANDBOX) and f"{root}".startswith(SEEN_IN_A_SANDBOX)
            return Toolchain(str(nvcc), str(root / "include"), () if shown else (root,))
    raise MissingTool(
        "there is no CUDA compiler (nvcc): install the CUDA toolkit for all users, or, without root (330 MB):"
        f" {add_extra('cuda')}"
    )


def expect_architecture(nvcc: str, arch: str) -> None:
    """MissingTool where this nvcc says that it does not compile for it."""
    known = _architectures(nvcc)
    if known and arch.rstrip("af") not in known:
        raise MissingTool(
            f"{nvcc} does not compile for {arch}, but for {', '.join(known)}: write one of these as `arch`, or install"
            " a CUDA toolkit that does"
        )


@cache
def _architectures(nvcc: str) -> tuple[str, ...]:
    """What it compiles for, without the letter of a variant; nothing where it does not say."""
    try:
        said = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ()
    listed = {line.strip().rstrip("af") for line in said.splitlines() if line.startswith("sm_")}
    return tuple(sorted(listed, key=lambda one: (len(one), one)))


def _candidates() -> Iterator[Path]:
    if found := shutil.which("nvcc"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/nvcc")
    yield from packaged()


def packaged() -> Iterator[Path]:
    """Where the packages of PyPI put it, the newest first."""
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        yield from sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True)


def _root(nvcc: Path) -> Path:
    """The folder of the toolkit; what is on the PATH may be a link, or a script that starts the compiler."""
    for place in (nvcc.resolve(), nvcc, Path("/usr/local/cuda/bin/nvcc").resolve()):
        root = place.parent.parent
        if (root / "include" / "cuda_runtime_api.h").is_file():
            return root
    return nvcc.resolve().parent.parent
