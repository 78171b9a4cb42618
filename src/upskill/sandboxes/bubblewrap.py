"""Bubblewrap: a trial in namespaces of its own, on Linux, without being root and without a daemon.

One sandbox stays open for all commands of a trial, with a small supervisor (supervisor.sh) as its process 1. Workspace,
home and /tmp are memory of the sandbox; we look into them through /proc, so nothing of a trial is ever on the disk of
the host. What is unshared, mounted and dropped is in `_walls`, line by line.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from upskill.errors import SandboxError
from upskill.sandboxes import (
    CommandResult,
    Limits,
    MiB,
    OnOutput,
    Setup,
    Stream,
    check_variable_name,
    process_usage,
    seccomp,
)
from upskill.sandboxes.capture import Capture
from upskill.sandboxes.commands import MAX_ARGUMENT_BYTES, to_argv, why_unrunnable
from upskill.sandboxes.files import Folder
from upskill.sandboxes.open_sandbox import FolderSandbox
from upskill.sandboxes.users import unused_user

WORKSPACE, HOME = "/workspace", "/home/student"
PLACES = (WORKSPACE, HOME, "/tmp", "/dev/shm")  # noqa: S108 - inside, and private. All that can be written
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "student",
    "LOGNAME": "student",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108
}
# Of /etc only what programs cannot do without and what says nothing about this machine.
ETC = ("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "pki/tls", "pki/ca-trust")
WRITTEN = {
    "/etc/passwd": "student:x:1000:1000::/home/student:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "/etc/group": "student:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}
FAMILIES = (seccomp.UNIX, seccomp.INET, seccomp.INET6, seccomp.NETLINK)
GRACE_SECONDS = 5.0  # for what should take milliseconds


class Bubblewrap:
    name = "bubblewrap"
    isolated = True
    reduced = ""
    fix = (
        "Install it (`apt install bubblewrap`, `dnf install bubblewrap`). Where it is installed, user namespaces are "
        "switched off: on Ubuntu, allow them with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in docker, "
        "start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`."
    )

    async def version(self) -> str:
        return _version(_program())

    async def open(self, setup: Setup) -> BubblewrapSandbox:
        sandbox = BubblewrapSandbox(setup.validated())
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox


def _program() -> str:
    found = shutil.which("bwrap")
    if sys.platform != "linux":
        raise SandboxError("bubblewrap is for Linux")
    if found is None:
        raise SandboxError("bwrap is not installed")
    if not Path("/bin/bash").exists():
        raise SandboxError("bash is not installed, and the sandbox needs it inside", "Install bash.")
    seccomp.architecture_of(os.uname().machine)
    return found


@cache
def _version(program: str) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, env={}, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"{program} does not run: {error}") from error
    return said.stdout.strip()


@cache
def _become() -> str | None:
    return shutil.which("setpriv", path="/usr/bin:/bin")


@cache
def _filter() -> bytes:
    return seccomp.pack_filter(seccomp.build_filter(families=FAMILIES))


@cache
def _supervisor() -> bytes:
    return Path(__file__).with_name("supervisor.sh").read_bytes()


@cache
def _system() -> tuple[str, ...]:
    """The read-only system: /usr, what leads there, and a few files of /etc."""
    arguments = ["--ro-bind", "/usr", "/usr", "--perms", "0755", "--dir", "/etc"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    etc = Path("/etc")
    for path in (*(etc / name for name in ETC), *sorted(etc.glob("java-*-openjdk"))):
        if path.exists():
            arguments += ["--ro-bind", str(path), str(path)]
    return tuple(arguments)


def _walls(limits: Limits) -> list[str]:
    """Everything that holds a student back, except for limits and the filter of system calls."""
    arguments = [
        "--unshare-user",
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        "--disable-userns",  # a namespace of one's own is where most ways out of a kernel begin
        "--die-with-parent",
        "--new-session",  # no terminal, so nothing can be typed into it
        "--as-pid-1",  # else process 1 is bubblewrap's own, with the environment of its caller in /proc/1/environ
        "--clearenv",
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev"),
    ]
    for place in PLACES:  # a tmpfs without a size may take half of the machine's memory
        arguments += ["--perms", "1777" if place in ("/tmp", "/dev/shm") else "0755"]  # noqa: S108
        arguments += ["--size", str(limits.disk), "--tmpfs", place]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return arguments


class BubblewrapSandbox(FolderSandbox):
    kind = "bubblewrap"
    workspace = WORKSPACE
    home = HOME

    def __init__(self, setup: Setup) -> None:
        self.proxy_socket: socket.socket | None = None
        self._setup = setup
        self._user = unused_user()
        self._hard = {name: resource.getrlimit(name)[1] for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)}
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._folders: dict[str, Folder] = {}
        self._pipes: dict[str, int] = {}  # what we hold: control, status, output, error, and the two processes
        self._bwrap: subprocess.Popen[bytes] | None = None
        self._first = 0  # process 1 of the sandbox, as the host numbers it
        self._ended: asyncio.Future[None] = self._loop.create_future()  # all its processes are gone
        self._capture: Capture | None = None
        self._answer: asyncio.Future[int] | None = None
        self._said = b""
        self._why = ""
        self._minding: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        setup = self._setup
        capture = self._capture = Capture(64 * 1024, None)
        answer = self._answer = self._loop.create_future()
        self._spawn()
        self._loop.add_reader(self._pipes["bwrap"], self._bwrap_ended)
        self._loop.add_reader(self._pipes["status"], self._status)
        for stream in ("output", "error"):
            self._loop.add_reader(self._pipes[stream], self._read, stream)
        try:
            await asyncio.wait_for(answer, GRACE_SECONDS * 4)
        except TimeoutError:
            raise SandboxError(f"bubblewrap did not start within {GRACE_SECONDS * 4:g} s") from None
        except SandboxError:
            said = capture.text("error").strip()
            raise SandboxError(f"bubblewrap did not start: {said or 'it said nothing'}", Bubblewrap.fix) from None
        self._capture = None
        self._look_inside()
        for place, files in ((WORKSPACE, setup.files), (HOME, setup.home_files)):
            for path, content in files.items():
                self._folders[place].write(path, content, executable=path in setup.runnable)
        if setup.proxy_port is not None:
            self.proxy_socket = await self._open_proxy_socket(setup.proxy_port)

    def _spawn(self) -> None:
        """Start bubblewrap. It gets no environment, and no descriptor but those named here."""
        with ExitStack() as ours:

            def pipe(name: str, *, reads: bool) -> int:
                """A pipe with one end for us, kept under this name, and one for them."""
                ends = os.pipe()
                mine, theirs = ends if reads else ends[::-1]
                self._pipes[name] = mine
                os.set_blocking(mine, False)
                ours.callback(os.close, theirs)
                return theirs

            def data(content: bytes) -> str:
                reader, writer = os.pipe()
                ours.callback(os.close, reader)
                os.write(writer, content)  # small enough to fit
                os.close(writer)
                passed.append(reader)
                return str(reader)

            passed: list[int] = []
            control, status = pipe("control", reads=False), pipe("status", reads=True)
            output, error = pipe("output", reads=True), pipe("error", reads=True)
            info = pipe("info", reads=True)
            fcntl.fcntl(
                control, fcntl.F_SETPIPE_SZ, 4 * MAX_ARGUMENT_BYTES
            )  # a whole command is written without waiting
            bash = os.open("/bin/bash", os.O_RDONLY | os.O_CLOEXEC)
            ours.callback(os.close, bash)
            arguments = _walls(self._setup.limits)
            for path, text in WRITTEN.items():
                arguments += ["--perms", "0444", "--file", data(text.encode()), path]
            shown = [os.fspath(path.absolute()) for path in self._setup.readonly_mounts.values()]
            staged = self._user is not None and bool(shown)
            for at, place in enumerate(self._setup.readonly_mounts):
                arguments += ["--ro-bind", f"/tmp/{at}" if staged else shown[at], place]  # noqa: S108
            arguments += [
                # Run but not read: this is what makes process 1 opaque to those of the same user.
                *("--perms", "0111", "--file", str(bash), "/run/bash"),
                *("--perms", "0444", "--file", data(_supervisor()), "/run/supervisor"),
                *("--remount-ro", "/dev", "--remount-ro", "/"),
                *("--cap-drop", "ALL", "--seccomp", data(_filter()), "--info-fd", str(info), "--chdir", WORKSPACE),
                *("/run/bash", "/run/supervisor", str(status)),
            ]
            user, stage = self._user, list[str]()
            if staged:
                user, stage = None, [sys.executable, "-I", "-S", "-c", STAGE, str(user), json.dumps(shown)]
            elif user is not None and (become := _become()):
                # Python would copy its whole memory map to change the user itself, where otherwise it copies nothing.
                user, stage = None, [become, "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"]
            self._bwrap = subprocess.Popen(
                [*stage, _program(), *arguments],
                stdin=control,
                stdout=output,
                stderr=error,
                env={},
                cwd="/",
                pass_fds=[*passed, bash, status, info],
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self._pipes["bwrap"] = os.pidfd_open(self._bwrap.pid)

    def _look_inside(self) -> None:
        """Hold on to process 1 and to the folders that can be written."""
        try:
            told = json.loads(os.read(self._pipes["info"], 65536))
            self._first = int(told["child-pid"])
            self._pipes["first"] = os.pidfd_open(self._first)
            for place in PLACES:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                descriptor = os.open(f"/proc/{self._first}/root{place}", flags)
                self._folders[place] = Folder(descriptor, place, self._user)
        except (OSError, ValueError, KeyError) as error:
            raise SandboxError(f"the sandbox cannot be looked into: {error}") from error

    # Commands.

    async def run(
        self,
        command: str | Sequence[str],
        limits: Limits | None = None,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        limits = limits or self._setup.limits
        argv = to_argv(command, ["/bin/bash", "-c"])
        if wrong := why_unrunnable(argv):
            return CommandResult(126, "", wrong)
        async with self._lock:
            name = f".stdin-{secrets.token_hex(8)}" if stdin else ""
            if stdin:
                self._folders["/tmp"].write(name, stdin)  # noqa: S108 - inside
            task = self._task(argv, limits, environment or {}, f"/tmp/{name}" if stdin else "")  # noqa: S108
            capture = Capture(limits.output, on_output)
            began = time.perf_counter()
            try:
                code, why = await self._carry_out(task, limits, capture)
            finally:
                if stdin and "/tmp" in self._folders:  # noqa: S108
                    with suppress(OSError):
                        os.unlink(name, dir_fd=self._folders["/tmp"].descriptor)  # noqa: S108
            seconds = time.perf_counter() - began
            return CommandResult(
                code, capture.text("output"), capture.text("error"), why.startswith("ran"), why, seconds
            )

    async def kill_processes(self) -> None:
        async with self._lock:
            await self._carry_out("clear", Limits(wall=GRACE_SECONDS), Capture(MiB, None))
            await self._emptied()
            for stream in ("output", "error"):
                self._read(stream)  # what they still had to say

    async def _emptied(self) -> None:
        """All are killed, and about to be gone."""
        until = self._loop.time() + GRACE_SECONDS
        while process_usage.children(self._first) and self._loop.time() < until:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)

    def _task(self, argv: list[str], limits: Limits, environment: Mapping[str, str], stdin: str) -> str:
        """The command as the supervisor takes it: a line of shell that sets limits and becomes the command."""
        kernel = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
        sizes = {
            "c": 0,
            "t": int(limits.cpu) + 2,  # per process; the sum of all is looked at from outside, and comes first
            "f": max(1, self._least(limits.file_size, resource.RLIMIT_FSIZE) // 1024),
            "n": self._least(limits.open_files, resource.RLIMIT_NOFILE),
            # Counts what a runtime only reserves, too; the memory in use is looked at from outside.
            "d": None if limits.address_space is None else limits.memory // 1024,
            "v": None if limits.address_space is None else limits.address_space // 1024,
            # Before 5.14 the kernel counts all processes of the user, also those outside.
            "u": limits.processes if kernel >= (5, 14) else None,
        }
        steps = [f"ulimit -{letter} {value}" for letter, value in sizes.items() if value is not None]
        for name, value in {**self._setup.environment, **environment}.items():
            check_variable_name(name)
            steps.append(f"export {name}={_quoted(value)}")
        if stdin:
            steps.append(f"exec <{stdin}")
        steps.append("exec " + " ".join(["--", *map(_quoted, argv)]))
        return " && ".join(steps)

    def _least(self, wanted: int, limit: int) -> int:
        hard = self._hard[limit]
        return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)

    async def _carry_out(self, task: str, limits: Limits, capture: Capture) -> tuple[int, str]:
        """Have the supervisor do it, and watch meanwhile. Its code, and why it was ended, if it was."""
        if self._ended.done() or "first" not in self._pipes:
            raise SandboxError("the sandbox has ended, so nothing can be run in it")
        self._why = ""
        answer = self._answer = self._loop.create_future()
        self._capture = capture
        data = task.encode("utf-8", "surrogateescape")
        message = data if len(data) < 4000 else b"+%d\n%s" % (len(data), data)
        began = self._loop.time()
        cpu, filled = process_usage.usage_of(self._first).cpu, self._filled()
        try:
            await self._tell(message + (b"\n" if message is data else b""))
            while not answer.done():
                left = began + limits.wall - self._loop.time()
                await asyncio.wait([answer], timeout=min(process_usage.POLL_SECONDS, max(0.0, left)))
                if answer.done():
                    break
                if self._loop.time() - began >= limits.wall:
                    self._end(f"ran longer than {limits.wall:g} s")
                self._end(process_usage.exceeded_limit(self._first, limits, cpu) or self._overfull(filled))
                if self._loop.time() - began > limits.wall + GRACE_SECONDS:
                    self._kill()
                    raise SandboxError("the sandbox did not end its processes, so it was ended as a whole")
            if self._why:
                await self._emptied()
                return 137, self._why
            return answer.result(), ""
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error
        except asyncio.CancelledError:  # its answer would come to the next command
            self._kill()
            raise
        finally:
            if answer.done():  # Ctrl-C ends bubblewrap and us: what nobody asked for would be complained of at exit
                answer.exception()
            self._capture = self._answer = None
            self._mind()

    async def _tell(self, message: bytes) -> None:
        """Quoted, a command can be several times as long as it was, and more than the pipe holds."""
        left, until = memoryview(message), self._loop.time() + GRACE_SECONDS
        while left:
            try:
                left = left[os.write(self._pipes["control"], left) :]
                until = self._loop.time() + GRACE_SECONDS
            except BlockingIOError:
                if self._loop.time() > until:
                    self._kill()
                    raise SandboxError("the sandbox takes no commands any more") from None
                await asyncio.sleep(0.001)

    def _end(self, why: str) -> None:
        """End all processes of the sandbox but the first, when there is a reason to."""
        if why and not self._why:
            self._why = why
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pipes["first"], signal.SIGUSR1)

    def _filled(self) -> int:
        """Bytes in all that can be written to."""
        used = 0
        for folder in self._folders.values():
            room = os.fstatvfs(folder.descriptor)
            # An empty file takes memory too, which no size of a tmpfs counts.
            used += (room.f_blocks - room.f_bfree) * room.f_frsize + (room.f_files - room.f_ffree) * 1024
        return used

    def _overfull(self, before: int = 0) -> str:
        """What was there before a command is not held against it, or none could look at it or make room again."""
        most = self._setup.limits.disk
        return f"wrote more than {process_usage.format_size(most)} in all" if self._filled() > max(most, before) else ""

    def _mind(self) -> None:
        """Between commands, look after what runs on in the background."""
        self._minding = None
        if self._capture is not None or self._ended.done() or not process_usage.children(self._first):
            return
        self._why = ""
        # No command is there to be charged with processor time, so that is not looked at.
        self._end(process_usage.exceeded_limit(self._first, self._setup.limits, float("inf")) or self._overfull())
        self._minding = self._loop.call_later(5 * process_usage.POLL_SECONDS, self._mind)

    # What is heard from the sandbox.

    def _status(self) -> None:
        data = _read_some(self._pipes["status"])
        if not data:
            self._loop.remove_reader(self._pipes["status"])
            return
        self._said += data
        while b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            # All that the command wrote is in the pipes by now, so nothing has to mark its end.
            for stream in ("output", "error"):
                self._read(stream)
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(int(line) if line.isdigit() else 0)

    def _read(self, stream: Stream) -> None:
        for _ in range(64):  # a pipe that is written to without end must not keep us
            data = _read_some(self._pipes[stream])
            if not data:
                if data == b"":
                    self._loop.remove_reader(self._pipes[stream])
                return
            if self._capture is not None:
                self._capture.add(stream, data)
                if self._capture.full and "first" in self._pipes:
                    self._end(f"wrote more than {process_usage.format_size(self._capture.max_bytes)} of output")

    def _bwrap_ended(self) -> None:
        """Bubblewrap ends after process 1, and process 1 after everything else in there."""
        self._loop.remove_reader(self._pipes["bwrap"])
        for stream in ("output", "error"):
            self._read(stream)
        if not self._ended.done():
            self._ended.set_result(None)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SandboxError("the sandbox ended while a command ran in it"))

    # The way out, and the end.

    async def _open_proxy_socket(self, port: int) -> socket.socket:
        """A socket that listens inside, on the sandbox's own loopback, and is served out here."""
        here, there = socket.socketpair()
        with here, there:
            user = self._user if self._user is not None else os.geteuid()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", DOOR, str(self._first), str(port), str(there.fileno()), str(user)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[there.fileno()],
                env={},
                cwd="/",
            )
            _, said = await process.communicate()
            if process.returncode:
                told = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise SandboxError(f"no door could be made in the sandbox: {told}")
            _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
        return socket.socket(fileno=descriptors[0])

    def _kill(self) -> None:
        if "first" in self._pipes:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pipes["first"], signal.SIGKILL)
        elif self._bwrap is not None:  # what it started dies with it
            self._bwrap.kill()

    async def stop(self) -> None:
        self._kill()
        try:
            if self._bwrap is not None and not self._ended.done():
                await asyncio.wait([self._ended], timeout=GRACE_SECONDS)
        finally:
            self._close()

    def _close(self) -> None:
        if self._minding is not None:
            self._minding.cancel()
        for name in ("bwrap", "status", "output", "error"):
            if name in self._pipes:
                self._loop.remove_reader(self._pipes[name])
        if self._bwrap is not None:
            if not self._ended.done():
                self._bwrap.kill()
                self._ended.set_result(None)
            self._bwrap.wait()
            self._bwrap = None
        for descriptor in self._pipes.values():
            os.close(descriptor)
        self._pipes.clear()
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
        if self.proxy_socket is not None:
            self.proxy_socket.close()


