"""A Refiner proposes a better skill from train failures. Kinds: `rewrite` (bounded edits by a teacher), `gepa`.

It sees no held-out case, and what a check looked for is masked. Other packages add one in the entry point group
`upskill.refiners`; `--refiner` names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from upskill.authoring.material.material import Material
from upskill.authoring.saving.provenance import Provenance
from upskill.models import Model
from upskill.registry import Registry
from upskill.skills import Skill
from upskill.suites import Case

REFINERS = Registry(
    "refiner",
    "upskill.refiners",
    {
        "rewrite": "upskill.authoring.search.refiners.rewrite:Rewrite",
        "gepa": "upskill.authoring.search.refiners.gepa:Gepa",
    },
)

LineEdit = Literal["replace", "insert", "delete"]
EditKind = LineEdit | Literal["describe", "write_file", "delete_file"]
MASK = "[masked]"
GROWTH_LIMIT = 1.25  # times the tokens asked for
REQUEST_TOKENS = 400  # that a requested change may add to an older skill, whatever its size


@dataclass(frozen=True, slots=True)
class Failure:
    case: str
    prompt: str
    answer: str
    reasons: tuple[str, ...]  # one for each check that failed, with what it looked for masked
    evidence: tuple[str, ...] = ()  # ids of the material that has the right answer
    texts: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # of that material, by id, where they are known


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

    @property
    def changes(self) -> tuple[object, ...]:
        """What two edits must not both change: a line, a file, the description; or a line that both would insert."""
        return ("insert", self.text) if self.kind == "insert" else (self.line, self.path)

    def __str__(self) -> str:
        if self.kind == "describe":
            return f"new description: {self.text}"
        if self.path:
            return f"{self.kind.replace('_', ' ')} {self.path}" + (
                f": {self.text}" if self.text else ""
            )
        position = f"after line {self.line}" if self.kind == "insert" else f"line {self.line}"
        return f"{self.kind} {position}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class TriedEdits:
    edits: tuple[Edit, ...]
    result: str  # "kept provisionally: …", "not enough evidence: …", "worse: …"
    fixed: tuple[str, ...] = ()  # the prompts of train cases that passed more often with them
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    skill: Skill
    edits: tuple[Edit, ...]
    note: str = ""
    dropped: tuple[str, ...] = ()  # edits that could not be applied, and why

    def is_composed(self, parent: Skill) -> bool:
        """Whether its edits are all of it, so that it can be merged, and tried without some of them."""
        return apply_all(parent, self.edits).visible_hash == self.skill.visible_hash

    def to_dict(self) -> dict[str, Any]:
        return {
            "note": self.note,
            "edits": [str(edit) for edit in self.edits],
            "dropped": list(self.dropped),
        }


class Refiner(ABC):
    """Made with the teacher, the material of the skill, and how long the skill should be."""

    tokens: int = 800
    file_tokens: int = 4_000  # of new files in a proposal, on top of those for the body
    material = Material("")
    passing: Sequence[
        str
    ] = ()  # before each proposal: prompts of train cases that pass and should go on passing
    cases: Sequence[Case] = ()  # train cases, for refiners that try skills themselves with …
    run: Callable[[Skill, Sequence[Case]], Coroutine[Any, Any, Sequence[Failure | None]]] | None = (
        None  # None: it passes
    )

    def __init__(self, model: Model, material: Material | None = None, tokens: int = 800) -> None:
        self.model = model
        self.material = material or Material("")
        self.tokens = tokens

    def max_tokens(self, skill: Skill) -> int:
        older = self.material.skill
        return max(
            skill.tokens,
            int(GROWTH_LIMIT * self.tokens),
            older.tokens + REQUEST_TOKENS if older else 0,
        )

    @abstractmethod
    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        """A changed skill; None where there is nothing that can be applied."""


def apply_all(skill: Skill, edits: Sequence[Edit]) -> Skill:
    lines = [edit for edit in edits if edit.line_edit]
    body = apply_edits(skill.body.splitlines(), lines)
    changed = skill.with_body(body) if lines and body.strip() != skill.body.strip() else skill
    for edit in edits:
        if edit.kind == "describe":
            changed = changed.with_description(edit.text)
        elif edit.kind == "write_file":
            changed = changed.with_file(
                edit.path, edit.text.encode(), executable=edit.path.startswith("scripts/")
            )
        elif edit.kind == "delete_file":
            changed = changed.without_file(edit.path)
    return changed


def apply_edits(lines: Sequence[str], edits: Sequence[Edit]) -> str:
    """The line numbers of all edits refer to the body before them."""
    after: dict[int, list[str]] = {}
    instead: dict[int, list[str]] = {}
    for edit in edits:
        if edit.kind == "insert":
            after.setdefault(edit.line, []).append(edit.text)
        else:
            instead[edit.line] = [edit.text] if edit.kind == "replace" else []
    result = list(after.get(0, []))
    for number, line in enumerate(lines, start=1):
        result += instead.get(number, [line])
        result += after.get(number, [])
    return "\n".join(result)


def merge(parent: Skill, proposals: Sequence[Proposal], max_tokens: int) -> Proposal:
    """The proposals for one skill as one: each with those of its edits that change what none before it changes."""
    merged = proposals[0]
    for proposal in proposals[1:]:
        known = {edit.changes for edit in merged.edits}
        edits = (*merged.edits, *(edit for edit in proposal.edits if edit.changes not in known))
        both = compose(parent, edits, merged.skill, proposal.skill)
        if both.tokens <= max_tokens:
            merged = Proposal(both, edits, " ".join(filter(None, (merged.note, proposal.note))))
    return merged


def compose(parent: Skill, edits: Sequence[Edit], *written: Skill) -> Skill:
    """The skill with these edits, its lines with the evidence that they have in `written`."""
    provenance = Provenance.of(parent)
    for each in map(Provenance.of, written):
        provenance = provenance.with_sources(each.sources, each.evidence)
    return provenance.add_to(apply_all(parent, edits))
