"""An installed program: its version, how it is started, and what it prints."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upskill.errors import ModelError
from upskill.models.embedded.weight_files import known_sha256
from upskill.plain import dict_or_empty, load_json, read_json

MAX_OUTPUT = 32 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Invocation:
    """Arguments, and environment variables beyond the usual ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ProcessResult:
    exit_code: int
    stdout: str
    stderr: str


async def run_process(
    command: tuple[str, ...],
    stdin: str,
    environment: Mapping[str, str],
    folder: Path,
    seconds: float,
) -> ProcessResult:
    """Run a program to its end. Nothing that it started is left running."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            stdout, stderr, _ = await asyncio.gather(
                _read(process.stdout),
                _read(process.stderr),
                _write(process.stdin, stdin.encode("utf-8", "replace")),
            )
            code = await process.wait()
    except TimeoutError as error:
        raise ModelError(
            f"`{Path(command[0]).name}` did not answer within {seconds:g} s"
        ) from error
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()
    return ProcessResult(code, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    assert stream is not None
    with suppress(ConnectionError):  # it failed at once, and says why
        stream.write(data)
        await stream.drain()
    stream.close()
    with suppress(ConnectionError):
        await stream.wait_closed()


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    output = bytearray()
    while chunk := await stream.read(65536):
        output += chunk
        if len(output) > MAX_OUTPUT:
            raise ModelError(f"the command wrote more than {MAX_OUTPUT:,} bytes")
    return bytes(output)


def json_events(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.lstrip().startswith("{"):
            with suppress(ValueError):
                yield dict_or_empty(load_json(line))


def program_version(name: str) -> str:
    """The SHA-256 where it came in no package; empty if it is not installed."""
    if (program := shutil.which(name)) is None:
        return ""
    path = Path(program).resolve()
    try:
        return package_version(path) or known_sha256(path)
    except OSError:  # it cannot be started either
        return ""


def package_version(path: Path) -> str:
    """The version of the package that a program came in; empty if it came in none."""
    for folder in path.parents:
        if version := read_json(folder / "package.json").get("version"):
            return str(version)
        if folder.name == "node_modules":
            break
    return ""
