from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, get_args

import click
from rich.text import Text

from upskill.authoring.saving.provenance import OWN_KNOWLEDGE, Provenance, own_lines, sourced_lines
from upskill.cli.commands.completion import complete_cases, complete_models, complete_runs
from upskill.cli.console import note, show, show_json, show_report, to_json_text
from upskill.cli.help import Command
from upskill.cli.options import find_project_store, json_option, open_run, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.reports.experiments import report_worth
from upskill.reports.shown import PAGE
from upskill.reports.trial_rows import result_to_json
from upskill.runs.planning.plan import Arm, Result
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.reviews import count_marks
from upskill.runs.results.shown import unfinished_models
from upskill.runs.stores import Page, Run, Store
from upskill.sandboxes import printable
from upskill.skills import Skill
from upskill.traces.redaction.redact import redact
from upskill.version import __version__


@click.command("show", cls=Command)
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "--case",
    metavar="ID",
    help="Only this case: both arms side by side, or every step of agents that act.",
    shell_complete=complete_cases,
)
@click.option(
    "-m",
    "--student",
    "model",
    metavar="MODEL",
    help="Only this student.",
    shell_complete=complete_models,
)
@click.option(
    "--failed",
    is_flag=True,
    help="Only trials with the skill that failed or are missing; --arm chooses another arm.",
)
@click.option("--arm", type=click.Choice(get_args(Arm)), help="Only this arm.")
@click.option(
    "--checks",
    is_flag=True,
    help="Only how often each check passes, by model and arm, with its interval.",
)
@click.option(
    "--bugs", is_flag=True, help="Only the tracebacks of bugs in upskill, to report them."
)
@click.option(
    "--sources", is_flag=True, help="RUN is a skill's folder: show the evidence behind each line."
)
@click.option(
    "--worth",
    is_flag=True,
    help="RUN is a skill's folder: show what each block is worth to each student.",
)
@click.option(
    "--page",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Only the Nth {PAGE} trials (default: the first).",
)
@store_option
@json_option
def command(**values: Any) -> None:
    """Show RUN: a summary, and its trials with prompt, answer and findings, page by page; --json prints them all.

    RUN is an id, a prefix of one, `last`, or `last~1` for the one before it. `last:held-out` and `last:train` are the
    two runs that the last `generate` reported.

    With --sources, RUN is a skill's folder: every line of the skill is shown with the evidence behind it. With --worth,
    every block is shown with the points of pass rate that it is worth, from the trials of `upskill distill`.
    """
    options = ShowOptions(**values)
    if options.sources:
        _show_sources(Skill.load(options.run), as_json=options.as_json)
        return
    if options.worth:
        _show_worth(Skill.load(options.run), options)
        return
    with open_run(options.store, options.run) as (store, run):
        if options.bugs:
            _show_bugs(store, run, as_json=options.as_json)
        elif options.checks:
            _show_checks(store, run, options)
        elif options.as_json:
            _show_json(store, run, options)
        else:
            _show_answers(store, run, options)


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    run: str
    case: str | None = None
    model: str | None = None
    failed: bool = False
    arm: Arm | None = None
    checks: bool = False
    bugs: bool = False
    sources: bool = False
    worth: bool = False
    page: int | None = None
    store: str | None = None
    as_json: bool = False

    def check(self, run: Run) -> None:
        for what, name, known in (
            ("case", self.case, run.plan.suite.by_id),
            ("model", self.model, run.models),
        ):
            if name is not None and name not in known:
                raise UsageError(f"{run.id}: no {what} named {name!r}", did_you_mean(name, known))
        arm = self.arm or ("skill" if self.failed else None)
        if arm and arm not in run.plan.arms:
            raise UsageError(
                f"{run.id}: no arm named {arm!r}", f"It has {', '.join(run.plan.arms)}."
            )

    def results(self, store: Store, run: Run, page: Page | None) -> Iterator[Result]:
        self.check(run)
        arm = self.arm or ("skill" if self.failed else None)
        return store.results(run, self.case, self.model, arm, failed=self.failed, page=page)


def _show_answers(store: Store, run: Run, options: ShowOptions) -> None:
    from upskill.reports.shown import Chosen, report_shown  # noqa: PLC0415 - numpy

    options.check(run)
    chosen = Chosen(
        case=options.case,
        model=options.model,
        arm=options.arm,
        failed=options.failed,
        page=options.page or 1,
    )
    report = report_shown(evaluation_of(store, run), store, chosen)
    if chosen.page > 1 and not [*report.groups()]:
        raise UsageError(
            f"{run.id}: there is no page {chosen.page}", "Drop --page to see the first one."
        )
    show_report(report, detail="steps" if options.case else "answers")


