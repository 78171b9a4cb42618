"""No sandbox: commands run as you, in a folder of their own, and reach all that you reach. Never chosen, only typed.

Limits, the clean environment and the end of every process hold all the same, as far as the command is not hostile.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from upskill.sandboxes import Limits, Setup
from upskill.sandboxes.launching import Launched, confined, limited
from upskill.sandboxes.processes import ProcessSandbox


class NoSandbox:
    name = "none"
    isolated = False
    reduced = ""
    fix = ""

    async def version(self) -> str:
        return "no protection"

    async def open(self, setup: Setup) -> ProcessSandbox:
        return ProcessSandbox("none", setup, _launch)


def _launch(argv: list[str], environment: dict[str, str], limits: Limits, root: Path) -> Launched:
    environment["PATH"] = os.environ.get("PATH", environment["PATH"])
    if sys.platform == "linux":
        return confined(argv, environment, limits, root / "workspace")
    return limited(argv, limits)
