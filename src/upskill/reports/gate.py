"""The result of `upskill ci`: a Markdown summary for a pull request, and JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from upskill.plain import counted, printable
from upskill.reports.numbers import UNKNOWN, before_after, interval_in_points, pass_rate, points
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.gate import Checked, Gate
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

MARKS = {"ok": "✅", "undecided": "❔", "not run": "⚠️"}
MAX_CASES = 8  # that are named


def headline(gate: Gate, checked: Sequence[Checked]) -> str:
    kinds = Counter(change.kind for change in {each.change.path: each.change for each in checked}.values())
    edited = kinds["changed"] + kinds["new"]
    blocked = len({each.change.path for each in checked if gate.blocks(each)})
    result = f"{blocked} blocked" if blocked else "none blocked"
    return f"{counted(edited, 'skill')} changed, {result}" if edited else "no skill changed"


def render_markdown(gate: Gate, checked: Sequence[Checked], commit: str) -> str:
    return "\n".join(_lines(gate, checked, commit)) + "\n"


def _lines(gate: Gate, checked: Sequence[Checked], commit: str) -> Iterator[str]:
    yield f"### upskill: {headline(gate, checked)}"
    yield ""
    measured = [each for each in checked if each.change.kind in ("new", "changed")]
    if measured:
        yield "| | Skill | Model | Before → now | Without → with | Result |"
        yield "|---|---|---|---|---|---|"
    for each in measured:
        mark = "❌" if gate.blocks(each) else MARKS.get(each.status, "")
        skill = f"`{each.change.path}`" + (" (new)" if each.change.kind == "new" else "")
        result = each.reason or ("as good as before the edit" if each.against_base else "it helps")
        cells = [
            mark,
            skill,
            each.model,
            change_in_words(each.against_base),
            change_in_words(each.against_none),
            result,
        ]
        yield table_row(cells)
    for evaluation in gate.evaluations:
        if worse := _worse_cases(evaluation):
            other = "the previous skill" if evaluation.plan.reference_skill else "no skill"
            yield ""
            yield f"`{evaluation.plan.skill.name}` passes less often than with {other} on: {', '.join(worse)}."
    yield ""
    for each in checked:
        if each.change.kind == "renamed":
            yield f"`{each.change.path}` {each.reason}."
    if unchanged := sum(each.change.kind == "unchanged" for each in checked):
        yield f"{counted(unchanged, 'other skill')} unchanged since `{commit[:10]}`; not run."


def change_in_words(verdict: Verdict | None) -> str:
    if verdict is None or verdict.lift is None:
        return UNKNOWN
    rates = before_after(pass_rate(verdict.baseline), pass_rate(verdict.skill))
    return f"{rates}, {points(verdict.lift)} ({interval_in_points(verdict.interval)})"


def _worse_cases(evaluation: Evaluation) -> list[str]:
    found_loss = any(verdict.decision == "hurts" for verdict in evaluation.verdicts)
    return losing_cases(evaluation.outcomes) if found_loss else []


def losing_cases(outcomes: Iterable[Outcome]) -> list[str]:
    """The cases that lost most with the skill, as code."""
    lost: Counter[str] = Counter()
    for row in outcomes:
        if row.passed is not None:
            lost[row.case] += (1 if row.arm == "baseline" else -1) * row.passed
    return [f"`{case}`" for case, number in lost.most_common(MAX_CASES) if number > 0]


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def render_junit(gate: Gate, checked: Sequence[Checked]) -> str:
    root = ET.Element("testsuites", name="upskill ci")
    suite = ET.SubElement(root, "testsuite", name="upskill ci", tests=str(len(checked)), errors="0")
    suite.set("failures", str(sum(map(gate.blocks, checked))))
    for each in checked:
        test = ET.SubElement(
            suite, "testcase", classname=printable(each.change.path), name=printable(each.model or "unchanged")
        )
        lines = [
            each.reason,
            f"against base: {change_in_words(each.against_base)}",
            f"against none: {change_in_words(each.against_none)}",
        ]
        if gate.blocks(each):
            ET.SubElement(test, "failure", message=printable(each.reason)).text = "\n".join(map(printable, lines))
        elif each.change.kind in ("unchanged", "renamed"):
            ET.SubElement(test, "skipped", message="unchanged")
        else:
            ET.SubElement(test, "system-out").text = "\n".join(map(printable, lines))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
