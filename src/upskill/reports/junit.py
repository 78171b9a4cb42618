from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict

from upskill.plain import counted
from upskill.reports import ReportContext
from upskill.reports.numbers import interval_in_points, points
from upskill.reports.view import bug_heading, describe_leak, view_of
from upskill.runs.results.evaluation import Evaluation
from upskill.verdicts.advice import INVALID
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

# XML 1.0 has no form for these, not even an escaped one.
_NOT_IN_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "�")


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    view = view_of(evaluation)
    root = ET.Element("testsuites", name=_clean(f"upskill {evaluation.plan.skill.name}"))
    for verdict in evaluation.verdicts:
        replayed = f" ({verdict.replayed})" if verdict.replayed else ""
        suite = ET.SubElement(root, "testsuite", name=_clean(f"{evaluation.full_names[verdict.model]}{replayed}"))
        _add_properties(suite, verdict)
        failures = errors = tests = 0
        for trial, reason in evaluation.invalid[:1]:  # the first says it: none of these results means anything
            tests, errors = tests + 1, errors + 1
            message = f"{INVALID} ({describe_leak(trial, reason)})"
            _say(_test(suite, "isolation", "the arms are apart"), "error", message)
        if bugs := [bug for bug in evaluation.bugs if bug[0].model == verdict.model]:
            tests, errors = tests + 1, errors + 1
            test = _test(suite, "upskill", "no trial hits a bug in upskill")
            ET.SubElement(test, "error", message=_clean(bug_heading(len(bugs)))).text = _clean(bugs[0][2])
        for model, ruling in evaluation.rulings:
            if model != verdict.model:
                continue
            tests += 1
            test = _test(suite, "requirement", ruling.requirement.text)
            if not ruling.held:
                failures += 1
                _say(test, "failure", ruling.reason)
        by_case: dict[str, list[Outcome]] = defaultdict(list)
        for row in evaluation.outcomes_of(verdict.model):
            if row.arm == "skill":
                by_case[row.case].append(row)
        for case in evaluation.plan.suite.cases:
            rows = [] if verdict.model in evaluation.unfinished else by_case[case.id]
            tests += 1
            test = _test(suite, evaluation.plan.skill.name, case.id, sum(row.seconds for row in rows))
            if not rows or any(row.passed is None for row in rows):
                errors += 1
                why = str(evaluation.unfinished.get(verdict.model, "not run"))
                _say(test, "error", "errored; see `upskill show`" if rows else why)
            elif not all(row.passed for row in rows):
                failures += 1
                passed = sum(bool(row.passed) for row in rows)
                _say(test, "failure", f"{passed} of {counted(len(rows), 'run')} passed with the skill")
        if notes := [*filter(None, [view.replayed]), *view.looks, *evaluation.warnings]:
            ET.SubElement(suite, "system-out").text = _clean("".join(f"Note: {line}\n" for line in notes))
        suite.set("tests", str(tests))
        suite.set("failures", str(failures))
        suite.set("errors", str(errors))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_properties(suite: ET.Element, verdict: Verdict) -> None:
    """The verdict in both scopes: on tasks like these cases, and on exactly these."""
    scopes = [("", verdict.decision, verdict.reason, verdict.interval)]
    if these := verdict.these_cases:
        scopes.append(("these:", these.decision, these.reason, these.lift.interval))
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="look", value=str(verdict.look))
    for scope, decision, reason, interval in scopes:
        named = {"decision": decision, "reason": reason, "lift": points(verdict.lift)}
        for name, value in (named | {"interval": interval_in_points(interval)}).items():
            ET.SubElement(properties, "property", name=f"{scope}{name}", value=_clean(value))


def _test(suite: ET.Element, group: str, name: str, seconds: float = 0.0) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(group), name=_clean(name), time=f"{seconds:.3f}")


def _say(test: ET.Element, kind: str, message: str) -> None:
    ET.SubElement(test, kind, message=_clean(message))


def _clean(text: str) -> str:
    return text.translate(_NOT_IN_XML)
