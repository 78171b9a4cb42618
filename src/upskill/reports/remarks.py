"""What there is to say beside a verdict: problems of a run, what to do next, and what its numbers mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from upskill.plain import counted
from upskill.reports.cases import CAUSES
from upskill.reports.numbers import dollars, format_cell, percent
from upskill.reports.report import Headline, Measure, Note
from upskill.runs.planning.plan import Trial
from upskill.runs.results.diagnosis import describe_problem
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.shown import is_cut_short
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Verdict

Document = Mapping[str, Any]  # of JSON
MAX_ERRORS = 10
MAX_LINES = 3  # of an alarm
ACTIVATION_CAVEAT = (
    "Go by the lift offered: the trials that activate the skill are not a random sample."
)
ADVICE = {
    "length": "; raise the limit with --set max_output_tokens=N",
    "context": "; shorten the skill or the cases, or use a model with a longer context",
}


def find_notes(
    evaluation: Evaluation, document: Document, show_command: str = ""
) -> Iterator[Note]:
    """The most urgent first."""
    yield from find_alarms(evaluation, show_command)
    models = len(evaluation.verdicts)
    caveats = [(each.model, line) for each in evaluation.verdicts for line in each.caveats]
    for line in (*evaluation.caveats, *grouped(caveats, models)):
        yield Note(line, "caveat")
    if evaluation.halted:
        again = "To continue, run the same command with a higher limit, e.g. --max-cost."
        yield Note(f"Stopped: {evaluation.halted}. {again}", "caveat")
    has_numbers = not evaluation.leaked
    for line in (*_problems(evaluation), *(_causes(evaluation) if has_numbers else ())):
        yield Note(line)
    # A warning that begins with a model's name says what a number of it means.
    of_models = tuple(f"{model}: " for model in evaluation.full_names)
    for line in evaluation.warnings:
        yield Note(line, "detail" if line.startswith(of_models) else "note")
    if has_numbers:
        yield from map(Note, _diagnosis(evaluation, document))
        for line in _pays_off(evaluation):
            yield Note(line, "detail")


def grouped(lines: Iterable[tuple[str, str]], models: int) -> Iterator[str]:
    """Each sentence once, after the names of the models it is about, unless it is about all of them."""
    by_line: dict[str, list[str]] = {}
    for model, line in lines:
        by_line.setdefault(line, []).append(model)
    for line, names in by_line.items():
        is_of_all = len(names) == models
        yield line if is_of_all else f"{', '.join(names)}: {line}"


def first_lines(lines: Sequence[str], most: int) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"… and {len(lines) - most} more"


# What makes numbers useless
# ------------------------------------------------------------------------------------------------


def find_alarms(evaluation: Evaluation, show_command: str) -> Iterator[Note]:
    if evaluation.bugs:
        yield _bug_note(evaluation, show_command)
    leaks = evaluation.invalid
    if evaluation.leaked:
        trials = counted(len(leaks), "trial")
        advice = "Remove whatever gave access to it, then run again with --redraw."
        if show_command and leaks:
            advice = f"See how with `{show_command} --case {leaks[0][0].case}`. {advice}"
        lines = first_lines([describe_leak(*leak) for leak in leaks], MAX_LINES)
        text = f"{trials} saw or tried to open a skill that should have been hidden:"
        yield Note(text, "alarm", [*lines, advice])


def describe_leak(trial: Trial, reason: str) -> str:
    why = " ".join(reason.split())
    return f"{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}: {why}"


def bug_heading(trials: int) -> str:
    return f"{counted(trials, 'trial')} hit a bug in upskill, not in your skill or model."


def _bug_note(evaluation: Evaluation, show_command: str) -> Note:
    messages = [
        f"{message} ({counted(trials, 'trial')})" for message, trials in evaluation.bug_messages
    ]
    prints = f"`{show_command} --bugs` prints the tracebacks."
    if not show_command:
        prints = "Run it with log_runs=true to see the tracebacks in `upskill show`."
    report = f"{prints} Please report them in upskill's issue tracker."
    lines = [*first_lines(messages, MAX_LINES), report]
    return Note(bug_heading(evaluation.bug_count), "alarm", lines)


# What is missing
# ------------------------------------------------------------------------------------------------


def _problems(evaluation: Evaluation) -> Iterator[str]:
    yield from _judge_errors(evaluation)
    for model, message in evaluation.stopped.items():
        yield f"gave up on {model}: {message}"
    errors = [
        f"{counted(trials, 'trial')} of {model} missing: {message}"
        for model, message, trials in evaluation.errors
        if model not in evaluation.stopped
    ]
    yield from first_lines(errors, MAX_ERRORS)
    missing = [(verdict.model, _missing(verdict, evaluation)) for verdict in evaluation.verdicts]
    yield from grouped([row for row in missing if row[1]], len(evaluation.verdicts))
    run = evaluation.run
    left = run.trials - run.passed - run.failed - run.errored
    if left and not is_cut_short(run):
        yield f"{left} of the {run.trials} trials were not needed"
    elif left:
        # Where the run is unfinished, the verdict says so.
        finish = "" if evaluation.unfinished else "; run the same command again to finish"
        yield f"Not run: {counted(left, 'trial')}{finish}"


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
    lines: list[tuple[str, str]] = []
    for model, by_arm in evaluation.judge_errors.items():
        counts = [f"{number} of {of} ({labels[arm]})" for arm, (number, of) in by_arm.items()]
        line = f"The judge ({judge}) gave no usable grade for answers: {', '.join(counts)}."
        lines.append((model, f"{line} They are missing"))
    yield from grouped(lines, len(evaluation.verdicts))


# What to do next
# ------------------------------------------------------------------------------------------------


def _causes(evaluation: Evaluation) -> Iterator[str]:
    """How many answers of each arm could not pass and why, and how many were verbose."""
    labels = evaluation.plan.labels
    lines: list[tuple[str, str]] = []
    for verdict in evaluation.verdicts:
        limits = " to ".join(f"{limit:,}" for limit in evaluation.cut_at(verdict.model))
        limit = f"{limits} tokens" if limits else "the agent's own limit"
        for cause, words in CAUSES.items():
            counts = [
                f"{arm.causes[cause]} of {arm.scored} answers ({labels[arm.arm]})"
                for arm in (verdict.skill, verdict.baseline)
                if cause in arm.causes
            ]
            if counts:
                what = words.replace("the limit", limit) + ADVICE.get(cause, "")
                lines.append((verdict.model, f"{' and '.join(counts)}: {what}."))
    yield from grouped([*lines, *evaluation.next_students], len(evaluation.verdicts))


def _diagnosis(evaluation: Evaluation, document: Document) -> Iterator[str]:
    """Problems of cases."""
    lines: list[tuple[str, str]] = []
    for model in document["models"]:
        for problem, cases in model["diagnosis"].items():
            if problem != "unscored":
                lines.append((model["model"], describe_problem(problem, cases)))
    yield from grouped(lines, len(evaluation.verdicts))


def _pays_off(evaluation: Evaluation) -> Iterator[str]:
    """After how many tasks the making of the skill has paid for itself."""
    analysis = evaluation.run.plan.analysis
    source = f" ({analysis.making_source})" if analysis.making_source else ""
    lines: list[tuple[str, str]] = []
    for verdict in evaluation.verdicts:
        if verdict.break_even is not None:
            tasks = counted(math.ceil(verdict.break_even), "passed task")
            cost = dollars(analysis.making_cost)
            line = f"Made for {cost}{source}, the skill pays off after {tasks}."
            lines.append((verdict.model, line))
    yield from grouped(lines, len(evaluation.verdicts))


def describe_target(evaluation: Evaluation, document: Document) -> Iterator[Headline]:
    """The cheapest choice that reaches the pass rate asked for."""
    target, best = document["choices"]["target"], document["choices"]["cheapest"]
    if target is None or evaluation.leaked:
        return
    if best is None:
        yield Headline(f"Nothing with a known price reaches {percent(target)}.")
        return
    name = f"{best['model']} ({evaluation.plan.labels[best['arm']]})"
    rate = format_cell(Measure(best["pass_rate"], *best["interval"]), "share")
    price = f"{dollars(best['cost_per_task'])} per task"
    yield Headline(f"Cheapest that reaches {percent(target)}: {name}: {rate}, {price}.")


def describe_missed(rulings: Iterable[tuple[str, Ruling]]) -> Iterator[Headline]:
    """The requirements that do not hold."""
    for model, ruling in rulings:
        if not ruling.held:
            words = f"{model} does not meet {ruling.requirement.text!r}: {ruling.reason}."
            yield Headline(words, "bad", "✗")
