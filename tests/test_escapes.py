"""Escapes: what a hostile student tries under bubblewrap, for real, as root and as a user. Every attempt fails.

A process of its own plants secrets and listeners around itself, runs all attempts, and looks at what became of them. An
attempt has got out when it prints ESCAPED, when a secret shows up in anything it wrote, or when something outside is
not as it was. The same attempts without a sandbox do get out, which is how we know that they are attempts.
"""

# ruff: noqa: E501 - lines of shell read better whole

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import importlib
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from upskill.errors import UpskillError
from upskill.sandboxes import (
    Limits,
    MiB,
    Sandbox,
    SandboxBackend,
    Setup,
    choose_sandbox,
    seccomp,
)
from upskill.sandboxes.bubblewrap import Bubblewrap

importlib.import_module("concurrent.futures.thread")  # an ordinary user may not be able to read it
ORDINARY = 54321  # a user that nobody is
TABLES = (seccomp.REFUSED, seccomp.ABSENT)
COLUMN = seccomp.ARCHITECTURES.get(platform.machine(), (0, 0))[1]
NUMBERS = {name: numbers[COLUMN] for table in TABLES for name, numbers in table.items()}
KERNEL = [name for name, number in NUMBERS.items() if number is not None]

PRELUDE = """
import ctypes, errno, fcntl, os, socket, struct, sys, time
library = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = library.syscall(number, *arguments)
    return result if result >= 0 else -ctypes.get_errno()
def escaped(*what):
    print("ESCAPED", *what)
"""


def python(code: str) -> str:
    return f"python3 - <<'END'\n{PRELUDE}{code}\nEND"


def connects(family: str, address: str, kind: str = "SOCK_STREAM") -> str:
    return python(
        f"s = socket.socket(socket.{family}, socket.{kind})\ns.settimeout(2)\n"
        f"try:\n    s.connect({address})\n    s.send(b'x')\n    escaped()\nexcept OSError as e:\n    print(e)\n"
    )


