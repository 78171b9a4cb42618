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
# Those that speak the Agent Client Protocol; they are in a folder of their own.
ACP_PACKAGES = (
    "@zed-industries/claude-code-acp@0.16",
    "@qwen-code/qwen-code@0.24",
    "@google/gemini-cli@0.61",
)
ACP_COMMANDS = ("claude-code-acp", "qwen", "gemini")
ROOM = 4 * 2**30  # bytes; they take one GB, and the cache of npm another
PATIENCE = 1200  # seconds, of the 1800 that a test has
# Read before a test has a home folder of its own.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "upskill-tests"
FOLDER = Path(os.environ.get("UPSKILL_TEST_AGENTS") or CACHE / "agents")


def install() -> str:
    """Install what is missing; the folders to be put before the PATH. Skips where that is not possible."""
    folders = [_installed(FOLDER, PACKAGES, COMMANDS)]
    if shutil.which("rg") is None:  # opencode would download it; Codex brings one
        folders += [
            str(path.parent)
            for path in FOLDER.glob("node_modules/@openai/codex-*/vendor/*/codex-path/rg")
        ]
    return os.pathsep.join(folders)


def install_acp() -> str:
    """A machine for which one of the others is not published still has these."""
    return _installed(FOLDER.with_name(f"{FOLDER.name}-acp"), ACP_PACKAGES, ACP_COMMANDS)


def _installed(folder: Path, packages: tuple[str, ...], commands: tuple[str, ...]) -> str:
    binaries = folder / "node_modules" / ".bin"
    written_last = folder / ".installed"  # npm links a program before its install script has run

    def complete() -> bool:
        return (
            written_last.exists()
            and written_last.read_text(encoding="utf-8") == " ".join(packages)
            and all((binaries / command).exists() for command in commands)
        )

    if not complete():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete():
                _install(folder, packages)
                written_last.write_text(" ".join(packages), encoding="utf-8")
    return str(binaries)


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(
            "the agent programs are not here, and npm, which could install them, is not either"
        )
    if shutil.disk_usage(folder).free < ROOM:
        pytest.skip("the agent programs are not here, and the disk has too little room for them")
    arguments = ["install", "--prefix", str(folder), "--no-audit", "--no-fund", *packages]
    try:
        subprocess.run(
            [npm, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or error
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        pytest.skip(f"the agent programs cannot be installed: {str(said).strip()[-300:]}")
