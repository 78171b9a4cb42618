"""The result of `upskill ci`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.plain import counted
from upskill.reports.json import pick
from upskill.reports.numbers import dollars, first_of, format_cell
from upskill.reports.report import (
    Cell,
    Change,
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
from upskill.verdicts.gate import MARKS, Mark
from upskill.verdicts.outcome import Outcome

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
    command: Callable[[Checked], str] = lambda _: ""  # that makes a row again

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
        headlines=[*_headlines(result)],
        tables=[Table.of(_rows(result), note=_spent(result))],
        notes=[*_notes(result)],
        next=[*_next(result)],
        tests=lambda: [TestSuite(name="upskill ci", tests=[*_tests(result)])],
    )


def advice(checked: Checked) -> str:
    """What to do with a skill of a library."""
    if checked.problem or checked.mark is None:
        return NOT_RUN
    return ADVICE[checked.mark]


def _headlines(result: GateResult) -> Iterator[Headline]:
    measured = result.measured  # the worst first
    mark = measured[0].mark if measured else "pass"
    yield _marked(f"{result.summary}.", "block" if result.is_blocked else mark)
    for each in result.measured:
        name = f"`{each.change.path}`{_origin(each.change, result)}"
        if each.model:
            name += f", {each.model}"
        if not result.commit:
            name += f": {advice(each)}"
        yield _marked(f"{name}: {reason_of(each)}.", each.mark)


def _marked(text: str, mark: Mark | None) -> Headline:
    return Headline(text, MARK_TONES[mark or "open"], MARKS[mark or "open"])


def _rows(result: GateResult) -> Iterator[Mapping[str, Cell]]:
    for each in result.measured:
        row: dict[str, Cell] = {
            "Folder": each.change.path,
            "Model": each.model,
            "Result": _marked("" if result.commit else advice(each), each.mark),
        }
        if result.commit:
            row["Before → now"] = _rates(each.edit)
        row["Without → with"] = _rates(each.use)
        yield row


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
        change = checked.use.verdict.total_tokens
        if checked.use.assessment.mark == "warn" and change and change.after > change.before:
            more = round((change.after - change.before) / checked.use.verdict.pairs)
            reasons.append(f"it costs {counted(more, 'token')} a trial")
    if checked.dropped:
        also = ", which count in before → now" if checked.edit else ""
        reasons.append(f"removes or changes {counted(checked.dropped, 'case')} in its suite{also}")
    return "; ".join(reasons)


def _notes(result: GateResult) -> Iterator[Note]:
    lines: list[str] = []
    for each in result.measured:
        lines += _lost_cases(each)
    if result.untested:
        names = ", ".join(f"`{name}`" for name in result.untested)
        why = "Not run, because they have no test cases"
        lines.append(f"{why}: {names}. `upskill tests SKILL` writes some.")
    lines += [*_other_changes(result), *result.notes]
    if result.measured and not result.commit:
        lines.append(BY_CHANCE)
    for line in lines:
        yield Note(line, "caveat")


def _lost_cases(checked: Checked) -> Iterator[str]:
    """By name: what got worse, where the mark says so."""
    name = f"`{checked.change.path}`"
    for answer, other in ((checked.edit, "before"), (checked.use, "without it")):
        mark = answer.assessment.mark if answer else "pass"
        if answer is None or mark == "pass":
            continue
        lost = answer.assessment.lost
        if lost and (mark == "block" or answer is checked.edit):
            yield f"{name} no longer passes {_names(lost)}: each passed every time {other}, and never now."
        fewer = losing_cases(answer.evaluation.outcomes_of(checked.model))
        fewer = [case for case in fewer if case not in lost]
        if fewer and mark == "block":
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


def _tests(result: GateResult) -> Iterator[Test]:
    """A failure is what the command fails for."""
    for checked in result.checked:
        path, name = checked.change.path, checked.model or checked.change.kind
        if checked.mark is None:
            yield Test(path, name, "skipped", checked.change.kind)
            continue
        reason = reason_of(checked)
        lines = [
            reason,
            f"before → now: {format_cell(_rates(checked.edit))}",
            f"without → with: {format_cell(_rates(checked.use))}",
            *_lost_cases(checked),
        ]
        text = "\n".join(lines)
        is_blocked = result.blocks(checked)
        yield (
            Test(path, name, "failure", reason, text)
            if is_blocked
            else Test(path, name, output=text)
        )


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
    return {
        **pick(answer.assessment, "mark", "words", "lost", "gained"),
        "run": answer.evaluation.run.id,
        **answer.verdict.to_dict(),
    }
