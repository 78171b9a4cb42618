"""A Refiner proposes a better skill from what a student got wrong. Kinds: `rewrite` (bounded edits by a teacher).

It sees the whole skill and train failures, but never a held-out case, nor what a check looked for: that is masked in
the reasons it gets. Whether a proposal is any better is decided by the gate of `refine`.

One from another package is an entry point in the group `upskill.refiners`: a class or function that is called like
`RefinerFactory`. `--refiner KIND` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from upskill.authoring.material import Material
from upskill.registry import Registry
from upskill.skills import Skill

REFINERS = Registry("refiner", "upskill.refiners", {"rewrite": "upskill.authoring.refiners.rewrite:Rewrite"})

EditKind = Literal["replace", "insert", "delete"]
MASK = "[masked]"


@dataclass(frozen=True, slots=True)
class Failure:
    """A train case that a student failed with the skill."""

    case: str
    prompt: str
    answer: str
    reasons: tuple[str, ...]  # one for each check that failed, with what it looked for masked
    evidence: tuple[str, ...] = ()  # ids of the material that has the right answer


@dataclass(frozen=True, slots=True)
class Edit:
    kind: EditKind
    line: int  # of the body, counted from 1; an insertion goes after it
    text: str = ""
    evidence: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        place = f"after line {self.line}" if self.kind == "insert" else f"line {self.line}"
        return f"{self.kind} {place}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class RejectedEdits:
    """Edits that were tried and not kept."""

    edits: tuple[Edit, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    skill: Skill
    edits: tuple[Edit, ...]
    note: str = ""
    dropped: tuple[str, ...] = field(default=())  # edits that could not be applied, and why

    def plain(self) -> dict[str, Any]:
        return {"note": self.note, "edits": [str(edit) for edit in self.edits], "dropped": list(self.dropped)}


class Refiner(Protocol):
    async def propose(
        self, skill: Skill, failures: Sequence[Failure], rejected: Sequence[RejectedEdits], attempt: int
    ) -> Proposal | None:
        """A changed skill; None where there is nothing that can be applied."""
        ...


class RefinerFactory(Protocol):
    """How a refiner is made: with the teacher, the material of the skill, and how long the skill should be."""

    def __call__(self, model: Any, material: Material | None, tokens: int) -> Refiner: ...
