"""What a refiner may see of failed trials: shown cases only, with the expected texts masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from upskill.authoring.revising import MASK, Failure
from upskill.checks import SuiteCheck
from upskill.plain import as_list, as_mapping, quoted
from upskill.runs.planning.plan import Result
from upskill.runs.stores import Run, Store
from upskill.suites import Case

UNMASKED_CHECKS = (
    "extract",
    "compiles",
)  # their texts are file names and languages, which no answer has to guess


def failures_in_run(store: Store, run: Run, cases: Mapping[str, Case]) -> list[Failure]:
    failures: dict[str, Failure] = {}
    for result in store.results(run):
        case, trial = cases.get(result.trial.case), result.trial
        is_failure = trial.arm == "skill" and result.passed is False
        if is_failure and case and not case.held_out:
            failures.setdefault(case.id, _failure(case, result))
    return list(failures.values())


def _failure(case: Case, result: Result) -> Failure:
    reasons = tuple(
        f"{finding.check}: {mask_expected(named, finding.reason)}"
        for named, finding in zip(case.checks, result.findings, strict=False)
        if finding.decides and not finding.passed
    )
    files = "".join(f"{name}:\n{text}\n\n" for name, text in case.files.items())
    answer = result.trace.answer if result.trace else ""
    return Failure(case.id, files + case.prompt, answer, reasons, case.evidence)


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
