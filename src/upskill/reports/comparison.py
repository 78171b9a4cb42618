"""Two stored runs, case by case (`upskill compare`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from upskill.plain import counted
from upskill.reports.cases import CaseReader, compare_words
from upskill.reports.fields import pick, read
from upskill.reports.numbers import first_of, format_cell
from upskill.reports.report import (
    CaseAnswers,
    CaseGroup,
    Headline,
    Measure,
    ModelAnswers,
    Note,
    Outcome,
    Rate,
    Report,
    Row,
    Table,
    Tone,
)
from upskill.runs.results.caveats import find_caveats
from upskill.runs.results.comparison import Change, ComparedCase, Comparison, Side
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Store
from upskill.verdicts.interval import rounded, rounded_interval

MAX_NAMED = 5  # cases of one kind
GROUPS: Mapping[Change, tuple[Outcome, str]] = {
    "worse": ("worse", "Got worse"),
    "better": ("fixed", "Got better"),
}
Changed = tuple[Change, str, Comparison]  # a case, by its id


def report_comparison(
    comparisons: Sequence[Comparison], store: Store, most: int | None = None
) -> Report:
    """Of two runs, for each model that both have, with at most so many cases."""
    headlines: list[Headline] = []
    rows: list[Row] = []
    caveats: dict[str, None] = {}
    changed: list[Changed] = []
    for comparison in comparisons:
        model = f"{comparison.after.model}: " if len(comparisons) > 1 else ""
        headlines.append(_headline(comparison, model))
        rows += (_side(comparison, name) for name in ("before", "after"))
        caveats |= dict.fromkeys(f"{model}{line}" for line in _caveats(comparison))
        for change in GROUPS:
            for case in comparison.changed(change):
                changed.append((change, case.id, comparison))
    changed.sort(key=lambda each: each[0], reverse=True)  # what got worse, first
    notes = [Note(line, "caveat") for line in caveats]
    if most is not None and len(changed) > most:
        more = counted(len(changed) - most, "more case")
        notes.append(Note(f"{more} changed. Use --all to show everything."))
    runs = f"{comparisons[0].before.run.id} to {comparisons[0].after.run.id}"
    return Report(
        title=f"What changed from {runs}",
        name="compare",
        subject=f"From {runs}",
        data={"comparisons": [_to_json(each, store) for each in comparisons]},
        headlines=headlines,
        tables=[Table.of(rows)],
        notes=notes,
        groups=lambda: _read_groups(changed[:most], store),
    )


def _headline(comparison: Comparison, model: str) -> Headline:
    better, worse, stayed = (comparison.changed(change) for change in ("better", "worse", "same"))
    words = summarize(comparison, with_names=False)
    if stayed:
        always = sum(case.after[0] == case.after[1] for case in stayed)
        never = sum(case.after[0] == 0 for case in stayed)
        words += f" ({always} passed and {never} failed in both)"
    lift = comparison.lift
    if lift is not None and (better or worse):
        words += f": {format_cell(Measure.of(lift), 'points')} points"
        if lift.low <= 0 <= lift.high:
            words += ", so this may well be chance"
    tone: Tone = "neutral"
    if bool(better) != bool(worse):
        tone = "good" if better else "bad"
    if not model:
        words = words[0].upper() + words[1:]
    return Headline(f"{model}{words}.", tone)


def summarize(comparison: Comparison, *, with_names: bool = True) -> str:
    unchanged = len(comparison.changed("same"))
    if unchanged == len(comparison.cases):
        return f"no change in {counted(unchanged, 'case')}"
    changes: list[str] = []
    for change in ("better", "worse"):
        ids = [case.id for case in comparison.changed(change)]
        names = f" ({first_of(ids, MAX_NAMED)})" if ids and with_names else ""
        changes.append(f"{len(ids) or 'none'} got {change}{names}")
    return f"{', '.join(changes)}, {unchanged} unchanged"


def _side(comparison: Comparison, name: str) -> Row:
    """A row of the table: `before` or `after`."""
    side: Side = getattr(comparison, name)
    scored = [getattr(case, name) for case in comparison.cases]
    return {
        "": name,
        "Run": side.run.id,
        "Model": side.model,
        "Arm": side.arm,
        "Passed": Rate(sum(passed for passed, _ in scored), sum(of for _, of in scored)),
    }


def _caveats(comparison: Comparison) -> Iterator[str]:
    caveats: dict[str, list[str]] = {}
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        for caveat in find_caveats(side.run.plan, {}):
            caveats.setdefault(caveat, []).append(name)
    for caveat, names in caveats.items():
        yield f"{' and '.join(names).capitalize()}: {caveat}"
    yield _differences(comparison)
    if comparison.no_test:
        yield f"No interval: {comparison.no_test}."
    left_out = {
        "edited, so not compared": comparison.edited,
        "only in the first run": comparison.only_before,
        "only in the second run": comparison.only_after,
        "without a graded answer in one of the runs": comparison.unscored,
    }
    for what, ids in left_out.items():
        if ids:
            yield f"{counted(len(ids), 'case')} {what}: {first_of(ids, MAX_NAMED)}."


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


def _read_groups(changed: Sequence[Changed], store: Store) -> Iterator[CaseGroup]:
    """The cases that changed, with the answers of both runs."""
    readers: dict[object, CaseReader] = {}
    groups: dict[Change, dict[str, CaseAnswers]] = {}
    for change, case_id, comparison in changed:
        sides: list[CaseAnswers] = []
        for side in (comparison.before, comparison.after):
            if side.key not in readers:
                evaluation = evaluation_of(store, side.run)
                readers[side.key] = CaseReader(
                    evaluation, store, models=[side.model], arms=[side.arm]
                )
            sides.append(readers[side.key].case(case_id))
        case = _join(sides[0], sides[1], GROUPS[change][0])
        cases = groups.setdefault(change, {})
        if case_id in cases:
            case = replace(case, models=(*cases[case_id].models, *case.models))
        cases[case_id] = case
    for change, cases in groups.items():
        outcome, title = GROUPS[change]
        yield CaseGroup(outcome=outcome, title=title, cases=tuple(cases.values()))


def _join(before: CaseAnswers, after: CaseAnswers, outcome: Outcome) -> CaseAnswers:
    """The answers of both runs side by side, as if they were those of two arms."""
    old, new = before.models[0], after.models[0]
    arms = (
        replace(new.arms[0], arm="skill", label="after"),
        replace(old.arms[0], arm="baseline", label="before"),
    )
    model = new.model if old.model == new.model else f"{old.model} → {new.model}"
    answers = ModelAnswers(model=model, outcome=outcome, arms=arms, diff=compare_words(arms))
    return replace(after, outcome=outcome, models=(answers,))


# As JSON. The keys are stable; new ones may be added.
# ------------------------------------------------------------------------------------------------


def _to_json(comparison: Comparison, store: Store) -> dict[str, Any]:
    lift = comparison.lift
    side = ("model", "arm")
    return {
        "before": pick(comparison.before, {"run": "run.id"}, *side),
        "after": pick(comparison.after, {"run": "run.id"}, *side),
        "better": len(comparison.changed("better")),
        "worse": len(comparison.changed("worse")),
        "stayed": len(comparison.changed("same")),
        "lift": lift and rounded(lift.value),
        "interval": lift and rounded_interval(lift.interval),
        "cases": [_case_to_json(comparison, case, store) for case in comparison.cases],
        **pick(comparison, "same_skill", "differences", "no_test", "edited"),
        **pick(comparison, "only_before", "only_after", "unscored"),
    }


def _case_to_json(comparison: Comparison, case: ComparedCase, store: Store) -> dict[str, Any]:
    """Of a case that changed, also a failed trial of the worse run and a passed one of the other."""
    row: dict[str, Any] = {"id": case.id, "change": case.change}
    for name in ("before", "after"):
        passed, scored = getattr(case, name)
        row[name] = {"passed": passed, "scored": scored}
        if case.change != "same":
            side: Side = getattr(comparison, name)
            results = store.results(side.run, case.id, side.model, side.arm)
            graded = [result for result in results if result.passed is not None]
            is_wanted = (case.change == "better") == (name == "after")
            graded.sort(key=lambda result: result.passed is not is_wanted)
            answer = read(graded[0], "trace.answer") or ""
            row[name] |= {"seed": graded[0].trial.seed, "answer": answer}
    return row
