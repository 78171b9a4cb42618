"""The result of `upskill ci`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.plain import counted
from upskill.reports.fields import pick
from upskill.reports.numbers import dollars, first_of
from upskill.reports.report import (
    Change,
    Headline,
    NextCommand,
    Note,
    Report,
    Row,
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

    def advice(self, checked: Checked) -> str:
        """What to do with a skill of a library."""
        if self.commit:
            return ""
        if checked.problem or checked.mark is None:
            return NOT_RUN
        return ADVICE[checked.mark]

    @property
    def summary(self) -> str:
        if not self.commit:
            results = Counter(map(self.advice, self.measured))
            names = (*ADVICE.values(), NOT_RUN)
            counts = [f"{name} {results[name]}" for name in names if results[name]]
            return ", ".join(counts) or "no skill has test cases"
        edited = {
            each.change.path
            for each in self.checked
            if each.change.kind in ("changed", "new", "deleted")
        }
        if not edited:
            return "no skill changed"
        blocked = len({each.change.path for each in self.checked if self.blocks(each)})
        return f"{counted(len(edited), 'skill')} changed, {blocked or 'none'} blocked"


def report_gate(result: GateResult) -> Report:
    return Report(
        title=result.summary,
        subject=f"Compared with {result.commit[:10] or 'no skill'}",
        name="ci",
        data={
            "base": result.commit or None,
            "notes": list(result.notes),
            "blocked": result.is_blocked,
            "spent": {"calls": result.calls}
            | pick(result.usage, {"tokens": "total_tokens"}, "cost_usd"),
            "untested": list(result.untested),
            "skills": [_to_json(each, result) for each in result.checked],
        },
        headlines=[*_headlines(result)],
        tables=[Table.of(_rows(result), note=_spent(result))],
        notes=[Note(line, "caveat") for line in _caveats(result)],
        next=[*_next(result)],
        tests=lambda: [TestSuite(name="upskill ci", tests=[*_tests(result)])],
    )


def _headlines(result: GateResult) -> Iterator[Headline]:
    measured = result.measured
    mark = measured[0].mark if measured else "pass"
    yield _marked(f"{result.summary}.", "block" if result.is_blocked else mark)
    for each in measured:
        parts = [f"`{each.change.path}`{_origin(each.change) if result.commit else ''}"]
        name = ", ".join(filter(None, [*parts, each.model]))
        words = ": ".join(filter(None, [name, result.advice(each), reason_of(each)]))
        yield _marked(f"{words}.", each.mark)


def _marked(text: str, mark: Mark | None) -> Headline:
    return Headline(text, MARK_TONES[mark or "open"], MARKS[mark or "open"])


def _rows(result: GateResult) -> Iterator[Row]:
    for each in result.measured:
        row: dict[str, Any] = {
            "Folder": each.change.path,
            "Model": each.model,
            "Result": _marked(result.advice(each), each.mark),
        }
        if result.commit:
            row["Before → now"] = _rates(each.edit)
        yield {**row, "Without → with": _rates(each.use)}


def _origin(change: SkillChange) -> str:
    if change.kind == "new":
        return " (new)" if change.in_git else " (new, not in git yet)"
    return f" (was `{change.base_path}`)" if change.base_path != change.path else ""


def _rates(answer: Answer | None) -> Change | None:
    return Change.of_rates(answer.verdict.to_dict()) if answer and answer.verdict.pairs else None


def reason_of(checked: Checked) -> str:
    """Why it has its mark."""
    if checked.problem:
        return checked.problem
    edit, use = checked.edit, checked.use
    reasons: list[str] = []
    if checked.is_recorded:
        reasons.append(f"recorded answers; {checked.model} was not asked")
    if edit:
        reasons.append(edit.assessment.words)
    if use:
        reasons.append(f"{'against no skill: ' if edit else ''}{use.assessment.words}")
        change = use.verdict.total_tokens
        if use.assessment.mark == "warn" and change and change.after > change.before:
            more = round((change.after - change.before) / use.verdict.pairs)
            reasons.append(f"it costs {counted(more, 'token')} a trial")
    if checked.dropped:
        also = ", which count in before → now" if edit else ""
        reasons.append(f"removes or changes {counted(checked.dropped, 'case')} in its suite{also}")
    return "; ".join(reasons)


def _caveats(result: GateResult) -> Iterator[str]:
    for each in result.measured:
        yield from _lost_cases(each)
    if result.untested:
        names = ", ".join(f"`{name}`" for name in result.untested)
        why = "Not run, because they have no test cases"
        yield f"{why}: {names}. `upskill tests SKILL` writes some."
    # What a branch did to skills that were not run.
    unchanged = 0
    for each in result.checked:
        change = each.change
        unchanged += change.kind == "unchanged"
        if change.kind == "renamed":
            was = f"`{change.path}` was previously `{change.base_path}`"
            yield f"{was}; nothing that students read has changed."
        elif change.kind == "deleted":
            yield f"`{change.path}` was deleted, with its suite."
    if unchanged:
        others = "other skill" if len(result.checked) > unchanged else "skill"
        yield f"{counted(unchanged, others)} unchanged since `{result.commit[:10]}`; not run."
    yield from result.notes
    if result.measured and not result.commit:
        yield BY_CHANCE


def _lost_cases(checked: Checked) -> Iterator[str]:
    """By name: what got worse, where the mark says so."""
    name = f"`{checked.change.path}`"
    for answer, other in ((checked.edit, "before"), (checked.use, "without it")):
        if answer is None or answer.assessment.mark == "pass":
            continue
        is_blocked, lost = answer.assessment.mark == "block", answer.assessment.lost
        if lost and (is_blocked or answer is checked.edit):
            yield f"{name} no longer passes {_names(lost)}: each passed every time {other}, and never now."
        fewer = losing_cases(answer.evaluation.outcomes_of(checked.model))
        fewer = [case for case in fewer if case not in lost]
        if fewer and is_blocked:
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


def _spent(result: GateResult) -> str:
    if not result.calls:
        return "Spent nothing: no model was asked."
    tokens = counted(result.usage.total_tokens, "token")
    cost = result.usage.cost_usd
    price = "price unknown" if cost is None else dollars(cost)
    return f"Spent {counted(result.calls, 'call')}, {tokens}, {price}."


def _next(result: GateResult) -> Iterator[NextCommand]:
    """Of the worst."""
    for each in result.measured[:1]:
        doubtful = [answer for answer in each.answers if answer.assessment.mark != "pass"]
        for answer in doubtful[:1]:
            yield NextCommand(f"upskill show {answer.evaluation.run.id}", "Read the answers")
        if each.mark != "pass" and (command := result.command(each)):
            yield NextCommand(command, "Check this skill again")


def _tests(result: GateResult) -> Iterator[Test]:
    """A failure is what the command fails for."""
    for checked in result.checked:
        path, name = checked.change.path, checked.model or checked.change.kind
        if checked.mark is None:
            yield Test(path, name, "skipped", checked.change.kind)
            continue
        reason = reason_of(checked)
        text = "\n".join([reason, *_lost_cases(checked)])
        if result.blocks(checked):
            yield Test(path, name, "failure", reason, text)
        else:
            yield Test(path, name, output=text)


def _to_json(checked: Checked, result: GateResult) -> dict[str, Any]:
    """The keys are stable; new ones may be added."""
    change = checked.change
    return {
        **pick(change, {"skill": "name", "folder": "path"}),
        "was": change.base_path or None,
        "change": change.kind if result.commit else None,
        "model": checked.model or None,
        "mark": checked.mark,
        "advice": result.advice(checked) or None,
        "blocked": result.blocks(checked),
        "reason": reason_of(checked),
        "against_base": _answer_to_json(checked.edit),
        "against_none": _answer_to_json(checked.use),
        "command": result.command(checked) or None,
    }


def _answer_to_json(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    of_mark = pick(answer.assessment, "mark", "words", "lost", "gained")
    return {**of_mark, "run": answer.evaluation.run.id, **answer.verdict.to_dict()}
