"""What people said of a skill's answers, for its teacher. Notes on held-out cases are kept from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from upskill.authoring.material.material import Material, Piece, free_id
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
    answer: str
    fate: str  # what becomes of it, in words
    is_shown: bool = True  # to the teacher

    @property
    def text(self) -> str:
        verdict, note = self.review.verdict, self.review.note
        opinion = "said of this answer"
        if verdict in ("wrong", "odd"):
            opinion = f"called this answer {verdict}"
        text = f"A person {opinion}{f': {note}' if note else '.'}\nAsked: {self.prompt}"
        cut = " […]" if len(self.answer) > MAX_ANSWER else ""
        return f"{text}\nAnswered: {self.answer[:MAX_ANSWER]}{cut}" if self.answer else text


@dataclass(frozen=True)
class Feedback:
    marks: tuple[Mark, ...] = ()

    @property
    def usable(self) -> list[Mark]:
        return [mark for mark in self.marks if mark.is_shown]

    @property
    def failures(self) -> list[Failure]:
        """Answers that a person called wrong, as a refiner sees them: one of each case."""
        failures: dict[str, Failure] = {}
        for mark in self.usable:
            case, note = mark.review.trial.case, redact(mark.review.note) or "it is wrong"
            if mark.review.verdict == "wrong":
                failures[case] = Failure(case, mark.prompt, mark.answer, (f"a person: {note}",))
        return list(failures.values())

    def add_to(self, material: Material) -> Material:
        pieces = [*material.pieces]
        used = {*material.ids}
        for number, mark in enumerate(self.usable, start=1):
            name = free_id(f"p{number}", used)
            used.add(name)
            pieces.append(Piece(name, "failure", redact(mark.text), "a person"))
        return replace(material, pieces=tuple(pieces))

    def outcomes(self) -> list[str]:
        return [f"{mark.review.trial.case}: {mark.fate}" for mark in self.marks]


def read_feedback(store: Store | None, skill: Skill, suite: Suite | None) -> Feedback:
    """The reviews of each case in the latest run of the skill in which somebody reviewed it."""
    marks = tuple(_latest_marks(store, skill, suite)) if store else ()
    if not marks:
        raise UsageError(
            f"--feedback: nobody has reviewed an answer of {skill.name} in this store",
            "`upskill view` lets you mark answers and add notes.",
        )
    return Feedback(marks)


def _latest_marks(store: Store, skill: Skill, suite: Suite | None) -> Iterator[Mark]:
    seen: set[str] = set()
    for run in store.runs(skill.name, newest_first=True):
        reviews = [review for review in store.reviews(run) if review.trial.case not in seen]
        for review in reviews:
            yield _mark(review, run, store, suite)
        seen |= {review.trial.case for review in reviews}


def _mark(review: Review, run: Run, store: Store, suite: Suite | None) -> Mark:
    case, arm = run.plan.suite.by_id[review.trial.case], review.trial.arm
    result = store.result(run, review.trial)
    passed = result.passed if result else None
    answer = result.trace.answer if result and result.trace else ""
    held_out = suite.held_out if suite else ()
    # Its suite may hold it out now, under whatever id.
    if case.held_out or any(case.prompt == each.prompt or case.id == each.id for each in held_out):
        fate = "a held-out case: not shown to the teacher, or its result would mean nothing"
    elif arm != "skill":
        fate = f"an answer from the {arm} arm, without this skill: nothing to fix"
    elif review.verdict == "right":
        doubt = ", although its checks failed it: they may be too strict"
        fate = f"right{doubt if passed is False else ''}"
    elif review.verdict == "wrong":
        fate = "shown to the teacher as a failure"
        fate = f"passed its checks but is wrong: {fate}" if passed else fate
        return Mark(review, case.prompt, answer, fate)
    else:
        return Mark(review, case.prompt, answer, "shown to the teacher as a remark")
    return Mark(review, case.prompt, answer, fate, is_shown=False)
