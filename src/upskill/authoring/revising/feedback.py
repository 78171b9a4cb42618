"""What people said of a skill's answers, for its teacher. Notes on held-out cases are kept from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from upskill.authoring.material.material import Material, Piece
from upskill.authoring.revising import Failure
from upskill.errors import UsageError
from upskill.runs.stores import Review, Run, Store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.traces.redaction.redact import redact

MAX_ANSWER = 2_000  # characters that a teacher is shown


@dataclass(frozen=True, slots=True)
class Mark:
    review: Review
    prompt: str
    answer: str = ""
    passed: bool | None = None  # what its checks said
    unusable: str = ""  # why no teacher is told of it, in words

    @property
    def case(self) -> str:
        return self.review.trial.case

    @property
    def text(self) -> str:
        verdict, note = self.review.verdict, self.review.note
        opinion = (
            f"called this answer {verdict}"
            if verdict in ("wrong", "odd")
            else "said of this answer"
        )
        lines = [
            f"A person {opinion}: {note}" if note else f"A person {opinion}.",
            f"Asked: {self.prompt}",
        ]
        if self.answer:
            cut = " […]" if len(self.answer) > MAX_ANSWER else ""
            lines.append(f"Answered: {self.answer[:MAX_ANSWER]}{cut}")
        return "\n".join(lines)

    @property
    def fate(self) -> str:
        if self.unusable:
            return self.unusable
        if self.review.verdict != "wrong":
            return "shown to the teacher as a remark"
        passed = "passed its checks but is wrong: " if self.passed else ""
        return f"{passed}shown to the teacher as a failure"


@dataclass(frozen=True)
class Feedback:
    marks: tuple[Mark, ...] = ()

    @property
    def usable(self) -> list[Mark]:
        return [mark for mark in self.marks if not mark.unusable]

    @property
    def failures(self) -> list[Failure]:
        """Answers that a person called wrong, as a refiner sees them: one of each case."""
        wrong = {mark.case: mark for mark in self.usable if mark.review.verdict == "wrong"}
        return [
            Failure(
                case,
                mark.prompt,
                mark.answer,
                (f"a person: {redact(mark.review.note) or 'it is wrong'}",),
            )
            for case, mark in wrong.items()
        ]

    def add_to(self, material: Material) -> Material:
        ids = (name for number in count(1) if (name := f"p{number}") not in material.ids)
        pieces = [
            Piece(next(ids), "failure", redact(mark.text), "a person") for mark in self.usable
        ]
        return replace(material, pieces=(*material.pieces, *pieces))

    def outcomes(self) -> list[str]:
        return [f"{mark.case}: {mark.fate}" for mark in self.marks]


def read_feedback(store: Store | None, skill: Skill, suite: Suite | None) -> Feedback:
    """The reviews of each case in the latest run of the skill in which somebody reviewed it."""
    marks = list(_latest_marks(store, skill, suite)) if store else []
    if not marks:
        raise UsageError(
            f"--feedback: nobody has reviewed an answer of {skill.name} in this store",
            "`upskill view` lets you mark answers and add notes.",
        )
    return Feedback(tuple(marks))


def _latest_marks(store: Store, skill: Skill, suite: Suite | None) -> Iterator[Mark]:
    seen: set[str] = set()
    for run in store.runs(skill.name, newest_first=True):
        reviews = [review for review in store.reviews(run) if review.trial.case not in seen]
        for review in reviews:
            yield _mark(review, run, store, suite)
        seen |= {review.trial.case for review in reviews}


def _mark(review: Review, run: Run, store: Store, suite: Suite | None) -> Mark:
    trial, case = review.trial, run.plan.suite.by_id[review.trial.case]
    result = store.result(run, trial)
    passed = result.passed if result else None
    mark = Mark(
        review,
        case.prompt,
        answer=result.trace.answer if result and result.trace else "",
        passed=passed,
    )
    if case.held_out or _is_held_out(suite, case.id, case.prompt):
        return replace(
            mark,
            unusable="a held-out case: not shown to the teacher, or its result would mean nothing",
        )
    if trial.arm != "skill":
        return replace(
            mark,
            unusable=f"an answer from the {trial.arm} arm, without this skill: nothing to fix",
        )
    if review.verdict == "right":
        doubt = ", although its checks failed it: they may be too strict" if passed is False else ""
        return replace(mark, unusable=f"right{doubt}")
    return mark


def _is_held_out(suite: Suite | None, case: str, prompt: str) -> bool:
    """Whether the suite hides it now, under whatever id."""
    held_out = suite.held_out if suite else ()
    return any(prompt == each.prompt or case == each.id for each in held_out)
