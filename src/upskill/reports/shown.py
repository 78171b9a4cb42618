"""Some of a run's answers, failures first, page by page (`upskill show`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from upskill.reports.cases import CaseReader, Limits
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.report import CaseAnswers, CaseGroup, Note, Outcome, Report
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.reviews import describe_marks
from upskill.runs.stores import Store

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
    report = report_evaluation(evaluation, ReportContext(store=store))
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
    for outcome, ids in reader.ids().items():
        for case_id in ids:
            if is_last and chosen.case in (None, case_id):
                case = reader.case(case_id)
                shown = sum(len(draw.seeds) for draw in case.draws)
                is_last = not shown or trials < PAGE * chosen.page
                if shown and PAGE * (chosen.page - 1) <= trials < PAGE * chosen.page:
                    found.setdefault(outcome, []).append(case)
                trials += shown
    return [reader.group(outcome, cases) for outcome, cases in found.items()], is_last
