"""A Refiner proposes a better skill from what a student got wrong. Kinds: `rewrite` (bounded edits by a teacher).

It sees the whole skill and train failures, never a held-out case, and never what a check was looking for: the reasons
it gets have that masked. Whether a proposal is any better is not its business: a gate decides that (`refine.py`).
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
    """A train case that a student failed with the skill: what was asked, answered, and wrong with it."""

    case: str
    prompt: str
    answer: str
    reasons: tuple[str, ...]  # of each check that failed, with what it looked for masked
    evidence: tuple[str, ...] = ()  # the pieces of the material that the right answer can be seen in


@dataclass(frozen=True, slots=True)
class Edit:
    kind: EditKind
    line: int  # of the body, counted from 1; an insertion stands after it
    text: str = ""
    evidence: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        place = f"after line {self.line}" if self.kind == "insert" else f"line {self.line}"
        return f"{self.kind} {place}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class RejectedEdits:
    """Edits that were tried and not kept, and what they did."""

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
        """A changed skill, or None where nothing that was thought of can be applied."""
        ...


class RefinerFactory(Protocol):
    """What a row of the table is called with: the teacher, what the skill is made from, and how long it may get."""

    def __call__(self, model: Any, material: Material | None, tokens: int) -> Refiner: ...
