"""What bubblewrap is given: the namespaces, mounts, files and system calls of a sandbox, and each command's limits."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from upskill.sandboxes import Limits, seccomp
from upskill.sandboxes.gpu import gpu_devices, gpu_libraries
from upskill.sandboxes.open_sandbox import PreparedCommand

WORKSPACE, HOME = "/workspace", "/home/student"
WRITABLE = (WORKSPACE, HOME, "/tmp", "/dev/shm")  # noqa: S108 - inside, and private
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
# The parts of /etc that programs cannot do without and that say nothing about this machine.
ETC = ("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "pki/tls", "pki/ca-trust")
ETC_FILES = {
    "/etc/passwd": "student:x:1000:1000::/home/student:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "/etc/group": "student:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}
BIND = "--ro-bind"
FAMILIES = (seccomp.UNIX, seccomp.INET, seccomp.INET6, seccomp.NETLINK)


@cache
def system_call_filter() -> bytes:
    return seccomp.pack_filter(seccomp.build_filter(families=FAMILIES))


@cache
def supervisor_script() -> bytes:
    return Path(__file__).with_name("supervisor.sh").read_bytes()


@cache
def _system_mounts() -> tuple[str, ...]:
    """The read-only system: /usr, the links into it, and a few files of /etc."""
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


def gpu_arguments() -> list[str]:
    """The NVIDIA devices, and the driver's libraries read-only where they are not below /usr."""
    devices = [word for path in gpu_devices() for word in ("--dev-bind", str(path), str(path))]
    return devices + [word for path in gpu_libraries() for word in (BIND, str(path), str(path))]


def namespace_arguments(limits: Limits, *, gpu: bool = False) -> list[str]:
    """Everything that holds a student back, apart from limits and the filter of system calls."""
    arguments = [
        "--unshare-user",
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        "--disable-userns",  # a namespace of one's own is where most ways out of a kernel begin
        "--die-with-parent",
        "--new-session",  # no terminal, so nothing can be typed into it
        "--as-pid-1",  # else process 1 is bubblewrap's own, with the environment of its caller in /proc/1/environ
        "--clearenv",
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
        *_system_mounts(),
        *("--proc", "/proc", "--dev", "/dev"),
        *(gpu_arguments() if gpu else ()),
    ]
    for place in WRITABLE:  # a tmpfs without a size may take half of the machine's memory
        arguments += ["--perms", "1777" if place in ("/tmp", "/dev/shm") else "0755"]  # noqa: S108
        arguments += ["--size", str(limits.disk), "--tmpfs", place]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return arguments


def mount_arguments(readonly_mounts: Mapping[str, Path], user: int | None) -> tuple[list[str], list[str]]:
    """The arguments that mount these, and a command to put before `bwrap` that makes it run as this user, if any.

    What is mounted may lie where only root can go, and bubblewrap is not run as root. So root first binds it below
    /tmp, in a mount namespace of its own, and then becomes the user and bubblewrap.
    """
    paths = [str(path.absolute()) for path in readonly_mounts.values()]
    if user is None or not paths:
        arguments = [word for place, path in zip(readonly_mounts, paths, strict=True) for word in (BIND, path, place)]
        return arguments, [] if user is None else _setpriv(user)
    arguments = [word for index, place in enumerate(readonly_mounts) for word in (BIND, f"/tmp/{index}", place)]  # noqa: S108
    return arguments, [sys.executable, "-I", "-S", "-c", STAGE, str(user), json.dumps(paths)]


def _setpriv(user: int) -> list[str]:
    """Cheaper than to have Python change the user, which would copy its whole memory map for that."""
    found = shutil.which("setpriv", path="/usr/bin:/bin")
    return [found, "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"] if found else []


def shell_line(command: PreparedCommand, stdin: str = "") -> str:
    """The command as the supervisor takes it: a line of shell that sets limits and becomes the command."""
    limits = command.limits
    kernel = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
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


def _within_hard_limit(wanted: int, limit: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


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
