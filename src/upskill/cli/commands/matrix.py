from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from upskill.authoring.trigger.trigger import TriggerOptions, estimate_runs
from upskill.cli.console import check_writable, note, show, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.library import PlansOptions
from upskill.cli.options import click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.experiments.matrix import Matrix, MatrixSearch, MatrixSettings
from upskill.experiments.shadowing import FIRST_ROUNDS
from upskill.options import option
from upskill.reports.matrix import render, render_page
from upskill.reports.pictures.shadow_map import shadow_map
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import PlanOptions
from upskill.runs.stores import Store
from upskill.skills import load_skills
from upskill.skills.agent_specs import AGENT_SPECS, REAL_AGENTS

REPORTS = (".html", ".svg")
CATALOGS = [name for name, spec in AGENT_SPECS.items() if spec.catalog]


@dataclass(kw_only=True)
class MatrixOptions(PlansOptions):
    default_bounds = TriggerOptions.default_bounds

    folders: tuple[str, ...] = ()
    agent: str = option(
        "--agent",
        default="tools",
        help=f"How the student works: tools (built-in agent), or a real agent: {REAL_AGENTS}.",
        metavar="AGENT",
        show_default=True,
    )
    catalog: str | None = option(
        "--catalog",
        default=None,
        help=f"Cut descriptions as this agent's catalog would: {', '.join(CATALOGS)}.",
        metavar="AGENT",
    )
    repeats: int | None = option(
        "--repeats",
        default=None,
        help="How many rounds the test of a pair may take (default 24). With 1, the student answers once, greedily,"
        " and no significance test is done.",
        metavar="N",
        minimum=1,
    )
    tolerance: float = option(
        "--tolerance",
        default=10.0,
        help="How many points of activation a skill may lose on the requests in question (default 10).",
        metavar="POINTS",
        minimum=0.1,
        maximum=90,
    )
    report: str | None = option(
        "--report",
        default=None,
        help="Write the result as a page (.html), or the map of the first student as a picture (.svg).",
        metavar="FILE",
    )

    def searches(self) -> list[MatrixSearch]:
        if self.catalog and self.agent != "tools":
            raise UsageError(f"{self.agent} cuts descriptions itself", "Leave out --catalog, or use --agent tools.")
        skills = {skill.folder: skill for skill in load_skills(self.folders)}
        settings = MatrixSettings(catalog=self.catalog or "", margin=self.tolerance / 100, repeats=self.repeats)
        options = PlanOptions(
            base_url=self.base_url,
            seed=self.seed,
            temperature=self.settings.temperature,
            max_output_tokens=self.settings.max_output_tokens,
            agent=self.agent,
            distractors=load_skills(self.with_skills),
            bounds=self.bounds,
            sandbox=self.sandbox,
        )
        students = choose_students(self.students, self.settings, self.tell)
        return [MatrixSearch(tuple(skills.values()), name, settings, options, self.tell) for name in students]


@click.command("matrix", cls=Command)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click_options(MatrixOptions)
def command(**values: Any) -> None:
    """Find the skills in DIR that take each other's requests when all are installed.

    \b
    upskill matrix skills -m haiku --max-cost 5
    upskill matrix skills -m haiku --report map.svg     as a picture
    upskill matrix skills -m haiku --catalog codex      cut as Codex does

    Each skill is asked for with its own queries (eval_queries.json), or the prompts of its train cases. First all
    skills are installed together. If a request does not reach its skill, upskill looks for the one that took it and
    tests the two: the skill alone against the skill beside the other, until it is clear whether it loses requests.

    If interrupted, run the same command again to continue.
    """
    options = MatrixOptions(**values)
    if options.report:
        if Path(options.report).suffix not in REPORTS:
            raise UsageError(f"{options.report}: must end in .html or .svg", "HTML is a page, SVG a picture.")
        check_writable(options.report, force=True)
    searches = options.searches()
    for line in searches[0].notes:
        options.tell(line)
    with options.open_store() as store:
        matrices = asyncio.run(_run(options, store, searches))
    if options.as_json:
        show_json({"students": [each.to_dict() for each in matrices]})
    else:
        show(*render(matrices))
    if options.report:
        is_picture = options.report.endswith(".svg")
        write_file(options.report, shadow_map(matrices[0].to_dict()) if is_picture else render_page(matrices))
        note(f"Wrote {options.report}.")


async def _run(options: MatrixOptions, store: Store, searches: list[MatrixSearch]) -> list[Matrix]:
    progress = RunProgress(quiet=options.silent)
    models = options.open_models(store, progress)
    async with models:
        expected = CostEstimate()
        for plan in (plan for search in searches for plan in search.plans.values()):
            first = replace(plan, runs=FIRST_ROUNDS if options.repeats is None else min(FIRST_ROUNDS, options.repeats))
            expected += estimate_runs(first, first.trials(), models.context.prices)
        confirm_cost(options, expected, f"up to {expected.words} to begin with; more if skills take requests")
        run_plan = options.measurer(store, models, progress, progress.started)
        return [await search.run(store, run_plan) for search in searches]
