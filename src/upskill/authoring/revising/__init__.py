"""A Refiner proposes a better text of a skill from its failures. Kinds: `rewrite` (a few edits by a teacher), `gepa`.

It sees shown cases only, and what a check looked for is masked. Other packages add one in the entry point group
`upskill.refiners`; `--refiner` names it.

- `rewrite`, `gepa`: the kinds
- `failures`: what a refiner may see of failed trials
- `feedback`: what people said of answers
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

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


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a line of the body, of the description, or of a file below references/ or scripts/."""

    kind: EditKind
    line: int = 0  # of the body, counted from 1; an insertion goes after it
    text: str = ""  # of a line, the description, or the whole file
    evidence: tuple[str, ...] = ()
    path: str = ""  # of a file

    @property
    def line_edit(self) -> bool:
        return self.kind in get_args(LineEdit)

    def __str__(self) -> str:
        text = f": {self.text}" if self.text else ""
        if self.kind == "describe":
            return f"new description{text}"
        if self.path:
            return f"{self.kind.replace('_', ' ')} {self.path}{text}"
        position = f"after line {self.line}" if self.kind == "insert" else f"line {self.line}"
        return f"{self.kind} {position}{text}"


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
    tokens: int = 800
    file_tokens: int = 2_000  # of new files, on top of those for the body
    attempt: int = 1
    title: str = "3-revision"

    @property
    def max_tokens(self) -> int:
        older = self.material.skill
        allowed = older.tokens + REQUEST_TOKENS if older else 0
        return max(self.skill.tokens, int(GROWTH_LIMIT * self.tokens), allowed)


Refiner = Callable[[RevisionRequest], Awaitable[Proposal | None]]  # None: nothing can be applied


def apply_all(skill: Skill, edits: Sequence[Edit]) -> Skill:
    lines = [edit for edit in edits if edit.line_edit]
    body = apply_edits(skill.body.splitlines(), lines)
    changed = skill.with_body(body) if lines and body.strip() != skill.body.strip() else skill
    for edit in edits:
        if edit.kind == "describe":
            changed = changed.with_description(edit.text)
        elif edit.kind == "write_file":
            is_script = edit.path.startswith("scripts/")
            changed = changed.with_file(edit.path, edit.text.encode(), executable=is_script)
        elif edit.kind == "delete_file":
            changed = changed.without_file(edit.path)
    return changed


def apply_edits(lines: Sequence[str], edits: Sequence[Edit]) -> str:
    """The line numbers of all edits refer to the body before them."""
    after: dict[int, list[str]] = {}
    instead: Mapping[int, list[str]] = {
        edit.line: [edit.text] if edit.kind == "replace" else []
        for edit in edits
        if edit.kind != "insert"
    }
    for edit in edits:
        if edit.kind == "insert":
            after.setdefault(edit.line, []).append(edit.text)
    result = list(after.get(0, []))
    for number, line in enumerate(lines, start=1):
        result += instead.get(number, [line])
        result += after.get(number, [])
    return "\n".join(result)
