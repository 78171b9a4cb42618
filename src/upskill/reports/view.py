"""One view of a run: every name, figure, mark and sentence of its verdicts, computed once for all reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.plain import counted, dict_or_empty, listed
from upskill.reports.numbers import (
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
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.looks import Looks
from upskill.runs.stores import Run
from upskill.sandboxes import printable
from upskill.suites import describe_authors
from upskill.suites.queries import Queries, Query
from upskill.verdicts.advice import conclude, decision_in_words, signed_points
from upskill.verdicts.choices import Choice, cheapest, list_choices, pareto
from upskill.verdicts.diagnosis import CaseProblem, describe_problem, diagnose
from upskill.verdicts.outcome import CAUSES, Cause
from upskill.verdicts.trigger_metrics import FIRES, TriggerMetrics, compute_trigger_metrics
from upskill.verdicts.verdict import Decision, Verdict

MAX_ERRORS = 10
MAX_BUGS = 3
MAX_LEAKS = 3
ACTIVATION_CAVEAT = (
    "Go by the lift offered: the trials that activate the skill are not a random sample."
)


@dataclass(frozen=True, slots=True)
class Mark:
    sign: str
    color: str
    emoji: str


MARKS: dict[Decision, Mark] = {
    "helps": Mark("✓", "green", "🟢"),
    "saves": Mark("✓", "green", "🟢"),
    "hurts": Mark("✗", "red", "🔴"),
    "no effect": Mark("=", "yellow", "⚪"),
    "undecided": Mark("?", "yellow", "🟡"),
}
INVALID_MARK = Mark("✗", "bold red", "❌")


def arm_names(*, has_reference: bool) -> dict[str, str]:
    """The names of the arms. With `--against` the baseline arm has the reference skill."""
    return {
        "baseline": "reference skill" if has_reference else "baseline",
        "skill": "this skill" if has_reference else "with skill",
        "placebo": "placebo",
        "baseline_repeat": "A/A control",
    }


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A dash stands for a number that does not exist."""

    verdict: Verdict
    model: str
    conclusion: str
    decision: str
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
    findings: tuple[str, ...]  # costs, controls, causes and advice


@dataclass(frozen=True, slots=True)
class RunView:
    skill: str
    replayed: str  # the replies file, and what it claims; empty: models were called
    arms: dict[str, str]
    names: tuple[str, ...]  # of models behind an alias: local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
    suite: str  # how many cases and runs
    runs: str  # of each case
    authors: str  # who wrote the cases, from what; empty: not recorded
    verdicts: tuple[VerdictView, ...]
    uneven_errors: tuple[str, ...]
    missing_trials: str
    problems: tuple[str, ...]
    controls: tuple[str, ...]  # the parts of the lift, if controls were run
    splits: tuple[str, ...]
    looks: tuple[str, ...]
    diagnosis: tuple[str, ...]
    findings: tuple[str, ...]  # of all verdicts
    to_do: tuple[str, ...]  # notes that change what to do next, the most urgent first
    choices: tuple[str, ...]
    spending: tuple[str, ...]
    notes: tuple[str, ...]


def view_of(evaluation: Evaluation) -> RunView:
    plan = evaluation.plan
    decide = "" if plan.suite.part else "; only these can show a gain"
    is_split = evaluation.used_cases and evaluation.unused_cases
    unused = f" ({len(evaluation.unused_cases)} not used by the search{decide})" if is_split else ""
    looks = max((looks.number for looks in evaluation.looks.values()), default=1)
    widened = f", look {looks} (so the interval is wider)" if looks > 1 else ""
    widened += (
        ""
        if all(looks.logged for looks in evaluation.looks.values())
        else ", not logged (so it proves little)"
    )
    spent = [
        f"{role} {tokens:,} tokens, {'price unknown' if cost is None else dollars(cost)}"
        for role, (tokens, cost) in evaluation.spent.items()
    ]
    verdicts = tuple(_view_verdict(verdict, evaluation) for verdict in evaluation.verdicts)
    findings = ((verdict.model, line) for verdict in verdicts for line in verdict.findings)
    diagnosis = tuple(grouped(_diagnosis(evaluation), len(plan.models)))
    advice = [
        (each.model, line)
        for each in verdicts
        for line in (*each.causes, each.verdict.advice)
        if line
    ]
    next_steps = tuple(grouped([*advice, *evaluation.next_students], len(verdicts)))
    faults = tuple(problems(evaluation))
    notes = tuple(f"Note: {warning}" for warning in evaluation.warnings)
    caveats = tuple(
        f"Note: {model}: " for model in evaluation.full_names
    )  # what a number of this model means
    return RunView(
        skill=plan.skill.name,
        replayed=replay_note(evaluation.run),
        arms=arm_names(has_reference=plan.reference_skill is not None),
        suite=f"{counted(len(plan.suite.cases), 'case')}{unused}, {_runs(evaluation)}{widened}",
        runs=_runs(evaluation),
        authors=describe_authors(case.metadata for case in plan.suite.cases),
        names=tuple(full for name, full in evaluation.full_names.items() if full != name),
        verdicts=verdicts,
        uneven_errors=tuple(_uneven_errors(evaluation)),
        missing_trials=_missing_trials(evaluation),
        problems=faults,
        controls=tuple(
            grouped(
                ((each.model, line) for each in verdicts for line in each.controls), len(verdicts)
            )
        ),
        splits=tuple(_splits(evaluation)) if is_split else (),
        looks=tuple(_looks(evaluation)),
        diagnosis=diagnosis,
        findings=tuple(grouped(findings, len(verdicts))),
        to_do=faults
        if evaluation.leaked
        else (
            *faults,
            *next_steps,
            *(note for note in notes if not note.startswith(caveats)),
            *diagnosis,
        ),
        choices=() if evaluation.leaked else tuple(_choices(evaluation)),
        spending=()
        if all(cost == 0 for _, cost in evaluation.spent.values())
        else (f"Spent: {' · '.join(spent)}.",),
        notes=notes,
    )


