"""The result of `upskill ci`: a Markdown summary for a pull request, and JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from upskill.errors import UsageError
from upskill.plain import counted, printable
from upskill.reports.numbers import UNKNOWN, before_after, interval_in_points, pass_rate, points
from upskill.runs.running.gate import Checked, Gate, in_points
from upskill.skills.changes import SkillChange
from upskill.suites import Suite
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

MARKS = {"ok": "✅", "undecided": "❔", "not run": "⚠️"}
MAX_CASES = 8  # that are named


def headline(gate: Gate, checked: Sequence[Checked]) -> str:
    kinds = Counter(
        change.kind for change in {each.change.path: each.change for each in checked}.values()
    )
    edited = kinds["changed"] + kinds["new"] + kinds["deleted"]
    blocked = len({each.change.path for each in checked if gate.blocks(each)})
    result = f"{blocked} blocked" if blocked else "none blocked"
    return f"{counted(edited, 'skill')} changed, {result}" if edited else "no skill changed"


def render_markdown(
    gate: Gate, checked: Sequence[Checked], commit: str, notes: Sequence[str] = ()
) -> str:
    return "\n".join([*_lines(gate, checked, commit), *notes]) + "\n"


def _lines(gate: Gate, checked: Sequence[Checked], commit: str) -> Iterator[str]:
    yield f"### upskill: {headline(gate, checked)}"
    yield ""
    measured = [
        each for each in checked if each.change.kind in ("new", "changed") or each.change.problem
    ]
    if measured:
        yield "| | Skill | Model | Before → now | Without → with | Result |"
        yield "|---|---|---|---|---|---|"
    for each in measured:
        mark = "❌" if gate.blocks(each) else MARKS.get(each.status, "")
        skill = f"`{each.change.path}`{_origin(each.change)}"
        result = each.reason or _good_result(gate, each)
        cells = [
            mark,
            skill,
            each.model,
            change_in_words(each.against_base, is_exact=each.base_is_exact),
            change_in_words(each.against_none, is_exact=each.none_is_exact),
            result,
        ]
        yield table_row(cells)
    both = [
        (each.against_base.pairs, each.against_none.pairs)
        for each in measured
        if each.against_base and each.against_none
    ]
    if any(evaluation.used_cases for evaluation in gate.evaluations):
        yield ""
        yield "A search has used some cases. Without → with counts only the others, unless all show that it hurts."
    elif any(before != without for before, without in both):
        yield ""
        yield "Each comparison stops as soon as its result is known, so one may take more rounds than the other."
    worse_skills = {each.change.name for each in checked if each.status == "worse"}
    for evaluation in gate.evaluations:
        is_worse = (
            bool(evaluation.plan.reference_skill) and evaluation.plan.skill.name in worse_skills
        )
        is_worse |= any(verdict.decision == "hurts" for verdict in evaluation.verdicts)
        if is_worse and (worse := losing_cases(evaluation.outcomes)):
            other = (
                "with its previous version"
                if evaluation.plan.reference_skill
                else "without a skill"
            )
            yield ""
            yield f"With `{evaluation.plan.skill.name}`, these cases pass less often than {other}: {', '.join(worse)}."
        elif evaluation.plan.reference_skill and (lost := _lost_cases(evaluation.outcomes)):
            yield ""
            yield f"`{evaluation.plan.skill.name}` no longer passes cases that always passed: {', '.join(lost)}."
    yield ""
    for each in checked:
        if each.change.kind == "renamed":
            before = each.change.base_path
            yield f"`{each.change.path}` was previously `{before}`; nothing that students read has changed."
        elif each.change.kind == "deleted":
            yield f"`{each.change.path}` was deleted{_deleted_cases(each.change)}."
    if unchanged := sum(each.change.kind == "unchanged" for each in checked):
        others = "other skill" if len(checked) > unchanged else "skill"
        yield f"{counted(unchanged, others)} unchanged since `{commit[:10]}`; not run."


def _good_result(gate: Gate, checked: Checked) -> str:
    if checked.against_base is None:
        return "it helps"
    # On cases that a search has used, a version looks better than it is.
    own = (each for each in gate.evaluations if each.plan.skill.name == checked.change.name)
    is_better = checked.against_base.decision == "helps" and not any(
        each.used_cases for each in own
    )
    return (
        "better than before"
        if is_better
        else f"loses less than {in_points(gate.tolerance)}, if any"
    )


def _origin(change: SkillChange) -> str:
    if change.kind == "new":
        return " (new)" if change.in_git else " (new, not in git yet)"
    return f" (was `{change.base_path}`)" if change.base_path != change.path else ""


def _deleted_cases(change: SkillChange) -> str:
    try:
        suite = Suite.of(change.base) if change.base else None
    except UsageError:
        return ", with its suite"
    return f", with {counted(len(suite.cases), 'test case')}" if suite else ""


def change_in_words(verdict: Verdict | None, *, is_exact: bool) -> str:
    """With the interval of the lift, unless it leaves open what is exact on these cases."""
    if verdict is None or verdict.lift is None:
        return UNKNOWN
    rates = before_after(pass_rate(verdict.baseline), pass_rate(verdict.skill))
    interval, is_exact = (
        interval_in_points(verdict.interval),
        is_exact and verdict.decision == "undecided",
    )
    return f"{rates}, {points(verdict.lift)} ({'exact' if is_exact else interval})"


def losing_cases(outcomes: Iterable[Outcome]) -> list[str]:
    """The cases that lost most with the skill, as code."""
    lost: Counter[str] = Counter()
    for row in outcomes:
        if row.passed is not None:
            lost[row.case] += (1 if row.arm == "baseline" else -1) * row.passed
    return [f"`{case}`" for case, number in lost.most_common(MAX_CASES) if number > 0]


def _lost_cases(outcomes: Iterable[Outcome]) -> list[str]:
    """What an edit broke for good, however much it improved elsewhere."""
    passed: dict[tuple[str, str], set[bool]] = {}
    for row in outcomes:
        if row.passed is not None:
            passed.setdefault((row.case, row.arm), set()).add(row.passed)
    lost = [case for (case, arm), seen in passed.items() if arm == "skill" and seen == {False}]
    return [f"`{case}`" for case in lost if passed.get((case, "baseline")) == {True}][:MAX_CASES]


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def render_junit(gate: Gate, checked: Sequence[Checked]) -> str:
    root = ET.Element("testsuites", name="upskill ci")
    suite = ET.SubElement(root, "testsuite", name="upskill ci", tests=str(len(checked)), errors="0")
    suite.set("failures", str(sum(map(gate.blocks, checked))))
    for each in checked:
        test = ET.SubElement(
            suite,
            "testcase",
            classname=printable(each.change.path),
            name=printable(each.model or each.change.kind),
        )
        lines = [
            each.reason,
            f"against base: {change_in_words(each.against_base, is_exact=each.base_is_exact)}",
            f"against none: {change_in_words(each.against_none, is_exact=each.none_is_exact)}",
        ]
        if gate.blocks(each):
            ET.SubElement(test, "failure", message=printable(each.reason)).text = "\n".join(
                map(printable, lines)
            )
        elif each.change.kind in ("unchanged", "renamed", "deleted"):
            ET.SubElement(test, "skipped", message=each.change.kind)
        else:
            ET.SubElement(test, "system-out").text = "\n".join(map(printable, lines))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