def _read_some(descriptor: int) -> bytes | None:
    """What is there; None when there is nothing now, empty when there never will be."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def _quoted(word: str) -> str:
    """A word of shell on one line, whatever is in it."""
    return shlex.quote(word.encode("utf-8", "replace").decode()).replace("\n", "'$'\\n''")


# What is shown may lie where only root can walk, and bubblewrap is not run as root. So root puts it into /tmp, in a
# mount namespace that nobody else sees, before it becomes the user that it is shown to, and then bubblewrap.
STAGE = """
import ctypes, json, os, sys
user, shown = int(sys.argv[1]), json.loads(sys.argv[2])
call = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
done(call.unshare(0x20000))  # CLONE_NEWNS
done(call.mount(b"none", b"/", None, 0x44000, None))  # MS_REC | MS_PRIVATE
held = [os.open(path, os.O_PATH) for path in shown]
folders = [os.path.isdir(path) for path in shown]
done(call.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=755,size=64k"))
for at, (descriptor, folder) in enumerate(zip(held, folders)):
    place = f"/tmp/{at}"
    os.mkdir(place) if folder else os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
    done(call.mount(f"/proc/self/fd/{descriptor}".encode(), place.encode(), None, 0x5000, None))  # MS_BIND | MS_REC
    os.close(descriptor)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execve(sys.argv[3], sys.argv[3:], {})
"""

# Runs in a process of its own, as only a process with one thread can change its user namespace.
DOOR = """
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
