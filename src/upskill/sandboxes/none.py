"""No sandbox: commands run as you. For a container that is thrown away, and only where it is asked for by name.

On Linux each command is run by `confine.py`, which also ends what it leaves behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from upskill.sandboxes import Limits, SandboxBackend, Setup
from upskill.sandboxes.processes import (
    ProcessSandbox,
    WrappedCommand,
    wrap_in_confine,
    wrap_in_shell,
)


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

        return await ProcessSandbox("none", setup, wrap).start()
