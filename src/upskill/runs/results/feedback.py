"""Feedback: what people say about answers, and how well checks agree with them.

`feedback.json` has skill-creator's shape plus what identifies a trial; skill-creator's own file is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from upskill.errors import UsageError
from upskill.inputs import read_input_text
from upskill.plain import counted
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.stores import Review, Run, Store
from upskill.runs.stores.rows import FeedbackVerdict, timestamp

if TYPE_CHECKING:
    from upskill.verdicts.agreement import Agreement

MAX_NOTE = 10_000  # characters
MAX_BYTES = 20_000_000
MAX_SEED = 2**63 - 1  # that a store can hold
# What skill-creator calls the two sides of an evaluation, and what we call them.
_ARMS: Mapping[str, Arm] = {
    "with_skill": "skill",
    "new_skill": "skill",
    "without_skill": "baseline",
    "old_skill": "baseline",
}
_SKILL_CREATOR = re.compile(
    rf"eval[-_](?P<case>.+?)[-_/](?P<arm>{'|'.join(_ARMS)})(?:[-_/]run[-_]?(?P<run>\d{{1,9}}))?/?"
)


@dataclass(frozen=True, slots=True)
class Remark:
    """One review of a file, as far as it says which answer it is about."""

    verdict: FeedbackVerdict  # empty: a note alone
    note: str = ""
    run: str = ""  # the id of the run
    case: str = ""  # its id, or in skill-creator's files its number
    model: str = ""
    arm: str = ""
    seed: int | None = None
    created: str = ""
    name: str = ""  # what the file calls it
    draw: int = 1  # which answer of several to one case, where there is no seed
    cut: bool = False  # its note was longer than what is kept

    @property
    def takes_back(self) -> bool:
        """Whether it only withdraws what was said before."""
        return not self.verdict and not self.note


class _Review(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    run_id: str = ""
    case: str = ""
    model: str = ""
    arm: str = ""
    seed: int | None = Field(None, ge=-MAX_SEED, le=MAX_SEED)
    verdict: str = ""
    feedback: str = ""
    timestamp: str = ""

    @field_validator(
        "run_id", "case", "model", "arm", "verdict", "feedback", "timestamp", mode="before"
    )
    @classmethod
    def _nothing(cls, value: object) -> object:
        return "" if value is None else value


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    run: str | None = None
    skill: str | None = None
    reviews: list[_Review]
    status: str | None = None


def read_feedback(path: str | Path) -> list[Remark]:
    hint = "Use a file exported by `upskill view` or a report, or skill-creator's feedback.json."
    try:
        document: object = json.loads(read_input_text(path, most=MAX_BYTES, hint=hint))
        file = _File.model_validate(
            {"reviews": document} if isinstance(document, list) else document
        )
    except (ValueError, RecursionError) as error:
        why = f"it is not JSON ({error})"
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            message = first["msg"].removesuffix(f" or instance of {_Review.__name__}")
            why = ": ".join(filter(None, (".".join(map(str, first["loc"])), message)))
        raise UsageError(f"{path}: not a feedback file: {why}", hint) from error
    remarks = (_remark(review, file, path) for review in file.reviews)
    return [remark for remark in remarks if remark is not None]


def _remark(review: _Review, file: _File, path: str | Path) -> Remark | None:
    verdict, note = review.verdict.strip().lower(), review.feedback.strip()
    if verdict not in ("", *get_args(FeedbackVerdict)):
        raise UsageError(
            f"{path}: {review.run_id or review.case}: unknown verdict {review.verdict!r}",
            "Use right, wrong or odd.",
        )
    case, arm = review.case, review.arm
    theirs = _SKILL_CREATOR.fullmatch(review.run_id) if not case else None
    if theirs:
        case, arm = theirs["case"], _ARMS[theirs["arm"]]
        if not verdict and not note and file.status == "complete":
            verdict = "right"  # so skill-creator has it: who says nothing of an answer has nothing against it
    if not verdict and not note and (theirs or not case):
        return None
    return Remark(
        cast("FeedbackVerdict", verdict),
        note[:MAX_NOTE],
        file.run or "",
        case,
        review.model,
        arm,
        review.seed,
        review.timestamp,
        review.run_id,
        draw=int(theirs["run"]) if theirs and theirs["run"] else 1,
        cut=len(note) > MAX_NOTE,
    )


def feedback_document(run: Run, reviews: Iterable[Review]) -> dict[str, Any]:
    return {
        "run": run.id,
        "skill": run.skill,
        "reviews": [
            {
                "run_id": "/".join([run.id, trial.case, trial.model, trial.arm, str(trial.seed)]),
                "case": trial.case,
                "model": trial.model,
                "arm": trial.arm,
                "seed": trial.seed,
                "verdict": review.verdict,
                "feedback": review.note,
                "timestamp": review.created,
            }
            for review in reviews
            for trial in [review.trial]
        ],
        "status": "complete",
    }


def trial_of(remark: Remark, run: Run) -> Trial | None:
    """None where the remark does not say which trial, or the run has no such trial."""
    plan = run.plan
    case = find_case(remark.case, [case.id for case in plan.suite.cases])
    model = remark.model or (run.models[0] if len(run.models) == 1 else "")
    seed = plan.seed + remark.draw - 1 if remark.seed is None else remark.seed
    if case is None or model not in run.models or remark.arm not in plan.arms:
        return None
    return Trial(model, case, remark.arm, seed)


def find_case(name: str, ids: list[str]) -> str | None:
    """By its id, with or without skill-creator's `eval-`, or by its place in the suite, from 0."""
    for known in (name, f"eval-{name}"):
        if known in ids:
            return known
    return ids[int(name)] if name.isdecimal() and len(name) < 9 and int(name) < len(ids) else None


