"""`upskill show`: every trial of a run, with its prompt, its answer and what the checks found."""

from __future__ import annotations

import platform
from dataclasses import asdict
from itertools import groupby

import click
from rich.text import Text

from upskill.authoring.provenance import Provenance
from upskill.cli.console import note, show, show_json
from upskill.cli.options import json_option, open_existing_store, runs_dir_option
from upskill.errors import UsageError, did_you_mean
from upskill.reports import trials
from upskill.runs.evaluation import mixed_snapshots
from upskill.runs.stores import Run, RunStore
from upskill.sandboxes import printable
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.version import __version__


@click.command("show")
@click.argument("run")
@click.option("--case", metavar="ID", help="Only this case: both arms side by side, or every step of agents that act.")
@click.option("-m", "--model", metavar="MODEL", help="Only this model.")
@click.option("--failed", is_flag=True, help="Only trials that failed or errored.")
@click.option("--bugs", is_flag=True, help="Only the tracebacks of trials that hit a bug in upskill, to report them.")
@click.option("--sources", is_flag=True, help="RUN is a skill's folder: show the evidence behind each line.")
@runs_dir_option
@json_option
def command(
    run: str,
    case: str | None,
    model: str | None,
    failed: bool,
    bugs: bool,
    sources: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Show RUN: every trial with its prompt, answer and findings. RUN is an id, the start of one, or `last`.

    With --sources it is a skill's folder, and every line of the skill is shown with the evidence behind it.
    """
    if sources:
        _show_sources(Skill.load(run), as_json=as_json)
        return
    with open_existing_store(runs_dir or Settings.load().runs_dir) as store:
        found = store.run(run)
        if bugs:
            _show_bugs(store, found, as_json=as_json)
            return
        cases = {item["id"]: item for item in found.plan["suite"]["cases"]}
        if case is not None and case not in cases:
            raise UsageError(f"{found.id}: no case is called {case!r}", did_you_mean(case, cases))
        if model is not None and model not in found.models:
            raise UsageError(f"{found.id}: no model is called {model!r}", did_you_mean(model, found.models))
        results = (result for result in store.results(found, case, model) if not (failed and result.passed))
        leaks = store.leaks(found)
        if as_json:
            invalid = [{**asdict(trial), "reason": reason} for trial, reason in leaks]
            shown = [trials.to_json(result) for result in results]
            show_json({"run": found.id, "plan": found.plan, "trials": shown, "invalid": invalid})
            return
        show(*trials.render_heading(found, leaks, mixed_snapshots(store.snapshots(found))))
        baseline = "older skill" if found.plan.get("reference_skill") else "baseline"
        for case_id, group in groupby(results, key=lambda result: result.trial.case):
            show(*trials.render_case(cases[case_id], list(group), baseline, detailed=case is not None))


def _show_bugs(store: RunStore, run: Run, *, as_json: bool) -> None:
    """Everything that a report of a bug needs, and no secret."""
    from upskill.traces.redact import redact  # noqa: PLC0415 - detect-secrets comes with it

    versions = f"upskill {__version__}, Python {platform.python_version()}, {platform.platform()}"
    found = [(trial, redact(error), redact(traceback)) for trial, error, traceback in store.bugs(run)]
    if as_json:
        bugs = [{**asdict(trial), "error": error, "traceback": traceback} for trial, error, traceback in found]
        show_json({"run": run.id, "versions": versions, "bugs": bugs})
        return
    if not found:
        note(f"No trial of {run.id} hit a bug in upskill.")
        return
    click.echo(versions)
    for trial, error, traceback in found:
        click.echo(f"\n{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}: {printable(error)}")
        click.echo(printable(traceback.rstrip()))


def _show_sources(skill: Skill, *, as_json: bool) -> None:
    meta = Provenance.of(skill)
    if not meta.sources:
        raise UsageError(f"{skill.folder}: does not record where its lines come from", "`upskill generate` records it.")
    lines = [(line, meta.sources.get(line.strip(), ())) for line in skill.body.splitlines()]
    if as_json:
        rows = [{"line": line, "evidence": list(ids)} for line, ids in lines if line.strip()]
        show_json({"skill": skill.name, "lines": rows, "evidence": {k: dict(v) for k, v in meta.evidence.items()}})
        return
    shown = [Text.assemble(line, ("  [" + ", ".join(ids) + "]", "cyan") if ids else "") for line, ids in lines]
    show(*shown, Text(""))
    for name, row in meta.evidence.items():
        origin = f" ({row['from']})" if row.get("from") else ""
        show(
            Text.assemble(
                (f"{name}", "cyan"), f" {row.get('kind', '')}{origin}: {' '.join(row.get('text', '').split())}"
            )
        )
