"""Some of a run's answers, failures first, page by page (`upskill show`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from upskill.reports.cases import CaseReader, Limits
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.report import ArmAnswers, CaseAnswers, CaseGroup, ModelAnswers, Note, Report
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.reviews import describe_marks

PAGE = 40  # trials that are shown at a time


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which answers to show."""

    case: str | None = None
    model: str | None = None
    arm: str | None = None
    failed: bool = False  # or missing
    page: int = 1

    @property
    def is_all(self) -> bool:
        return self == Chosen()


def report_shown(evaluation: Evaluation, context: ReportContext, chosen: Chosen) -> Report:
    """With a summary of the run, unless only some of its answers are asked for."""
    report = report_evaluation(evaluation, replace(context, show_command=""))
    groups, is_last = _read_page(evaluation, context, chosen)
    if chosen.page > 1 or not is_last:
        groups = tuple(replace(each, title=f"{each.title}, on this page") for each in groups)
    notes = [note for note in report.notes if chosen.is_all or note.kind in ("alarm", "caveat")]
    if evaluation.reviews:
        notes.append(Note(describe_marks(evaluation.reviews)))
    if not groups:
        arm = f"in the {chosen.arm} arm" if chosen.arm else "with the skill"
        failed = f"No trial {arm} failed or is missing."
        notes.append(Note(failed if chosen.failed else "No answer is stored."))
    if not is_last:
        next_page = f"Use --page {chosen.page + 1} for the next one."
        notes.append(Note(f"This is page {chosen.page}, with {PAGE} trials. {next_page}"))
    # Where students only answer, there is little to say of how they were run.
    acts = evaluation.run.plan.sandbox is not None
    sections = [each for each in report.sections if each.title == "Settings" and acts]
    return replace(
        report,
        tables=report.tables if chosen.is_all else (),
        notes=tuple(notes),
        sections=tuple(sections),
        groups=lambda: groups,
    )


def _read_page(
    evaluation: Evaluation, context: ReportContext, chosen: Chosen
) -> tuple[tuple[CaseGroup, ...], bool]:
    """The groups of one page, and whether it is the last. A case is never on two pages."""
    first = (chosen.page - 1) * PAGE
    trials = 0
    groups: dict[str, CaseGroup] = {}
    for group, case in _read_cases(evaluation, context, chosen):
        if trials >= first + PAGE:
            return tuple(groups.values()), False
        if trials >= first:
            known = groups.get(group.outcome, group)
            groups[group.outcome] = replace(known, cases=(*known.cases, case))
        trials += sum(len(draw.seeds) for arm in _arms(case) for draw in arm.draws)
    return tuple(groups.values()), True


def _arms(case: CaseAnswers) -> Iterator[ArmAnswers]:
    for answers in case.models:
        yield from answers.arms


def _read_cases(
    evaluation: Evaluation, context: ReportContext, chosen: Chosen
) -> Iterator[tuple[CaseGroup, CaseAnswers]]:
    """Each case with its group, as it is read."""
    if context.store is None:
        return
    limits = Limits(failing=PAGE, passing=PAGE)
    models = (chosen.model,) if chosen.model else ()
    reader = CaseReader(evaluation, context.store, limits, context.clean, models)
    for outcome, ids in reader.ids().items():
        for case_id in ids:
            if chosen.case in (None, case_id):
                case = _choose(reader.case(case_id), chosen)
                if any(arm.draws for arm in _arms(case)):
                    yield CaseGroup(outcome=outcome, title=reader.titles[outcome], cases=()), case


def _choose(case: CaseAnswers, chosen: Chosen) -> CaseAnswers:
    wanted = chosen.arm or ("skill" if chosen.failed else None)
    models: list[ModelAnswers] = []
    for answers in case.models:
        arms = [arm for arm in answers.arms if wanted in (None, arm.arm)]
        if chosen.failed:
            arms = [_failed(arm) for arm in arms]
        models.append(replace(answers, arms=tuple(arms)))
    return replace(case, models=tuple(models))


def _failed(arm: ArmAnswers) -> ArmAnswers:
    return replace(arm, draws=tuple(draw for draw in arm.draws if draw.passed is not True))
