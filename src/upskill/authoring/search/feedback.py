"""What people said of a skill's answers, for its teacher. Notes on held-out cases are kept from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from upskill.authoring.material.material import Material, Piece
from upskill.authoring.search.refiners import Failure
from upskill.checks import read_checks
from upskill.errors import UsageError
from upskill.runs.results.feedback import MAX_NOTE, Remark, find_case, read_feedback, trial_of
from upskill.runs.stores import Run, Store, find_store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.traces.redaction.redact import redact

MAX_ANSWER = 2_000  # characters that a teacher is shown
MAX_FORBIDDEN = 600  # characters of an answer that a check forbids word for word


@dataclass(frozen=True, slots=True)
class Mark:
    remark: Remark
    case: str = ""  # its id
    prompt: str = ""
    answer: str = ""
    passed: bool | None = None  # what its checks said; None: not known
    unusable: str = ""  # why no teacher is told of it, in words

    @property
    def text(self) -> str:
        verdict, note = self.remark.verdict, self.remark.note
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


@dataclass(frozen=True)
class Feedback:
    marks: tuple[Mark, ...] = ()
    judged: bool = False  # there is a model that can judge by a note

    @property
    def usable(self) -> list[Mark]:
        return [mark for mark in self.marks if not mark.unusable]

    @property
    def failures(self) -> list[Failure]:
        """Answers that a person called wrong, as a refiner sees them: the latest of each case."""
        wrong = {mark.case: mark for mark in self.usable if mark.remark.verdict == "wrong"}
        return [
            Failure(
                case,
                mark.prompt,
                mark.answer,
                (f"a person: {redact(mark.remark.note) or 'it is wrong'}",),
            )
            for case, mark in wrong.items()
        ]

    def add_to(self, material: Material) -> Material:
        ids = (name for number in count(1) if (name := f"p{number}") not in material.ids)
        pieces = [
            Piece(next(ids), "failure", redact(mark.text), "a person") for mark in self.usable
        ]
        return replace(material, pieces=(*material.pieces, *pieces))

    def strengthen(self, suite: Suite) -> Suite:
        """Add checks that fail the answers which passed but are wrong."""
        cases = {case.id: case for case in suite.cases}
        for mark in self.usable:
            if (case := cases.get(mark.case)) and (checks := self._stronger(mark)):
                known = [{named.name: named.config} for named in case.checks]
                new = [
                    read_checks(check, f"feedback on {case.id}")
                    for check in checks
                    if check not in known
                ]
                cases[case.id] = replace(case, checks=(*case.checks, *chain.from_iterable(new)))
        return replace(suite, cases=tuple(cases.values()))

    def _stronger(self, mark: Mark) -> list[dict[str, Any]]:
        if mark.remark.verdict != "wrong" or mark.passed is not True:
            return []
        checks: list[dict[str, Any]] = []
        if 0 < len(mark.answer) <= MAX_FORBIDDEN:
            same = r"\s+".join(map(re.escape, mark.answer.split()))
            checks.append({"not_regex": rf"\A\s*{same}\s*\Z"})
        if self.judged and mark.remark.note:
            criterion = f"The answer does not have what a person found wrong with another: {mark.remark.note}"
            checks.append({"judge": criterion})
        return checks

    def outcomes(self) -> list[str]:
        cut = f" (only the first {MAX_NOTE:,} characters of the note)"
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
        added = (
            f"its case got a stronger check ({stronger})"
            if stronger
            else "its case stays as it was, because no check fits"
        )
        return f"passed its checks but is wrong: shown to the teacher as a failure, and {added}"


def read_marks(
    paths: Iterable[str],
    skill: Skill,
    suite: Suite | None,
    store: Store | None,
    location: str,
    *,
    judged: bool = False,
) -> Feedback:
    remarks = [remark for path in paths for remark in read_feedback(path) if not remark.takes_back]
    with nullcontext(store) if store else find_store(location) or nullcontext() as opened:
        runs = {name: _find_run(opened, name) for name in {remark.run for remark in remarks}}
        marks = [_mark(remark, runs[remark.run], opened, skill, suite) for remark in remarks]
    return Feedback(tuple(marks), judged)


def _find_run(store: Store | None, name: str) -> Run | None:
    try:
        run = store.run(name) if store and name else None
    except UsageError:
        return None
    return run if run and run.id == name else None


def _mark(
    remark: Remark, run: Run | None, store: Store | None, skill: Skill, suite: Suite | None
) -> Mark:
    trial = trial_of(remark, run) if run else None
    result = store.result(run, trial) if store and run and trial else None
    ids = [case.id for case in suite.cases] if suite else []
    case = trial.case if trial else find_case(remark.case, ids) or ""
    stored = run.plan.suite.by_id.get(case) if run else None
    own = suite.by_id.get(case) if suite else None
    prompt = stored.prompt if stored else own.prompt if own else ""
    answer = result.trace.answer if result and result.trace else ""
    passed = result.passed if result else None
    # Held out here or in the run, under whatever id.
    hidden = bool(
        (stored and stored.held_out)
        or (suite and prompt in {case.prompt for case in suite.held_out})
    )
    unusable = ""
    if run and run.skill != skill.name:
        unusable = f"about another skill, {run.skill}: left out"
    elif not prompt:
        unusable = "no such case in the store or the suite: left out"
    elif hidden or (own and own.held_out):
        unusable = "a held-out case: not shown to the teacher, or its result would mean nothing"
    elif remark.arm not in ("", "skill"):
        unusable = f"an answer from the {remark.arm} arm, without this skill: nothing to fix"
    elif remark.verdict == "right":
        doubt = ", although its checks failed it: they may be too strict" if passed is False else ""
        unusable = f"right{doubt}"
    return Mark(remark, case, prompt, answer, passed, unusable)
