from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.reports import trials
from upskill.reports.layout import indented
from upskill.runs.planning.plan import Arm, Result, Trial
from upskill.runs.results.caveats import find_caveats
from upskill.runs.results.comparison import ComparedCase, Comparison, Side
from upskill.runs.stores import Store
from upskill.verdicts.interval import rounded, rounded_interval
from upskill.verdicts.line import signed_points

MAX_NAMED = 5  # cases of one kind


def render(comparison: Comparison) -> Iterator[RenderableType]:
    sides = Table.grid(padding=(0, 2, 0, 0))
    sides.add_column(no_wrap=True)
    sides.add_column(overflow="fold")
    sides.add_column(justify="right", no_wrap=True)
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        passed, scored = (
            sum(getattr(case, name)[index] for case in comparison.cases) for index in (0, 1)
        )
        where = f"{side.run.id} · {side.model} · {side.arm}"
        sides.add_row(Text(name, style="bold"), Text(where), Text(f"{passed} of {scored} passed"))
    yield sides
    yield Text("")
    yield from (indented(Text(line)) for line in describe(comparison))
    yield Text("")


def describe(comparison: Comparison) -> Iterator[str]:
    caveats: dict[str, list[str]] = {}
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        for caveat in find_caveats(side.run.plan, {}):
            caveats.setdefault(caveat, []).append(name)
    for caveat, names in caveats.items():
        yield f"{' and '.join(names).capitalize()}: {caveat}"
    if comparison.differences:
        also = (
            "The skill is the same. Other differences"
            if comparison.same_skill
            else "Other differences besides the skill"
        )
        yield f"{also}: {'; '.join(comparison.differences)}."
    elif comparison.same_skill:
        changed = comparison.changed("better") or comparison.changed("worse")
        chance = ", so any change is due to chance" if changed else ""
        yield f"Nothing stored differs, not even the skill{chance}."
    else:
        yield "Only the skill differs."
    better, worse, stayed = (comparison.changed(change) for change in ("better", "worse", "same"))
    always = sum(case.after[0] == case.after[1] for case in stayed)
    never = sum(case.after[0] == 0 for case in stayed)
    detail = f" ({always} passed and {never} failed in both)" if stayed else ""
    summary = summarize(comparison, with_names=False)
    yield f"{summary[0].upper()}{summary[1:]}{detail}."
    if comparison.lift is not None and better + worse:
        low, high = comparison.lift.interval
        bounds = f"{signed_points(low)} to {signed_points(high)}"
        chance = ", so this may well be chance" if low <= 0 <= high else ""
        yield f"The change is {signed_points(comparison.lift.value)} points ({bounds}){chance}."
    elif comparison.no_test:
        yield f"No interval: {comparison.no_test}."
    for ids, what in (
        (comparison.edited, "edited, so not compared"),
        (comparison.only_before, "only in the first run"),
        (comparison.only_after, "only in the second run"),
        (comparison.unscored, "without a graded answer in one of the runs"),
    ):
        if ids:
            yield f"{counted(len(ids), 'case')} {what}: {_names(ids)}."


def summarize(comparison: Comparison, *, with_names: bool = True) -> str:
    changes: list[str] = []
    for change in ("better", "worse"):
        ids = [case.id for case in comparison.changed(change)]
        changes.append(
            f"{len(ids) or 'none'} got {change}"
            + (f" ({_names(ids)})" if ids and with_names else "")
        )
    unchanged = len(comparison.changed("same"))
    if not any(comparison.changed(change) for change in ("better", "worse")):
        return f"no change in {counted(unchanged, 'case')}"
    return f"{', '.join(changes)}, {unchanged} unchanged"


def _names(ids: list[str]) -> str:
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(ids[:MAX_NAMED]) + more


def render_case(
    store: Store, comparison: Comparison, case: ComparedCase
) -> Iterator[RenderableType]:
    color = "green" if case.change == "better" else "red"
    shares = f"{_share(case.before)} → {_share(case.after)}"
    yield Text.from_markup(
        f"[bold]{escape(case.id)}[/bold]  [{color}]{case.change}[/{color}]  [dim]{shares}[/dim]"
    )
    yield indented(Text(comparison.after.run.plan.suite.by_id[case.id].prompt.strip()))
    answers = shown_answers(store, comparison, case)
    panels = [
        trials.panel(result, title=name)
        for result, name in zip(answers, ("before", "after"), strict=True)
    ]
    yield from trials.side_by_side(panels, answers)
    yield Text("")


def _share(scores: tuple[int, int]) -> str:
    passed, scored = scores
    return ("passed" if passed else "failed") if scored == 1 else f"{passed} of {scored} passed"


def shown_answers(store: Store, sides: Comparison, case: ComparedCase) -> tuple[Result, Result]:
    """A failed trial of the worse run and a passed one of the other, to show the change."""
    better = case.change == "better"
    return _answer(store, sides.before, case.id, passed=not better), _answer(
        store, sides.after, case.id, passed=better
    )


def _answer(store: Store, side: Side, case: str, *, passed: bool) -> Result:
    rows = [
        row
        for row in store.outcomes(side.run, case)
        if (row.model, row.arm) == (side.model, side.arm)
    ]
    scored = [row for row in rows if row.passed is not None]
    row = next((row for row in scored if row.passed is passed), scored[0])
    result = store.result(side.run, Trial(row.model, row.case, cast("Arm", row.arm), row.seed))
    assert result is not None
    return result


def to_json(comparison: Comparison, store: Store) -> dict[str, Any]:
    lift = comparison.lift
    return {
        **{
            name: {"run": side.run.id, "model": side.model, "arm": side.arm}
            for name, side in (("before", comparison.before), ("after", comparison.after))
        },
        "better": len(comparison.changed("better")),
        "worse": len(comparison.changed("worse")),
        "stayed": len(comparison.changed("same")),
        "lift": rounded(lift.value) if lift else None,
        "interval": rounded_interval(lift.interval) if lift else None,
        "cases": [_case(comparison, case, store) for case in comparison.cases],
        **{
            name: getattr(comparison, name)
            for name in ("same_skill", "differences", "no_test", "edited")
        },
        **{name: getattr(comparison, name) for name in ("only_before", "only_after", "unscored")},
    }


def _case(comparison: Comparison, case: ComparedCase, store: Store) -> dict[str, Any]:
    row: dict[str, Any] = {"id": case.id, "change": case.change}
    for name, (passed, scored) in (("before", case.before), ("after", case.after)):
        row[name] = {"passed": passed, "scored": scored}
    if case.change != "same":
        for name, result in zip(
            ("before", "after"), shown_answers(store, comparison, case), strict=True
        ):
            row[name] |= {
                "seed": result.trial.seed,
                "answer": result.trace.answer if result.trace else "",
            }
    return row
