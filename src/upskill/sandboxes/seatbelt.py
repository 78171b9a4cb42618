"""Seatbelt: macOS's own sandbox, through `sandbox-exec` and a profile that denies what it does not name.

Written to the documented profile language and not tried: no macOS machine ran its tests yet.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from upskill.errors import SandboxError
from upskill.sandboxes import Limits, Setup
from upskill.sandboxes.processes import ProcessSandbox
from upskill.sandboxes.wrappers import WrappedCommand, wrap_in_shell

PROGRAM = "/usr/bin/sandbox-exec"
PROFILE = """(version 1)
(deny default)
(allow process-fork)
(allow process-exec (subpath "/bin") (subpath "/sbin") (subpath "/usr") (subpath "/System")
  (subpath "/Library/Developer/CommandLineTools") (subpath "/opt/homebrew") (subpath "{root}"){executed})
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") (subpath "/bin") (subpath "/sbin") (subpath "/usr") (subpath "/System")
  (subpath "/Library/Developer/CommandLineTools") (subpath "/Library/Preferences/Logging") (subpath "/opt/homebrew")
  (subpath "/private/etc/ssl") (subpath "/private/var/db/timezone") (subpath "/private/var/db/dyld")
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (literal "/dev/dtracehelper") (subpath "/dev/fd"){shown})
(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-read* file-write* (subpath "{root}"))
{door}"""


class Seatbelt:
    name = "seatbelt"
    isolated = True
    reduced = "one process table for all, no background processes between commands, and not yet tried on a Mac"
    fix = "It comes with macOS."

    async def version(self) -> str:
        if sys.platform != "darwin":
            raise SandboxError("seatbelt is for macOS")
        if not os.access(PROGRAM, os.X_OK):
            raise SandboxError(f"{PROGRAM} is not there")
        return f"sandbox-exec of macOS {platform.mac_ver()[0]}"

    async def open(self, setup: Setup) -> ProcessSandbox:
        if any(place != os.fspath(path.resolve()) for place, path in setup.readonly_mounts.items()):
            raise SandboxError("seatbelt can show files only where they are, not at another path")

        def launch(argv: list[str], environment: dict[str, str], limits: Limits, root: Path) -> WrappedCommand:
            return wrap_in_shell([PROGRAM, "-p", profile(root, setup), *argv], limits)

        return ProcessSandbox("seatbelt", setup, launch)


def profile(root: Path, setup: Setup) -> str:
    shown = "".join(f" (subpath {_text(os.fspath(path))})" for path in setup.readonly_mounts.values())
    door = "" if setup.proxy_port is None else f'(allow network-outbound (remote tcp "localhost:{setup.proxy_port}"))\n'
    return PROFILE.format(root=_text(str(root))[1:-1], shown=shown, executed=shown, door=door)


def _text(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
