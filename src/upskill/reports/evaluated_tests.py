"""An evaluation as tests, for JUnit: requirements and cases.

Red only if the command fails: a failing case is a failure only if a requirement on the pass rate, the lift or the
decision does not hold for its model. Otherwise it is skipped, with the same details.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from upskill.plain import counted
from upskill.reports.numbers import INVALID, UNKNOWN, points
from upskill.reports.remarks import bug_heading, describe_leak
from upskill.reports.report import Test, TestSuite
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.verdicts.line import describe_verdict, signed_points, verdict_line
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
    details: dict[tuple[str, str], str] = {}
    for result in failed():
        prompt = evaluation.run.plan.suite.by_id[result.trial.case].prompt
        details.setdefault((result.trial.model, result.trial.case), _describe(result, prompt))
    for verdict in evaluation.verdicts:
        notes = [verdict_line(verdict), *verdict.caveats]
        notes += [f"Note: {line}" for line in evaluation.warnings]
        yield TestSuite(
            name=evaluation.full_names[verdict.model],
            properties=dict(_properties(verdict)),
            tests=tuple(_tests(evaluation, verdict, details)),
            output="".join(f"{line}\n" for line in notes),
        )


def _tests(evaluation: Evaluation, verdict: Verdict, details: Details) -> Iterator[Test]:
    tests: list[Test] = []
    for trial, reason in evaluation.invalid[:1]:
        message = f"{INVALID} ({describe_leak(trial, reason)})"
        tests.append(Test("isolation", "the arms are isolated", "error", message))
    bugs = [traceback for trial, _, traceback in evaluation.bugs if trial.model == verdict.model]
    if bugs:
        name = "no trial hits a bug in upskill"
        tests.append(Test("upskill", name, "error", bug_heading(len(bugs)), bugs[0]))
    rulings = [ruling for model, ruling in evaluation.rulings if model == verdict.model]
    for ruling in rulings:
        test = Test("requirement", ruling.requirement.text)
        if not ruling.held:
            test = Test("requirement", ruling.requirement.text, "failure", ruling.reason)
        tests.append(test)
    tests += _cases(evaluation, verdict.model, rulings, details)
    yield from tests
    has_error = any(test.kind == "error" for test in tests)
    if verdict.reason == Reason.ERRORS and not has_error:  # those of the baseline
        yield Test("upskill", "enough trials are graded", "error", describe_verdict(verdict))


def _cases(
    evaluation: Evaluation, model: str, rulings: Sequence[Ruling], details: Details
) -> Iterator[Test]:
    about_cases = [each for each in rulings if each.requirement.quantity in ABOUT_CASES]
    required = [ruling.requirement.text for ruling in about_cases]
    missed = any(not ruling.held for ruling in about_cases)
    holds = f"{', '.join(required)} holds" if required else "no requirement covers it"
    group = " and ".join(required) or evaluation.plan.skill.name
    unfinished = evaluation.unfinished.get(model)
    by_case: dict[str, list[Outcome]] = {}
    for row in evaluation.outcomes_of(model):
        if row.arm == "skill" and unfinished is None:
            by_case.setdefault(row.case, []).append(row)
    for case in evaluation.plan.suite.cases:
        rows = by_case.get(case.id, [])
        seconds = sum(row.seconds for row in rows)
        passed = [row.passed for row in rows]
        if rows and all(passed):
            yield Test(group, case.id, seconds=seconds)
            continue
        message = f"{passed.count(True)} of {counted(len(rows), 'run')} passed with the skill"
        kind = "failure" if missed else "skipped"
        if not rows or None in passed:
            kind = "error" if missed or evaluation.has_failed else "skipped"
            message = "missing; see `upskill show`" if rows else str(unfinished or "not run")
        if kind == "skipped":
            message += f"; allowed: {holds}"
        described = details.get((model, case.id), "") if rows else ""
        yield Test(group, case.id, kind, message, described, seconds=seconds)


def _properties(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Of both readings: the one in the heading, and the other."""
    for prefix, reading in (("", verdict.heading), ("other:", verdict.other)):
        if reading is not None:
            interval = reading.interval and " to ".join(map(signed_points, reading.interval))
            yield f"{prefix}decision", reading.decision
            yield f"{prefix}about", reading.about
            yield f"{prefix}reason", reading.reason or ""
            yield f"{prefix}lift", points(reading.lift)
            yield f"{prefix}interval", interval or UNKNOWN


def _describe(result: Result, prompt: str) -> str:
    """A trial that did not pass: prompt, answer and findings."""
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
