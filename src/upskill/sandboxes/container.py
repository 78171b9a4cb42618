"""Container: docker or podman. Experimental: its tests speak to a stand-in for the engine.

Process 1 of a container ends with the client that we started, so none outlives us; to end it early, the container is
removed and not only the client.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from upskill.errors import SandboxError
from upskill.sandboxes import (
    ENVIRONMENT,
    Capture,
    Entry,
    MiB,
    PreparedCommand,
    Sandbox,
    SandboxBackend,
    Setup,
)
from upskill.sandboxes.files import Folder
from upskill.sandboxes.processes import PIPES, supervise

ENGINES = {  # with how to ask for their version
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version}}"),
}
IMAGE = "python:3.12-slim"
WORKSPACE, HOME = "/workspace", "/home/student"
ENGINE_TIMEOUT = 30.0  # seconds for one request to the engine
# Process 1 lives as long as somebody holds the other end of its standard input. `kill -1` spares it, which it would not
# spare a child of `--init`, and bash reaps the processes that are left behind.
PROCESS_1 = "echo ready; while read -r _; do :; done"
READ = (
    '[ -L "$1" ] && exit 40; [ -d "$1" ] && exit 41; [ -e "$1" ] || exit 42; [ -f "$1" ] || exit 43; '
    'head -c "$2" "$1"'
)
WRITE = 'set -e; mkdir -p "$(dirname "$1")"; cat >"$2"; chmod "$3" "$2"; mv -fT "$2" "$1"'
LIST = 'cd "$1" && find . -mindepth 1 -printf "%y %s %m %P\\0" | head -z -n "$2"'
KINDS: Mapping[str, Literal["file", "folder", "link", "other"]] = {
    "f": "file",
    "d": "folder",
    "l": "link",
}


class Container(SandboxBackend):
    name = "container"
    experimental = True
    shows_gpu = True
    fix = f"Start docker or podman as a user with access to it, and pull the image once: `docker pull {IMAGE}`."

    async def version(self) -> str:
        engine, version = await _engine()
        return f"{engine} {version}, {IMAGE}"

    async def open(self, setup: Setup) -> ContainerSandbox:
        if setup.proxy_port is not None:
            raise SandboxError("containers do not support a proxy socket yet", "Use bubblewrap.")
        engine, _ = await _engine()
        sandbox = ContainerSandbox(engine, setup)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox


async def _engine() -> tuple[str, str]:
    """The first engine that answers, with its version. A client on the PATH is no proof of that."""
    problem = "neither docker nor podman is installed"
    for name, arguments in ENGINES.items():
        program = shutil.which(name)
        if program is None:
            continue
        try:
            code, output, error = await _ask([program, *arguments], 10.0)
        except (OSError, TimeoutError) as failure:
            problem = f"{name} does not respond: {failure or 'no answer within 10 s'}"
            continue
        if code == 0 and output.strip():
            return program, output.decode(errors="replace").strip()
        problem = f"{name} does not respond: {error.decode(errors='replace').strip()}"
    raise SandboxError(problem)


def run_arguments(name: str, setup: Setup, engine: str = "docker") -> list[str]:
    limits = setup.limits
    user = 1000
    line = [
        *("--interactive", "--rm", "--name", name, "--hostname", "sandbox", "--pull", "never"),
        *(
            "--network",
            "none",
            "--ipc",
            "private",
            "--read-only",
            "--user",
            f"{user}:{user}",
            "--workdir",
            WORKSPACE,
        ),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(
            "--memory",
            str(limits.memory),
            "--memory-swap",
            str(limits.memory),
            "--pids-limit",
            str(limits.processes),
        ),
        *(
            "--ulimit",
            "core=0",
            "--ulimit",
            f"fsize={limits.file_size}",
            "--ulimit",
            f"nofile={limits.open_files}",
        ),
        *("--ulimit", f"cpu={int(limits.cpu) + 2}", "--shm-size", str(min(limits.disk, 64 * MiB))),
    ]
    for variable, value in {**ENVIRONMENT, "HOME": HOME, "TMPDIR": "/tmp"}.items():  # noqa: S108 - inside
        line += ["--env", f"{variable}={value}"]
    for target in (WORKSPACE, HOME, "/tmp"):  # noqa: S108 - inside
        mode = "1777" if target == "/tmp" else "755"  # noqa: S108
        options = f"rw,exec,nosuid,nodev,size={limits.disk},uid={user},gid={user},mode={mode}"
        if Path(engine).name == "docker":  # podman knows no such option
            options += f",nr_inodes={limits.files}"
        line += ["--tmpfs", f"{target}:{options}"]
    for target, path in setup.readonly_mounts.items():
        line += ["--mount", f"type=bind,source={path.absolute()},target={target},readonly"]
    if setup.gpu:
        line += (
            ["--device", "nvidia.com/gpu=all"]
            if Path(engine).name == "podman"
            else ["--gpus", "all"]
        )
    return [*line, IMAGE, "bash", "-c", PROCESS_1]


class ContainerSandbox(Sandbox):
    kind = "container"
    workspace = WORKSPACE
    home = HOME
    shell = ("sh", "-c", 'exec "$(command -v bash || echo sh)" -c "$1"', "sh")

    def __init__(self, engine: str, setup: Setup) -> None:
        super().__init__(setup)
        self._engine = engine
        self._name = f"upskill-{secrets.token_hex(8)}"
        self._client: asyncio.subprocess.Process | None = None
        # Only to check paths: the files are in the container.
        self._folders = {root: Folder(-1, root) for root in (WORKSPACE, HOME)}

    async def start(self) -> None:
        self._client = await asyncio.create_subprocess_exec(
            *(self._engine, "run", *run_arguments(self._name, self._setup, self._engine)),
            **PIPES,
        )
        assert self._client.stdout is not None
        assert self._client.stderr is not None
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT):
                ready = await self._client.stdout.readline()
        except TimeoutError:
            raise SandboxError(
                f"{self._engine} did not start a container within {ENGINE_TIMEOUT:g} s"
            ) from None
        if ready.strip() != b"ready":
            message = (await self._client.stderr.read()).decode(errors="replace").strip()
            raise SandboxError(
                f"{self._engine} did not start a container: {message}", Container.fix
            )
        for folder, files in ((WORKSPACE, self._setup.files), (HOME, self._setup.home_files)):
            for path, content in files.items():
                full_path = f"{folder}/{'/'.join(self._folders[folder].parts(path))}"
                await self.write(full_path, content, executable=path in self._setup.runnable)

    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        if self._client is None or self._client.returncode is not None:
            raise SandboxError("the container has stopped, so nothing can run in it")
        # By name only: no list of processes shows the values in the client's environment.
        named = [word for name in command.environment for word in ("--env", name)]
        process = await asyncio.create_subprocess_exec(
            *(
                self._engine,
                "exec",
                "--interactive",
                "--workdir",
                WORKSPACE,
                *named,
                self._name,
                *command.argv,
            ),
            **PIPES,
            env={**os.environ, **command.environment},
        )
        return await supervise(process, command, capture, lambda: "", self._end)

    async def _end(self, process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
        try:
            await self._end_all()
            await asyncio.wait([ended], timeout=ENGINE_TIMEOUT)
        finally:
            if not ended.done():  # killing the client alone would leave the command running
                await self._remove()
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _end_all(self) -> None:
        code, _, error = await _ask(
            [self._engine, "exec", self._name, "sh", "-c", "kill -KILL -1"], ENGINE_TIMEOUT
        )
        if code not in (0, 137):
            raise SandboxError(
                f"the processes in the container could not be stopped: {error.decode(errors='replace')}"
            )

    async def kill_processes(self) -> None:
        async with self._lock:
            await self._end_all()

    async def read(self, path: str, max_bytes: int = 16 * MiB) -> bytes:
        code, output, error = await self._inside(READ, self._full_path(path), str(max_bytes + 1))
        if code in (40, 43):
            raise PermissionError(
                1, "is a link, and links are not followed" if code == 40 else "is no file", path
            )
        if code == 41:
            raise IsADirectoryError(21, "is a folder", path)
        if code == 42:
            raise FileNotFoundError(2, "No such file or directory", path)
        if code:
            raise OSError(5, error.decode(errors="replace").strip(), path)
        if len(output) > max_bytes:
            raise OSError(27, f"has more than {max_bytes:,} bytes", path)
        return output

    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        full_path = self._full_path(path)
        if full_path in self._folders:
            raise IsADirectoryError(21, "is a folder", path)
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        fresh = f"{HOME}/.{secrets.token_hex(8)}.new"
        code, _, error = await self._inside(
            WRITE, full_path, fresh, "755" if executable else "644", stdin=data
        )
        if code:
            raise OSError(5, error.decode(errors="replace").strip(), path)

    async def list(self, path: str = "", max_entries: int = 10_000) -> list[Entry]:
        code, output, _ = await self._inside(LIST, self._full_path(path), str(max_entries))
        if code:
            raise FileNotFoundError(2, "No such file or directory", path)
        prefix = self._full_path(path).removeprefix(WORKSPACE).strip("/")
        entries: list[Entry] = []
        for row in output.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            letter, size, mode, name = row.split(" ", 3)
            full = f"{prefix}/{name}" if prefix else name
            kind = KINDS.get(letter, "other")
            is_file = kind == "file"
            executable = is_file and bool(int(mode, 8) & 0o100)
            entries.append(Entry(full, kind, int(size) if is_file else 0, executable))
        return sorted(entries, key=lambda entry: entry.path)

    def _full_path(self, path: str) -> str:
        folder = next((each for each in self._folders if path.startswith(each + "/")), WORKSPACE)
        return "/".join([folder, *self._folders[folder].parts(path)])

    async def _inside(
        self, script: str, *arguments: str, stdin: bytes = b""
    ) -> tuple[int, bytes, bytes]:
        line = [
            self._engine,
            "exec",
            "--interactive",
            self._name,
            "sh",
            "-c",
            script,
            "sh",
            *arguments,
        ]
        return await _ask(line, ENGINE_TIMEOUT, stdin)

    async def _remove(self) -> None:
        with suppress(OSError, TimeoutError):
            await _ask([self._engine, "rm", "--force", self._name], ENGINE_TIMEOUT)

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        assert client.stdin is not None
        client.stdin.close()
        await self._remove()
        with suppress(ProcessLookupError):
            client.kill()
        await client.wait()


async def _ask(line: list[str], patience: float, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(*line, **PIPES)
    try:
        async with asyncio.timeout(patience):
            output, error = await process.communicate(stdin)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output, error
