"""What a refiner may see of failed trials: shown cases only, with the expected texts masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from upskill.authoring.revising import MASK, Failure
from upskill.checks import SuiteCheck
from upskill.errors import UsageError
from upskill.models import Address
from upskill.plain import as_list, as_mapping, quoted
from upskill.runs.planning.plan import Result
from upskill.runs.stores import Run, Store
from upskill.skills import Skill
from upskill.suites import Case, Suite

UNMASKED_CHECKS = (
    "extract",
    "compiles",
)  # their texts are file names and languages, which no answer has to guess


def failures_in_run(
    store: Store,
    run: Run,
    cases: Mapping[str, Case],
    model: str = "",
) -> list[Failure]:
    failures: dict[str, Failure] = {}
    for result in store.results(run):
        case = cases.get(result.trial.case)
        if (
            result.trial.arm != "skill"
            or result.passed is not False
            or case is None
            or case.held_out
        ):
            continue
        if not model or result.trial.model == model:
            failures.setdefault(case.id, _failure(case, result))
    return list(failures.values())


def stored_failures(
    store: Store, skill: Skill, student: Address, suite: Suite | None = None
) -> list[Failure]:
    """Failures of this student with this skill in earlier runs, on cases that the suite neither has nor holds out."""
    hidden = {case.prompt for case in suite.held_out} if suite else set[str]()
    known = {case.id for case in suite.train} if suite else set[str]()
    failures: dict[str, Failure] = {}
    for run in store.runs():
        if run.plan.skill.visible_hash != skill.visible_hash or student.name not in run.models:
            continue
        try:
            cases = Suite.parse({"cases": run.plan.suite.to_dict()["cases"]}, run.id).by_id
        except UsageError:  # it uses a check of a package that is no longer installed
            continue
        for failure in failures_in_run(store, run, cases, model=student.name):
            if failure.prompt not in hidden and failure.case not in known:
                failures[failure.case] = failure
    return list(failures.values())


def _failure(case: Case, result: Result) -> Failure:
    reasons: list[str] = []
    for named, finding in zip(case.checks, result.findings, strict=False):
        if finding.decides and not finding.passed:
            reasons.append(f"{finding.check}: {mask_expected(named, finding.reason)}")
    files = "".join(f"{name}:\n{text}\n\n" for name, text in case.files.items())
    answer = result.trace.answer if result.trace else ""
    return Failure(case.id, files + case.prompt, answer, tuple(reasons), case.evidence)


def mask_expected(named: SuiteCheck, reason: str) -> str:
    """Hide the texts that a check looked for: a skill should teach facts, not answers to tests."""
    if named.name in UNMASKED_CHECKS:
        return reason
    for text in sorted(set(_texts(named.config)), key=len, reverse=True):
        # As a message quotes it: with both kinds of quotes in it, one kind is escaped.
        for shown in (repr(text), quoted(text)):
            reason = reason.replace(shown, MASK)
            if len(text) >= 4:
                reason = reason.replace(shown[1:-1], MASK)
        if len(text) >= 4:
            reason = reason.replace(text, MASK)
    return reason


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif (items := as_list(value)) is not None:
        for item in items:
            yield from _texts(item)
    elif (fields := as_mapping(value)) is not None:
        for item in fields.values():
            yield from _texts(item)
