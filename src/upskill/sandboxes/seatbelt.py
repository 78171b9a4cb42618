"""Seatbelt: macOS's own sandbox, through `sandbox-exec`. Written to its documentation and never run on a Mac."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from upskill.errors import SandboxError
from upskill.sandboxes import Limits, SandboxBackend, Setup, private_paths
from upskill.sandboxes.processes import ProcessSandbox, WrappedCommand, wrap_in_shell

PROGRAM = "/usr/bin/sandbox-exec"
PROFILE = """(version 1)
(deny default)
(allow process-fork)
(allow process-exec (subpath "/bin") (subpath "/sbin") (subpath "/usr") (subpath "/System")
  (subpath "/Library/Developer/CommandLineTools") (subpath "/opt/homebrew") (subpath "{root}"){mounted})
(deny file-read*{private})
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") (subpath "/bin") (subpath "/sbin") (subpath "/usr") (subpath "/System")
  (subpath "/Library/Developer/CommandLineTools") (subpath "/Library/Preferences/Logging") (subpath "/opt/homebrew")
  (subpath "/private/etc/ssl") (subpath "/private/var/db/timezone") (subpath "/private/var/db/dyld")
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (literal "/dev/dtracehelper") (subpath "/dev/fd"){mounted})
(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-read* file-write* (subpath "{root}"))
{network}"""


class Seatbelt(SandboxBackend):
    name = "seatbelt"
    reduced = "one process table for all, no background processes between commands, and not yet tried on a Mac"
    experimental = True
    fix = "It comes with macOS."

    async def version(self) -> str:
        if sys.platform != "darwin":
            raise SandboxError("seatbelt only works on macOS")
        if not os.access(PROGRAM, os.X_OK):
            raise SandboxError(f"{PROGRAM} does not exist")
        return f"sandbox-exec on macOS {platform.mac_ver()[0]}"

    async def open(self, setup: Setup) -> ProcessSandbox:
        if setup.gpu:
            raise SandboxError("seatbelt cannot provide a GPU", "Use bubblewrap or a container.")
        for target, path in setup.readonly_mounts.items():
            if target != os.fspath(path.resolve()):
                raise SandboxError("seatbelt can mount files only at their own path")

        def wrap(
            argv: list[str], environment: dict[str, str], limits: Limits, root: Path
        ) -> WrappedCommand:
            return wrap_in_shell([PROGRAM, "-p", profile(root, setup), *argv], limits)

        return await ProcessSandbox("seatbelt", setup, wrap).start()


def profile(root: Path, setup: Setup) -> str:
    mounted = "".join(
        f" (subpath {_quote(os.fspath(path))})" for path in setup.readonly_mounts.values()
    )
    private = "".join(f" (subpath {_quote(str(path))})" for path in private_paths())
    port = setup.proxy_port
    network = "" if port is None else f'(allow network-outbound (remote tcp "localhost:{port}"))\n'
    return PROFILE.format(
        root=_quote(str(root))[1:-1], mounted=mounted, private=private, network=network
    )


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
