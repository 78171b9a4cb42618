"""The search loop: try the first version of a skill, then propose and try others, and keep the best so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from upskill.errors import CeilingReached, UpskillError
from upskill.plain import counted
from upskill.runs.results.evaluation import Evaluation
from upskill.skills import Skill


class SearchAttempt(Protocol):
    @property
    def skill(self) -> Skill: ...

    @property
    def accepted(self) -> bool | None: ...  # whether it was kept; None: undecided


A = TypeVar("A", bound=SearchAttempt)


@dataclass(kw_only=True)
class SearchLoop(ABC, Generic[A]):
    max_rejected: ClassVar[int | None] = None  # attempts in a row; then the search ends

    best: A | None = None  # so far
    attempts: list[A] = field(default_factory=list[A])
    ended: str = ""  # why
    halted: str = ""  # the ceiling that ended it

    async def search(self, drafts: Sequence[Skill], limit: int) -> None:
        """Try the drafts, then at most `limit` proposals. CeilingReached if a ceiling comes first."""
        for draft in drafts:
            await self.try_skill(draft)
        rejected = 0
        for number in range(1, limit + 1):
            if reason := self.reason_to_stop():
                self.ended = reason
                return
            attempt = await self.propose_and_try(number)
            rejected = rejected + 1 if attempt.accepted is False else 0
            if rejected == self.max_rejected:
                self.ended = self.ended or f"{rejected} candidates in a row were not kept"
            if self.ended:
                return
        self.ended = "all attempts are used" if limit else "refinement was off"

    def keep(self, attempt: A) -> A:
        is_known = any(attempt is each for each in self.attempts)
        if is_known or not self.was_tried(attempt.skill):
            self.store_attempt(attempt)
        self.attempts += [] if is_known else [attempt]
        if attempt.accepted or self.best is None:
            self.best = attempt
        self.report(attempt)
        if self.halted:
            raise CeilingReached(self.halted)
        return attempt

    def was_tried(self, skill: Skill) -> bool:
        return any(skill.visible_hash == attempt.skill.visible_hash for attempt in self.attempts)

    @abstractmethod
    async def try_skill(self, skill: Skill) -> A: ...

    @abstractmethod
    async def propose_and_try(self, number: int) -> A:
        """It sets `ended` where no further attempt is of use."""

    @abstractmethod
    def reason_to_stop(self) -> str:
        """Why no further attempt is made, in words: it has succeeded, or no attempt could."""

    @abstractmethod
    def store_attempt(self, attempt: A) -> None: ...

    @abstractmethod
    def report(self, attempt: A) -> None: ...


def evaluation_error(
    problem: str, evaluation: Evaluation, *, trial: str = "trial", hint: str = ""
) -> UpskillError:
    """Why the first version of a skill cannot be evaluated, so that nothing can be compared with it."""
    if evaluation.bug_messages and not evaluation.errors:
        message, trials = evaluation.bug_messages[0]
        return UpskillError(
            f"{problem}: a bug in upskill stopped {counted(trials, trial)}: {message}",
            f"`upskill show {evaluation.run.id} --bugs` prints the tracebacks. Please report them.",
        )
    model, message, trials = (
        evaluation.errors[0] if evaluation.errors else ("the student", "nothing was scored", 0)
    )
    return UpskillError(
        f"{problem}: {counted(trials, trial)} of {model} errored: {message}",
        f"Fix this, then run the same command again. Finished trials are kept.{hint}",
    )
