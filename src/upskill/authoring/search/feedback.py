"""What people said of a skill's answers, as evidence for its teacher and as stronger cases.

Only what was said of train cases, with the skill, is of use to a teacher: a note on a held-out case would tell it what
it is measured by, and is kept from it. What becomes of each review is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from upskill.authoring.material.material import Material, Piece
from upskill.authoring.search.refiners import Failure
from upskill.checks import read_checks
from upskill.errors import UsageError
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.feedback import MAX_NOTE, Remark, find_case, read_feedback, trial_of
from upskill.runs.stores import Run, Store, find_store
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.traces.redaction.redact import redact

MAX_ANSWER = 2_000  # characters that a teacher is shown
MAX_FORBIDDEN = 600  # characters of an answer that a check forbids word for word


@dataclass(frozen=True, slots=True)
class Mark:
    """A review, with the answer that it is about as far as that is known."""

    remark: Remark
    case: str = ""  # its id
    prompt: str = ""
    answer: str = ""
    passed: bool | None = None  # what its checks said; None: not known
    unusable: str = ""  # why no teacher is told of it, in words

    @property
    def note(self) -> str:
        return self.remark.note

    @property
    def words(self) -> str:
        """What was said, as a teacher reads it."""
        verdict = {"wrong": "A person called this answer wrong", "odd": "A person called this answer odd"}
        said = verdict.get(self.remark.verdict, "A person said of this answer")
        asked = f"\nAsked: {self.prompt}\nAnswered: {_cut(self.answer)}" if self.answer else f"\nAsked: {self.prompt}"
        return f"{said}{f': {self.note}' if self.note else '.'}{asked}"


@dataclass(frozen=True)
class Feedback:
    """What came of the files that were given."""

    marks: tuple[Mark, ...] = ()
    judged: bool = False  # there is a model that can judge by a note

    @property
    def usable(self) -> list[Mark]:
        return [mark for mark in self.marks if not mark.unusable]

    @property
    def failures(self) -> list[Failure]:
        """Answers that a person called wrong, as a refiner sees them: the latest of each case."""
        found = {
            mark.case: Failure(
                mark.case, mark.prompt, mark.answer, (f"a person: {redact(mark.note) or 'it is wrong'}",)
            )
            for mark in self.usable
            if mark.remark.verdict == "wrong"
        }
        return list(found.values())

    def add_to(self, material: Material) -> Material:
        """The material with a piece for each mark that a teacher may see."""
        taken = {piece.id for piece in material.pieces}
        ids = (name for number in range(1, 10**6) if (name := f"p{number}") not in taken)
        pieces = [Piece(next(ids), "failure", redact(mark.words), "a person") for mark in self.usable]
        return replace(material, pieces=(*material.pieces, *pieces)) if pieces else material

    def strengthen(self, suite: Suite) -> Suite:
        """The suite with checks that fail the answers which passed and are wrong."""
        cases = {case.id: case for case in suite.cases}
        for mark in self.usable:
            if (case := cases.get(mark.case)) and (checks := self._stronger(mark)):
                known = [{named.name: named.config} for named in case.checks]
                new = [
                    named
                    for check in checks
                    if check not in known
                    for named in read_checks(check, f"feedback on {case.id}")
                ]
                cases[case.id] = replace(case, checks=(*case.checks, *new))
        return replace(suite, cases=tuple(cases.values()))

    def _stronger(self, mark: Mark) -> list[dict[str, Any]]:
        if mark.remark.verdict != "wrong" or mark.passed is not True:
            return []
        checks: list[dict[str, Any]] = []
        if 0 < len(mark.answer) <= MAX_FORBIDDEN:
            same = r"\s+".join(map(re.escape, mark.answer.split()))
            checks.append({"not_regex": rf"\A\s*{same}\s*\Z"})
        if self.judged and mark.note:
            checks.append({"judge": f"The answer does not have what a person found wrong with another: {mark.note}"})
        return checks

    def told(self) -> list[str]:
        """What became of each review, in its order."""
        cut = f" (of its note, the first {MAX_NOTE:,} characters)"
        return [
            f"{mark.case or mark.remark.name or 'a review'}: {self._fate(mark)}{cut if mark.remark.cut else ''}"
            for mark in self.marks
        ]

    def _fate(self, mark: Mark) -> str:
        if mark.unusable:
            return mark.unusable
        if mark.remark.verdict != "wrong":
            return "shown to the teacher as a remark"
        if mark.passed is not True:
            return "shown to the teacher as a failure"
        stronger = " and ".join(next(iter(check)) for check in self._stronger(mark))
        added = f"its case got a stronger check ({stronger})" if stronger else "its case stays, for want of a check"
        return f"passed its checks and is wrong: shown to the teacher as a failure, and {added}"


def read_marks(
    paths: Iterable[str], skill: Skill, suite: Suite | None, store: Store | None, place: str, *, judged: bool = False
) -> Feedback:
    """The reviews of these files, with the answers that the store has of them."""
    remarks = [remark for path in paths for remark in read_feedback(path) if not remark.takes_back]
    with nullcontext(store) if store else find_store(place) or nullcontext() as kept:
        runs = {name: _find_run(kept, name) for name in {remark.run for remark in remarks}}
        marks = [_mark(remark, runs[remark.run], kept, skill, suite) for remark in remarks]
    return Feedback(tuple(marks), judged)


def _find_run(store: Store | None, name: str) -> Run | None:
    try:
        found = store.run(name) if store and name else None
    except UsageError:
        return None
    return found if found and found.id == name else None


def _mark(remark: Remark, run: Run | None, store: Store | None, skill: Skill, suite: Suite | None) -> Mark:
    trial = trial_of(remark, run) if run else None
    result = store.result(run, trial) if store and run and trial else None
    ids = [case.id for case in suite.cases] if suite else []
    case = trial.case if trial else find_case(remark.case, ids) or ""
    stored = run.plan.suite.by_id.get(case) if run else None
    own = suite.by_id.get(case) if suite else None
    prompt = stored.prompt if stored else own.prompt if own else ""
    mark = Mark(remark, case, prompt, _answer(result), result.passed if result else None)
    return replace(mark, unusable=_why_not(mark, run, skill, _is_hidden(prompt, stored, own, suite)))


def _answer(result: Result | None) -> str:
    return result.trace.answer if result and result.trace else ""


def _is_hidden(prompt: str, stored: StoredCase | None, own: Case | None, suite: Suite | None) -> bool:
    """Held out here or in the run, under whatever id."""
    prompts = {case.prompt for case in suite.held_out} if suite else set[str]()
    return bool((stored and stored.held_out) or (own and own.held_out) or prompt in prompts)


def _why_not(mark: Mark, run: Run | None, skill: Skill, hidden: bool) -> str:
    remark = mark.remark
    if run and run.skill != skill.name:
        return f"about another skill, {run.skill}: left out"
    if not mark.prompt:
        return "neither the store nor the suite has such a case: left out"
    if hidden:
        return "a held-out case: kept from the teacher, or its number would mean nothing"
    if remark.arm not in ("", "skill"):
        return f"an answer of the arm {remark.arm}, without this skill: nothing to mend"
    if remark.verdict == "right":
        return (
            "right, though its checks failed it: look whether they are too strict" if mark.passed is False else "right"
        )
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ANSWER else f"{text[:MAX_ANSWER]} […]"