# name -> a line of shell. $OUTSIDE is the home folder outside, $PORT and so on what listens there. These do get out
# where nothing holds them, and do no harm there.
REAL: dict[str, str] = {
    "reads a key by its absolute path": 'cat "$OUTSIDE/.ssh/id_ed25519"',
    "reads a .env file": 'cat "$OUTSIDE/project/.env"',
    "reads a key by a relative path": 'cat "../../../../../..$OUTSIDE/.ssh/id_ed25519"',
    "reads the skill in the baseline arm": 'cat "$OUTSIDE/skills/secret/SKILL.md"; grep -rs canary- "$OUTSIDE"',
    "reads through a link": 'ln -s "$OUTSIDE/.ssh/id_ed25519" l1; cat l1',
    "reads through a link to a folder": 'ln -s "$OUTSIDE" l2; cat l2/.ssh/id_ed25519',
    "reads a file of /tmp": 'cat "$OUTSIDE_TMP"',
    "reads a file of /dev/shm": 'cat "$OUTSIDE_SHM"',
    "writes into the home outside": 'echo x >> "$OUTSIDE/.ssh/authorized_keys" && echo ESCAPED',
    "writes into the store": python(
        "import sqlite3\n"
        "try:\n"
        "    base = sqlite3.connect('file:' + os.environ['OUTSIDE'] + '/runs/upskill.db?mode=rw', uri=True)\n"
        "    base.execute('update results set passed = 1')\n    base.commit()\n    escaped()\n"
        "except sqlite3.Error as e:\n    print(e)\n"
    ),
    "removes the store": 'rm -rf "$OUTSIDE/runs" && [ -e "$OUTSIDE" ] && echo ESCAPED',
    "reads the environment of every process": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a canary-",
    "reads the command line of every process": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
    "traces a child": python(
        f"child = os.fork()\nif child == 0: time.sleep(600); os._exit(0)\n"
        f"if call({NUMBERS['ptrace']}, 16, child, 0, 0) >= 0: escaped()\nos.kill(child, 9)"
    ),
    "sees processes outside": "ls -d /proc/[0-9]* | wc -l | grep -qE '^[0-9]{2,}$' && echo ESCAPED; ps ax | grep canary-",
    "attaches shared memory from outside": python(
        "library.shmat.restype = ctypes.c_void_p\n"
        "found = library.shmget(int(os.environ['OUTSIDE_KEY']), 0, 0)\n"
        "if found >= 0: escaped(ctypes.string_at(library.shmat(found, None, 0o10000), 40))"
    ),
    "connects to loopback": connects("AF_INET", "('127.0.0.1', int(os.environ['PORT']))"),
    "connects to a unix socket": connects("AF_UNIX", "os.environ['SOCKET']"),
    "connects to an abstract socket": connects("AF_UNIX", "chr(0) + os.environ['ABSTRACT']"),
    "can gain privileges": "grep -q 'NoNewPrivs:.1' /proc/self/status || echo ESCAPED; grep -q 'Seccomp:.2' /proc/self/status "
    "|| echo ESCAPED",
    "makes a user namespace": "unshare --user true && echo ESCAPED; unshare --map-root-user --mount true && echo ESCAPED",
}
ATTEMPTS: dict[str, str] = REAL | {
    # Files.
    "lists the homes of this machine": "ls -A /root /home/*/.ssh /home/[!s]* && echo ESCAPED",
    "makes a hard link": 'ln "$OUTSIDE/.ssh/id_ed25519" l3 && cat l3',
    "writes into the system": "for f in /usr/x /usr/bin/ls /etc/passwd /bin/x /lib/x /x /dev/x /run/x /proc/x; do "
    "(echo x >> $f) && echo ESCAPED $f; done",
    "makes the system writable": "mount -o remount,rw /usr; mount -o remount,rw /; touch /usr/x && echo ESCAPED",
    "looks at the rest of the system": "ls -A /var /opt /srv /mnt /boot /media /sys /lost+found /etc/shadow && echo ESCAPED",
    # /proc and other processes.
    "walks out through /proc/1/root": 'cat "/proc/1/root$OUTSIDE/.ssh/id_ed25519"',
    "walks out through every root and cwd": 'for p in /proc/[0-9]*; do cat "$p/root$OUTSIDE/.ssh/id_ed25519" '
    '"$p/cwd/../../../../../../..$OUTSIDE/.ssh/id_ed25519"; done',
    "reads its own environment": "env; cat /proc/self/environ",
    "uses inherited descriptors": python(
        "for name in os.listdir('/proc/self/fd'):\n"
        "    if int(name) > 2:\n"
        "        try:\n            os.fstat(int(name)); escaped(name, os.readlink('/proc/self/fd/' + name))\n"
        "        except OSError as e:\n            print(name, e)\n"
    ),
    "opens the descriptors of process 1": "for f in /proc/1/fd/*; do timeout 1 head -c 100 $f && echo ESCAPED $f; done; "
    "ls /proc/1/fd/ && ls -l /proc/1/fd/ | grep -- '->' && echo ESCAPED",
    "reads the memory of process 1": python(
        "try:\n    open('/proc/1/mem', 'rb').read(1); escaped()\nexcept OSError as e:\n    print(e)\n"
        "try:\n    print(open('/proc/1/maps').read() and escaped())\nexcept OSError as e:\n    print(e)\n"
    ),
    "traces process 1": python(f"if call({NUMBERS['ptrace']}, 16, 1, 0, 0) >= 0: escaped()"),
    "reads the memory of another process": python(
        "buffer = ctypes.create_string_buffer(8)\n"
        "class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "v = V(ctypes.addressof(buffer), 8)\n"
        f"if call({NUMBERS['process_vm_readv']}, 1, ctypes.byref(v), 1, ctypes.byref(v), 1, 0) >= 0: escaped()"
    ),
    "kills a process outside": 'kill -KILL "$OUTSIDE_PID" && echo ESCAPED',
    "kills process 1": "kill -KILL 1; kill -TERM 1; sleep 0.05; [ -d /proc/1 ] || echo ESCAPED",
    "raises its limits": "ulimit -u unlimited || ulimit -d unlimited || ulimit -f unlimited || ulimit -n 1000000 || exit; "
    "echo ESCAPED",
    "lowers the limits of process 1": python(
        f"print(call({seccomp.PRLIMIT64[COLUMN]}, 1, 7, struct.pack('QQ', 0, 0), None) >= 0 and escaped())"
    ),
    # The network.
    "connects to IPv6 loopback": connects("AF_INET6", "('::1', int(os.environ['PORT6']))"),
    "connects to the address of this machine": connects(
        "AF_INET", "(os.environ['ADDRESS'], int(os.environ['PORT']))"
    ),
    "asks a metadata address": connects("AF_INET", "('169.254.169.254', 80)"),
    "asks a public address": connects("AF_INET", "('1.1.1.1', 443)"),
    "sends a datagram": connects("AF_INET", "('8.8.8.8', 53)", "SOCK_DGRAM"),
    "resolves a name": "getent hosts example.com && echo ESCAPED",
    "speaks to the machine's monitor": connects("AF_VSOCK", "(2, 1024)"),
    "opens raw sockets": python(
        "for family, kind, protocol in ((2, 3, 1), (17, 3, 768), (2, 3, 255), (10, 3, 58), (16, 3, 9), (38, 5, 0)):\n"
        "    try:\n        socket.socket(family, kind, protocol); escaped(family)\n    except OSError as e:\n        print(e)\n"
    ),
    "has an interface that leads anywhere": "tail -n +3 /proc/net/dev | grep -v ' lo:' && echo ESCAPED; cat /proc/net/route | "
    "tail -n +2 | grep . && echo ESCAPED",
    "makes an interface": "ip link add d0 type dummy && echo ESCAPED; ip addr add 10.0.0.1/8 dev lo && echo ESCAPED",
    # Rights.
    "has a capability": "grep -E '^Cap(Prm|Eff|Bnd|Inh|Amb):.*[1-9a-f]' /proc/self/status && echo ESCAPED",
    "becomes root": python(
        "for become in (os.setuid, os.setgid, os.seteuid, lambda n: os.setgroups([n])):\n"
        "    try:\n        become(0); escaped()\n    except OSError as e:\n        print(e)\n"
    ),
    "runs a setuid program": "cp /bin/bash sb; chmod 6755 sb; ./sb -p -c '[ $(id -u) != 1000 ] && echo ESCAPED'; "
    "for p in $(find /usr -perm -4000 -type f); do timeout 2 $p -c id </dev/null | grep uid=0 && echo ESCAPED $p; done",
    "gives a program capabilities": "cp /bin/true cap; setcap cap_sys_admin+ep cap && echo ESCAPED",
    "makes a device": "mknod disk b 254 0 && echo ESCAPED; mknod mem c 1 1 && echo ESCAPED",
    "reads devices": "for d in /dev/mem /dev/kmem /dev/kmsg /dev/port /dev/[sv]d[a-z] /dev/nvme* /dev/loop* /proc/kcore "
    "/proc/kmsg; do head -c 1 $d && echo ESCAPED $d; done",
    "writes to the kernel through /proc/sys": "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname "
    "/proc/sysrq-trigger /proc/sys/vm/overcommit_memory /proc/sys/kernel/modprobe; do "
    "(echo x > $f) && echo ESCAPED $f; done",
    "reaches cgroups": "ls /sys/fs/cgroup && echo ESCAPED; mkdir cg; mount -t cgroup2 none cg && echo ESCAPED",
    # Namespaces and mounts.
    "mounts": "mkdir -p m; mount -t tmpfs none m && echo ESCAPED; mount --bind / m && echo ESCAPED; "
    "mount -t proc none m && echo ESCAPED",
    "unmounts": "umount /usr && echo ESCAPED; umount -l /workspace && echo ESCAPED; umount /proc && echo ESCAPED",
    "makes a user namespace by clone": python(
        f"for flags in (0x10000000 | 17, 0x20000 | 17, 0x40000000 | 17):\n"
        f"    result = call({seccomp.CLONE[COLUMN]}, ctypes.c_ulong(flags), 0, 0, 0, 0)\n"
        f"    if result == 0: os._exit(0)\n    if result > 0: escaped(flags)\n"
        f"if call({NUMBERS['clone3']}, struct.pack('QQQQQQQQ', 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64) >= 0: escaped()"
    ),
    "enters the namespaces of process 1": "for n in mount net pid user ipc uts; do nsenter -t 1 --$n true && echo ESCAPED; done",
    "changes its root": python(
        "try:\n    os.mkdir('r')\n    os.chroot('r'); escaped()\nexcept OSError as e:\n    print(e)\n"
    ),
    "opens a file by its handle": python(
        "handle = struct.pack('IiII', 8, 1, 2, 0)\n"
        f"print(call({NUMBERS['open_by_handle_at']}, 0, handle, 0) >= 0 and escaped())"
    ),
    "reaches into the kernel": python(
        "".join(
            f"r = call({NUMBERS[name]}, 0, 0, 0, 0, 0)\n"
            f"if r not in (-errno.EPERM, -errno.ENOSYS): escaped({name!r}, r)\n"
            for name in KERNEL
        )
    ),
    "uses calls newer than the filter": python(
        "for n in [*range(463, 520), 0x40000000 | 39]:\n    if call(n, 0, 0, 0, 0, 0) != -errno.ENOSYS: escaped(n)"
    ),
    "changes the name of the machine": "hostname owned && echo ESCAPED",
    "changes the clock": "date -s 2001-01-01 && echo ESCAPED",
    # The terminal and the workspace.
    "types into the terminal": python(
        "for place in ('/dev/tty', '/dev/console', '/proc/self/fd/0', '/proc/self/fd/2'):\n"
        "    try:\n"
        "        fcntl.ioctl(os.open(place, os.O_RDWR | os.O_NONBLOCK), 0x5412, b'x'); escaped(place)\n"
        "    except OSError as e:\n        print(e)\n"
        "    try:\n        os.close(os.open('/dev/tty', os.O_RDWR)); escaped('has a terminal')\n    except OSError as e:\n"
        "        print(e)\n"
        "a, b = os.openpty()\n"
        "for number in (0x5412, 0x541C):\n"
        "    if library.ioctl(b, ctypes.c_ulong(number), b'x') >= 0: escaped(number)\n"
    ),
    "renames the workspace": "cd /; mv /workspace /tmp/w && echo ESCAPED; rmdir /workspace && echo ESCAPED; "
    'rm -f /workspace; ln -sfT "$OUTSIDE" /workspace && echo ESCAPED; mv /tmp /old && echo ESCAPED',
}
if platform.machine() == "x86_64":
    ATTEMPTS["makes calls as a 32-bit program"] = python(
        "import mmap\n"
        "code = mmap.mmap(-1, 4096, prot=7)\n"
        "code.write(bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]))  # getpid, by int 0x80\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
        "result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()\n"
        "if result > 0: escaped(result)\n"
    )

