"""Bubblewrap: a trial in namespaces of its own, on Linux, without root or a daemon.

Workspace, home and /tmp are in memory and are reached through /proc: nothing of a trial is ever on the host's disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO

from upskill.errors import SandboxError
from upskill.sandboxes import (
    ENVIRONMENT,
    POLL_SECONDS,
    SYSTEM_PATH,
    Capture,
    DiskUsage,
    Limits,
    MiB,
    PreparedCommand,
    SandboxBackend,
    Setup,
    Stream,
    hold_to_limits,
    private_paths,
    seccomp,
)
from upskill.sandboxes.files import Folder, FolderSandbox, unused_user
from upskill.sandboxes.gpu import gpu_devices, gpu_libraries
from upskill.sandboxes.processes import children, exceeded_limit, usage_of

WORKSPACE, HOME = "/workspace", "/home/student"
WRITABLE = (WORKSPACE, HOME, "/tmp", "/dev/shm")  # noqa: S108 - inside, and private
# The parts of /etc that programs cannot do without and that say nothing about this machine.
ETC = ("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "pki/tls", "pki/ca-trust")
ETC_FILES = {
    "/etc/passwd": b"student:x:1000:1000::/home/student:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "/etc/group": b"student:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": b"",
}
# What students may see of /usr. Sources that people keep in /usr/src or /usr/local/src are not among it.
_SHARED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share")
USR = (*_SHARED, *(f"local/{name}" for name in (*_SHARED, "go", "cargo", "rustup", "cuda*")))
BIND = "--ro-bind"
SUPERVISOR = Path(__file__).with_name("supervisor.sh")


@cache
def system_call_filter() -> bytes:
    return seccomp.pack_filter(seccomp.build_filter())


@cache
def system_paths() -> tuple[Path, ...]:
    etc = Path("/etc")
    paths = [path for name in USR for path in sorted(Path("/usr").glob(name))]
    paths += [Path("/") / name for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")]
    paths += [*(etc / name for name in ETC), *sorted(etc.glob("java-*-openjdk"))]
    return tuple(path for path in paths if path.exists())


@cache
def _system_mounts() -> tuple[str, ...]:
    arguments = [word for name in ("/usr", "/etc") for word in ("--perms", "0755", "--dir", name)]
    for path in system_paths():
        if path.is_symlink() and not path.is_relative_to("/etc"):
            arguments += ["--symlink", str(path.readlink()), str(path)]
        else:
            arguments += [BIND, str(path), str(path)]
    return tuple(arguments)


def _find_private(shown: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """What is private among the host paths that are shown at these places: where it would be seen."""
    for private in private_paths():
        for target, path in shown.items():
            if path.resolve() in private.parents:
                yield f"{target}/{private.relative_to(path.resolve())}", private


def namespace_arguments(limits: Limits, *, gpu: bool = False) -> list[str]:
    """Everything that holds a student back, apart from limits and the filter of system calls."""
    devices, libraries = (gpu_devices(), gpu_libraries()) if gpu else ((), ())
    arguments = [
        "--unshare-user",
        *(
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ),
        "--disable-userns",  # a namespace of one's own is where most ways out of a kernel begin
        "--die-with-parent",
        "--new-session",  # no terminal, so nothing can be typed into it
        "--as-pid-1",  # else process 1 is bubblewrap's own, with the environment of its caller in /proc/1/environ
        "--clearenv",
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
        *_system_mounts(),
        *("--proc", "/proc", "--dev", "/dev"),
        *(word for path in devices for word in ("--dev-bind", str(path), str(path))),
        *(word for path in libraries for word in (BIND, str(path), str(path))),
    ]
    for folder in WRITABLE:  # a tmpfs without a size may take half of the machine's memory
        arguments += ["--perms", "1777" if folder in ("/tmp", "/dev/shm") else "0755"]  # noqa: S108
        arguments += ["--size", str(limits.disk), "--tmpfs", folder]
    variables = ENVIRONMENT | {
        "PATH": SYSTEM_PATH,
        "HOME": HOME,
        "SHELL": "/bin/bash",
        "TMPDIR": "/tmp",  # noqa: S108
    }
    return arguments + [
        word for name, value in variables.items() for word in ("--setenv", name, value)
    ]


def mount_arguments(
    readonly_mounts: Mapping[str, Path], user: int | None
) -> tuple[list[str], list[str]]:
    """The arguments that mount these, and a command to put before `bwrap` that makes it run as this user, if needed.

    Some mounts lie where only root can go, and bubblewrap is not run as root. So root first binds them below /tmp, in a
    mount namespace of its own, and then becomes the user. Empty folders are laid over what is private among them.
    """
    paths = [str(path.absolute()) for path in readonly_mounts.values()]
    stage: list[str] = []
    if user is not None and paths:
        stage = [sys.executable, "-I", "-S", "-c", STAGE, str(user), json.dumps(paths)]
        paths = [f"/tmp/{index}" for index in range(len(paths))]  # noqa: S108
    layers = {
        target: [BIND, path, target] for target, path in zip(readonly_mounts, paths, strict=True)
    }
    covers: list[str] = []
    shown = {**{str(path): path for path in system_paths()}, **readonly_mounts}
    for target, private in _find_private(shown):
        if private.is_dir():
            layers.setdefault(target, ["--perms", "0755", "--tmpfs", target])
            covers += ["--remount-ro", target]
        else:
            layers.setdefault(target, [BIND, "/dev/null", target])
    # Sorted, a folder comes before what is laid over parts of it.
    arguments = [word for target in sorted(layers) for word in layers[target]]
    return arguments + covers, stage


def _start_bubblewrap(
    command: Sequence[str],
    setup: Setup,
    *,
    user: int | None,
    options: Sequence[str] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
    descriptors: list[int],
    streams: tuple[int, int | IO[bytes], int | IO[bytes]],
) -> subprocess.Popen[bytes]:
    """It gets no environment, and only these descriptors; `files` are read-only in there.

    `streams` are standard input, output and error. `command` may begin with further options.
    """
    mounts, stage = mount_arguments(setup.readonly_mounts, user)
    arguments = namespace_arguments(setup.limits, gpu=setup.gpu)
    with ExitStack() as cleanup:

        def data(content: bytes) -> str:
            reader, writer = os.pipe()
            cleanup.callback(os.close, reader)
            os.write(writer, content)  # small enough to fit
            os.close(writer)
            descriptors.append(reader)
            return str(reader)

        for path, content in {**ETC_FILES, **files}.items():
            arguments += ["--perms", "0444", "--file", data(content), path]
        arguments += [
            *(*mounts, *options),
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--cap-drop", "ALL", "--seccomp", data(system_call_filter()), *command),
        ]
        own_user = None if stage else user
        return subprocess.Popen(
            [*stage, _program(), *arguments],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env={},
            cwd="/",
            pass_fds=descriptors,
            user=own_user,
            group=own_user,
            extra_groups=None if own_user is None else [],
            start_new_session=True,  # Ctrl-C must not reach it: we end it, with all it has started
        )


def shell_line(command: PreparedCommand, stdin: str = "") -> str:
    """A line of shell for the supervisor that sets limits and becomes the command."""
    limits = command.limits
    kernel = tuple(
        int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit()
    )
    sizes = {
        "c": 0,
        "t": int(limits.cpu) + 2,  # per process; the sum is checked from outside, and reached first
        "f": max(1, _within_hard_limit(limits.file_size, resource.RLIMIT_FSIZE) // 1024),
        "n": _within_hard_limit(limits.open_files, resource.RLIMIT_NOFILE),
        # Counts memory that is only reserved, too; the memory in use is checked from outside.
        "d": None if limits.address_space is None else limits.memory // 1024,
        "v": None if limits.address_space is None else limits.address_space // 1024,
        # Before 5.14 the kernel counts all processes of the user, even those outside.
        "u": limits.processes if kernel >= (5, 14) else None,
    }
    steps = [f"ulimit -{letter} {value}" for letter, value in sizes.items() if value is not None]
    steps += [f"export {name}={_quote(value)}" for name, value in command.environment.items()]
    if stdin:
        steps.append(f"exec <{stdin}")
    steps.append("exec " + " ".join(["--", *map(_quote, command.argv)]))
    return " && ".join(steps)


def _within_hard_limit(value: int, limit: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _quote(word: str) -> str:
    """A word as the shell reads it, on one line even if it has line breaks."""
    return shlex.quote(word.encode("utf-8", "replace").decode()).replace("\n", "'$'\\n''")


STAGE = """
import ctypes, json, os, sys
user, mounted = int(sys.argv[1]), json.loads(sys.argv[2])
call = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
check(call.unshare(0x20000))  # CLONE_NEWNS
check(call.mount(b"none", b"/", None, 0x44000, None))  # MS_REC | MS_PRIVATE
held = [os.open(path, os.O_PATH) for path in mounted]
folders = [os.path.isdir(path) for path in mounted]
check(call.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=755,size=64k"))
for at, (descriptor, folder) in enumerate(zip(held, folders)):
    place = f"/tmp/{at}"
    os.mkdir(place) if folder else os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
    check(call.mount(f"/proc/self/fd/{descriptor}".encode(), place.encode(), None, 0x5000, None))  # MS_BIND | MS_REC
    os.close(descriptor)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execve(sys.argv[3], sys.argv[3:], {})
"""


GRACE_SECONDS = (
    30.0  # for things that take milliseconds, but on a busy machine have to wait their turn
)
START_SECONDS = 120.0


class Bubblewrap(SandboxBackend):
    name = "bubblewrap"
    shows_gpu = True
    fix = (
        "Install it (`apt install bubblewrap`, `dnf install bubblewrap`). If it is installed, user namespaces are "
        "switched off: on Ubuntu, allow them with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in docker, "
        "start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`."
    )

    async def version(self) -> str:
        return _version(_program())

    async def open(self, setup: Setup) -> BubblewrapSandbox:
        sandbox = BubblewrapSandbox(setup)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox


def _program() -> str:
    program = shutil.which("bwrap")
    if sys.platform != "linux":
        raise SandboxError("bubblewrap only works on Linux")
    if program is None:
        raise SandboxError("bwrap is not installed")
    if not Path("/bin/bash").exists():
        raise SandboxError("the sandbox needs bash, which is not installed", "Install bash.")
    seccomp.architecture_of(os.uname().machine)
    return program


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, env={}, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"{program} does not run: {error}") from error
    return done.stdout.strip()


class BubblewrapSandbox(FolderSandbox):
    kind = "bubblewrap"
    workspace = WORKSPACE
    home = HOME

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._user = unused_user()
        self._loop = asyncio.get_running_loop()
        self._descriptors: dict[str, int] = {}  # pipes and both processes
        self._bwrap: subprocess.Popen[bytes] | None = None
        self._process_1 = 0  # its id on the host
        self._ended: asyncio.Future[None] = (
            self._loop.create_future()
        )  # once all processes are gone
        self._capture: Capture | None = None
        self._exit_code: asyncio.Future[int] | None = None
        self._status_buffer = b""
        self._background_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        capture = self._capture = Capture(64 * 1024)
        exit_code = self._exit_code = self._loop.create_future()
        self._spawn()
        self._loop.add_reader(self._descriptors["bwrap"], self._on_exit)
        self._loop.add_reader(self._descriptors["status"], self._on_status)
        for stream in ("output", "error"):
            self._loop.add_reader(self._descriptors[stream], self._on_output, stream)
        try:
            async with asyncio.timeout(START_SECONDS):
                await exit_code
        except TimeoutError:
            raise SandboxError(f"bubblewrap did not start within {START_SECONDS:g} s") from None
        except SandboxError:
            message = capture.text("error").strip()
            raise SandboxError(
                f"bubblewrap did not start: {message or 'it printed no error'}", Bubblewrap.fix
            ) from None
        self._capture = None
        self._open_folders()
        await self._write_setup_files()
        if self._setup.proxy_port is not None:
            self.proxy_socket = await open_proxy_socket(
                self._process_1, self._setup.proxy_port, self._user
            )

    def _spawn(self) -> None:
        with ExitStack() as cleanup:

            def pipe(name: str, *, reads: bool) -> int:
                """A pipe: our end is kept under this name, the other is returned."""
                ends = os.pipe()
                mine, theirs = ends if reads else ends[::-1]
                self._descriptors[name] = mine
                os.set_blocking(mine, False)
                cleanup.callback(os.close, theirs)
                return theirs

            control = pipe("control", reads=False)
            status, info = pipe("status", reads=True), pipe("info", reads=True)
            output, error = pipe("output", reads=True), pipe("error", reads=True)
            if self._user is not None:  # who opens /dev/stdout must own it
                os.fchown(output, self._user, self._user)
                os.fchown(error, self._user, self._user)
            bash = os.open("/bin/bash", os.O_RDONLY | os.O_CLOEXEC)
            cleanup.callback(os.close, bash)
            self._bwrap = _start_bubblewrap(
                [
                    "--info-fd",
                    str(info),
                    "--chdir",
                    WORKSPACE,
                    "/run/bash",
                    "/run/supervisor",
                    str(status),
                ],
                self._setup,
                user=self._user,
                # Executable but not readable, which closes /proc/1 to other processes of the same user.
                options=["--perms", "0111", "--file", str(bash), "/run/bash"],
                files={"/run/supervisor": SUPERVISOR.read_bytes()},
                descriptors=[bash, status, info],
                streams=(control, output, error),
            )
        self._descriptors["bwrap"] = os.pidfd_open(self._bwrap.pid)

    def _open_folders(self) -> None:
        """Hold process 1, and the folders that can be written to."""
        try:
            self._hold_process_1()
            for folder in WRITABLE:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                descriptor = os.open(f"/proc/{self._process_1}/root{folder}", flags)
                self._folders[folder] = Folder(descriptor, folder, self._user)
        except (OSError, ValueError) as error:
            raise SandboxError(f"cannot open the sandbox's folders: {error}") from error

    def _hold_process_1(self) -> None:
        info = os.read(self._descriptors["info"], 65536)
        told = re.search(rb'"child-pid": (\d+)', info)
        if told is None:
            raise ValueError("bubblewrap did not say which process is the first")
        self._process_1 = int(told[1])
        self._descriptors["process 1"] = os.pidfd_open(self._process_1)

    async def _wait_for_process_1(self) -> None:
        """While bubblewrap starts, its child does not yet die with it, so we have to know which it is."""
        told = self._loop.create_future()
        self._loop.add_reader(
            self._descriptors["info"], lambda: told.done() or told.set_result(None)
        )
        try:
            await asyncio.wait([told], timeout=GRACE_SECONDS)
        finally:
            self._loop.remove_reader(self._descriptors["info"])
        with suppress(OSError, ValueError):  # it ended before it started a child
            self._hold_process_1()

    # Commands.

    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        self._check_running()
        if not command.stdin:
            return await self._supervise(shell_line(command), command.limits, capture)
        name = f".stdin-{secrets.token_hex(8)}"
        self._folders["/tmp"].write(name, command.stdin)  # noqa: S108 - inside
        try:
            return await self._supervise(
                shell_line(command, f"/tmp/{name}"),  # noqa: S108
                command.limits,
                capture,
            )
        finally:
            if "/tmp" in self._folders:  # noqa: S108
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._folders["/tmp"].descriptor)  # noqa: S108

    async def kill_processes(self) -> None:
        async with self._lock:
            self._check_running()
            await self._supervise("clear", Limits(wall=GRACE_SECONDS), Capture(MiB))
            await self._wait_until_empty()
            for stream in ("output", "error"):
                self._on_output(stream)  # what is left in the pipes

    def _check_running(self) -> None:
        if self._ended.done() or "process 1" not in self._descriptors:
            raise SandboxError("the sandbox has stopped, so nothing can run in it")

    async def _wait_until_empty(self) -> None:
        until = self._loop.time() + GRACE_SECONDS
        while children(self._process_1) and self._loop.time() < until:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)

    async def _supervise(self, task: str, limits: Limits, capture: Capture) -> tuple[int, str]:
        exit_code = self._exit_code = self._loop.create_future()
        self._capture = capture
        data = task.encode("utf-8", "surrogateescape")
        message = data + b"\n" if len(data) < 4000 else b"+%d\n%s" % (len(data), data)
        cpu, before = usage_of(self._process_1).cpu, self._disk_usage()

        def exceeded() -> str:
            return exceeded_limit(self._process_1, limits, cpu) or self._disk_usage().exceeded(
                self._setup.limits, before
            )

        async def end() -> None:
            self._end_processes()
            await asyncio.wait([exit_code], timeout=GRACE_SECONDS)
            if not exit_code.done():
                self._kill()
                raise SandboxError("the sandbox did not stop its processes, so it was killed")

        try:
            await self._send(message)
            broken_limit = await hold_to_limits(exit_code, limits.wall, capture, exceeded, end)
            if broken_limit:
                await self._wait_until_empty()
            return exit_code.result(), broken_limit
        except OSError as error:
            raise SandboxError(f"the sandbox has stopped: {error}") from error
        except asyncio.CancelledError:  # its exit code would be taken for that of the next command
            self._kill()
            raise
        finally:
            if exit_code.done():  # or asyncio complains at exit
                exit_code.exception()
            self._capture = self._exit_code = None
            self._check_background()

    async def _send(self, message: bytes) -> None:
        """Quoting can make a command several times longer, and longer than the pipe holds."""
        left, until = memoryview(message), self._loop.time() + GRACE_SECONDS
        while left:
            try:
                left = left[os.write(self._descriptors["control"], left) :]
                until = self._loop.time() + GRACE_SECONDS
            except BlockingIOError:
                if self._loop.time() > until:
                    self._kill()
                    raise SandboxError("the sandbox no longer accepts commands") from None
                await asyncio.sleep(0.001)

    def _end_processes(self) -> None:
        """All processes of the sandbox but the first."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptors["process 1"], signal.SIGUSR1)

    def _disk_usage(self) -> DiskUsage:
        written = files = 0
        for folder in self._folders.values():
            room = os.fstatvfs(folder.descriptor)
            written += (room.f_blocks - room.f_bfree) * room.f_frsize
            files += room.f_files - room.f_ffree
        # An empty file takes memory too, which the size of a tmpfs does not count.
        return DiskUsage(written + files * 1024, files)

    def _check_background(self) -> None:
        """Between commands, hold background processes to the limits."""
        self._background_timer = None
        if self._capture is not None or self._ended.done() or not children(self._process_1):
            return
        # Processor time counts against a command, and there is none.
        limits = self._setup.limits
        if exceeded_limit(self._process_1, limits, float("inf")) or self._disk_usage().exceeded(
            limits
        ):
            self._end_processes()
        self._background_timer = self._loop.call_later(5 * POLL_SECONDS, self._check_background)

    # Events from the sandbox.

    def _on_status(self) -> None:
        data = _read_available(self._descriptors["status"])
        if not data:
            self._loop.remove_reader(self._descriptors["status"])
            return
        self._status_buffer += data
        while b"\n" in self._status_buffer:
            line, _, self._status_buffer = self._status_buffer.partition(b"\n")
            # Everything the command wrote is in the pipes by now, so its end needs no marker.
            for stream in ("output", "error"):
                self._on_output(stream)
            if self._exit_code is not None and not self._exit_code.done():
                self._exit_code.set_result(int(line) if line.isdigit() else 0)

    def _on_output(self, stream: Stream) -> None:
        for _ in range(64):  # a command that never stops writing must not block us
            data = _read_available(self._descriptors[stream])
            if not data:
                if data == b"":
                    self._loop.remove_reader(self._descriptors[stream])
                return
            if self._capture is not None:
                self._capture.add(stream, data)

    def _on_exit(self) -> None:
        """Bubblewrap ends after process 1, and process 1 after everything else in there."""
        self._loop.remove_reader(self._descriptors["bwrap"])
        for stream in ("output", "error"):
            self._on_output(stream)
        if not self._ended.done():
            self._ended.set_result(None)
        if self._exit_code is not None and not self._exit_code.done():
            self._exit_code.set_exception(
                SandboxError("the sandbox stopped while a command was running in it")
            )

    # The end.

    def _kill(self) -> None:
        if "process 1" in self._descriptors:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptors["process 1"], signal.SIGKILL)
        elif self._bwrap is not None:
            self._bwrap.kill()

    async def stop(self) -> None:
        if self._bwrap is not None and "process 1" not in self._descriptors:
            await self._wait_for_process_1()
        self._kill()
        try:
            if self._bwrap is not None and not self._ended.done():
                await asyncio.wait([self._ended], timeout=GRACE_SECONDS)
        finally:
            if self._background_timer is not None:
                self._background_timer.cancel()
            for name in ("bwrap", "status", "output", "error"):
                if name in self._descriptors:
                    self._loop.remove_reader(self._descriptors[name])
            if self._bwrap is not None:
                self._bwrap.kill()
                if not self._ended.done():
                    self._ended.set_result(None)
                self._bwrap.wait()
                self._bwrap = None
            for descriptor in self._descriptors.values():
                os.close(descriptor)
            self._descriptors.clear()
            await asyncio.to_thread(
                self._close_folders
            )  # which ends the files, and there may be many


