"""A Refiner proposes a better text of a skill from its failures. Kinds: `rewrite` (a few edits by a teacher), `gepa`.

It sees shown cases only, and what a check looked for is masked. Other packages add one in the entry point group
`upskill.refiners`; `--refiner` names it.

- `rewrite`, `gepa`: the kinds
- `failures`: what a refiner may see of failed trials
- `feedback`: what people said of answers
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from upskill.authoring.material.material import Material
from upskill.models import Model
from upskill.registry import Registry
from upskill.skills import Skill
from upskill.suites import Case

REFINERS = Registry(
    "refiner",
    "upskill.refiners",
    {
        "rewrite": "upskill.authoring.revising.rewrite:propose_edits",
        "gepa": "upskill.authoring.revising.gepa:optimize",
    },
)

EditKind = Literal["replace", "insert", "delete", "describe", "write_file", "delete_file"]
LINE_EDITS = ("replace", "insert", "delete")
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


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a line of the body, of the description, or of a file below references/ or scripts/."""

    kind: EditKind
    line: int = 0  # of the body, counted from 1; an insertion goes after it
    text: str = ""  # of a line, the description, or the whole file
    evidence: tuple[str, ...] = ()
    path: str = ""  # of a file

    @property
    def place(self) -> str:
        if self.kind == "describe":
            return "the description"
        return self.path or f"line {self.line}"

    def __str__(self) -> str:
        verb = "insert after" if self.kind == "insert" else self.kind.replace("_", " ")
        return f"{verb} {self.place}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Proposal:
    skill: Skill
    edits: tuple[Edit, ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"note": self.note, "edits": [str(edit) for edit in self.edits]}


@dataclass(frozen=True, slots=True)
class Tried:
    """A proposal that was not kept, or was, with the answers that the student gave with it."""

    edits: tuple[Edit, ...]
    result: str
    failures: tuple[Failure, ...] = ()


Run = Callable[[Skill, Sequence[Case]], Awaitable[Sequence[Failure | None]]]


@dataclass(frozen=True, kw_only=True)
class RevisionRequest:
    """What a refiner works with."""

    model: Model
    skill: Skill
    material: Material = field(default_factory=lambda: Material(""))
    failures: Sequence[Failure] = ()
    passing: Sequence[str] = ()  # prompts of cases that pass and should go on passing
    tried: Sequence[Tried] = ()
    cases: Sequence[Case] = ()  # the shown ones, for refiners that try skills themselves with …
    run: Run | None = None  # None in its answer: the case passes
    tokens: int = 1_500
    file_tokens: int = 2_000  # of new files, on top of those for the body
    attempt: int = 1
    title: str = "3-revision"

    @property
    def max_tokens(self) -> int:
        older = self.material.skill
        allowed = older.tokens + REQUEST_TOKENS if older else 0
        return max(self.skill.tokens, int(GROWTH_LIMIT * self.tokens), allowed)


Refiner = Callable[[RevisionRequest], Awaitable[Proposal | None]]  # None: nothing can be applied


def apply_edits(skill: Skill, edits: Sequence[Edit]) -> Skill:
    """The line numbers of all edits refer to the body before them."""
    # Each line with what is inserted after it; the first is empty, for what goes before all.
    lines = [[], *([line] for line in skill.body.splitlines())]
    changed = skill
    for edit in edits:
        match edit.kind:
            case "insert":
                lines[edit.line].append(edit.text)
            case "replace":
                lines[edit.line][0] = edit.text
            case "delete":
                del lines[edit.line][0]
            case "describe":
                changed = changed.with_description(edit.text)
            case "write_file":
                is_script = edit.path.startswith("scripts/")
                changed = changed.with_file(edit.path, edit.text.encode(), executable=is_script)
            case "delete_file":
                changed = changed.without_file(edit.path)
    body = "\n".join(chain.from_iterable(lines))
    return changed if body.strip() == skill.body.strip() else changed.with_body(body)
