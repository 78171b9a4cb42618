"""The result of `upskill ci`: a Markdown summary for a pull request, JUnit and JSON."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill.errors import UsageError
from upskill.plain import counted, printable
from upskill.reports.numbers import UNKNOWN, before_after, dollars, pass_rate
from upskill.runs.running.gate import Answer, Checked
from upskill.skills.changes import SkillChange
from upskill.suites import Suite
from upskill.traces import NO_USAGE, Usage
from upskill.verdicts.gate import MARKS, Mark
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

MAX_CASES = 8  # that are named
# What to do with a skill of a library.
ADVICE: Mapping[Mark, str] = {
    "pass": "keep",
    "warn": "retire?",
    "block": "repair",
    "open": "undecided",
}
NOT_RUN = "not run"
USELESS_SKILLS = 50  # of which about one is called helpful, looked at after each of twelve rounds


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """What every form of the result shows."""

    checked: Sequence[Checked]
    commit: str = ""  # that skills are compared with; empty: every skill, against none
    strict: bool = False  # a warning or an open question fails, too
    untested: Sequence[str] = ()  # skills without test cases
    notes: Sequence[str] = ()
    calls: int = 0  # of this command
    usage: Usage = NO_USAGE
    command: Callable[[Checked], str] = field(default=lambda _: "")  # that makes a row again

    def blocks(self, checked: Checked) -> bool:
        return checked.mark == "block" or (self.strict and checked.mark in ("warn", "open"))

    @property
    def is_blocked(self) -> bool:
        return any(map(self.blocks, self.checked))

    @property
    def measured(self) -> list[Checked]:
        return [each for each in self.checked if each.mark is not None]

    @property
    def headline(self) -> str:
        if not self.commit:
            results = Counter(self.advice(each) for each in self.measured)
            names = (*ADVICE.values(), NOT_RUN)
            counts = [f"{name} {results[name]}" for name in names if results[name]]
            return ", ".join(counts) or "no skill has test cases"
        changes = {each.change.path: each.change for each in self.checked}
        edited = sum(each.kind in ("changed", "new", "deleted") for each in changes.values())
        if not edited:
            return "no skill changed"
        blocked = len({each.change.path for each in self.checked if self.blocks(each)})
        result = f"{blocked} blocked" if blocked else "none blocked"
        return f"{counted(edited, 'skill')} changed, {result}"

    def advice(self, checked: Checked) -> str:
        """What to do with a skill of a library."""
        if checked.problem or checked.mark is None:
            return NOT_RUN
        return ADVICE[checked.mark]

    def label(self, checked: Checked) -> str:
        """The mark; of a skill of a library, also what to do with it."""
        sign = MARKS[checked.mark] if checked.mark else ""
        return sign if self.commit else f"{sign} {self.advice(checked)}"

    @property
    def spent(self) -> str:
        if not self.calls:
            return "Spent nothing: no model was asked."
        tokens = counted(self.usage.total_tokens, "token")
        cost = self.usage.cost_usd
        price = "price unknown" if cost is None else dollars(cost)
        return f"Spent {counted(self.calls, 'call')}, {tokens}, {price}."

    def to_markdown(self) -> str:
        notes = [f"- {note}" for note in self._notes()]
        lines = [f"### upskill: {self.headline}", "", *self._table(), *notes]
        return "\n".join(lines) + "\n"

    def _table(self) -> Iterator[str]:
        if not self.measured:
            return
        edit = ["Before → now"] if self.commit else []
        head = [
            "Result" if not self.commit else "",
            "Skill",
            "Model",
            *edit,
            "Without → with",
            "Why",
        ]
        yield table_row(head)
        yield "|" + "---|" * len(head)
        for each in self.measured:
            rates = [_rates(each.edit)] if self.commit else []
            skill = f"`{each.change.path}`{self._origin(each.change)}"
            cells = [self.label(each), skill, each.model, *rates, _rates(each.use), reason_of(each)]
            yield table_row(cells)
        yield ""

    def _origin(self, change: SkillChange) -> str:
        if not self.commit:
            return ""
        if change.kind == "new":
            return " (new)" if change.in_git else " (new, not in git yet)"
        return f" (was `{change.base_path}`)" if change.base_path != change.path else ""

    def _notes(self) -> Iterator[str]:
        for each in self.measured:
            yield from _lost_cases(each)
        again = next((each for each in self.measured if each.mark != "pass"), None)
        if again and (command := self.command(again)):
            yield f"One row again: `{command}`"
        if self.measured:
            yield self.spent
        if self.measured and not self.commit:
            useless = max(USELESS_SKILLS, len(self.measured))
            called = round(useless / USELESS_SKILLS)
            number = "one" if called == 1 else f"{called}"
            yield f"Of {useless} useless skills, about {number} would be called helpful by chance."
        if self.untested:
            names = ", ".join(f"`{name}`" for name in self.untested)
            yield f"Not run, because they have no test cases: {names}. `upskill tests SKILL` writes some."
        yield from self._other_changes()
        yield from self.notes

    def _other_changes(self) -> Iterator[str]:
        """What a branch did to skills that were not run."""
        for each in self.checked:
            change = each.change
            if change.kind == "renamed":
                before = change.base_path
                yield f"`{change.path}` was previously `{before}`; nothing that students read has changed."
            elif change.kind == "deleted":
                yield f"`{change.path}` was deleted{_deleted_cases(change)}."
        if unchanged := sum(each.change.kind == "unchanged" for each in self.checked):
            others = "other skill" if len(self.checked) > unchanged else "skill"
            yield f"{counted(unchanged, others)} unchanged since `{self.commit[:10]}`; not run."

    def to_dict(self) -> dict[str, Any]:
        return {
            "base": self.commit or None,
            "notes": list(self.notes),
            "blocked": self.is_blocked,
            "spent": {
                "calls": self.calls,
                "tokens": self.usage.total_tokens,
                "cost_usd": self.usage.cost_usd,
            },
            "untested": list(self.untested),
            "skills": list(map(self._row, self.checked)),
        }

    def _row(self, checked: Checked) -> dict[str, Any]:
        change = checked.change
        return {
            "skill": change.name,
            "folder": change.path,
            "was": change.base_path or None,
            "change": change.kind if self.commit else None,
            "model": checked.model or None,
            "mark": checked.mark,
            "advice": None if self.commit else self.advice(checked),
            "blocked": self.blocks(checked),
            "reason": reason_of(checked),
            "against_base": checked.edit and _answer(checked.edit),
            "against_none": checked.use and _answer(checked.use),
            "command": self.command(checked) or None,
        }

    def to_junit(self) -> str:
        """A failure is what the command fails for."""
        checked = self.checked
        root = ET.Element("testsuites", name="upskill ci")
        suite = ET.SubElement(
            root, "testsuite", name="upskill ci", tests=str(len(checked)), errors="0"
        )
        suite.set("failures", str(sum(map(self.blocks, checked))))
        for each in checked:
            name = each.model or each.change.kind
            test = ET.SubElement(
                suite, "testcase", classname=printable(each.change.path), name=printable(name)
            )
            reason = reason_of(each)
            lines = [
                reason,
                f"before → now: {_rates(each.edit)}",
                f"without → with: {_rates(each.use)}",
                *_lost_cases(each),
            ]
            text = "\n".join(map(printable, lines))
            if self.blocks(each):
                ET.SubElement(test, "failure", message=printable(reason)).text = text
            elif each.mark is None:
                ET.SubElement(test, "skipped", message=each.change.kind)
            else:
                ET.SubElement(test, "system-out").text = text
        ET.indent(root)
        text = ET.tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def reason_of(checked: Checked) -> str:
    """Why it has its mark."""
    if checked.problem:
        return checked.problem
    reasons = [answer.assessment.words for answer in checked.answers]
    if (
        checked.use
        and checked.use.assessment.mark == "warn"
        and (bill := _bill(checked.use.verdict))
    ):
        reasons.append(bill)
    if checked.is_recorded:
        reasons.insert(0, f"recorded answers; {checked.model} was not asked")
    if checked.dropped:
        also = ", which count in before → now" if checked.edit else ""
        reasons.append(f"removes or changes {counted(checked.dropped, 'case')} in its suite{also}")
    return "; ".join(reasons)


def _bill(verdict: Verdict) -> str:
    """What a skill without effect costs."""
    change = verdict.total_tokens
    if change is None or change.after <= change.before:
        return ""
    more = (change.after - change.before) / verdict.pairs
    return f"it costs {counted(round(more), 'token')} a trial"


def _rates(answer: Answer | None) -> str:
    if answer is None or not answer.verdict.pairs:
        return UNKNOWN
    return before_after(pass_rate(answer.verdict.baseline), pass_rate(answer.verdict.skill))


def _lost_cases(checked: Checked) -> Iterator[str]:
    """By name: what got worse, where the mark says so."""
    name = f"`{checked.change.path}`"
    for answer, other in ((checked.edit, "before"), (checked.use, "without it")):
        if answer is None or answer.assessment.mark == "pass":
            continue
        is_worse = answer.assessment.mark == "block"
        lost = answer.assessment.lost
        if lost and (is_worse or answer is checked.edit):
            yield f"{name} no longer passes {_names(lost)}: each passed every time {other}, and never now."
        fewer = losing_cases(answer.evaluation.outcomes_of(checked.model))
        fewer = [case for case in fewer if case not in lost]
        if fewer and is_worse:
            yield f"{name} passes {_names(fewer)} less often than {other}."


def losing_cases(outcomes: Iterable[Outcome]) -> list[str]:
    """The cases that passed less often with the skill, most of all the first."""
    lost: Counter[str] = Counter()
    for row in outcomes:
        if row.passed and row.arm in ("baseline", "skill"):
            lost[row.case] += 1 if row.arm == "baseline" else -1
    return [case for case, number in lost.most_common() if number > 0]


def _names(cases: Sequence[str]) -> str:
    named = ", ".join(f"`{case}`" for case in cases[:MAX_CASES])
    more = len(cases) - MAX_CASES
    return f"{named} and {more} more" if more > 0 else named


def _answer(answer: Answer) -> dict[str, Any]:
    assessment = answer.assessment
    return {
        "mark": assessment.mark,
        "words": assessment.words,
        "lost": list(assessment.lost),
        "gained": list(assessment.gained),
        "run": answer.evaluation.run.id,
        **answer.verdict.to_dict(),
    }


def _deleted_cases(change: SkillChange) -> str:
    try:
        suite = Suite.of(change.base) if change.base else None
    except UsageError:
        return ", with its suite"
    return f", with {counted(len(suite.cases), 'test case')}" if suite else ""


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