def _runs(evaluation: Evaluation) -> str:
    planned = evaluation.plan.runs
    done = len({row.seed for row in evaluation.outcomes}) if evaluation.run.plan.scope else planned
    at_most = f" of at most {planned}" if done < planned else ""
    return "one run each" if planned == 1 else f"{done}{at_most} runs each"


def replay_note(run: Run) -> str:
    """Says that a run replays a file, and which facts are only that file's claim."""
    if not run.plan.replayed:
        return ""
    source = run.plan.replayed[0].upper() + run.plan.replayed[1:]
    return f"{source}: no model was called. Only the file says that these are answers from {listed(run.models)}."


def _view_verdict(verdict: Verdict, evaluation: Evaluation) -> VerdictView:
    both = (verdict.baseline, verdict.skill)
    costs = [arm.cost_usd for arm in both if arm.scored]
    known = [cost for cost in costs if cost is not None]
    has_reference = evaluation.plan.reference_skill is not None
    causes, activation = tuple(_causes(verdict, evaluation)), verdict.activation
    controls = tuple(_controls(verdict, has_reference=has_reference))
    on_these = verdict.these_cases.decision if verdict.these_cases else ""
    decision = decision_in_words(verdict.decision, verdict.reason, verdict.replayed, on_these)
    copies = (
        [_describe_copies(verdict)] if verdict.these_cases and verdict.these_cases.copies else []
    )
    return VerdictView(
        verdict=verdict,
        model=verdict.model,
        conclusion=conclude(
            verdict, evaluation.plan.skill.name, verdict.model, has_reference=has_reference
        ),
        decision="INVALID" if verdict.is_invalid else decision,
        mark=INVALID_MARK if verdict.is_invalid else MARKS[verdict.decision],
        baseline_rate=pass_rate(verdict.baseline),
        skill_rate=pass_rate(verdict.skill),
        interval=interval_in_points(verdict.interval),
        tokens=before_after(
            *(f"{mean_tokens(arm):,.0f}" if arm.scored else UNKNOWN for arm in both)
        ),
        token_change=percent(
            verdict.total_tokens.relative if verdict.total_tokens else None, signed=True
        ),
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
        findings=(
            *_cost(verdict, evaluation),
            *controls,
            *causes,
            *copies,
            *filter(None, [verdict.advice]),
        ),
    )


def _describe_copies(verdict: Verdict) -> str:
    cases = counted(verdict.these_cases.copies if verdict.these_cases else 0, "case")
    return f"In {cases}, several runs in one arm gave the same answer. On exactly these cases, they count as one run."


def _lifts(verdict: Verdict) -> dict[str, str]:
    lifts = {"offered": lift_in_points(verdict.lift, verdict.interval, verdict.pairs)}
    if activation := verdict.activation:
        for name, part in (
            ("activated", activation.where_activated),
            ("not activated", activation.where_not_activated),
        ):
            lifts[name] = lift_in_points(part.lift, part.interval, part.pairs)
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
    yield from _uneven_errors(evaluation)
    for model, message in evaluation.stopped.items():
        yield f"gave up on {model}: {message}"
    for model, message, trials in evaluation.errors[:MAX_ERRORS]:
        if model not in evaluation.stopped:
            yield f"{counted(trials, 'trial')} of {model} errored: {printable(message)}"
    if len(evaluation.errors) > MAX_ERRORS:
        yield f"… and {counted(len(evaluation.errors) - MAX_ERRORS, 'other error')}"
    yield from filter(None, [_missing_trials(evaluation)])


