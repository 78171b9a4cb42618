"""Of a stored run (`upskill show`): some answers, failures first, page by page, or how often each check passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from typing import Any

from upskill.reports.cases import CaseReader, Limits
from upskill.reports.evaluated import report_evaluation
from upskill.reports.fields import pick
from upskill.reports.report import CaseAnswers, CaseGroup, Note, Outcome, Report, Row, Table
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.reviews import describe_marks
from upskill.runs.results.shown import Unfinished
from upskill.runs.stores import Run, Store
from upskill.verdicts.interval import mean_share

PAGE = 40  # trials that are shown at a time


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which answers to show."""

    case: str | None = None
    model: str | None = None
    arm: str | None = None
    failed: bool = False  # or missing; with the skill, if no arm is chosen
    page: int = 1


def report_shown(evaluation: Evaluation, store: Store, chosen: Chosen) -> Report:
    """With a summary of the run, unless only some of its answers are asked for."""
    report = report_evaluation(evaluation, store=store)
    is_all = chosen == Chosen()
    groups, is_last = _read_page(evaluation, store, chosen)
    notes = [note for note in report.notes if is_all or note.kind in ("alarm", "caveat")]
    if evaluation.reviews:
        notes.append(Note(describe_marks(evaluation.reviews)))
    if not groups:
        arm = f"in the {chosen.arm} arm" if chosen.arm else "with the skill"
        failed = f"No trial {arm} failed or is missing."
        notes.append(Note(failed if chosen.failed else "No answer is stored."))
    if chosen.page > 1 or not is_last:
        groups = [replace(each, title=f"{each.title}, on this page") for each in groups]
    if not is_last:
        next_page = f"Use --page {chosen.page + 1} for the next one."
        notes.append(Note(f"This is page {chosen.page}, with {PAGE} trials. {next_page}"))
    # Where students only answer, there is little to say of how they were run.
    acts = evaluation.run.plan.sandbox is not None
    return replace(
        report,
        tables=report.tables if is_all else (),
        notes=notes,
        sections=[each for each in report.sections if each.title == "Settings" and acts],
        groups=lambda: groups,
    )


def _read_page(
    evaluation: Evaluation, store: Store, chosen: Chosen
) -> tuple[list[CaseGroup], bool]:
    """The groups of one page, and whether it is the last. A case is never on two pages."""
    arm = chosen.arm or ("skill" if chosen.failed else None)
    reader = CaseReader(
        evaluation,
        store,
        Limits(failing=PAGE, passing=PAGE),
        models=[chosen.model] if chosen.model else (),
        arms=[arm] if arm else (),
        only_failed=chosen.failed,
    )
    trials = 0
    found: dict[Outcome, list[CaseAnswers]] = {}
    is_last = True
    ids = chain.from_iterable(reader.ids().values())
    for case in map(reader.case, (each for each in ids if chosen.case in (None, each))):
        if case.draws:
            page = trials // PAGE + 1
            is_last = page <= chosen.page
            if page == chosen.page:
                found.setdefault(case.outcome, []).append(case)
            trials += sum(len(draw.seeds) for draw in case.draws)
        if not is_last:
            break
    return [reader.group(outcome, cases) for outcome, cases in found.items()], is_last


def report_check_rates(
    run: Run, results: Iterable[Result], unfinished: Mapping[str, Unfinished]
) -> Report:
    """Every check in the order of the suite. One that never ran because the answer was cut off has failed."""
    plan = run.plan
    checks = {case.id: dict.fromkeys(case.check_names) for case in plan.suite.cases}
    # How often it passed in each case. Missing trials are not counted.
    passes: dict[tuple[str, str, str], dict[str, list[bool]]] = {
        key: {} for key in product(run.models, chain.from_iterable(checks.values()), plan.arms)
    }
    for result in results:
        trial = result.trial
        if result.passed is not None and trial.model not in unfinished:
            for check in checks[trial.case]:
                findings = [each.passed for each in result.findings if each.check == check]
                by_case = passes[trial.model, check, trial.arm]
                by_case.setdefault(trial.case, []).append(bool(findings) and all(findings))
    rows: list[Row] = []
    data: list[Mapping[str, Any]] = []
    for (model, check, arm), by_case in passes.items():
        if by_case:
            draws = by_case.values()
            rate = mean_share([sum(each) / len(each) for each in draws])
            label = plan.labels[arm]
            rows.append({"Check": check, "Model": model, "Arm": label, "Passes": rate})
            counts = {"passed": sum(map(sum, draws)), "trials": sum(map(len, draws))}
            found = pick(rate.to_dict(), {"rate": "value"}, "interval")
            data.append({"model": model, "check": check, "arm": arm, **counts, **found})
    title = f"How often each check of {run.skill} passes"
    if not rows and not unfinished:
        title = f"No trial in {run.id} was graded, so no check passed or failed."
    when = "Its check pass rates are shown once all trials have run."
    return Report(
        title=title,
        name=run.skill,
        data={
            "run": run.id,
            "checks": data,
            "unfinished": {model: asdict(each) for model, each in unfinished.items()},
        },
        tables=[Table.of(rows)],
        notes=[
            Note(f"{run.id}: {model} is {so_far}. {when}", "caveat")
            for model, so_far in unfinished.items()
        ],
    )