BROKEN = (
    "SyntaxError",
    "NameError",
    "TypeError",
    "ModuleNotFoundError",
)  # an attempt that was none

# What a host does in a trial, and a student may turn against it. Each says how it got out, or nothing.


@dataclass
class World:
    """What there is outside, and what has happened to it."""

    root: Path
    canary: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    visits: list[str] = field(default_factory=list[str])

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def mark(self) -> str:
        """An argument of `sleep` by which our processes are known."""
        return f"86.{int(self.canary[-6:], 16)}"

    def hashes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(self.home.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            said = (
                f"{status.st_mode} {status.st_uid} {status.st_mtime_ns if path.is_file() else ''}"
            )
            found[str(path)] = hashlib.sha256(said.encode() + content).hexdigest()
        return found

    def processes(self) -> list[str]:
        found: list[str] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if path.read_bytes().split(b"\0")[1:2] == [self.mark.encode()]:
                    found.append(path.parent.name)
        return found


async def link_as_answer(kind: SandboxBackend, world: World) -> str:
    async with await kind.open(Setup()) as sandbox:
        key = world.home / ".ssh" / "id_ed25519"
        await sandbox.run(
            f"ln -s {key} answer.txt; ln -s {world.home} folder; ln -s / root; mkdir d; ln -s ../.. d/up"
        )
        paths = (
            "answer.txt",
            "folder/.ssh/id_ed25519",
            f"root{key}",
            "d/up/etc/passwd",
            "d/../answer.txt",
        )
        return await reads(sandbox, paths)


async def link_swapped_while_read(kind: SandboxBackend, world: World) -> str:
    """A link and a file, swapped as fast as can be, while the grader reads and writes."""
    async with await kind.open(Setup(files={"real/.ssh/id_ed25519": "mine"})) as sandbox:
        await sandbox.run(
            f"ln -s {world.home} link; mkdir real2; "
            "(while :; do mv -T real x; mv -T link real; mv -T real link; mv -T x real; done) >/dev/null 2>&1 &"
        )
        for number in range(400):
            if said := await reads(sandbox, ("real/.ssh/id_ed25519",)):
                return said
            with suppress(OSError):
                await sandbox.write(f"real/.ssh/new-{number}", "x")
        return "" if not list((world.home / ".ssh").glob("new-*")) else "wrote outside"


async def reads(sandbox: Sandbox, paths: tuple[str, ...]) -> str:
    for path in paths:
        try:
            content = await sandbox.read(path)
        except OSError:
            continue
        if content != b"mine":
            return f"{path} gave {content[:60]!r}"
    return ""


async def path_tricks(kind: SandboxBackend, world: World) -> str:
    home = str(world.home)
    async with await kind.open(Setup()) as sandbox:
        await sandbox.run(
            f"ln -s {home} out; ln -s {home}/new file; mkdir a; ln -s ../../../../../../..{home} a/up"
        )
        for path in (
            *(f"{home}/pwned", "../pwned", f"../../../../../..{home}/pwned", "a/../../pwned"),
            *("out/pwned", "a/up/pwned"),
            *(
                f"/workspace/../..{home}/pwned",
                "/workspace/out/pwned",
                "./out/./pwned",
                "out//pwned",
                "/etc/passwd",
            ),
            *(
                "/proc/self/cwd/pwned",
                "/home/student/../../pwned",
                "a\0b",
                "",
                ".",
                "..",
                "/",
                "~/pwned/../../../x",
            ),
            f"/workspace{home}/../../../../../../pwned",
            *("\\..\\pwned", "a/b/c/d/e/f/g/../../../../../../../../pwned"),
        ):
            with suppress(OSError):
                await sandbox.write(path, "pwned")
        await sandbox.write("file", "mine")  # replaces the link, and leaves where it led alone
    return (
        ""
        if not list(world.root.rglob("pwned")) and not Path("/pwned").exists()
        else "wrote outside"
    )


async def strange_files(kind: SandboxBackend, world: World) -> str:
    """A FIFO, a socket, a device and a sparse file where the answer should be: none may hang or fill us."""
    async with await kind.open(Setup(limits=Limits(disk=64 * MiB))) as sandbox:
        await sandbox.run(
            python(
                "os.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('sock'); os.symlink('/dev/zero', 'zero')\n"
                "open('sparse', 'w').truncate(200 << 20); os.symlink('loop', 'loop'); os.symlink('/proc/self/mem', 'mem')\n"
                "os.mkdir('deep'); os.chdir('deep')\n"
                "for _ in range(300): os.mkdir('d'); os.chdir('d')\n"
            )
        )
        said = await reads(
            sandbox,
            ("fifo", "sock", "zero", "sparse", "loop", "mem", "/dev/zero", "/proc/self/mem"),
        )
        listed = await sandbox.list()
        return said or ("" if 50 < len(listed) < 200 else f"listed {len(listed)}")


async def fork_bomb(kind: SandboxBackend, world: World) -> str:
    async with await kind.open(Setup(limits=Limits(processes=64, wall=600))) as sandbox:
        done = await sandbox.run(
            ":(){ :|:& };:; :; while :; do :; done", Limits(processes=64, wall=1.5)
        )
        if not done.killed_why:
            return f"was not ended: {done}"
        before = await sandbox.run("ls -d /proc/[0-9]* | wc -l")
        if int(before.output) > 8:
            return f"{before.output} processes were left"
        await sandbox.run(
            python("while True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"),
            Limits(wall=0.7),
        )
        await sandbox.kill_processes()
        done = await sandbox.run("echo alive")
        return "" if done.output == "alive\n" else f"broke the sandbox: {done}"


async def ten_gigabytes(kind: SandboxBackend, world: World) -> str:
    room = shutil.disk_usage(tempfile.gettempdir()).free
    async with await kind.open(
        Setup(limits=Limits(disk=48 * MiB, file_size=32 * MiB, wall=600))
    ) as sandbox:
        for line in (
            "head -c 10G /dev/zero > big",
            "fallocate -l 10G big2",
            "truncate -s 10G big3",
            "dd if=/dev/zero of=big4 bs=1M seek=10000 count=1",
            "for i in 1 2 3 4 5 6; do head -c 30M /dev/zero > /tmp/$i; done",
            "for i in 1 2 3 4 5 6; do head -c 30M /dev/zero > ~/$i; head -c 30M /dev/zero > /dev/shm/$i; done; sleep 1000",
        ):
            done = await sandbox.run(line)
            if done.code == 0 or done.timed_out:
                return f"{line!r} worked"
        total = int(
            (
                await sandbox.run("du -sm --total /workspace /tmp ~ /dev/shm | tail -1 | cut -f 1")
            ).output
        )
    lost = room - shutil.disk_usage(tempfile.gettempdir()).free
    return (
        f"{total} MiB were kept"
        if total > 4 * 48
        else f"the host lost {lost}"
        if lost > 2**30
        else ""
    )


async def a_million_files(kind: SandboxBackend, world: World) -> str:
    async with await kind.open(Setup(limits=Limits(disk=16 * MiB, wall=600))) as sandbox:
        code = "for n in range(1000000): os.close(os.open(str(n), os.O_CREAT))\ntime.sleep(1000)"
        done = await sandbox.run(python(code))
        return "" if done.killed_why == "wrote more than 16 MiB in all" else f"{done}"


async def memory_bombs(kind: SandboxBackend, world: World) -> str:
    limits = Limits(memory=192 * MiB, wall=600)
    async with await kind.open(Setup(limits=limits)) as sandbox:
        for code in (
            "x = bytearray(10 << 30)",
            "x = []\nwhile True: x.append(bytearray(1 << 20))",
            "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 16 << 20)\n    m.write(bytes(16 << 20)); x.append(m)",
            "for _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * (100 << 20); time.sleep(1000)\nos.wait(); os.wait()",
            "os.memfd_create('x')",
            "if library.shmget(0, 1 << 30, 0o1600) < 0: raise MemoryError",
        ):
            done = await sandbox.run(python(code))
            if done.code == 0 or done.timed_out:
                return f"{code!r}: {done}"
    return ""


async def forged_answer(kind: SandboxBackend, world: World) -> str:
    """A process left behind wants to speak for the check that runs after the agent has ended."""
    async with await kind.open(Setup()) as sandbox:
        await sandbox.run(
            "(while :; do for p in /proc/[0-9]*; do echo forged > $p/fd/1; echo forged > $p/fd/4; done; done) "
            ">/dev/null 2>&1 & mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho forged\\n' > ~/.local/bin/ls; chmod +x ~/.local/bin/ls; "
            "echo 'echo forged' > ~/.bashrc; cp ~/.bashrc ~/.profile; cp ~/.bashrc ~/.bash_profile"
        )
        await sandbox.kill_processes()
        done = await sandbox.run("ls -d /workspace; exit 5")
        return "" if (done.code, done.output) == (5, "/workspace\n") else f"{done}"


async def two_students(kind: SandboxBackend, world: World) -> str:
    """One sandbox wants something of the one beside it."""
    async with (
        await kind.open(Setup(files={"answer": "mine"})) as one,
        await kind.open(Setup()) as two,
    ):
        await one.run(
            f"echo {world.canary} > /tmp/note; echo {world.canary} > /dev/shm/note; sleep {world.mark} &"
        )
        while len(world.processes()) != 1:  # until it is there
            await asyncio.sleep(0.02)
        done = await two.run(
            "cat /tmp/note /dev/shm/note answer; pkill -KILL sleep; kill -KILL -1; ls /proc"
        )
        if world.canary in done.output or "mine" in done.output:
            return f"read {done.output!r}"
        return "" if len(world.processes()) == 1 else "killed the other"


Deed = Callable[[SandboxBackend, World], Awaitable[str]]
ALL_DEEDS: tuple[Deed, ...] = (
    *(link_as_answer, link_swapped_while_read, path_tricks, strange_files),
    *(fork_bomb, ten_gigabytes, a_million_files, memory_bombs, forged_answer, two_students),
)
DEEDS = {deed.__name__: deed for deed in ALL_DEEDS}
NAMES = [*ATTEMPTS, *DEEDS]


# The process that is attacked.


@contextmanager
def planted(root: Path) -> Generator[World]:
    """Secrets in files, in the environment, in a process, in memory; sockets that note who visits them."""
    world = World(root, f"canary-{secrets.token_hex(12)}")
    for name in (".ssh/id_ed25519", "project/.env", "skills/secret/SKILL.md", ".aws/credentials"):
        (world.home / name).parent.mkdir(parents=True, exist_ok=True)
        (world.home / name).write_text(f"{world.canary} of {name}\n", encoding="utf-8")
    (world.home / "runs").mkdir()
    with sqlite3.connect(world.home / "runs" / "upskill.db") as base:
        base.execute("create table results (passed integer, note text)")
        base.execute("insert into results values (0, ?)", (world.canary,))
    base.close()
    with ExitStack() as stack:
        temporary, shared = (
            Path(where) / f"upskill-{world.canary[:14]}" for where in ("/tmp", "/dev/shm")
        )
        for path in (temporary, shared):
            path.write_text(world.canary, encoding="utf-8")
            stack.callback(path.unlink, missing_ok=True)
        inherited = os.open(world.home / ".ssh" / "id_ed25519", os.O_RDONLY)
        os.set_inheritable(inherited, True)  # a careless library
        stack.callback(os.close, inherited)
        os.environ["UPSKILL_CANARY"] = world.canary
        victim = subprocess.Popen(
            ["bash", "-c", 'exec -a "$0" sleep 36000', world.canary], env={"VICTIM": world.canary}
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        key = secrets.randbelow(2**30) + 1
        segment = shared_memory(key, world.canary)
        stack.callback(lambda: ctypes.CDLL(None).shmctl(segment, 0, None))
        world.variables = {
            "OUTSIDE": str(world.home),
            "OUTSIDE_TMP": str(temporary),
            "OUTSIDE_SHM": str(shared),
            "OUTSIDE_PID": str(victim.pid),
            "OUTSIDE_KEY": str(key),
            "SOCKET": str(root / "socket"),
            "ABSTRACT": world.canary[-20:],
            "ADDRESS": own_address(),
        }
        listeners = {
            "unix": listen(socket.AF_UNIX, str(root / "socket")),
            "abstract": listen(socket.AF_UNIX, "\0" + world.canary[-20:]),
            "loopback": listen(socket.AF_INET, ("0.0.0.0", 0)),
        }
        world.variables["PORT"] = world.variables["PORT6"] = str(
            listeners["loopback"].getsockname()[1]
        )
        with suppress(OSError):
            listeners["loopback6"] = listen(socket.AF_INET6, ("::1", 0))
            world.variables["PORT6"] = str(listeners["loopback6"].getsockname()[1])
        for name, listener in listeners.items():
            stack.callback(listener.close)
            threading.Thread(
                target=note_visits, args=(listener, name, world.visits), daemon=True
            ).start()
        yield world
        if victim.poll() is not None:
            world.visits.append("the process outside was killed")


def listen(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    return listener


def note_visits(listener: socket.socket, name: str, visits: list[str]) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()
            visits.append(f"a visitor at {name}")


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.2"


def shared_memory(key: int, text: str) -> int:
    library = ctypes.CDLL(None)
    library.shmat.restype = ctypes.c_void_p
    segment = library.shmget(key, 4096, 0o1666)
    place = library.shmat(segment, None, 0)
    ctypes.memmove(place, text.encode(), len(text))
    library.shmdt(ctypes.c_void_p(place))
    return segment


async def attack(world: World, kind: SandboxBackend, names: list[str]) -> dict[str, str]:
    """Each attempt with how it got out; nothing for those that did not."""
    found: dict[str, str] = {}
    limits = Limits(wall=600, output=4 * MiB)
    async with await kind.open(Setup(environment=world.variables, limits=limits)) as sandbox:
        for name in (name for name in ATTEMPTS if name in names):
            visits = len(world.visits)
            done = await sandbox.run(ATTEMPTS[name])
            said = done.output + done.error
            lines = [
                line
                for line in said.splitlines()
                if line.startswith("ESCAPED") or world.canary in line
            ]
            lines += [line for line in said.splitlines() if line.startswith(BROKEN)]
            found[name] = "; ".join(
                [*lines, *world.visits[visits:], *(["took too long"] if done.timed_out else [])]
            )
        if (await sandbox.run("echo alive")).output != "alive\n":
            found["the sandbox"] = "broke down"
    for name in (name for name in DEEDS if name in names):
        found[name] = await DEEDS[name](kind, world)
    return found


def main(root: str, user: str, kind: str) -> None:
    """Plant, attack, look, and print what was found as JSON. As root this becomes that user first."""
    world_root = Path(root)
    if int(user) != os.geteuid():
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    os.chdir(world_root)
    os.environ["HOME"] = str(world_root / "home")
    os.environ["XDG_CACHE_HOME"] = str(world_root / "cache")
    (world_root / "home").mkdir(exist_ok=True)
    with planted(world_root) as world:
        before = world.hashes()
        names = NAMES if kind == "bubblewrap" else list(REAL)
        found = asyncio.run(attack(world, asyncio.run(choose_sandbox(kind)).backend, names))
        after = world.hashes()
        changed = [
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        ]
        left = world.processes()
    print(json.dumps({"found": found, "changed": changed, "visits": world.visits, "left": left}))


@dataclass(frozen=True)
class Attacked:
    found: dict[str, str]
    changed: list[str]
    visits: list[str]
    left: list[str]


def attacked(user: int, kind: str) -> Attacked:
    # Not in pytest's own folder, where an ordinary user cannot walk.
    root = Path(tempfile.mkdtemp(prefix="upskill-escapes-", dir="/tmp"))
    try:
        os.chown(root, user, user)
        root.chmod(0o755)
        line = [sys.executable, __file__, str(root), str(user), kind]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("COV")
        }
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, env=environment, timeout=1500
        )
        assert done.returncode == 0, done.stderr
        return Attacked(**json.loads(done.stdout))
    finally:
        shutil.rmtree(root)


IDENTITIES = [0, ORDINARY] if os.geteuid() == 0 else [os.geteuid()]


@pytest.fixture(
    scope="module", params=IDENTITIES, ids=["root" if user == 0 else "user" for user in IDENTITIES]
)
def outcome(request: pytest.FixtureRequest) -> Attacked:
    try:
        asyncio.run(Bubblewrap().version())
    except UpskillError as error:
        pytest.skip(error.message)
    return attacked(request.param, "bubblewrap")


@pytest.mark.parametrize("name", NAMES)
def test_a_student_does_not_get_out_who(outcome: Attacked, name: str) -> None:
    assert outcome.found[name] == ""


def test_nothing_outside_has_changed_and_no_process_outlived_its_trial(outcome: Attacked) -> None:
    assert (outcome.changed, outcome.visits, outcome.left) == ([], [], [])
    assert "the sandbox" not in outcome.found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_same_attempts_get_out_without_a_sandbox() -> None:
    outcome = attacked(os.geteuid(), "none")
    held = [name for name in REAL if not outcome.found[name]]
    assert held == []
    assert outcome.changed
    assert outcome.visits


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main(*sys.argv[1:])
