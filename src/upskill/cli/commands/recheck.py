from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from upskill.cli.console import note, show_document, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.last_verdicts import verdicts_on_record
from upskill.cli.library import LibraryOptions, write_pages
from upskill.cli.options import click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.options import option
from upskill.reports.recheck import headline, reason_in_words, render_markdown, render_page
from upskill.runs.planning.estimate import CostEstimate, estimate
from upskill.runs.planning.options import choose_students
from upskill.runs.running.recheck import ROUNDS, Recheck, Rechecked
from upskill.runs.stores import Store
from upskill.skills import Skill, find_skills
from upskill.suites import Suite


@dataclass(kw_only=True)
class RecheckOptions(LibraryOptions):
    default_repeats: ClassVar[int] = ROUNDS

    tolerance: float = option(
        "--tolerance",
        default=15.0,
        help="With a lift closer to zero than this, the model does about as well without the skill (default 15).",
        metavar="POINTS",
        minimum=1,
        maximum=100,
    )
    strict: bool = option("--strict", default=False, help="Exit with 1 if a skill needs repair.")


@click.command("recheck", cls=Command)
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path())
@click_options(RecheckOptions)
def command(**values: Any) -> None:
    """Check which skills in DIR (default: this folder) a model still needs: keep, retire or repair.

    \b
    upskill recheck skills -m haiku --max-cost 5
    upskill recheck -m haiku -m sonnet -o recheck-report

    Each skill's cases are run with and without it: a few rounds for every skill, then more rounds where a decision is
    closest, at most --repeats (default 12). Expect at most 5% of all decisions to be wrong.

    keep: it helps, or saves tokens. retire: the model does about as well without it. repair: it hurts. A skill without
    test cases is listed and costs nothing.
    """
    options = RecheckOptions(**values)
    with options.open_store() as store:
        library = list(_plan(options, store))
        if not library:
            raise UsageError("there is no skill here", "Pass the folder that holds your skills.")
        recheck = options.run(_recheck(options, store, library))
        _write_reports(options, store, recheck, library)
    if options.strict and any(each.status == "repair" for each in library):
        raise click.exceptions.Exit(1)


def _plan(options: RecheckOptions, store: Store) -> Iterator[Rechecked]:
    students = choose_students(options.students, options.settings, options.tell)
    folders = dict.fromkeys(
        folder for root in options.folders or (".",) for folder in find_skills(root)
    )
    for folder in folders:
        try:
            skill = Skill.load(folder)
        except UsageError as error:
            note(f"Skipped: {error.message}")
            continue
        old = verdicts_on_record(store, skill)
        try:
            if suite := Suite.of(skill):
                for student in students:
                    yield Rechecked(skill, options.plan(skill, suite, [student]), old=old)
            else:
                yield Rechecked(skill)
        except UsageError as error:
            yield Rechecked(skill, reason=f"{error.message}. {error.hint}".strip(), old=old)


async def _recheck(options: RecheckOptions, store: Store, library: Sequence[Rechecked]) -> Recheck:
    progress = RunProgress(quiet=options.silent)
    models = options.open_models(store, progress)
    plans = [each.plan for each in library if each.plan]
    in_all = sum(
        (estimate(plan, plan.trials(), models.context.prices) for plan in plans), CostEstimate()
    )
    confirm_cost(options, in_all, f"at most {in_all.words}; less if fewer rounds are enough")
    measure = options.measurer(store, models, progress, progress.started)
    recheck = Recheck(store, measure, options.tolerance / 100, options.tell)
    async with models:
        await recheck.run(library)
    own = {each.evaluation.run.id for each in library if each.evaluation}
    for each in library:
        each.old = [row for row in each.old if row["run"] not in own]
    return recheck


def _write_reports(
    options: RecheckOptions, store: Store, recheck: Recheck, library: Sequence[Rechecked]
) -> None:
    summary = render_markdown(recheck, library)
    if options.as_json:
        show_json({"halted": recheck.halted or None, "skills": list(map(_to_dict, library))})
    else:
        show_document(summary)
    if options.output:
        folder = Path(options.output)
        write_file(str(folder / "summary.md"), summary)
        write_file(str(folder / "index.html"), render_page(recheck, library))
        write_pages(folder, store, [each.evaluation for each in library if each.evaluation])
        note(f"Wrote {folder}/ ({headline(library)}).")


def _to_dict(each: Rechecked) -> dict[str, Any]:
    return {
        "skill": each.skill.name,
        "folder": str(each.skill.folder),
        "model": each.model or None,
        "status": each.status,
        "reason": reason_in_words(each) if each.status != "no suite" else "it has no test cases",
        "rounds": each.rounds,
        "run": each.evaluation.run.id if each.evaluation else None,
        "before": list(each.old),
        "verdict": each.verdict and each.verdict.to_dict(),
    }
