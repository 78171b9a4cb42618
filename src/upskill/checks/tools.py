"""Checks of what the agent did. Only an arm with a skill can open it, so that does not change the outcome."""

from __future__ import annotations

import json
from typing import ClassVar

from pydantic import Field, model_validator

from upskill.agents.activation import SKILL_TOOLS, activated, resources_read, without_openings
from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import Pattern, Texts, find
from upskill.checks.workspace import Paths
from upskill.plain import counted, quoted
from upskill.traces import Step


class _Calls(Check):
    tool: Texts
    arguments: Pattern | None = None
    reads_answer: ClassVar[bool] = False

    @property
    def decides(self) -> bool:
        return not {name.casefold() for name in self.tool} <= {
            name.casefold() for name in SKILL_TOOLS
        }

    async def calls(self, evidence: Evidence) -> list[Step]:
        names = {name.casefold() for name in self.tool}
        calls = [step for step in evidence.trace.calls if step.tool.casefold() in names]
        if self.decides:  # opening a skill counts for neither arm
            calls = without_openings(calls, evidence.skill)
        if self.arguments is None:
            return calls
        return [step for step in calls if await find(self.arguments, _arguments(step)) is not None]

    @property
    def description(self) -> str:
        return " or ".join(self.tool) + (
            f" with {quoted(self.arguments)}" if self.arguments else ""
        )


class ToolCalled(_Calls):
    """Passes when this tool, or one of these, was called, with arguments whose JSON matches this pattern, so often.
    Agents name their tools differently, and case does not matter: `[bash, shell]`. Tools that open a skill are only
    reported, and opening one never counts among others: one arm has none to open."""

    at_least: int = Field(default=1, ge=1)
    at_most: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _can_be_met(self) -> ToolCalled:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most {self.at_most} is less than at_least {self.at_least}")
        return self

    async def run(self, evidence: Evidence) -> Finding:
        count = len(await self.calls(evidence))
        most = f" and at most {self.at_most}" if self.at_most is not None else ""
        passed = count >= self.at_least and (self.at_most is None or count <= self.at_most)
        return Finding(
            passed,
            f"{self.description} was called {_times(count)}; it must be called at least {_times(self.at_least)}{most}",
        )


class ToolNotCalled(_Calls):
    """Passes when neither this tool nor one of these was called, or not with arguments whose JSON matches this
    pattern. Says nothing about an agent that did nothing."""

    async def run(self, evidence: Evidence) -> Finding:
        calls = await self.calls(evidence)
        if not calls:
            return Finding(True, f"{self.description} was not called")
        first = _arguments(calls[0])[:200]
        return Finding(
            False, f"{self.description} was called {_times(len(calls))}, which it must not: {first}"
        )


class MaxTurns(Check):
    """Passes when the model was asked at most this often. Says nothing about an agent that did nothing."""

    turns: int = Field(ge=1)
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        turns = evidence.trace.turns
        return Finding(
            turns <= self.turns,
            f"the model took {counted(turns, 'turn')}; the limit is {self.turns}",
        )


NONE_ON_OFFER = Finding(True, "no skill was available")


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
        return Finding(
            opened is self.wanted, f"the skill was {'opened' if opened else 'not opened'}"
        )


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
            return Finding(False, f"the agent did not read {', '.join(unread)} in the skill")
        return Finding(True, f"the agent read {', '.join(self.path)} in the skill")


def _arguments(step: Step) -> str:
    return json.dumps(dict(step.arguments), ensure_ascii=False)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
