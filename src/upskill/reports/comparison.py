"""Two stored runs, case by case (`upskill compare`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from upskill.plain import counted
from upskill.reports.cases import CaseReader, compare_words
from upskill.reports.numbers import first_of
from upskill.reports.report import (
    CaseAnswers,
    CaseGroup,
    Cell,
    Column,
    Headline,
    ModelAnswers,
    Note,
    Outcome,
    Rate,
    Report,
    Table,
    Tone,
)
from upskill.runs.planning.plan import Result
from upskill.runs.results.caveats import find_caveats
from upskill.runs.results.comparison import Change, ComparedCase, Comparison, Side
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Store
from upskill.verdicts.interval import rounded, rounded_interval
from upskill.verdicts.line import signed_points

MAX_NAMED = 5  # cases of one kind
COLUMNS = (
    Column(""),
    Column("Run", "code"),
    Column("Model"),
    Column("Arm", spare=True),
    Column("Passed", "share"),
)
GROUPS: Mapping[Change, tuple[Outcome, str]] = {
    "worse": ("worse", "Got worse"),
    "better": ("fixed", "Got better"),
}


def report_comparison(
    comparisons: Sequence[Comparison], store: Store, most: int | None = None
) -> Report:
    """Of two runs, for each model that both have, with at most so many cases."""
    headlines: list[Headline] = []
    rows: list[tuple[Cell, ...]] = []
    notes: list[Note] = []
    for comparison in comparisons:
        model = f"{comparison.after.model}: " if len(comparisons) > 1 else ""
        headlines.append(_headline(comparison, model))
        rows += _rows(comparison)
        notes += (replace(note, text=f"{model}{note.text}") for note in _notes(comparison))
    first = comparisons[0]
    runs = f"{first.before.run.id} to {first.after.run.id}"
    changed = list(_changed(comparisons))
    if most is not None and len(changed) > most:
        more = counted(len(changed) - most, "more case")
        notes.append(Note(f"{more} changed. Use --all to show everything."))
    return Report(
        title=f"What changed from {runs}",
        name="compare",
        subject=f"From {runs}",
        data={"comparisons": [_to_json(each, store) for each in comparisons]},
        headlines=tuple(headlines),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
        notes=tuple(dict.fromkeys(notes)),
        groups=lambda: _read_groups(changed[:most], store),
    )


def _headline(comparison: Comparison, model: str) -> Headline:
    better, worse, stayed = (comparison.changed(change) for change in ("better", "worse", "same"))
    words = summarize(comparison, with_names=False)
    if stayed:
        always = sum(case.after[0] == case.after[1] for case in stayed)
        never = sum(case.after[0] == 0 for case in stayed)
        words += f" ({always} passed and {never} failed in both)"
    if comparison.lift is not None and (better or worse):
        low, high = comparison.lift.interval
        bounds = f"{signed_points(low)} to {signed_points(high)}"
        words += f": {signed_points(comparison.lift.value)} points ({bounds})"
        if low <= 0 <= high:
            words += ", so this may well be chance"
    tone: Tone = "neutral"
    if bool(better) != bool(worse):
        tone = "good" if better else "bad"
    if not model:
        words = words[0].upper() + words[1:]
    return Headline(f"{model}{words}.", tone)


def summarize(comparison: Comparison, *, with_names: bool = True) -> str:
    changes: list[str] = []
    for change in ("better", "worse"):
        ids = [case.id for case in comparison.changed(change)]
        names = f" ({first_of(ids, MAX_NAMED)})" if ids and with_names else ""
        changes.append(f"{len(ids) or 'none'} got {change}{names}")
    unchanged = len(comparison.changed("same"))
    if unchanged == len(comparison.cases):
        return f"no change in {counted(unchanged, 'case')}"
    return f"{', '.join(changes)}, {unchanged} unchanged"


def _rows(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    before = [case.before for case in comparison.cases]
    after = [case.after for case in comparison.cases]
    for name, side, scores in (
        ("before", comparison.before, before),
        ("after", comparison.after, after),
    ):
        passed = sum(passed for passed, _ in scores)
        scored = sum(scored for _, scored in scores)
        yield name, side.run.id, side.model, side.arm, Rate(passed, scored)


def _notes(comparison: Comparison) -> Iterator[Note]:
    caveats: dict[str, list[str]] = {}
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        for caveat in find_caveats(side.run.plan, {}):
            caveats.setdefault(caveat, []).append(name)
    for caveat, names in caveats.items():
        yield Note(f"{' and '.join(names).capitalize()}: {caveat}", "caveat")
    yield Note(_differences(comparison), "caveat")
    if comparison.no_test:
        yield Note(f"No interval: {comparison.no_test}.", "caveat")
    for ids, what in (
        (comparison.edited, "edited, so not compared"),
        (comparison.only_before, "only in the first run"),
        (comparison.only_after, "only in the second run"),
        (comparison.unscored, "without a graded answer in one of the runs"),
    ):
        if ids:
            yield Note(f"{counted(len(ids), 'case')} {what}: {first_of(ids, MAX_NAMED)}.", "caveat")


def _differences(comparison: Comparison) -> str:
    if comparison.differences:
        also = "Other differences besides the skill"
        if comparison.same_skill:
            also = "The skill is the same. Other differences"
        return f"{also}: {'; '.join(comparison.differences)}."
    if not comparison.same_skill:
        return "Only the skill differs."
    changed = len(comparison.changed("same")) < len(comparison.cases)
    chance = ", so any change is due to chance" if changed else ""
    return f"Nothing stored differs, not even the skill{chance}."


# The cases that changed, with the answers of both runs.
# ------------------------------------------------------------------------------------------------


def _changed(comparisons: Sequence[Comparison]) -> Iterator[tuple[Change, str, Comparison]]:
    """The cases that changed, worse ones first."""
    for change in GROUPS:
        for comparison in comparisons:
            for case in comparison.changed(change):
                yield change, case.id, comparison


def _read_groups(
    changed: Sequence[tuple[Change, str, Comparison]], store: Store
) -> Iterator[CaseGroup]:
    readers: dict[tuple[str, str, str], CaseReader] = {}
    groups: dict[Change, dict[str, CaseAnswers]] = {}
    for change, case_id, comparison in changed:
        for side in (comparison.before, comparison.after):
            if side.key not in readers:
                readers[side.key] = _reader(side, store)
        before, after = readers[comparison.before.key], readers[comparison.after.key]
        case = _case(case_id, GROUPS[change][0], before, after)
        cases = groups.setdefault(change, {})
        if case_id in cases:
            case = replace(case, models=(*cases[case_id].models, *case.models))
        cases[case_id] = case
    for change, cases in groups.items():
        outcome, title = GROUPS[change]
        yield CaseGroup(outcome=outcome, title=title, cases=tuple(cases.values()))


def _reader(side: Side, store: Store) -> CaseReader:
    evaluation = evaluation_of(store, side.run)
    return CaseReader(evaluation, store, models=(side.model,), arms=(side.arm,))


def _case(id: str, outcome: Outcome, old: CaseReader, new: CaseReader) -> CaseAnswers:  # noqa: A002
    case = new.case(id)
    (before,), (after,) = old.case(id).models, case.models
    arms = (
        replace(after.arms[0], arm="skill", label="after"),
        replace(before.arms[0], arm="baseline", label="before"),
    )
    model = after.model
    if before.model != after.model:
        model = f"{before.model} → {after.model}"
    answers = ModelAnswers(model=model, outcome=outcome, arms=arms, diff=compare_words(arms))
    return replace(case, outcome=outcome, models=(answers,))


# As JSON. The keys are stable; new ones may be added.
# ------------------------------------------------------------------------------------------------


def _to_json(comparison: Comparison, store: Store) -> dict[str, Any]:
    lift = comparison.lift
    return {
        "before": _side_to_json(comparison.before),
        "after": _side_to_json(comparison.after),
        "better": len(comparison.changed("better")),
        "worse": len(comparison.changed("worse")),
        "stayed": len(comparison.changed("same")),
        "lift": rounded(lift.value) if lift else None,
        "interval": rounded_interval(lift.interval) if lift else None,
        "cases": [_case_to_json(comparison, case, store) for case in comparison.cases],
        "same_skill": comparison.same_skill,
        "differences": comparison.differences,
        "no_test": comparison.no_test,
        "edited": comparison.edited,
        "only_before": comparison.only_before,
        "only_after": comparison.only_after,
        "unscored": comparison.unscored,
    }


def _side_to_json(side: Side) -> dict[str, str]:
    return {"run": side.run.id, "model": side.model, "arm": side.arm}


def _case_to_json(comparison: Comparison, case: ComparedCase, store: Store) -> dict[str, Any]:
    row: dict[str, Any] = {"id": case.id, "change": case.change}
    for name, (passed, scored) in (("before", case.before), ("after", case.after)):
        row[name] = {"passed": passed, "scored": scored}
    if case.change == "same":
        return row
    # A failed trial of the worse run and a passed one of the other.
    is_better = case.change == "better"
    for name, side, passed in (
        ("before", comparison.before, not is_better),
        ("after", comparison.after, is_better),
    ):
        result = _find_result(store, side, case.id, passed=passed)
        answer = result.trace.answer if result.trace else ""
        row[name] |= {"seed": result.trial.seed, "answer": answer}
    return row


def _find_result(store: Store, side: Side, case: str, *, passed: bool) -> Result:
    graded = [
        result
        for result in store.results(side.run, case)
        if (result.trial.model, result.trial.arm) == (side.model, side.arm)
        and result.passed is not None
    ]
    return next((result for result in graded if result.passed is passed), graded[0])
