"""The result of `upskill ci`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill.plain import counted
from upskill.reports.numbers import dollars, first_of, format_cell
from upskill.reports.report import (
    Cell,
    Change,
    Column,
    Headline,
    NextCommand,
    Note,
    Rate,
    Report,
    Table,
    Test,
    TestSuite,
    Tone,
)
from upskill.runs.running.gate import Answer, Checked
from upskill.skills.changes import SkillChange
from upskill.traces import NO_USAGE, Usage
from upskill.verdicts.gate import MARKS, Mark, worst_mark
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
MARK_TONES: Mapping[Mark, Tone] = {"pass": "good", "block": "bad", "warn": "open", "open": "open"}
# Where each is looked at after every one of twelve rounds.
BY_CHANCE = "Of 50 useless skills, about one would be called helpful by chance."


@dataclass(frozen=True, kw_only=True)
class GateResult:
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
        """The worst first."""
        return [each for mark in MARKS for each in self.checked if each.mark == mark]

    @property
    def summary(self) -> str:
        if not self.commit:
            results = Counter(map(advice, self.measured))
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


def report_gate(result: GateResult) -> Report:
    return Report(
        title=result.summary,
        subject=f"Compared with {result.commit[:10] or 'no skill'}",
        name="ci",
        data=_to_json(result),
        headlines=tuple(_headlines(result)),
        tables=tuple(_tables(result)),
        notes=tuple(_notes(result)),
        next=tuple(_next(result)),
        tests=lambda: _tests(result),
    )


def advice(checked: Checked) -> str:
    """What to do with a skill of a library."""
    if checked.problem or checked.mark is None:
        return NOT_RUN
    return ADVICE[checked.mark]


def _headlines(result: GateResult) -> Iterator[Headline]:
    marks: list[Mark] = [each.mark for each in result.measured if each.mark]
    mark = "block" if result.is_blocked else worst_mark(marks) or "pass"
    yield Headline(f"{result.summary}.", MARK_TONES[mark], MARKS[mark])
    yield from (_headline(each, result) for each in result.measured)


def _headline(checked: Checked, result: GateResult) -> Headline:
    mark = checked.mark or "open"
    name = f"`{checked.change.path}`{_origin(checked.change, result)}"
    if checked.model:
        name += f", {checked.model}"
    words = reason_of(checked)
    if not result.commit:
        words = f"{advice(checked)}: {words}"
    return Headline(f"{name}: {words}.", MARK_TONES[mark], MARKS[mark])


def _tables(result: GateResult) -> Iterator[Table]:
    if not result.measured:
        return
    columns = [Column("Skill", "code"), Column("Model"), Column("Result")]
    if result.commit:
        columns.append(Column("Before → now", "share"))
    columns.append(Column("Without → with", "share", spare=bool(result.commit)))
    rows: list[tuple[Cell, ...]] = []
    for each in result.measured:
        mark = each.mark or "open"
        label = "" if result.commit else advice(each)
        cells: list[Cell] = [
            each.change.path,
            each.model,
            Headline(label, MARK_TONES[mark], MARKS[mark]),
        ]
        if result.commit:
            cells.append(_rates(each.edit))
        cells.append(_rates(each.use))
        rows.append(tuple(cells))
    yield Table(columns=tuple(columns), rows=tuple(rows), note=_spent(result))


def _origin(change: SkillChange, result: GateResult) -> str:
    if not result.commit:
        return ""
    if change.kind == "new":
        return " (new)" if change.in_git else " (new, not in git yet)"
    return f" (was `{change.base_path}`)" if change.base_path != change.path else ""


def _rates(answer: Answer | None) -> Change | None:
    if answer is None or not answer.verdict.pairs:
        return None
    return Change(Rate.of_arm(answer.verdict.baseline), Rate.of_arm(answer.verdict.skill))


def reason_of(checked: Checked) -> str:
    """Why it has its mark."""
    if checked.problem:
        return checked.problem
    reasons: list[str] = []
    if checked.is_recorded:
        reasons.append(f"recorded answers; {checked.model} was not asked")
    if checked.edit:
        reasons.append(checked.edit.assessment.words)
    if checked.use:
        beside = "against no skill: " if checked.edit else ""
        reasons.append(f"{beside}{checked.use.assessment.words}")
    if checked.use and checked.use.assessment.mark == "warn":
        reasons += _bill(checked.use.verdict)
    if checked.dropped:
        also = ", which count in before → now" if checked.edit else ""
        reasons.append(f"removes or changes {counted(checked.dropped, 'case')} in its suite{also}")
    return "; ".join(reasons)


def _bill(verdict: Verdict) -> Iterator[str]:
    """What a skill without effect costs."""
    change = verdict.total_tokens
    if change is not None and change.after > change.before:
        more = (change.after - change.before) / verdict.pairs
        yield f"it costs {counted(round(more), 'token')} a trial"


def _notes(result: GateResult) -> Iterator[Note]:
    for each in result.measured:
        yield from (Note(line, "caveat") for line in _lost_cases(each))
    if result.untested:
        names = ", ".join(f"`{name}`" for name in result.untested)
        why = "Not run, because they have no test cases"
        yield Note(f"{why}: {names}. `upskill tests SKILL` writes some.", "caveat")
    yield from (Note(line, "caveat") for line in (*_other_changes(result), *result.notes))
    if result.measured and not result.commit:
        yield Note(BY_CHANCE, "caveat")


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
    return first_of([f"`{case}`" for case in cases], MAX_CASES)


def _other_changes(result: GateResult) -> Iterator[str]:
    """What a branch did to skills that were not run."""
    for each in result.checked:
        change = each.change
        if change.kind == "renamed":
            before = change.base_path
            yield f"`{change.path}` was previously `{before}`; nothing that students read has changed."
        elif change.kind == "deleted":
            yield f"`{change.path}` was deleted, with its suite."
    unchanged = sum(each.change.kind == "unchanged" for each in result.checked)
    if unchanged:
        others = "other skill" if len(result.checked) > unchanged else "skill"
        yield f"{counted(unchanged, others)} unchanged since `{result.commit[:10]}`; not run."


def _spent(result: GateResult) -> str:
    if not result.calls:
        return "Spent nothing: no model was asked."
    tokens = counted(result.usage.total_tokens, "token")
    cost = result.usage.cost_usd
    price = "price unknown" if cost is None else dollars(cost)
    return f"Spent {counted(result.calls, 'call')}, {tokens}, {price}."


def _next(result: GateResult) -> Iterator[NextCommand]:
    for each in result.measured:
        if each.mark == "pass":
            continue
        for answer in each.answers:
            if answer.assessment.mark != "pass":
                yield NextCommand(f"upskill show {answer.evaluation.run.id}", "Read the answers")
                break
        if command := result.command(each):
            yield NextCommand(command, "Check this skill again")
        return


def _tests(result: GateResult) -> Iterator[TestSuite]:
    """A failure is what the command fails for."""
    yield TestSuite(name="upskill ci", tests=tuple(_test(each, result) for each in result.checked))


def _test(checked: Checked, result: GateResult) -> Test:
    path, name = checked.change.path, checked.model or checked.change.kind
    if checked.mark is None:
        return Test(group=path, name=name, kind="skipped", message=checked.change.kind)
    reason = reason_of(checked)
    lines = [
        reason,
        f"before → now: {format_cell(_rates(checked.edit))}",
        f"without → with: {format_cell(_rates(checked.use))}",
        *_lost_cases(checked),
    ]
    text = "\n".join(lines)
    if result.blocks(checked):
        return Test(group=path, name=name, kind="failure", message=reason, details=text)
    return Test(group=path, name=name, output=text)


# As JSON. The keys are stable; new ones may be added.


def _to_json(result: GateResult) -> dict[str, Any]:
    return {
        "base": result.commit or None,
        "notes": list(result.notes),
        "blocked": result.is_blocked,
        "spent": {
            "calls": result.calls,
            "tokens": result.usage.total_tokens,
            "cost_usd": result.usage.cost_usd,
        },
        "untested": list(result.untested),
        "skills": [_row_to_json(each, result) for each in result.checked],
    }


def _row_to_json(checked: Checked, result: GateResult) -> dict[str, Any]:
    change = checked.change
    return {
        "skill": change.name,
        "folder": change.path,
        "was": change.base_path or None,
        "change": change.kind if result.commit else None,
        "model": checked.model or None,
        "mark": checked.mark,
        "advice": None if result.commit else advice(checked),
        "blocked": result.blocks(checked),
        "reason": reason_of(checked),
        "against_base": checked.edit and _answer_to_json(checked.edit),
        "against_none": checked.use and _answer_to_json(checked.use),
        "command": result.command(checked) or None,
    }


def _answer_to_json(answer: Answer) -> dict[str, Any]:
    assessment = answer.assessment
    return {
        "mark": assessment.mark,
        "words": assessment.words,
        "lost": list(assessment.lost),
        "gained": list(assessment.gained),
        "run": answer.evaluation.run.id,
        **answer.verdict.to_dict(),
    }