def _missing_trials(evaluation: Evaluation) -> str:
    run = evaluation.run
    missing = run.trials - run.passed - run.failed - run.errored
    if not missing:
        return ""
    if evaluation.run.plan.scope and not (evaluation.halted or evaluation.stopped):
        if any(
            verdict.decision == "undecided" and verdict.repeats_itself
            for verdict in evaluation.verdicts
        ):
            return f"Stopped after {_runs(evaluation)}: the answers repeat, so more runs would show nothing new"
        return f"{missing} of the {evaluation.run.trials} trials were not needed"
    finish = (
        "" if evaluation.unfinished else "; run the same command again to finish"
    )  # else the verdict says so
    return f"{counted(missing, 'trial')} {'was' if missing == 1 else 'were'} not run{finish}"


CAUSE_WORDS: dict[Cause, str] = {
    "length": "cut off at {limit}; raise the limit with --set max_output_tokens=N",
    "repetition": "cut off for endless repetition",
    "context": "too long for the model's context; shorten the skill or the cases, or use a model with a longer context",
    "refusal": "refused by the model or its provider",
    "empty": "empty",
    "unreadable": "not readable by a check",
    "disputed": "disputed: the checks pass only with files restored or removed; `upskill show` names them",
    "verbose": "right but verbose: longer than the case allows",
}


