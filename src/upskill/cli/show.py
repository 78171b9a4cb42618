"""`upskill show`: every trial of a run, with its prompt, its answer and what the checks found."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from upskill.authoring.provenance import Provenance
from upskill.cli.console import note, show, show_json
from upskill.cli.options import json_option, open_existing_store
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.runs.plan import Result, Trial
from upskill.runs.stores import Run, RunStore
from upskill.sandboxes import printable
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.traces import Step
from upskill.version import __version__

WORDS = {True: "passed", False: "failed", None: "errored"}
COLOURS = {True: "green", False: "red", None: "yellow"}
MARKS = {"ok": ("✓", "green"), "error": ("✗", "red"), "unknown": ("·", "dim")}
BOUNDS = ("turns", "tokens", "seconds")  # what ends the work of an agent before its answer
MOST_LINES = 20  # of one step


@click.command("show")
@click.argument("run")
@click.option("--case", metavar="ID", help="Only this case: both arms side by side, or every step of agents that act.")
@click.option("-m", "--model", metavar="MODEL", help="Only this model.")
@click.option("--failed", is_flag=True, help="Only trials that failed or errored.")
@click.option("--bugs", is_flag=True, help="Only the tracebacks of trials that hit a bug in upskill, to report them.")
@click.option("--sources", is_flag=True, help="RUN is a skill's folder: show which evidence stands behind each line.")
@click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs).")
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
    """Show RUN: every trial with its prompt, answer and findings. RUN is an id, its beginning, or `last`.

    With --sources it is a skill's folder, and every line of the skill is shown with what it came from.
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
            plain = [_plain(result) for result in results]
            invalid = [{**asdict(trial), "reason": reason} for trial, reason in leaks]
            show_json({"run": found.id, "plan": found.plan, "trials": plain, "invalid": invalid})
            return
        show(*_heading(found, leaks))
        baseline = "older skill" if found.plan.get("reference_skill") else "baseline"
        for case_id, group in groupby(results, key=lambda result: result.trial.case):
            show(*_case(cases[case_id], list(group), baseline, closely=case is not None))


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
        raise UsageError(
            f"{skill.folder}: nothing is known of where its lines come from", "`upskill generate` writes that down."
        )
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


def _heading(run: Run, leaks: list[tuple[Trial, str]]) -> Iterator[RenderableType]:
    yield Text(f"run {run.id}, started {run.created}", style="bold")
    counts = f"{run.passed} passed, {run.failed} failed, {run.errored} errored"
    yield Text(f"skill {run.skill} · {', '.join(run.models)} · {counted(run.trials, 'trial')}: {counts}")
    if sandbox := run.plan.get("sandbox"):
        distractors: list[str] = run.plan.get("distractors") or []
        others = f", among {counted(len(distractors), 'other skill')} ({', '.join(distractors)})" if distractors else ""
        yield Text(f"agent {run.plan['agent']}{others}")
        yield Text(_sandbox(sandbox))
    if leaks:
        from upskill.reports.terminal import invalid  # noqa: PLC0415 - numpy comes with it

        yield invalid(leaks, f"upskill show {run.id}")
    yield Text("")


def _sandbox(record: Mapping[str, Any]) -> str:
    """Where the agents of a run acted, and what trying it out showed."""
    name, version = record["name"], record["version"]
    line = f"sandbox {version}" if version.startswith(name) else f"sandbox {name} ({version})"
    if not record.get("isolated", True):
        return f"{line}: NOTHING was held back"
    held = f"{line}; its self-test held: {', '.join(record['passed'])}"
    return f"{held}; reduced: {record['reduced']}" if record.get("reduced") else held


def _case(case: dict[str, Any], results: list[Result], baseline: str, *, closely: bool) -> Iterator[RenderableType]:
    held_out = "held-out" if case["held_out"] else "fit"
    yield Text.from_markup(f"[bold]{escape(case['id'])}[/bold]  [dim]{held_out}[/dim]")
    yield Padding(Text(case["prompt"].strip()), (0, 0, 0, 2))
    for name, text in case.get("files", {}).items():
        yield Padding(Text(f"{name}:\n{text}", style="dim"), (0, 0, 0, 2))
    if not closely:
        for result in results:
            yield Padding(_trial(result, baseline), (0, 0, 0, 2))
        yield Text("")
        return
    for (_, _), pair in groupby(results, key=lambda result: (result.trial.model, result.trial.seed)):
        found = list(pair)
        panels = [
            Panel(_trial(result, baseline, closely=True), border_style=COLOURS[result.passed]) for result in found
        ]
        if any(result.trace and result.trace.calls for result in found):  # commands and code want the whole width
            yield from panels
            continue
        grid = Table.grid(expand=True, padding=(0, 1))
        for _ in found:
            grid.add_column(ratio=1)
        grid.add_row(*panels)
        yield grid
    yield Text("")


