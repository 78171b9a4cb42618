"""Checks for whether the agent opened the skill. Where no skill was on offer they do not apply, and hold."""

from __future__ import annotations

from typing import ClassVar

from upskill.agents.activation import activated, resources_read
from upskill.checks import Check, Evidence, Finding
from upskill.checks.workspace import Paths

NONE_ON_OFFER = Finding(True, "no skill was on offer")


class SkillActivated(Check):
    """Passes when the agent opened the skill, or with `false` when it left it alone. Holds where none was on offer."""

    wanted: bool
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return NONE_ON_OFFER
        opened = activated(evidence.trace, evidence.skill, evidence.canary)
        return Finding(opened is self.wanted, f"the skill was {'opened' if opened else 'not opened'}")


class ResourceRead(Check):
    """Passes when the agent read this file of the skill, or every one of these. Holds where none was on offer."""

    path: Paths
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return NONE_ON_OFFER
        read = resources_read(evidence.trace, evidence.skill)
        unread = [path for path in self.path if path.removeprefix("./") not in read]
        if unread:
            return Finding(False, f"{', '.join(unread)} of the skill was not read")
        return Finding(True, f"{', '.join(self.path)} of the skill was read")
