"""One view of a run: every name, figure, mark and sentence of its verdicts, computed once for all reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.authoring.trigger.metrics import TriggerMetrics, compute_trigger_metrics
from upskill.plain import counted
from upskill.reports.numbers import (
    INVALID,
    UNKNOWN,
    before_after,
    decimal,
    dollars,
    interval_in_points,
    lift_in_points,
    mean_tokens,
    pass_rate,
    percent,
    points,
)
from upskill.runs.planning.plan import Trial
from upskill.runs.results.choices import Choice, cheapest, list_choices, pareto
from upskill.runs.results.diagnosis import CaseProblem, describe_problem, diagnose
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.shown import is_cut_short
from upskill.sandboxes import printable
from upskill.suites import describe_authors
from upskill.suites.queries import FIRES, Queries, Query
from upskill.verdicts.line import SIGNS, decision_in_words, describe_verdict, signed_points
from upskill.verdicts.outcome import CAUSES, Cause
from upskill.verdicts.verdict import Decision, Verdict

MAX_ERRORS = 10
MAX_BUGS = 3
MAX_LEAKS = 3
NO_VERDICT = "no verdict: only a part of the suite was run"
ACTIVATION_CAVEAT = (
    "Go by the lift offered: the trials that activate the skill are not a random sample."
)


@dataclass(frozen=True, slots=True)
class Mark:
    sign: str
    color: str
    emoji: str


MARKS: dict[Decision, Mark] = {
    "helps": Mark(SIGNS["helps"], "green", "🟢"),
    "saves": Mark(SIGNS["saves"], "green", "🟢"),
    "hurts": Mark(SIGNS["hurts"], "red", "🔴"),
    "no effect": Mark(SIGNS["no effect"], "yellow", "⚪"),
    "undecided": Mark(SIGNS["undecided"], "yellow", "🟡"),
}
INVALID_MARK = Mark("✗", "bold red", "❌")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictView:
    """A dash stands for a number that does not exist."""

    verdict: Verdict
    model: str
    line: str  # the verdict, without its sign; with several models it begins with the name
    decision: str  # in the few words of a table
    mark: Mark
    baseline_rate: str
    skill_rate: str
    interval: str
    tokens: str  # per trial: 69 → 777
    token_change: str
    cost: str
    turns: str
    tool_calls: str
    tool_errors: str
    activated: str  # 3/5 (60%); empty: nothing could be activated
    lifts: dict[str, str]  # offered, activated, not activated
    controls: tuple[str, ...]
    causes: tuple[str, ...]  # why answers failed
    findings: tuple[str, ...]  # costs, controls and causes

    @property
    def signed_line(self) -> str:
        return f"{self.mark.sign} {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    skill: str
    caveats: tuple[str, ...]  # of the verdicts
    arms: dict[str, str]
    names: tuple[str, ...]  # of models behind an alias: local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
    suite: str  # how many cases and draws
    draws: str  # of each case
    authors: str  # who wrote the cases, from what; empty: not recorded
    verdicts: tuple[VerdictView, ...]
    missing: tuple[str, ...]  # how many trials were not graded
    not_run: str
    problems: tuple[str, ...]
    controls: tuple[str, ...]  # the parts of the lift, if controls were run
    diagnosis: tuple[str, ...]
    findings: tuple[str, ...]  # of all verdicts
    to_do: tuple[str, ...]  # notes that change what to do next, the most urgent first
    choices: tuple[str, ...]
    spending: tuple[str, ...]
    notes: tuple[str, ...]


def view_of(evaluation: Evaluation, add_command: str = "") -> RunView:
    """`add_command`: what appends cases, for the line of a verdict; see `verdict_line`."""
    plan = evaluation.plan
    spent = [
        f"{role} {tokens:,} tokens, {'price unknown' if cost is None else dollars(cost)}"
        for role, (tokens, cost) in evaluation.spent.items()
    ]
    verdicts = tuple(
        _view_verdict(verdict, evaluation, add_command) for verdict in evaluation.verdicts
    )
    models = len(verdicts)
    findings = ((verdict.model, line) for verdict in verdicts for line in verdict.findings)
    controls = ((each.model, line) for each in verdicts for line in each.controls)
    causes = [(each.model, line) for each in verdicts for line in each.causes]
    caveats = ((each.model, line) for each in evaluation.verdicts for line in each.caveats)
    next_steps = grouped([*causes, *evaluation.next_students], models)
    diagnosis = tuple(grouped(_diagnosis(evaluation), len(plan.models)))
    faults = tuple(problems(evaluation))
    notes = tuple(f"Note: {warning}" for warning in evaluation.warnings)
    to_do = faults
    if not evaluation.leaked:
        # A note that begins with a model's name says what a number of it means.
        of_models = tuple(f"Note: {model}: " for model in evaluation.full_names)
        others = (note for note in notes if not note.startswith(of_models))
        to_do = (*faults, *next_steps, *others, *diagnosis)
    is_free = all(cost == 0 for _, cost in evaluation.spent.values())
    return RunView(
        skill=plan.skill.name,
        caveats=tuple(grouped(caveats, models)),
        arms=plan.labels,
        suite=f"{counted(len(plan.suite.cases), 'case')}, {_draws(evaluation)}",
        draws=_draws(evaluation),
        authors=describe_authors(case.metadata for case in plan.suite.cases),
        names=tuple(full for name, full in evaluation.full_names.items() if full != name),
        verdicts=verdicts,
        missing=(*_judge_errors(evaluation), *_missing(evaluation)),
        not_run=_not_run(evaluation),
        problems=faults,
        controls=tuple(grouped(controls, models)),
        diagnosis=diagnosis,
        findings=tuple(grouped(findings, models)),
        to_do=to_do,
        choices=() if evaluation.leaked else tuple(_choices(evaluation)),
        spending=() if is_free else (f"Spent: {' · '.join(spent)}.",),
        notes=notes,
    )


def _draws(evaluation: Evaluation) -> str:
    """How often each student answers each case."""
    plan = evaluation.run.plan
    draws = {model: plan.describe_draws(model) for model in evaluation.run.models}
    if len(set(draws.values())) == 1:
        planned = next(iter(draws.values()))
    else:
        planned = "; ".join(grouped(draws.items(), len(plan.models)))
    if not plan.in_rounds:
        return planned
    rounds = len({row.seed for row in evaluation.outcomes})
    return f"{planned}; stopped after {counted(rounds, 'round')}"


def _view_verdict(verdict: Verdict, evaluation: Evaluation, add_command: str) -> VerdictView:
    both = (verdict.baseline, verdict.skill)
    costs = [arm.cost_usd for arm in both if arm.scored]
    known = [cost for cost in costs if cost is not None]
    causes, activation = tuple(_causes(verdict, evaluation)), verdict.activation
    controls = tuple(_controls(verdict, evaluation.plan.labels["baseline"]))
    line, decision = describe_verdict(verdict, add_command), decision_in_words(verdict.to_dict())
    if verdict.is_invalid:
        line, decision = INVALID, "INVALID"
    elif evaluation.run.plan.part:
        line, decision = NO_VERDICT, "no verdict"
    if len(evaluation.verdicts) > 1:
        line = f"{verdict.model}: {line}"
    tokens = (f"{mean_tokens(arm):,.0f}" if arm.scored else UNKNOWN for arm in both)
    token_change = verdict.total_tokens.relative if verdict.total_tokens else None
    return VerdictView(
        verdict=verdict,
        model=verdict.model,
        line=line,
        decision=decision,
        mark=INVALID_MARK if verdict.is_invalid else MARKS[verdict.decision],
        baseline_rate=pass_rate(verdict.baseline),
        skill_rate=pass_rate(verdict.skill),
        interval=interval_in_points(verdict.interval),
        tokens=before_after(*tokens),
        token_change=percent(token_change, signed=True),
        cost=dollars(sum(known)) if costs and len(known) == len(costs) else UNKNOWN,
        turns=before_after(*(decimal(arm.turns) for arm in both)),
        tool_calls=before_after(*(decimal(arm.tool_calls) for arm in both)),
        tool_errors=before_after(*(percent(arm.tool_errors) for arm in both)),
        activated=f"{activation.activated}/{activation.trials} ({percent(activation.rate)})"
        if activation
        else "",
        lifts=_lifts(verdict),
        controls=controls,
        causes=causes,
        findings=(*_cost(verdict, evaluation), *controls, *causes),
    )


def _lifts(verdict: Verdict) -> dict[str, str]:
    lifts = {"offered": lift_in_points(verdict.these.lift, verdict.pairs)}
    if activation := verdict.activation:
        names = ("activated", "not activated")
        for name, lift, pairs in zip(names, activation.lifts, activation.pairs, strict=True):
            lifts[name] = lift_in_points(lift, pairs)
    return lifts


def describe_leak(trial: Trial, reason: str) -> str:
    return f"{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}: {printable(' '.join(reason.split()))}"


def describe_leaks(leaks: Sequence[tuple[Trial, str]]) -> Iterator[str]:
    yield from (describe_leak(*leak) for leak in leaks[:MAX_LEAKS])
    if len(leaks) > MAX_LEAKS:
        yield f"… and {len(leaks) - MAX_LEAKS} more"


def bug_heading(trials: int) -> str:
    return f"{counted(trials, 'trial')} hit a bug in upskill, not in your skill or model."


def describe_bugs(evaluation: Evaluation, show_command: str) -> Iterator[str]:
    yield bug_heading(evaluation.bug_count)
    for message, trials in evaluation.bug_messages[:MAX_BUGS]:
        yield f"{printable(message)} ({counted(trials, 'trial')})"
    if more := evaluation.bug_messages[MAX_BUGS:]:
        yield f"… and {len(more)} more"
    prints = f"`{show_command} --bugs` prints the tracebacks."
    if not show_command:
        prints = "Run it with log_runs=true to see the tracebacks in `upskill show`."
    yield f"{prints} Please report them in upskill's issue tracker."


def problems(evaluation: Evaluation) -> Iterator[str]:
    yield from _judge_errors(evaluation)
    for model, message in evaluation.stopped.items():
        yield f"gave up on {model}: {message}"
    for model, message, trials in evaluation.errors[:MAX_ERRORS]:
        if model not in evaluation.stopped:
            yield f"{counted(trials, 'trial')} of {model} missing: {printable(message)}"
    if len(evaluation.errors) > MAX_ERRORS:
        yield f"… and {counted(len(evaluation.errors) - MAX_ERRORS, 'other error')}"
    yield from _missing(evaluation)
    yield from filter(None, [_not_run(evaluation)])


def _missing(evaluation: Evaluation) -> Iterator[str]:
    names = evaluation.plan.labels
    lines: list[tuple[str, str]] = []
    for verdict in evaluation.verdicts:
        both = verdict.baseline, verdict.skill
        arms = [arm for arm in both if arm.missing]
        if not arms:
            continue
        missing = sum(arm.missing for arm in arms)
        trials = sum(arm.scored + arm.missing for arm in both)
        of_arms = ", ".join(f"{names[arm.arm]} {arm.missing}" for arm in arms)
        are = "is" if missing == 1 else "are"
        line = f"{missing} of {counted(trials, 'trial')} {are} missing ({of_arms})"
        if excess := verdict.missing.excess:
            line += f"; {excess} of them {'counts' if excess == 1 else 'count'} against the claim"
        lines.append((verdict.model, line))
    yield from grouped(lines, len(evaluation.verdicts))


def _not_run(evaluation: Evaluation) -> str:
    run = evaluation.run
    left = run.trials - run.passed - run.failed - run.errored
    if not left:
        return ""
    if not is_cut_short(run):
        return f"{left} of the {run.trials} trials were not needed"
    # Where the run is unfinished, the verdict says so.
    finish = "" if evaluation.unfinished else "; run the same command again to finish"
    return f"{counted(left, 'trial')} {'was' if left == 1 else 'were'} not run{finish}"


CAUSE_WORDS: dict[Cause, str] = {
    "length": "cut off at {limit}; raise the limit with --set max_output_tokens=N",
    "repetition": "cut off for endless repetition",
    "context": "too long for the model's context; shorten the skill or the cases, or use a model with a longer context",
    "refusal": "refused by the model or its provider",
    "empty": "empty",
    "unreadable": "not readable by a check",
    "disputed": "failed with files that may not be the student's to change; `upskill show` names them",
    "verbose": "right but verbose: longer than the case allows",
}


def _causes(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """How many answers of each arm could not pass and why (they count as failed), and how many were verbose."""
    labels = evaluation.plan.labels
    for cause in CAUSES:
        arms = [arm for arm in (verdict.skill, verdict.baseline) if cause in arm.causes]
        if not arms:
            continue
        parts = [f"{arm.causes[cause]} of {arm.scored} answers ({labels[arm.arm]})" for arm in arms]
        were = "was" if sum(arm.causes[cause] for arm in arms) == 1 else "were"
        limits = evaluation.cut_at(verdict.model)
        limit = (
            " to ".join(f"{limit:,}" for limit in limits) + " tokens"
            if limits
            else "the agent's own limit"
        )
        yield f"{' and '.join(parts)} {were} {CAUSE_WORDS[cause].format(limit=limit)}."


def _judge_errors(evaluation: Evaluation) -> Iterator[str]:
    names = evaluation.plan.labels
    judge = evaluation.plan.judge.name if evaluation.plan.judge else ""
    for model, by_arm in evaluation.judge_errors.items():
        counts = ", ".join(
            f"{ungraded} of {trials} ({names[arm]})" for arm, (ungraded, trials) in by_arm.items()
        )
        of_model = f" from {model}" if len(evaluation.plan.models) > 1 else ""
        yield f"The judge ({judge}) gave no usable grade for answers{of_model}: {counts}. They are missing"


def grouped(lines: Iterable[tuple[str, str]], models: int) -> Iterator[str]:
    """Each sentence once, after the names of the models it is about."""
    by_line: dict[str, list[str]] = {}
    for model, line in lines:
        by_line.setdefault(line, []).append(model)
    for line, names in by_line.items():
        yield (
            line
            if models == 1
            else f"{'All models' if len(names) == models else ', '.join(names)}: {line}"
        )


def _cost(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    labels = evaluation.plan.labels
    if verdict.baseline.cost_usd or verdict.skill.cost_usd:
        arms = [arm for arm in (verdict.baseline, verdict.skill) if arm.scored]
        costs = [f"{dollars(arm.cost_per_pass)} ({labels[arm.arm]})" for arm in arms if arm.passed]
        line = f"A passed task costs {' and '.join(costs)}" if costs else "No task passed"
        for arm in arms:
            if costs and not arm.passed:
                line += f"; none passed ({labels[arm.arm]})"
        if verdict.break_even is not None:
            analysis, tasks = (
                evaluation.run.plan.analysis,
                counted(math.ceil(verdict.break_even), "passed task"),
            )
            cost, source = (
                analysis.making_cost or 0.0,
                analysis.making_source and f" ({analysis.making_source})",
            )
            line += f"; made for ${cost:.{4 if 0 < cost < 0.1 else 2}f}{source}, it pays off after {tasks}"
        yield line + "."


def _controls(verdict: Verdict, baseline: str) -> Iterator[str]:
    if verdict.controls:
        controls = {
            "content": verdict.controls.content,
            f"placebo against the {baseline}": verdict.controls.length,
            "A/A control": verdict.controls.noise,
        }
        parts = [
            f"{name} {signed_points(control.value)} ({signed_points(control.low)} to {signed_points(control.high)})"
            for name, control in controls.items()
            if control is not None
        ]
        yield f"Controls, in points: {' · '.join(parts)}."


def _choices(evaluation: Evaluation) -> Iterator[str]:
    target, several = evaluation.run.plan.analysis.target, len(evaluation.plan.models) > 1
    if not several and target is None:
        return

    def name(choice: Choice) -> str:
        return f"{choice.model} ({evaluation.plan.labels[choice.arm]})"

    choices = list_choices(evaluation.outcomes)
    front = pareto(choices)
    if front and several:
        parts = [
            f"{name(choice)} {percent(choice.pass_rate)}{' at' if choice.cost_per_task else ','} {_price(choice)}"
            for choice in front
        ]
        yield f"Worth the price: {' · '.join(parts)}."
    if target is not None:
        best = cheapest(choices, target)
        unpriced = [
            choice
            for choice in choices
            if choice.cost_per_task is None and choice.pass_rate >= target
        ]
        if best is not None:
            low, high = (percent(bound) for bound in best.interval)
            rate = f"{percent(best.pass_rate)}, {low} to {high}, {_price(best)}"
            yield f"Cheapest that reaches {percent(target)}: {name(best)} ({rate})."
        elif unpriced:
            yield f"{name(unpriced[0])} reaches {percent(target)}; its price is unknown."
        else:
            yield f"Nothing reaches {percent(target)}."


def _price(choice: Choice) -> str:
    return (
        f"{dollars(choice.cost_per_task)} per task"
        if choice.cost_per_task
        else dollars(choice.cost_per_task)
    )


def _diagnosis(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Problems of cases, with the model's name."""
    for address in evaluation.plan.models:
        by_kind: dict[CaseProblem, list[str]] = {}
        for diagnosis in diagnose(evaluation.outcomes_of(address.name)):
            for kind in diagnosis.problems:
                if kind != "unscored":
                    by_kind.setdefault(kind, []).append(diagnosis.case)
        for kind, cases in by_kind.items():
            yield address.name, describe_problem(kind, cases)


def row_in_words(row: Mapping[str, Any], *, named: bool = True) -> str:
    """A line of `skill_verdicts`: what was last reported of a model. `named`: with its name."""
    lift = f", {points(row['lift'])}" if row["lift"] is not None else ""
    suite = f"on {row['other_suite']}" if row["other_suite"] else ""
    limits = ", ".join(filter(None, [suite, row["of"]]))
    name = f"{row['model']}: " if named else ""
    return f"{name}{decision_in_words(row)}{lift}{limits and f' ({limits})'}"


def trigger_metrics(evaluation: Evaluation) -> tuple[TriggerMetrics, ...]:
    """For each model, if the run is a trigger test."""
    cases = evaluation.run.plan.suite.cases
    if not cases or any(case.check_names != (FIRES,) for case in cases):
        return ()
    queries = Queries(tuple(Query(case.prompt, bool(case.checks[0][FIRES])) for case in cases))
    return tuple(
        compute_trigger_metrics(model, queries, evaluation.outcomes)
        for model in evaluation.run.models
    )
