from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import click

from upskill.authoring.trigger.trigger import TriggerOptions, agent_option
from upskill.cli.help import Command
from upskill.cli.library import (
    PlansOptions,
    check_report,
    rounds_option,
    tolerance_option,
    write_report,
)
from upskill.cli.options import click_options, confirm_cost
from upskill.errors import UsageError
from upskill.experiments.matrix import Matrix, MatrixSettings
from upskill.experiments.shadowing import FIRST_ROUNDS
from upskill.options import option
from upskill.reports.experiments import report_matrix
from upskill.reports.svg import shadow_map
from upskill.runs.planning.estimate import CostEstimate, estimate
from upskill.runs.planning.options import choose_students
from upskill.skills import load_skills
from upskill.skills.agent_specs import AGENT_SPECS

CATALOGS = [name for name, spec in AGENT_SPECS.items() if spec.catalog]


@dataclass(kw_only=True)
class MatrixOptions(PlansOptions):
    default_bounds = TriggerOptions.default_bounds
    judge: str | None = field(default=None, init=False)  # nothing is graded

    folders: tuple[str, ...] = ()
    agent: str = agent_option()
    catalog: str | None = option(
        "--catalog",
        default=None,
        help=f"Shorten descriptions as this agent's catalog would: {', '.join(CATALOGS)}.",
        metavar="AGENT",
    )
    repeats: int | None = rounds_option("How many rounds the test of a pair may take (default 24).")
    tolerance: float = tolerance_option(
        10.0, "activation a skill may lose on the requests in question"
    )
    report: str | None = option(
        "--report",
        default=None,
        help="Write the result as a page (.html), or the map of the first student as a picture (.svg).",
        metavar="FILE",
    )

    def searches(self) -> list[Matrix]:
        if self.catalog and self.agent != "tools":
            raise UsageError(
                f"{self.agent} shortens descriptions itself",
                "Drop --catalog, or use --agent tools.",
            )
        skills = {skill.folder: skill for skill in load_skills(self.folders)}
        settings = MatrixSettings(
            catalog=self.catalog or "", tolerance=self.tolerance / 100, repeats=self.repeats
        )
        options = replace(self.plan_options, distractors=load_skills(self.with_skills))
        students = choose_students(self.students, self.settings, self.tell)
        return [Matrix(tuple(skills.values()), name, settings, options) for name in students]


@click.command("matrix", cls=Command)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click_options(MatrixOptions)
def command(**values: Any) -> None:
    """Find the skills in DIR that take each other's requests when all are installed.

    \b
    upskill matrix skills -m haiku --max-cost 5
    upskill matrix skills -m haiku --report map.svg     as a picture
    upskill matrix skills -m haiku --catalog codex      shortened as Codex does

    Each skill is asked for with its own queries (eval_queries.json), or the prompts of its train cases. First all
    skills are installed together. If a request does not reach its skill, upskill looks for the one that took it and
    tests the two: the skill alone against the skill next to the other, until it is clear whether it loses requests.

    If interrupted, run the same command again to continue.
    """
    options = MatrixOptions(**values)
    check_report(options.report)
    matrices = options.run(_run(options, options.searches()))
    report = report_matrix(matrices)
    options.show(report)
    write_report(options.report, report, lambda: shadow_map(matrices[0].to_dict()))


async def _run(options: MatrixOptions, searches: list[Matrix]) -> list[Matrix]:
    async with options.open_engine() as engine:
        expected = CostEstimate()
        for plan in (plan for search in searches for plan in search.plans.values()):
            first = replace(plan, runs=min(FIRST_ROUNDS, options.repeats or FIRST_ROUNDS))
            expected += estimate(first, first.trials(), engine.models.context.prices)
        confirm_cost(
            options, expected, f"up to {expected.words} to begin with; more if skills take requests"
        )
        return [await search.run(engine) for search in searches]
