"""What there is to say beside a verdict: problems of a run, what to do next, and what its numbers mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from upskill.plain import counted
from upskill.reports.numbers import dollars, percent
from upskill.reports.report import Headline, Note
from upskill.runs.planning.plan import Trial
from upskill.runs.results.diagnosis import describe_problem
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.shown import is_cut_short
from upskill.sandboxes import printable
from upskill.verdicts.line import signed_points
from upskill.verdicts.outcome import CAUSES, Cause
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Verdict

Document = Mapping[str, Any]  # of JSON
MAX_ERRORS = 10
MAX_BUGS = 3
MAX_LEAKS = 3
ACTIVATION_CAVEAT = (
    "Go by the lift offered: the trials that activate the skill are not a random sample."
)
CAUSE_WORDS: dict[Cause, str] = {
    "length": "cut off at {limit}; raise the limit with --set max_output_tokens=N",
    "repetition": "cut off for endless repetition",
    "context": (
        "too long for the model's context; shorten the skill or the cases, or use a model with a"
        " longer context"
    ),
    "refusal": "refused by the model or its provider",
    "empty": "empty",
    "unreadable": "not readable by a check",
    "verbose": "right but verbose: longer than the case allows",
}


def find_notes(
    evaluation: Evaluation, document: Document, show_command: str = ""
) -> Iterator[Note]:
    """The most urgent first."""
    yield from find_alarms(evaluation, show_command)
    caveats = [(each.model, line) for each in evaluation.verdicts for line in each.caveats]
    for line in (*evaluation.caveats, *grouped(caveats, len(evaluation.verdicts))):
        yield Note(line, "caveat")
    if evaluation.halted:
        again = "To continue, run the same command with a higher limit, e.g. --max-cost."
        yield Note(f"Stopped: {evaluation.halted}. {again}", "caveat")
    # A warning that begins with a model's name says what a number of it means.
    of_models = tuple(f"{model}: " for model in evaluation.full_names)
    of_run = [line for line in evaluation.warnings if not line.startswith(of_models)]
    details = [line for line in evaluation.warnings if line.startswith(of_models)]
    steps = [*problems(evaluation), *of_run]
    if not evaluation.leaked:
        steps = [*problems(evaluation), *_next_steps(evaluation), *of_run, *_diagnosis(document)]
        details += _pays_off(evaluation)
    for line in steps:
        yield Note(line)
    for line in details:
        yield Note(line, "detail")


def grouped(lines: Iterable[tuple[str, str]], models: int) -> Iterator[str]:
    """Each sentence once, after the names of the models it is about."""
    by_line: dict[str, list[str]] = {}
    for model, line in lines:
        by_line.setdefault(line, []).append(model)
    for line, names in by_line.items():
        if models == 1:
            yield line
        elif len(names) == models:
            yield f"All models: {line}"
        else:
            yield f"{', '.join(names)}: {line}"


# What makes numbers useless
# ------------------------------------------------------------------------------------------------


def find_alarms(evaluation: Evaluation, show_command: str) -> Iterator[Note]:
    if evaluation.bugs:
        yield bug_note(evaluation, show_command)
    if evaluation.leaked:
        yield leak_note(evaluation.invalid, show_command)


def leak_note(leaks: Sequence[tuple[Trial, str]], show_command: str) -> Note:
    trials = counted(len(leaks), "trial")
    lines = [describe_leak(*leak) for leak in leaks[:MAX_LEAKS]]
    if len(leaks) > MAX_LEAKS:
        lines.append(f"… and {len(leaks) - MAX_LEAKS} more")
    advice = "Remove whatever gave access to it, then run again with --redraw."
    if show_command and leaks:
        advice = f"See how with `{show_command} --case {leaks[0][0].case}`. {advice}"
    return Note(
        f"{trials} saw or tried to open a skill that should have been hidden:",
        "alarm",
        (*lines, advice),
    )


def describe_leak(trial: Trial, reason: str) -> str:
    why = printable(" ".join(reason.split()))
    return f"{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}: {why}"


def bug_heading(trials: int) -> str:
    return f"{counted(trials, 'trial')} hit a bug in upskill, not in your skill or model."


def bug_note(evaluation: Evaluation, show_command: str) -> Note:
    messages = evaluation.bug_messages
    lines = [
        f"{printable(message)} ({counted(trials, 'trial')})"
        for message, trials in messages[:MAX_BUGS]
    ]
    if len(messages) > MAX_BUGS:
        lines.append(f"… and {len(messages) - MAX_BUGS} more")
    prints = f"`{show_command} --bugs` prints the tracebacks."
    if not show_command:
        prints = "Run it with log_runs=true to see the tracebacks in `upskill show`."
    lines.append(f"{prints} Please report them in upskill's issue tracker.")
    return Note(bug_heading(evaluation.bug_count), "alarm", tuple(lines))


# What is missing
# ------------------------------------------------------------------------------------------------


def problems(evaluation: Evaluation) -> Iterator[str]:
    yield from _judge_errors(evaluation)
    for model, message in evaluation.stopped.items():
        yield f"gave up on {model}: {message}"
    for model, message, trials in evaluation.errors[:MAX_ERRORS]:
        if model not in evaluation.stopped:
            yield f"{counted(trials, 'trial')} of {model} missing: {printable(message)}"
    if len(evaluation.errors) > MAX_ERRORS:
        yield f"… and {counted(len(evaluation.errors) - MAX_ERRORS, 'other error')}"
    missing = [(verdict.model, _missing(verdict, evaluation)) for verdict in evaluation.verdicts]
    yield from grouped([row for row in missing if row[1]], len(evaluation.verdicts))
    not_run = _not_run(evaluation)
    if not_run:
        yield not_run


def _missing(verdict: Verdict, evaluation: Evaluation) -> str:
    labels = evaluation.plan.labels
    arms = (verdict.baseline, verdict.skill)
    missing = sum(arm.missing for arm in arms)
    if not missing:
        return ""
    trials = sum(arm.scored for arm in arms) + missing
    of_arms = ", ".join(f"{labels[arm.arm]} {arm.missing}" for arm in arms if arm.missing)
    line = f"Missing: {missing} of {counted(trials, 'trial')} ({of_arms})"
    excess = verdict.missing.excess
    return f"{line}; counting against the claim: {excess}" if excess else line


def _judge_errors(evaluation: Evaluation) -> Iterator[str]:
    labels = evaluation.plan.labels
    judge = evaluation.plan.judge.name if evaluation.plan.judge else ""
    for model, by_arm in evaluation.judge_errors.items():
        counts = ", ".join(
            f"{ungraded} of {trials} ({labels[arm]})" for arm, (ungraded, trials) in by_arm.items()
        )
        of_model = f" from {model}" if len(evaluation.plan.models) > 1 else ""
        yield (
            f"The judge ({judge}) gave no usable grade for answers{of_model}: {counts}."
            " They are missing"
        )


def _not_run(evaluation: Evaluation) -> str:
    run = evaluation.run
    left = run.trials - run.passed - run.failed - run.errored
    if not left:
        return ""
    if not is_cut_short(run):
        return f"{left} of the {run.trials} trials were not needed"
    # Where the run is unfinished, the verdict says so.
    finish = "" if evaluation.unfinished else "; run the same command again to finish"
    return f"Not run: {counted(left, 'trial')}{finish}"


# What to do next
# ------------------------------------------------------------------------------------------------


def _next_steps(evaluation: Evaluation) -> Iterator[str]:
    verdicts = evaluation.verdicts
    causes = [(each.model, line) for each in verdicts for line in _causes(each, evaluation)]
    yield from grouped([*causes, *evaluation.next_students], len(verdicts))


def _causes(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """How many answers of each arm could not pass and why, and how many were verbose."""
    labels = evaluation.plan.labels
    limits = [f"{limit:,}" for limit in evaluation.cut_at(verdict.model)]
    limit = f"{' to '.join(limits)} tokens" if limits else "the agent's own limit"
    for cause in CAUSES:
        arms = [arm for arm in (verdict.skill, verdict.baseline) if cause in arm.causes]
        if arms:
            parts = [
                f"{arm.causes[cause]} of {arm.scored} answers ({labels[arm.arm]})" for arm in arms
            ]
            yield f"{' and '.join(parts)}: {CAUSE_WORDS[cause].format(limit=limit)}."


def _diagnosis(document: Document) -> Iterator[str]:
    """Problems of cases."""
    lines: list[tuple[str, str]] = []
    for model in document["models"]:
        for problem, cases in model["diagnosis"].items():
            if problem != "unscored":
                lines.append((model["model"], describe_problem(problem, cases)))
    yield from grouped(lines, len(document["models"]))


# What it costs, and what the controls say
# ------------------------------------------------------------------------------------------------


def _pays_off(evaluation: Evaluation) -> Iterator[str]:
    """After how many tasks the making of the skill has paid for itself."""
    analysis = evaluation.run.plan.analysis
    cost = analysis.making_cost or 0.0
    digits = 4 if 0 < cost < 0.1 else 2
    source = f" ({analysis.making_source})" if analysis.making_source else ""
    lines: list[tuple[str, str]] = []
    for verdict in evaluation.verdicts:
        if verdict.break_even is not None:
            tasks = counted(math.ceil(verdict.break_even), "passed task")
            line = f"Made for ${cost:.{digits}f}{source}, the skill pays off after {tasks}."
            lines.append((verdict.model, line))
    yield from grouped(lines, len(evaluation.verdicts))


def describe_controls(evaluation: Evaluation) -> Iterator[str]:
    """The parts of the lift, where controls were run."""
    lines: list[tuple[str, str]] = []
    for verdict in evaluation.verdicts:
        if verdict.controls is None:
            continue
        named = {
            "content": verdict.controls.content,
            f"placebo against the {evaluation.plan.labels['baseline']}": verdict.controls.length,
            "A/A control": verdict.controls.noise,
        }
        parts: list[str] = []
        for name, control in named.items():
            if control is not None:
                value, low, high = map(signed_points, (control.value, *control.interval))
                parts.append(f"{name} {value} ({low} to {high})")
        lines.append((verdict.model, f"Controls, in points: {' · '.join(parts)}."))
    yield from grouped(lines, len(evaluation.verdicts))


def describe_target(evaluation: Evaluation, document: Document) -> Iterator[str]:
    """The cheapest choice that reaches the pass rate asked for."""
    target, best = document["choices"]["target"], document["choices"]["cheapest"]
    if target is None or evaluation.leaked:
        return
    if best is None:
        yield f"Nothing with a known price reaches {percent(target)}."
        return
    low, high = map(percent, best["interval"])
    price = dollars(best["cost_per_task"])
    if best["cost_per_task"]:
        price += " per task"
    name = f"{best['model']} ({evaluation.plan.labels[best['arm']]})"
    rate = f"{percent(best['pass_rate'])}, {low} to {high}, {price}"
    yield f"Cheapest that reaches {percent(target)}: {name} ({rate})."


def describe_missed(rulings: Iterable[tuple[str, Ruling]]) -> Iterator[Headline]:
    """The requirements that do not hold."""
    for model, ruling in rulings:
        if not ruling.held:
            words = f"{model} does not meet {ruling.requirement.text!r}: {ruling.reason}."
            yield Headline(words, "bad", "✗")
