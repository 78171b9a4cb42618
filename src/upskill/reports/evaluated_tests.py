"""An evaluation as tests, for JUnit: requirements and cases.

Red only if the command fails: a failing case is a failure only if a requirement on the pass rate, the lift or the
decision does not hold for its model. Otherwise it is skipped, with the same details.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from upskill.plain import counted
from upskill.reports.numbers import INVALID, interval_in_points, points
from upskill.reports.remarks import bug_heading, describe_leak
from upskill.reports.report import Test, TestSuite
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.verdicts.line import describe_verdict, verdict_line
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Reason, Verdict

MAX_ANSWER = 4_000  # characters
ABOUT_CASES = ("lift", "pass_rate", "decision")  # what failing cases count against
Details = Mapping[tuple[str, str], str]  # by model and case


def test_suites(
    evaluation: Evaluation, failed: Callable[[], Iterable[Result]]
) -> Iterator[TestSuite]:
    """A suite for each model. `failed`: the trials with the skill that did not pass."""
    details = _details(evaluation, failed())
    for verdict in evaluation.verdicts:
        notes = [verdict_line(verdict), *verdict.caveats]
        notes += [f"Note: {line}" for line in evaluation.warnings]
        yield TestSuite(
            name=evaluation.full_names[verdict.model],
            properties=tuple(_properties(verdict)),
            tests=tuple(_tests(evaluation, verdict, details)),
            output="".join(f"{line}\n" for line in notes),
        )


def _tests(evaluation: Evaluation, verdict: Verdict, details: Details) -> Iterator[Test]:
    has_error = False
    for trial, reason in evaluation.invalid[:1]:
        has_error = True
        message = f"{INVALID} ({describe_leak(trial, reason)})"
        yield Test(group="isolation", name="the arms are isolated", kind="error", message=message)
    bugs = [traceback for trial, _, traceback in evaluation.bugs if trial.model == verdict.model]
    if bugs:
        has_error = True
        yield Test(
            group="upskill",
            name="no trial hits a bug in upskill",
            kind="error",
            message=bug_heading(len(bugs)),
            details=bugs[0],
        )
    rulings = [ruling for model, ruling in evaluation.rulings if model == verdict.model]
    for ruling in rulings:
        name = ruling.requirement.text
        if ruling.held:
            yield Test(group="requirement", name=name)
        else:
            yield Test(group="requirement", name=name, kind="failure", message=ruling.reason)
    for test in _cases(evaluation, verdict.model, rulings, details):
        has_error = has_error or test.kind == "error"
        yield test
    if verdict.reason == Reason.ERRORS and not has_error:  # those of the baseline
        yield Test(
            group="upskill",
            name="enough trials are graded",
            kind="error",
            message=describe_verdict(verdict),
        )


def _cases(
    evaluation: Evaluation, model: str, rulings: Sequence[Ruling], details: Details
) -> Iterator[Test]:
    about_cases = [each for each in rulings if each.requirement.quantity in ABOUT_CASES]
    required = [ruling.requirement.text for ruling in about_cases]
    missed = any(not ruling.held for ruling in about_cases)
    holds = f"{', '.join(required)} holds" if required else "no requirement covers it"
    unfinished = evaluation.unfinished.get(model)
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for row in evaluation.outcomes_of(model):
        if row.arm == "skill" and unfinished is None:
            by_case[row.case].append(row)
    for case in evaluation.plan.suite.cases:
        rows = by_case[case.id]
        group = " and ".join(required) or evaluation.plan.skill.name
        seconds = sum(row.seconds for row in rows)
        if rows and all(row.passed for row in rows):
            yield Test(group=group, name=case.id, seconds=seconds)
            continue
        passed = sum(bool(row.passed) for row in rows)
        message = f"{passed} of {counted(len(rows), 'run')} passed with the skill"
        kind = "failure" if missed else "skipped"
        if not rows or any(row.passed is None for row in rows):
            kind = "error" if missed or evaluation.has_failed else "skipped"
            message = "missing; see `upskill show`" if rows else str(unfinished or "not run")
        if kind == "skipped":
            message += f"; allowed: {holds}"
        yield Test(
            group=group,
            name=case.id,
            seconds=seconds,
            kind=kind,
            message=message,
            details=details.get((model, case.id), "") if rows else "",
        )


def _properties(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Of both readings: the one in the heading, and the other."""
    for prefix, reading in (("", verdict.heading), ("other:", verdict.other)):
        if reading is not None:
            yield f"{prefix}decision", reading.decision
            yield f"{prefix}about", reading.about
            yield f"{prefix}reason", reading.reason or ""
            yield f"{prefix}lift", points(reading.lift)
            yield f"{prefix}interval", interval_in_points(reading.interval)


def _details(evaluation: Evaluation, failed: Iterable[Result]) -> Details:
    """Of the first trial of each model and case that did not pass: prompt, answer and findings."""
    details: dict[tuple[str, str], str] = {}
    for result in failed:
        key = (result.trial.model, result.trial.case)
        if key not in details:
            prompt = evaluation.run.plan.suite.by_id[result.trial.case].prompt
            details[key] = _describe(result, prompt)
    return details


def _describe(result: Result, prompt: str) -> str:
    answer = result.trace.answer if result.trace else ""
    if len(answer) > MAX_ANSWER:
        answer = f"{answer[:MAX_ANSWER]}\n…"
    why = [result.error] if result.error else []
    for finding in result.findings:
        if finding.decides and not finding.passed:
            why.append(f"{finding.check}: {finding.reason}")
    parts = {
        "Prompt": prompt.strip(),
        f"Answer (seed {result.trial.seed})": answer.strip(),
        "Failed": "\n".join(why),
    }
    return "\n" + "\n\n".join(f"{name}:\n{text}" for name, text in parts.items()) + "\n"
