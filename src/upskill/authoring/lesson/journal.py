"""A Journal is what a lesson has done before a pause: the results of its tool calls, and the workspace they left.

Whoever answers by hand takes minutes for each turn, and the command ends in between. The next one replays the results
and goes on in the same workspace: no command is run twice, so a date or a duration in its output changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upskill.errors import UsageError
from upskill.models import ToolCall
from upskill.traces import Step

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox, Setup

MAX_WORKSPACE = 200_000_000  # bytes
PACKED = ".upskill-workspace.tar"  # in the workspace, while it is packed or unpacked


class Diverged(UsageError):
    """A call differs from the one that was recorded: an earlier answer was changed, so the work starts over."""


class Journal:
    """The files `NAME.journal.json` and `NAME.workspace.tar` of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.journal.json"
        self.workspace = folder / f"{name}.workspace.tar"
        self.done: list[Step] = []
        if self.file.is_file() and self.workspace.is_file():
            try:
                rows: list[dict[str, Any]] = json.loads(self.file.read_text(encoding="utf-8"))
                self.done = [Step(**row) for row in rows]
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"{self.file}: cannot be read: {error}", "Remove it, and the lesson starts over."
                ) from error
        self._left = list(self.done)

    def replay(self, call: ToolCall) -> Step | None:
        """The recorded result of this call; None where it was not made before."""
        if not self._left:
            return None
        step = self._left.pop(0)
        if (step.tool, dict(step.arguments)) != (call.name, dict(call.arguments)):
            raise Diverged(f"another call than before: {call.name}")
        return step

    def note(self, step: Step) -> None:
        if step.kind == "tool" and not any(step is one for one in self.done):  # not one that was replayed
            self.done.append(step)

    def prepare(self, setup: Setup) -> Setup:
        """The setup with the workspace as it was left."""
        return replace(setup, files={PACKED: self.workspace.read_bytes()}) if self.done else setup

    async def unpack(self, sandbox: Sandbox) -> None:
        if self.done:
            await sandbox.run(f"tar -xpf {PACKED}; rm -f {PACKED}")

    async def save(self, sandbox: Sandbox) -> None:
        """Keep what was done so far. Without `tar` in the sandbox there is nothing to go on from."""
        if self._left or not self.done:
            return
        packed = await sandbox.run(f"tar -cf /tmp/{PACKED} . && mv /tmp/{PACKED} {PACKED}")
        if packed.code == 0:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.workspace.write_bytes(await sandbox.read(PACKED, MAX_WORKSPACE))
            self.file.write_text(json.dumps([asdict(step) for step in self.done], default=str), encoding="utf-8")

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.workspace.unlink(missing_ok=True)
        self.done, self._left = [], []