def _read_available(descriptor: int) -> bytes | None:
    """What is there now: None if nothing is, empty if nothing will ever come."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


# Runs in a process of its own, as only a process with one thread can change its user namespace.
LISTEN = """
import ctypes, fcntl, os, socket, sys
first, port, back, user = map(int, sys.argv[1:])
call = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
net = os.open(f"/proc/{first}/ns/net", os.O_RDONLY)
owner = fcntl.ioctl(net, 0xB701)  # NS_GET_USERNS: the user namespace that the network belongs to
for namespace in (owner, net):
    if call.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
listener = socket.create_server(("127.0.0.1", port), backlog=128)
socket.send_fds(socket.socket(fileno=back), [b"."], [listener.fileno()])
"""


async def open_proxy_socket(process: int, port: int, user: int | None) -> socket.socket:
    """A socket on the loopback of this process's network namespace."""
    here, there = socket.socketpair()
    with here, there:
        arguments = map(
            str, (process, port, there.fileno(), os.geteuid() if user is None else user)
        )
        helper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", LISTEN, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[there.fileno()],
            env={},
            cwd="/",
        )
        _, stderr = await helper.communicate()
        if helper.returncode:
            problem = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(f"cannot open a socket for the proxy in the sandbox: {problem}")
        _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
    return socket.socket(fileno=descriptors[0])


def start_program(
    argv: Sequence[str],
    *,
    printed: IO[bytes],
    descriptors: Iterable[int],
    environment: Mapping[str, str],
    mounts: Iterable[Path],
    gpu: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program of ours in such namespaces, for code that comes with a suite and is not a student's.

    It has no supervisor: it is spoken to through descriptors that it inherits, and ends with whoever started it.
    """
    options = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    return _start_bubblewrap(
        [*options, "--chdir", "/", *argv],
        Setup(
            readonly_mounts={str(path): path for path in mounts},
            limits=Limits(disk=4096 * MiB),
            gpu=gpu,
        ),
        user=unused_user(),
        descriptors=list(descriptors),
        streams=(subprocess.DEVNULL, printed, printed),
    )