def _trial(result: Result, baseline: str, *, closely: bool = False) -> RenderableType:
    trial = result.trial
    colour = COLOURS[result.passed]
    usage = result.usage
    cost = "" if usage.cost_usd is None else f" · ${usage.cost_usd:.5f}"
    arm = baseline if trial.arm == "baseline" else trial.arm
    parts: list[RenderableType] = [
        Text.from_markup(
            f"[{colour}]{WORDS[result.passed]}[/{colour}]  {arm} · {escape(trial.model)} · seed {trial.seed}"
            f" · {usage.input_tokens}+{usage.output_tokens} tokens · {result.seconds:.1f} s{cost}{_acts(result)}"
        )
    ]
    if result.leak:
        parts.append(Text(f"  INVALID: {printable(result.leak)}", style="bold red"))
    if result.trace and result.trace.calls:
        for number, step in enumerate(result.trace.steps, start=1):
            if closely or step.kind == "tool":
                parts.append(Padding(_step(number, step, closely=closely), (0, 0, 0, 2)))
    # Looked at closely, the last step is the answer.
    if result.trace and not (closely and result.trace.calls and result.trace.answer):
        parts.append(Padding(Text(printable(result.trace.answer) or "(an empty answer)"), (0, 0, 0, 2)))
    for judgement in result.judgements:
        mark = "✓" if judgement.passed else "✗"
        parts.append(Text(f"  {mark} {judgement.check}: {printable(judgement.reason)}", style="dim"))
    if result.error:
        parts.append(Text(f"  {printable(result.error)}", style="yellow"))
    return Group(*parts)


def _acts(result: Result) -> str:
    """What an agent that acts did, in a few words."""
    trace = result.trace
    parts: list[str] = []
    if result.activated is not None:
        parts.append("opened the skill" if result.activated else "did not open the skill")
    if trace and (trace.calls or result.activated is not None):
        errors = f", {counted(result.tool_errors, 'error')}" if result.tool_errors else ""
        parts += [counted(trace.turns, "turn"), counted(len(trace.calls), "tool call") + errors]
        if trace.stop in BOUNDS:
            parts.append(f"stopped at its bound on {trace.stop}")
    return "".join(f" · {part}" for part in parts)


def _step(number: int, step: Step, *, closely: bool) -> RenderableType:
    """One step under its number, which is what findings cite."""
    if step.kind != "tool":
        style = "" if step.kind == "assistant" else "dim italic"
        said = "" if step.kind == "assistant" else f"({step.kind}) "
        return Text(f"{number:>2}   {said}{_cut(step.text) or '(an empty answer)'}", style=style)
    mark, colour = MARKS[step.status]
    given = _given(step.arguments)
    head = Text.assemble(f"{number:>2} ", (mark, colour), f" {printable(step.tool) or '(no tool)'} ")
    if not closely:
        head.append(printable(" ".join(given.split())), "bold")
        head.truncate(100, overflow="ellipsis")
        return head
    parts: list[RenderableType] = [head]
    if "\n" in given.strip():
        parts.append(Padding(Text(_cut(given), style="bold"), (0, 0, 0, 7)))
    else:
        head.append(printable(given.strip()), "bold")
    if step.seconds is not None and step.seconds >= 0.05:
        head.append(f"  {step.seconds:.1f} s", "dim")
    if step.output.strip():
        output = Table.grid(padding=(0, 1, 0, 0))
        output.add_row("    →", Text(_cut(step.output), style="dim"))
        parts.append(output)
    return Group(*parts)


def _given(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call as a person would write them: one text as it is, several under their names."""
    if len(arguments) == 1:
        return _text(next(iter(arguments.values())))
    return "\n".join(f"{name}: {_text(value)}" for name, value in arguments.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    """Text that a terminal can be shown, and no more of it than one step may take."""
    lines = printable(text.strip("\n")).splitlines()
    more = len(lines) - MOST_LINES
    if more > 1:
        lines = [*lines[:MOST_LINES], f"… {more} more lines; --json has them all"]
    return "\n".join(lines)


def _plain(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    trial = plain.pop("trial")
    plain.pop("fatal")
    if not result.traceback:
        plain.pop("traceback")
    return {**trial, "outcome": WORDS[result.passed], "answer": result.trace.answer if result.trace else None, **plain}
