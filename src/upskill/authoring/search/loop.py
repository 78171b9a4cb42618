"""The search loop: try the first version of a skill, then propose and try others, and keep the best so far.

`refine` searches for a better skill and `trigger.description` for a better description. What they propose, how they
decide and why they stop are the methods of their subclasses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from upskill.errors import CeilingReached
from upskill.skills import Skill


class SearchAttempt(Protocol):
    @property
    def skill(self) -> Skill: ...

    @property
    def accepted(self) -> bool | None:
        """Whether it was kept; None: undecided."""
        ...


A = TypeVar("A", bound=SearchAttempt)


@dataclass(kw_only=True)
class SearchLoop(Generic[A]):
    max_rejected: ClassVar[int | None] = None  # attempts in a row; then the search ends

    best: A | None = None  # so far
    attempts: list[A] = field(default_factory=list[A])
    ended: str = ""  # why
    halted: str = ""  # the ceiling that ended it

    async def search(self, drafts: Sequence[Skill], limit: int) -> None:
        """Try the drafts, then at most so many proposals. CeilingReached where a ceiling comes first."""
        for draft in drafts:
            await self.try_draft(draft)
        self.ended = "all attempts are used" if limit else "refinement was off"
        rejected = 0
        for number in range(1, limit + 1):
            if reason := self.reason_to_stop():
                self.ended = reason
                return
            attempt = await self.propose_and_try(number)
            if reason := self.reason_to_give_up(attempt):
                self.ended = reason
                return
            rejected = 0 if attempt.accepted else rejected + 1
            if rejected == self.max_rejected:
                self.ended = f"{rejected} candidates in a row were not kept"
                return

    def keep(self, attempt: A) -> A:
        """Store an attempt that was evaluated, and add it to the others."""
        if not self.was_tried(attempt.skill):
            self.store_attempt(attempt)
        self.attempts.append(attempt)
        if attempt.accepted or self.best is None:
            self.best = attempt
        self.report(attempt)
        if self.halted:
            raise CeilingReached(self.halted)
        return attempt

    def was_tried(self, skill: Skill) -> bool:
        return any(skill.visible_hash == attempt.skill.visible_hash for attempt in self.attempts)

    # What differs.

    async def try_draft(self, draft: Skill) -> A:
        raise NotImplementedError

    async def propose_and_try(self, number: int) -> A:
        raise NotImplementedError

    def reason_to_stop(self) -> str:
        """Why no further attempt is made, in words: it has succeeded, or no attempt could."""
        raise NotImplementedError

    def reason_to_give_up(self, attempt: A) -> str:
        """Why this attempt is the last."""
        del attempt
        return ""

    def store_attempt(self, attempt: A) -> None:
        raise NotImplementedError

    def report(self, attempt: A) -> None:
        raise NotImplementedError