def _causes(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """How many answers of each arm could not pass and why (they count as failed), and how many were verbose."""
    names = ("with the skill", "in the baseline")
    if evaluation.plan.reference_skill is not None:
        names = ("with this skill", "with the reference skill")
    arms = list(zip((verdict.skill, verdict.baseline), names, strict=True))
    for cause in CAUSES:
        counts = [
            (arm.causes[cause], arm.scored, name) for arm, name in arms if cause in arm.causes
        ]
        if not counts:
            continue
        parts = [f"{count} of {scored} answers {name}" for count, scored, name in counts]
        were = "was" if sum(count for count, _, _ in counts) == 1 else "were"
        limits = evaluation.cut_at(verdict.model)
        limit = (
            " to ".join(f"{limit:,}" for limit in limits) + " tokens"
            if limits
            else "the agent's own limit"
        )
        yield f"{' and '.join(parts)} {were} {CAUSE_WORDS[cause].format(limit=limit)}."


def _uneven_errors(evaluation: Evaluation) -> Iterator[str]:
    yield from _judge_errors(evaluation)
    for verdict in evaluation.verdicts:
        missing = verdict.missing
        if missing is None:
            continue
        name = f"{verdict.model}: " if len(evaluation.verdicts) > 1 else ""
        if missing.arms_differ:
            arms = (verdict.skill, verdict.baseline)
            skill, baseline = (f"{arm.errored} of {arm.scored + arm.errored}" for arm in arms)
            yield (
                f"{name}{skill} trials with the skill errored and {baseline} in the baseline. Chance does not explain"
                f" that (p = {missing.p_value:.2g}), so errors may bias the lift"
            )
        if verdict.redrawn:
            arms = (verdict.skill, verdict.baseline)
            skill, baseline = (f"{arm.redrawn} of {arm.scored + arm.errored}" for arm in arms)
            yield (
                f"{name}retried after a failed or interrupted call: {skill} trials with the skill, {baseline} in the"
                f" baseline (p = {missing.redraw_p_value:.2g} for no difference between the arms)"
            )
        if missing.changes_decision:
            bounds = (missing.worst, missing.best)
            worst, best = (
                f"{signed_points(lift.value)} ({interval_in_points(lift.interval)})"
                for lift in bounds
            )
            yield (
                f"{name}if every {verdict.unsure} trial had gone against the skill, the lift would be {worst};"
                f" if every one had gone its way, {best}"
            )


def _judge_errors(evaluation: Evaluation) -> Iterator[str]:
    names = arm_names(has_reference=evaluation.plan.reference_skill is not None)
    judge = evaluation.plan.judge.name if evaluation.plan.judge else ""
    for model, by_arm in evaluation.judge_errors.items():
        counts = ", ".join(
            f"{ungraded} of {trials} ({names[arm]})" for arm, (ungraded, trials) in by_arm.items()
        )
        of_model = f" from {model}" if len(evaluation.plan.models) > 1 else ""
        yield f"The judge ({judge}) gave no usable grade for answers{of_model}: {counts}. They are not scored"


def _looks(evaluation: Evaluation) -> Iterator[str]:
    if (models := max(verdict.models for verdict in evaluation.verdicts)) > 1:
        yield (
            f"Each interval is for that model alone. Decisions correct for testing {models} models: if the skill does"
            f" nothing, at most 2.5% of such tables say that it helps any model"
        )
    lines = (
        (model, line)
        for model, looks in evaluation.looks.items()
        for line in _describe_looks(looks)
    )
    yield from grouped(lines, len(evaluation.plan.models))


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


def _describe_looks(looks: Looks) -> Iterator[str]:
    if not looks.logged:
        yield "Not logged: nobody can count this look later, so it proves nothing to others"
    if looks.earlier:
        changes = [
            f"{number} {what}"
            for number, what in ((looks.edited, "edited"), (looks.added, "added"))
            if number
        ]
        since = f"; {' and '.join(changes)} since the first" if changes else ""
        version, hint = "", ""
        if looks.revisions:
            version = f", with version {looks.version} of this skill"
            hint = ". For a first look again, use cases that no version has seen"
        yield (
            f"This is look {looks.number} at these cases{version}{since};"
            f" the interval is wider to correct for earlier looks{hint}"
        )
    if gone := looks.cases_left_out:
        case, run = gone[0]
        names = ", ".join(case for case, _ in gone[:5]) + ", …" * (len(gone) > 5)
        were = (
            "was left out; it still counts" if len(gone) == 1 else "were left out; they still count"
        )
        yield f"{counted(len(gone), 'case')} from an earlier run {were}: {names} (`upskill show {run} --case {case}`)"


def _cost(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    has_reference = evaluation.plan.reference_skill is not None
    if verdict.baseline.cost_usd or verdict.skill.cost_usd:
        names = ("in the baseline", "with the skill")
        if has_reference:
            names = ("with the reference skill", "with this one")
        arms = [
            (arm, name)
            for arm, name in zip((verdict.baseline, verdict.skill), names, strict=True)
            if arm.scored
        ]
        costs = [f"{dollars(arm.cost_per_pass)} {name}" for arm, name in arms if arm.passed]
        line = f"A passed task costs {' and '.join(costs)}" if costs else "No task passed"
        line += "".join(f"; none passed {name}" for arm, name in arms if costs and not arm.passed)
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


def _controls(verdict: Verdict, *, has_reference: bool) -> Iterator[str]:
    if verdict.controls:
        controls = {
            "content": verdict.controls.content,
            "placebo against the reference skill"
            if has_reference
            else "placebo": verdict.controls.length,
            "A/A control": verdict.controls.noise,
        }
        parts = [
            f"{name} {signed_points(control.value)} ({signed_points(control.low)} to {signed_points(control.high)})"
            for name, control in controls.items()
            if control is not None
        ]
        yield f"{'Controls' if has_reference else 'Breakdown of the lift'}, in points: {' · '.join(parts)}."


def _choices(evaluation: Evaluation) -> Iterator[str]:
    target, several = evaluation.run.plan.analysis.target, len(evaluation.plan.models) > 1
    if not several and target is None:
        return
    arms = ("with the reference skill", "with this skill")
    if evaluation.plan.reference_skill is None:
        arms = ("without the skill", "with the skill")

    def name(choice: Choice) -> str:
        return f"{choice.model} {arms[choice.arm == 'skill']}"

    choices = list_choices(evaluation.unused)
    if not choices and evaluation.used_cases:
        return
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
            has_reference = evaluation.plan.reference_skill is not None
            yield address.name, describe_problem(kind, cases, has_reference=has_reference)


def _splits(evaluation: Evaluation) -> Iterator[str]:
    used, unused = evaluation.by_split(used=True), evaluation.by_split(used=False)
    for model, verdict in unused.items():
        if verdict.lift is None or used[model].lift is None:
            continue
        name = f"{model}: " if len(unused) > 1 else ""
        on_unused, on_used = (
            f"{signed_points(part.lift or 0.0)} points ({interval_in_points(part.interval)}, "
            f"{counted(part.pairs, 'pair')})"
            for part in (verdict, used[model])
        )
        yield f"{name}Unused cases: {on_unused}. Cases the search used: {on_used}."


def row_in_words(row: Mapping[str, Any], *, named: bool = True) -> str:
    """A line of `skill_verdicts`: what was last reported of a model. `named`: with its name."""
    these = str(dict_or_empty(row["these_cases"]).get("decision", ""))
    decision = decision_in_words(row["decision"], row["reason"] or "", row["replayed"], these)
    lift = f", {points(row['lift'])}" if row["lift"] is not None else ""
    suite = f"on {row['other_suite']}" if row["other_suite"] else ""
    limits = ", ".join(filter(None, [suite, row["of"] if row["of"] != row["replayed"] else ""]))
    return f"{row['model'] + ': ' if named else ''}{decision}{lift}{limits and f' ({limits})'}"


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
