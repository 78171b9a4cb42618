"""`junit`: a report's tests, for CI systems."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from upskill.reports.report import Report, TestSuite

# XML 1.0 cannot hold these, not even escaped.
_NOT_IN_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "\ufffd")
KINDS = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))


def render(report: Report) -> str:
    root = ET.Element("testsuites", name=_clean(f"upskill {report.name}"))
    for suite in report.tests():
        _add_suite(root, suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_suite(root: ET.Element, suite: TestSuite) -> None:
    element = ET.SubElement(root, "testsuite", name=_clean(suite.name))
    if suite.properties:
        properties = ET.SubElement(element, "properties")
        for name, value in suite.properties.items():
            ET.SubElement(properties, "property", name=name, value=_clean(value))
    for test in suite.tests:
        case = ET.SubElement(
            element,
            "testcase",
            classname=_clean(test.group),
            name=_clean(test.name),
            time=f"{test.seconds:.3f}",
        )
        if test.kind:
            problem = ET.SubElement(case, test.kind, message=_clean(test.message))
            problem.text = _clean(test.details) or None
        if test.output:
            ET.SubElement(case, "system-out").text = _clean(test.output)
    if suite.output:
        ET.SubElement(element, "system-out").text = _clean(suite.output)
    element.set("tests", str(len(suite.tests)))
    for name, kind in KINDS:
        element.set(name, str(sum(test.kind == kind for test in suite.tests)))


def _clean(text: str) -> str:
    return text.translate(_NOT_IN_XML)
