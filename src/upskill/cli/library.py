"""What `ci`, `distill`, `challenge`, `matrix` and `tests --score` share: many plans under one ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from upskill.cli.console import check_writable, note, write_file
from upskill.cli.options import CommandOptions, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.experiments.engine import Engine
from upskill.models import Address
from upskill.models.addresses import resolve
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.options import option
from upskill.reports.report import Report
from upskill.runs.planning.estimate import estimate, estimate_writing
from upskill.runs.planning.options import MAX_REPEATS, MeasureOptions, model_option
from upskill.runs.planning.plan import Plan, PlanOptions, Trial, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.running.gate import Measure
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, load_skills
from upskill.suites import Suite

Found = TypeVar("Found")


@dataclass(kw_only=True)
class PlansOptions(MeasureOptions, CommandOptions):
    """Of a command that runs many plans with the same models, under one ceiling."""

    judge: str | None = model_option(
        "--judge", help="The model that grades cases with `judge` checks."
    )

    @property
    def plan_options(self) -> PlanOptions:
        settings = self.settings
        return PlanOptions(
            base_url=self.base_url,
            runs=self.repeat_count,
            seed=self.seed,
            temperature=settings.temperature,
            max_output_tokens=settings.max_output_tokens,
            agent=self.agent,
            bounds=self.bounds,
            sandbox=self.sandbox,
        )

    def plan(
        self, skill: Skill, suite: Suite, students: Iterable[str], base: Skill | None = None
    ) -> Plan:
        settings = self.settings
        options = replace(
            self.plan_options,
            judge=self.judge or settings.judge or "",
            reference_skill=base,
            distractors=load_skills(self.with_skills, beside=skill),
            gpu=settings.gpu,
            mcp_hosts=settings.mcp_hosts,
        )
        return make_plan(skill, suite, students, options)

    def run(self, plans: Coroutine[Any, Any, Found]) -> Found:
        again = (
            f"Run the same command again{' without --redraw' if self.redraw else ''} to continue."
        )
        with RunProgress(
            quiet=self.silent, interrupted=f"interrupted. {again}" if self.keeps_runs else ""
        ):
            return asyncio.run(plans)

    @asynccontextmanager
    async def open_engine(self) -> AsyncGenerator[Engine]:
        """What an experiment runs with. Its progress is shown."""
        progress = RunProgress(quiet=self.silent)
        with self.open_store() as store:
            async with self.open_models(store, progress) as models:
                run_plan = self.measurer(store, models, progress, progress.started)
                yield Engine(store, models, run_plan, self.tell)

    def confirm_trials(self, engine: Engine, plan: Plan, words: str) -> None:
        """Ask before an experiment runs about so many trials."""
        expected = estimate(plan, plan.trials(), engine.models.context.prices)
        confirm_cost(self, expected, words.format(expected.words))

    def open_models(
        self, store: Store, progress: RunProgress, ledger: Ledger | None = None
    ) -> Models:
        context = self.model_context(Events(message=self.tell, reading=progress.reading))
        ledger = ledger or Ledger(self.ceilings)
        return Models(context, replies=store, cache=self.cache_mode, ledger=ledger)

    def measurer(
        self,
        store: Store,
        models: Models,
        progress: RunProgress,
        started: Callable[[Plan, Run, Collection[Trial]], None],
    ) -> Measure:
        events = Events(started=started, result=progress.result, message=self.tell)
        redrawn: set[str] = set()  # plans that have their further rounds

        async def measure(plan: Plan, run_options: RunOptions) -> Evaluation:
            here = replace(
                run_options,
                partial=True,
                executor=self.open_executor(),
                redraw=self.redraw and plan.fingerprint not in redrawn,
                tolerance=self.tolerated_share,
                strict_suite=self.settings.strict_suite,
            )
            redrawn.add(plan.fingerprint)
            with progress:
                return await evaluate(plan, store=store, models=models, options=here, events=events)

        return measure


@dataclass(kw_only=True)
class LibraryOptions(PlansOptions):
    folders: tuple[str, ...] = ()
    repeats: int | None = option(
        "--repeats",
        default=None,
        help="The maximum number of rounds. Each runs every case once.",
        metavar="N",
        minimum=1,
        maximum=MAX_REPEATS,
        show_default="default_repeats",
    )
    output: str | None = option(
        "-o",
        "--output",
        default=None,
        help="Also write the summary (summary.md), other reports and an HTML page of each run into this folder.",
        metavar="DIR",
    )


def rounds_option(what: str) -> Any:
    """How many rounds the sequential test of an experiment may take."""
    greedy = "With 1, the student answers once, greedily, and no significance test is done."
    return option("--repeats", default=None, help=f"{what} {greedy}", metavar="N", minimum=1)


def tolerance_option(points: float, what: str) -> Any:
    """How much may be lost."""
    what = f"How many points of {what} (default {points:g})."
    return option(
        "--tolerance", default=points, help=what, metavar="POINTS", minimum=0.1, maximum=90
    )


def confirm_writing(
    options: CommandOptions, engine: Engine, name: str, *, items: int, material: int
) -> Address:
    """Ask before a model writes something that costs money; `material` is in tokens."""
    address = resolve(name, keys=engine.models.context.keys)
    confirm_cost(
        options,
        estimate_writing(address, engine.models.context.prices, material=material, items=items),
    )
    return address


def check_report(path: str | None) -> None:
    """UsageError if no page and no picture can be written there."""
    if path and Path(path).suffix not in (".html", ".svg"):
        raise UsageError(f"{path}: must end in .html or .svg", "HTML is a page, SVG a picture.")
    if path:
        check_writable(path)


def write_report(path: str | None, report: Report, picture: Callable[[], str]) -> None:
    """As a page or a picture, if it was asked for."""
    if not path:
        return
    from upskill.reports.html import render  # noqa: PLC0415 - Jinja, only for a page

    write_file(path, picture() if path.endswith(".svg") else render(report))
    note(f"Wrote {path}.")


def write_pages(folder: Path, store: Store, evaluations: Iterable[Evaluation]) -> None:
    from upskill.reports.evaluated import report_evaluation  # noqa: PLC0415 - numpy
    from upskill.reports.html import render  # noqa: PLC0415 - Jinja, only for a page

    for evaluation in evaluations:
        report = report_evaluation(evaluation, store=store)
        write_file(str(folder / f"{evaluation.run.id}.html"), render(report))
