"""Checks for whether the agent opened the skill.

Only an arm with a skill can do that, so they are reported beside the outcome and are no part of it: arms are graded
alike. Where no skill was on offer they do not apply, and hold.
"""

from __future__ import annotations

from typing import ClassVar

from upskill.agents.activation import activated, resources_read
from upskill.checks import Check, Evidence, Finding
from upskill.checks.workspace import Paths

NONE_ON_OFFER = Finding(True, "no skill was on offer")


class _OfTheSkill(Check):
    reads_answer: ClassVar[bool] = False

    @property
    def decides(self) -> bool:
        return False


class SkillActivated(_OfTheSkill):
    """Holds when the agent opened the skill, or with `false` when it left it alone, and where none was on offer.
    Reported beside the outcome, which it does not change."""

    wanted: bool

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return NONE_ON_OFFER
        opened = activated(evidence.trace, evidence.skill, evidence.canary)
        return Finding(opened is self.wanted, f"the skill was {'opened' if opened else 'not opened'}")


class ResourceRead(_OfTheSkill):
    """Holds when the agent read this file of the skill, or every one of these, and where none was on offer. Reported
    beside the outcome, which it does not change."""

    path: Paths

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return NONE_ON_OFFER
        read = resources_read(evidence.trace, evidence.skill)
        unread = [path for path in self.path if path.removeprefix("./") not in read]
        if unread:
            return Finding(False, f"{', '.join(unread)} of the skill was not read")
        return Finding(True, f"{', '.join(self.path)} of the skill was read")
