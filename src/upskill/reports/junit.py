"""Red only if the command fails: a failing case is a failure only if a requirement on the pass rate, the lift or the
decision does not hold for its model. Otherwise it is skipped, with the same details."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping, Sequence

from upskill.plain import counted
from upskill.reports import ReportContext
from upskill.reports.numbers import INVALID, interval_in_points, points
from upskill.reports.view import bug_heading, describe_leak
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.verdicts.line import describe_verdict, verdict_line
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Reason, Verdict

# XML 1.0 cannot hold these, not even escaped.
_NOT_IN_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "�")
MAX_ANSWER = 4_000  # characters
ABOUT_CASES = ("lift", "pass_rate", "decision")  # what failing cases count against


def render(evaluation: Evaluation, context: ReportContext | None = None) -> str:
    details = _details(evaluation, context)
    root = ET.Element("testsuites", name=_clean(f"upskill {evaluation.plan.skill.name}"))
    for verdict in evaluation.verdicts:
        name = _clean(evaluation.full_names[verdict.model])
        suite = ET.SubElement(root, "testsuite", name=name)
        _add_properties(suite, verdict)
        for trial, reason in evaluation.invalid[:1]:  # the first test says that no result is valid
            message = f"{INVALID} ({describe_leak(trial, reason)})"
            _say(_test(suite, "isolation", "the arms are isolated"), "error", message)
        if bugs := [bug for bug in evaluation.bugs if bug[0].model == verdict.model]:
            test = _test(suite, "upskill", "no trial hits a bug in upskill")
            _say(test, "error", bug_heading(len(bugs)), bugs[0][2])
        rulings = [ruling for model, ruling in evaluation.rulings if model == verdict.model]
        for ruling in rulings:
            test = _test(suite, "requirement", ruling.requirement.text)
            if not ruling.held:
                _say(test, "failure", ruling.reason)
        _add_cases(suite, evaluation, verdict.model, rulings, details)
        has_error = suite.find("testcase/error") is not None
        if verdict.reason == Reason.ERRORS and not has_error:  # those of the baseline
            test = _test(suite, "upskill", "enough trials are graded")
            _say(test, "error", describe_verdict(verdict))
        notes = [verdict_line(verdict), *verdict.caveats]
        notes += (f"Note: {line}" for line in evaluation.warnings)
        ET.SubElement(suite, "system-out").text = _clean("".join(f"{line}\n" for line in notes))
        suite.set("tests", str(len(suite.findall("testcase"))))
        for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_cases(
    suite: ET.Element,
    evaluation: Evaluation,
    model: str,
    rulings: Sequence[Ruling],
    details: Mapping[tuple[str, str], str],
) -> None:
    serves = [ruling for ruling in rulings if ruling.requirement.quantity in ABOUT_CASES]
    required, missed = (
        [ruling.requirement.text for ruling in serves],
        any(not ruling.held for ruling in serves),
    )
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for row in evaluation.outcomes_of(model) if model not in evaluation.unfinished else ():
        if row.arm == "skill":
            by_case[row.case].append(row)
    for case in evaluation.plan.suite.cases:
        rows = by_case[case.id]
        group = " and ".join(required) or evaluation.plan.skill.name
        test = _test(suite, group, case.id, sum(row.seconds for row in rows))
        if rows and all(row.passed for row in rows):
            continue
        kind = "failure" if missed else "skipped"
        message = f"{sum(bool(row.passed) for row in rows)} of {counted(len(rows), 'run')} passed with the skill"
        if not rows or any(row.passed is None for row in rows):
            kind = "error" if missed or evaluation.has_failed else "skipped"
            message = (
                "missing; see `upskill show`"
                if rows
                else str(evaluation.unfinished.get(model, "not run"))
            )
        if kind == "skipped":
            holds = f"{', '.join(required)} holds" if required else "no requirement covers it"
            message += f"; allowed: {holds}"
        _say(test, kind, message, details.get((model, case.id), "") if rows else "")


def _add_properties(suite: ET.Element, verdict: Verdict) -> None:
    """Of both readings: the one in the heading, and the other."""
    properties = ET.SubElement(suite, "properties")
    for prefix, reading in (("", verdict.heading), ("other:", verdict.other)):
        if reading is None:
            continue
        named = {
            "decision": reading.decision,
            "about": reading.about,
            "reason": reading.reason or "",
            "lift": points(reading.lift),
            "interval": interval_in_points(reading.interval),
        }
        for name, value in named.items():
            ET.SubElement(properties, "property", name=f"{prefix}{name}", value=_clean(value))


def _test(suite: ET.Element, group: str, name: str, seconds: float = 0.0) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=_clean(group), name=_clean(name), time=f"{seconds:.3f}"
    )


def _say(test: ET.Element, kind: str, message: str, text: str = "") -> None:
    ET.SubElement(test, kind, message=_clean(message)).text = _clean(text) or None


def _details(
    evaluation: Evaluation, context: ReportContext | None
) -> Mapping[tuple[str, str], str]:
    """Of the first trial of each model and case that did not pass with the skill: prompt, answer and findings."""
    details: dict[tuple[str, str], str] = {}
    for result in context.results() if context and context.results else ():
        key = (result.trial.model, result.trial.case)
        if result.trial.arm == "skill" and not result.passed and key not in details:
            prompt = evaluation.run.plan.suite.by_id[result.trial.case].prompt
            details[key] = _describe(result, prompt)
    return details


def _describe(result: Result, prompt: str) -> str:
    answer = result.trace.answer if result.trace else ""
    cut = f"{answer[:MAX_ANSWER]}\n…" if len(answer) > MAX_ANSWER else answer
    failed = [
        f"{each.check}: {each.reason}"
        for each in result.findings
        if each.decides and not each.passed
    ]
    why = "\n".join(filter(None, [result.error, *failed]))
    return f"\nPrompt:\n{prompt.strip()}\n\nAnswer (seed {result.trial.seed}):\n{cut.strip()}\n\nFailed:\n{why}\n"


def _clean(text: str) -> str:
    return text.translate(_NOT_IN_XML)
