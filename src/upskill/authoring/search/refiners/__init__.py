"""A Refiner proposes a better skill from train failures. Kinds: `rewrite` (bounded edits by a teacher).

It sees no held-out case, and what a check looked for is masked. Other packages add one in the entry point group
`upskill.refiners`; `--refiner` names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from upskill.authoring.material.material import Material
from upskill.models import Model
from upskill.registry import Registry
from upskill.skills import Skill

REFINERS = Registry("refiner", "upskill.refiners", {"rewrite": "upskill.authoring.search.refiners.rewrite:Rewrite"})

LineEdit = Literal["replace", "insert", "delete"]
EditKind = LineEdit | Literal["describe", "write_file", "delete_file"]
MASK = "[masked]"


@dataclass(frozen=True, slots=True)
class Failure:
    case: str
    prompt: str
    answer: str
    reasons: tuple[str, ...]  # one for each check that failed, with what it looked for masked
    evidence: tuple[str, ...] = ()  # ids of the material that has the right answer
    texts: Mapping[str, str] = field(default_factory=dict[str, str])  # of that material, by id, where they are known


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a line of the body, of the description, or of a file below references/ or scripts/."""

    kind: EditKind
    line: int = 0  # of the body, counted from 1; an insertion goes after it
    text: str = ""  # of a line, the description, or the whole file
    evidence: tuple[str, ...] = ()
    why: str = ""
    path: str = ""  # of a file

    @property
    def line_edit(self) -> bool:
        return self.kind in get_args(LineEdit)

    def __str__(self) -> str:
        if self.kind == "describe":
            return f"new description: {self.text}"
        if self.path:
            return f"{self.kind.replace('_', ' ')} {self.path}" + (f": {self.text}" if self.text else "")
        position = f"after line {self.line}" if self.kind == "insert" else f"line {self.line}"
        return f"{self.kind} {position}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class TriedEdits:
    edits: tuple[Edit, ...]
    result: str  # "kept provisionally: …", "not enough evidence: …", "worse: …"
    mended: tuple[str, ...] = ()  # the prompts of train cases that passed more often with them
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    skill: Skill
    edits: tuple[Edit, ...]
    note: str = ""
    dropped: tuple[str, ...] = ()  # edits that could not be applied, and why

    def to_dict(self) -> dict[str, Any]:
        return {"note": self.note, "edits": [str(edit) for edit in self.edits], "dropped": list(self.dropped)}


class Refiner(ABC):
    """Made with the teacher, the material of the skill, and how long the skill should be."""

    def __init__(self, model: Model, material: Material | None = None, tokens: int = 800) -> None:
        self.model = model
        self.material = material or Material("")
        self.tokens = tokens

    @abstractmethod
    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        """A changed skill; None where there is nothing that can be applied."""
