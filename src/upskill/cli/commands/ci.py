from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import click

from upskill.cli.commands.validate import check_all, to_sarif
from upskill.cli.console import note, show_document, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.options import CommandOptions, click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.options import option
from upskill.reports import ReportContext
from upskill.reports.gate import headline, render_junit, render_markdown
from upskill.reports.html.page import render
from upskill.runs.planning.estimate import estimate
from upskill.runs.planning.options import MeasureOptions, choose_students, model_option
from upskill.runs.planning.plan import Plan, PlanOptions, Trial, make_plan
from upskill.runs.results.evaluation import Evaluation, first_results
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.running.gate import ROUNDS, Checked, Gate, Measure
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, load_skills
from upskill.skills.changes import changed_skills
from upskill.suites import Suite


@dataclass(kw_only=True)
class CiOptions(MeasureOptions, CommandOptions):
    default_repeats: ClassVar[int] = ROUNDS

    folders: tuple[str, ...] = ()
    base_ref: str | None = option(
        "--base-ref",
        default=None,
        help="The branch or commit to compare with (default: the one the CI system names, else the main branch).",
        metavar="REF",
    )
    judge: str | None = model_option("--judge", help="The model that grades cases with `judge` checks.")
    tolerance: float = option(
        "--tolerance",
        default=20.0,
        help="Points that an edit may lose before upskill runs more rounds to be sure (default 20).",
        metavar="POINTS",
        minimum=1,
        maximum=100,
    )
    strict: bool = option("--strict", default=False, help="Also block a skill that stays undecided.")
    output: str | None = option(
        "-o",
        "--output",
        default=None,
        help="Also write summary.md, junit.xml, validate.sarif and an HTML report of each run into this folder.",
        metavar="DIR",
    )


@click.command("ci", cls=Command)
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path())
@click_options(CiOptions)
def command(**values: Any) -> None:
    """Check the skills in DIR (default: this folder) that a branch changed. Exit code 1 when one of them is blocked.

    \b
    upskill ci                          against the main branch
    upskill ci skills --base-ref HEAD~3 -m haiku --max-cost 2
    upskill ci -o ci-report             with reports for the pull request

    Each changed skill is run as it is, as it was, and without any skill. Did the edit break it? Does it still help?
    Rounds stop once both are known, after --repeats at most (default 12). An unchanged skill costs nothing.

    Without a key, upskill grades recorded answers if the skill has a receipt (`upskill eval --receipt`) and only its
    suite changed.

    A skill is blocked if the edit makes it worse, if the model does as well or better without it, or if it could not
    be run. In GitHub Actions the summary also appears on the run's page.
    """
    options = CiOptions(**values)
    with changed_skills(options.folders or (".",), options.base_ref) as (commit, changes):
        options.tell(f"Comparing {len(changes)} skills with {commit[:10]}.")
        with options.open_store() as store:
            ledger = Ledger(options.ceilings)
            gate = Gate(_planner(options), _measurer(options, store, ledger), options.tolerance / 100, options.strict)
            checked = [each for change in changes for each in asyncio.run(gate.check(change))]
            _write_reports(options, store, gate, checked, commit)
    if any(map(gate.blocks, checked)):
        raise click.exceptions.Exit(1)


def _planner(options: CiOptions) -> Callable[[Skill, Suite, Skill | None], Plan]:
    def plan(skill: Skill, suite: Suite, base: Skill | None) -> Plan:
        students = choose_students(options.students, options.settings, options.tell)
        settings = options.settings
        return make_plan(
            skill,
            suite,
            students,
            PlanOptions(
                base_url=options.base_url,
                runs=options.repeat_count,
                seed=options.seed,
                temperature=settings.temperature,
                max_output_tokens=settings.max_output_tokens,
                judge=options.judge or settings.judge or "",
                reference_skill=base,
                agent=options.agent,
                distractors=load_skills(options.with_skills, beside=skill),
                bounds=options.bounds,
                sandbox=options.sandbox,
                gpu=settings.gpu,
            ),
        )

    return plan


def _measurer(options: CiOptions, store: Store, ledger: Ledger) -> Measure:
    async def measure(plan: Plan, run_options: RunOptions) -> Evaluation:
        progress = RunProgress(quiet=options.silent)
        context = options.model_context(Events(message=options.tell, reading=progress.reading))
        models = Models(context, replies=store, cache=options.cache_mode, ledger=ledger)

        def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
            other = "as it was" if plan.reference_skill else "without it"
            options.tell(f"{plan.skill.name}, as it is and {other}:")
            expected = estimate(plan, missing, context.prices)
            confirm_cost(options, expected, f"at most {expected.words}; less if fewer rounds decide")
            progress.started(plan, run, missing)

        events = Events(started=started, result=progress.result, message=options.tell)
        with progress:
            options_here = replace(
                run_options,
                partial=True,
                executor=options.open_executor(),
                fresh=options.fresh,
                margin=options.settings.margin / 100,
                strict_suite=options.settings.strict_suite,
            )
            return await evaluate(plan, store=store, models=models, options=options_here, events=events)

    return measure


def _write_reports(options: CiOptions, store: Store, gate: Gate, checked: Sequence[Checked], commit: str) -> None:
    summary = render_markdown(gate, checked, commit)
    if options.as_json:
        show_json(
            {
                "base": commit,
                "blocked": any(map(gate.blocks, checked)),
                "skills": [_to_dict(gate, each) for each in checked],
            }
        )
    else:
        show_document(summary)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(page).open("a", encoding="utf-8") as stream:
            stream.write(summary)
    if options.output:
        folder = Path(options.output)
        write_file(str(folder / "summary.md"), summary)
        write_file(str(folder / "junit.xml"), render_junit(gate, checked))
        found = [each for path in options.folders or (".",) for each in check_all(path, "clients", strict=False)]
        write_file(str(folder / "validate.sarif"), to_sarif(found))
        for evaluation in gate.evaluations:
            run = evaluation.run
            context = ReportContext(
                results=lambda run=run: store.results(run),
                first_results=lambda seeds, run=run: first_results(store, run, seeds),
            )
            write_file(str(folder / f"{run.id}.html"), render(evaluation, context))
        note(f"Wrote {folder}/ ({headline(gate, checked)}).")


def _to_dict(gate: Gate, checked: Checked) -> dict[str, Any]:
    change = checked.change
    return {
        "skill": change.head.name,
        "folder": change.path,
        "was": change.base_path or None,
        "change": change.kind,
        "model": checked.model or None,
        "status": checked.status,
        "blocked": gate.blocks(checked),
        "reason": checked.reason,
        "against_base": checked.against_base and checked.against_base.to_dict(),
        "against_none": checked.against_none and checked.against_none.to_dict(),
    }