@dataclass(slots=True)
class Imported:
    stored: int = 0
    taken_back: int = 0  # reviews that were stored, and are no more
    other_run: int = 0  # reviews of other runs
    older: int = 0  # reviews from before what is stored of the same answer
    cut: int = 0  # notes that were too long to be kept whole
    unknown: list[str] = field(
        default_factory=list[str]
    )  # what the file calls the answers that the run does not have
    no_model: list[str] = field(
        default_factory=list[str]
    )  # and those that any of its models may have given


def import_feedback(store: Store, run: Run, path: str | Path, model: str = "") -> Imported:
    """`model`: whose answers are meant where the file does not say."""
    if model and model not in run.models:
        raise UsageError(f"{run.id}: no model named {model!r}", f"It has {', '.join(run.models)}.")
    imported = Imported()
    known = {review.trial: review for review in store.reviews(run)}
    for remark in read_feedback(path):
        if remark.run and remark.run != run.id:
            imported.other_run += 1
            continue
        resolved = replace(remark, model=remark.model or model)
        trial = trial_of(resolved, run)
        if remark.takes_back and trial not in known:
            continue
        if trial is None or store.result(run, trial) is None:
            is_open = (
                not resolved.model
                and trial_of(replace(resolved, model=run.models[0]), run) is not None
            )
            (imported.no_model if is_open else imported.unknown).append(remark.name or remark.case)
            continue
        review = Review(
            trial,
            remark.verdict,
            remark.note,
            remark.created if _time(remark.created) else timestamp(),
        )
        if trial in known and _time(known[trial].created) > _time(review.created):
            imported.older += 1
            continue
        if remark.takes_back:
            store.remove_review(run, trial)
            del known[trial]
            imported.taken_back += 1
            continue
        store.add_review(run, review)
        known[trial] = review
        imported.stored += 1
        imported.cut += remark.cut
    return imported


def _time(text: str) -> str:
    """In UTC, so that times sort; empty where that is no time."""
    try:
        time = datetime.fromisoformat(text)
        return (
            (time if time.tzinfo else time.replace(tzinfo=UTC))
            .astimezone(UTC)
            .isoformat(timespec="milliseconds")
        )
    except (ValueError, OverflowError):
        return ""


# Agreement.


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """What people said of a run, and how well its checks agree with them."""

    marks: Mapping[str, int]  # by verdict: how many answers got it; notes alone under ""
    outcome: Agreement  # of all checks of a trial together
    checks: Mapping[str, Agreement]  # by kind of check, `judge` among them
    reviews: Sequence[Review] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "marks": {name or "note": count for name, count in self.marks.items()},
            "outcome": self.outcome.to_dict(),
            "checks": [
                {"check": name} | agreement.to_dict() for name, agreement in self.checks.items()
            ],
        }

    def lines(self) -> list[str]:
        marks = ", ".join(
            f"{count} {name or 'with only a note'}" for name, count in self.marks.items()
        )
        lines = [f"People marked {counted(sum(self.marks.values()), 'answer')}: {marks}."]
        if self.outcome.ratings:
            lines.append(f"The outcome agrees with them {_describe(self.outcome)}.")
            lines += [
                f"{name} alone agrees {_describe(agreement)}."
                for name, agreement in self.checks.items()
                if len(self.checks) > 1
            ]
        return lines


def _describe(agreement: Agreement) -> str:
    times = f"{agreement.agreed} of {agreement.ratings} times"
    if agreement.ratings == 1:
        return f"{times}; one rating is too few for a kappa"
    if agreement.kappa is None or agreement.interval is None:
        return f"{times}; kappa is undefined because both sides always give the same rating"
    low, high = agreement.interval
    wrong = f"; {agreement.only_check} passed but marked wrong" if agreement.only_check else ""
    strict = f"; {agreement.only_person} failed but marked right" if agreement.only_person else ""
    return f"{times}, kappa {agreement.kappa:.2f} ({low:.2f} to {high:.2f}){wrong}{strict}"


def agreement_with_people(store: Store, run: Run) -> PeopleAgreement | None:
    """None without feedback. Odd and errored answers do not count."""
    reviews = store.reviews(run)
    if not reviews:
        return None
    from upskill.verdicts.agreement import measure_agreement  # noqa: PLC0415 - numpy comes with it

    verdicts = [review.verdict for review in reviews]
    marks = {
        verdict: verdicts.count(verdict)
        for verdict in get_args(FeedbackVerdict)
        if verdict in verdicts
    }
    outcomes: list[tuple[str, bool, bool]] = []
    checks: dict[str, list[tuple[str, bool, bool]]] = {}
    for review in reviews:
        result = store.result(run, review.trial) if review.verdict in ("right", "wrong") else None
        if result is None or result.passed is None:
            continue
        right = review.verdict == "right"
        outcomes.append((review.trial.case, right, result.passed))
        for finding in result.findings:
            if finding.decides:
                checks.setdefault(finding.check, []).append(
                    (review.trial.case, right, finding.passed)
                )
    by_check = {name: measure_agreement(rows) for name, rows in sorted(checks.items())}
    return PeopleAgreement(marks, measure_agreement(outcomes), by_check, reviews)
