"""The real agent programs, from npm, in a folder that is kept from one run of the tests to the next."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = ("@openai/codex@0.166", "opencode-ai@1.18", "@anthropic-ai/claude-code@2.1")
COMMANDS = ("codex", "opencode", "claude")
ROOM = 4 * 2**30  # bytes; they take one GB, and the cache of npm another
PATIENCE = 1200  # seconds, of the 1800 that a test has
# Read before a test has a home folder of its own.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "upskill-tests"
FOLDER = Path(os.environ.get("UPSKILL_TEST_AGENTS") or CACHE / "agents")
BINARIES = FOLDER / "node_modules" / ".bin"
INSTALLED = FOLDER / ".installed"  # written last: npm links a program before its install script has run


def install() -> str:
    """Install what is missing; the folders to be put before the PATH. Skips where that is not possible."""
    if not _complete():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete():
                _install()
    folders = [str(BINARIES)]
    if shutil.which("rg") is None:  # opencode would download it; Codex brings one
        folders += [str(path.parent) for path in FOLDER.glob("node_modules/@openai/codex-*/vendor/*/codex-path/rg")]
    return os.pathsep.join(folders)


def _complete() -> bool:
    return (
        INSTALLED.exists()
        and INSTALLED.read_text(encoding="utf-8") == " ".join(PACKAGES)
        and all((BINARIES / command).exists() for command in COMMANDS)
    )


def _install() -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the agent programs are not here, and npm, which could install them, is not either")
    if shutil.disk_usage(FOLDER).free < ROOM:
        pytest.skip("the agent programs are not here, and the disk has too little room for them")
    arguments = ["install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", *PACKAGES]
    try:
        subprocess.run([npm, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or error
        shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
        pytest.skip(f"the agent programs cannot be installed: {str(said).strip()[-300:]}")
    INSTALLED.write_text(" ".join(PACKAGES), encoding="utf-8")