def _show_worth(skill: Skill, options: ShowOptions) -> None:
    with find_project_store(options.store) or nullcontext() as store:
        versions = list(store.candidates(skill.name)) if store else []
    same = [each for each in versions if each.fingerprint == skill.visible_hash]
    longer = [
        each for each in versions if each.number in {made.parent for made in same}
    ]  # before `distill --write`
    for version in reversed(longer + same):
        rows: list[dict[str, Any]] = [dict(row) for row in version.verdict.get("worth", ())]
        for row in rows:
            row["worth"] = [each for each in row["worth"] if options.model in (None, each["model"])]
        if any(row["worth"] for row in rows):
            report = report_worth(skill.name, version.created, rows)
            return show_report(report, as_json=options.as_json)
    raise UsageError(
        f"{skill.name}: the blocks in this version have not been measured",
        f"Run `upskill distill {options.run} -m {options.model or 'MODEL'}` to find out what each one is worth.",
    )


def _show_json(store: Store, run: Run, options: ShowOptions) -> None:
    """Streamed: a run may have more trials than fit into memory."""
    page = Page(PAGE, (options.page - 1) * PAGE) if options.page else None
    results = options.results(store, run, page)
    invalid = [{**asdict(trial), "reason": reason} for trial, reason in store.leaks(run)]
    plan = to_json_text(run.plan.to_dict())
    head = f'"run": {to_json_text(run.id)},\n  "plan": {plan}'
    click.echo(f'{{\n  {head},\n  "trials": [', nl=False)
    for number, result in enumerate(results):
        click.echo(
            f"{',' if number else ''}\n    {to_json_text(result_to_json(result), 4)}", nl=False
        )
    marks = count_marks(store.reviews(run))
    more = f',\n  "feedback": {to_json_text({"marks": marks})}' if marks else ""
    click.echo(f'\n  ],\n  "invalid": {to_json_text(invalid)}{more}\n}}')


def _show_checks(store: Store, run: Run, options: ShowOptions) -> None:
    from upskill.reports.shown import report_check_rates  # noqa: PLC0415 - numpy

    results = options.results(store, run, None)
    report = report_check_rates(run, results, unfinished_models(store, run))
    show_report(report, as_json=options.as_json)


def _show_bugs(store: Store, run: Run, *, as_json: bool) -> None:
    versions = f"upskill {__version__}, Python {platform.python_version()}, {platform.platform()}"
    bugs = [
        (trial, redact(error), redact(traceback)) for trial, error, traceback in store.bugs(run)
    ]
    if as_json:
        rows = [
            {**asdict(trial), "error": error, "traceback": traceback}
            for trial, error, traceback in bugs
        ]
        show_json({"run": run.id, "versions": versions, "bugs": rows})
        return
    if not bugs:
        note(f"No trial in {run.id} hit a bug in upskill.")
        return
    click.echo(versions)
    for trial, error, traceback in bugs:
        click.echo(
            f"\n{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}: {printable(error)}"
        )
        click.echo(printable(traceback.rstrip()))


def _show_sources(skill: Skill, *, as_json: bool) -> None:
    meta = Provenance.of(skill)
    if not meta.sources:
        raise UsageError(
            f"{skill.folder}: the skill does not record where its lines come from",
            "`upskill generate` records it.",
        )
    own, count = own_lines(skill)
    lines = [(line.text, line.ids, line.is_own) for line in sourced_lines(skill)]
    untold = sum(line.is_untold for line in sourced_lines(skill))
    if as_json:
        rows = [
            {"line": line, "evidence": list(ids), "own": is_own}
            for line, ids, is_own in lines
            if line.strip()
        ]
        show_json(
            {
                "skill": skill.name,
                "lines": rows,
                "evidence": {k: dict(v) for k, v in meta.evidence.items()},
            }
        )
        return
    for line, ids, is_own in lines:
        sources = f"  [{', '.join(ids)}]" if ids else ""
        show(Text.assemble(line, (sources, "yellow" if is_own else "cyan")))
    show(Text(""))
    if own:
        rest = "rests" if len(own) == 1 else "rest"
        summary = f" {len(own)} of {counted(count, 'line')} {rest} on the teacher's word alone."
        show(Text.assemble((OWN_KNOWLEDGE, "yellow"), summary))
    if untold:
        have = "has" if untold == 1 else "have"
        show(
            Text(
                f"{untold} of {counted(count, 'line')} {have} no source: from an older skill, or edited by hand."
            )
        )
    for name, row in meta.evidence.items():
        origin = f" ({row['from']})" if row.get("from") else ""
        text = f" {row.get('kind', '')}{origin}: {' '.join(row.get('text', '').split())}"
        show(Text.assemble((name, "cyan"), text))
