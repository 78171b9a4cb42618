"""Landlock: a process gives up rights, where there are no namespaces, as inside most containers.

Landlock protects files, the network and signals, and seccomp what Landlock does not cover. Each command is run by
`confine.py`, which also ends what it leaves behind. The same without Landlock is `none`.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from upskill.errors import SandboxError
from upskill.sandboxes import Limits, SandboxBackend, Setup, seccomp
from upskill.sandboxes.confine import landlock_version
from upskill.sandboxes.files import unused_user
from upskill.sandboxes.processes import (
    ProcessSandbox,
    WrappedCommand,
    check_setup,
    wrap_in_confine,
    wrap_in_shell,
)

OLDEST = 3  # Linux 6.2: the first that also protects files from being truncated
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "ld.so.cache",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls",
    "pki/ca-trust",
    "nsswitch.conf",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files of /proc about the machine as a whole; none about a process.
PROC = ("meminfo", "cpuinfo", "stat", "version", "uptime", "loadavg", "filesystems", "sys")
REDUCED = "no process, network and IPC namespaces, no /tmp of its own, no background processes between commands"


class Landlock(SandboxBackend):
    name = "landlock"
    fix = (
        "It needs Linux 6.2 or newer with Landlock among its security modules (`lsm=landlock,...`)."
    )

    def __init__(self) -> None:
        self.reduced = REDUCED
        if sys.platform == "linux" and landlock_version() < 6:  # Linux 6.12 added signals
            self.reduced += (
                "; processes are hidden only from view, and signals reach those of the same user"
            )

    async def version(self) -> str:
        if sys.platform != "linux":
            raise SandboxError("Landlock only works on Linux")
        seccomp.architecture_of(platform.machine())
        version = landlock_version()
        if version < OLDEST:
            raise SandboxError(
                f"this kernel has Landlock version {version}, but version {OLDEST} is needed"
            )
        return f"Landlock {version} on Linux {platform.release()}"

    async def open(self, setup: Setup) -> ProcessSandbox:
        check_setup("landlock", setup)
        if setup.proxy_port is not None and landlock_version() < 4:
            raise SandboxError("landlock supports a proxy socket only on Linux 6.7 or newer")
        user = unused_user()
        families = () if setup.proxy_port is None else (seccomp.INET,)
        program = seccomp.pack_filter(
            # A user of its own cannot change other people's files by their path anyway.
            seccomp.build_filter(
                families=families, streams_only=True, namespaces=False, by_path=user is not None
            )
        )

        def wrap(
            argv: list[str], environment: dict[str, str], limits: Limits, root: Path
        ) -> WrappedCommand:
            landlock = {
                "read": [
                    *SYSTEM,
                    *(f"/etc/{name}" for name in ETC),
                    *(f"/proc/{name}" for name in PROC),
                    *map(os.fspath, setup.readonly_mounts.values()),
                ],
                "devices": DEVICES,
                "write": [str(root / name) for name in ("workspace", "home", "tmp")],
                "proxy_port": setup.proxy_port or 0,
            }
            return wrap_in_confine(
                argv,
                environment,
                limits,
                root / "workspace",
                user=user,
                landlock=landlock,
                program=program,
            )

        return ProcessSandbox("landlock", setup, wrap, user=user)


class NoSandbox(SandboxBackend):
    """Commands run as you and reach everything you can. Never chosen, only typed.

    Limits, a clean environment and the end of every process still apply, as far as the command is not hostile.
    """

    name = "none"
    isolated = False
    shows_gpu = True  # it hides nothing

    async def version(self) -> str:
        return "no protection"

    async def open(self, setup: Setup) -> ProcessSandbox:
        def wrap(
            argv: list[str], environment: dict[str, str], limits: Limits, root: Path
        ) -> WrappedCommand:
            environment["PATH"] = os.environ.get("PATH", environment["PATH"])
            if sys.platform == "linux":
                return wrap_in_confine(argv, environment, limits, root / "workspace")
            return wrap_in_shell(argv, limits)

        return ProcessSandbox("none", setup, wrap)
