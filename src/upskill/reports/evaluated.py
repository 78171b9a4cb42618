"""The Report of an evaluation, for `eval`, `benchmark`, `report`, `show`, `view` and exports."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.trigger.metrics import TriggerMetrics
from upskill.errors import UsageError
from upskill.plain import counted, listed, read_json
from upskill.reports.cases import CAUSES, CaseReader, Clean, Limits, limits_of_page
from upskill.reports.fields import pick, rows_of
from upskill.reports.figures import document, verdict_row
from upskill.reports.numbers import INVALID, UNKNOWN, dollars, format_cell, percent, points
from upskill.reports.report import (
    TONES,
    CaseGroup,
    Change,
    Draw,
    Headline,
    Measure,
    NextCommand,
    Note,
    Report,
    Row,
    Section,
    Table,
    Test,
    TestSuite,
)
from upskill.reports.triggered import describe_metrics, trigger_metrics, trigger_tables
from upskill.runs.planning.plan import Trial
from upskill.runs.results.diagnosis import describe_problem
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.shown import find_skill, is_cut_short
from upskill.runs.stores import Store
from upskill.skills import RECEIPT
from upskill.suites import describe_authors
from upskill.verdicts.arms import ArmSummary
from upskill.verdicts.line import (
    SIGNS,
    cases_in_words,
    describe_verdict,
    lift_in_words,
    signed_points,
    verdict_line,
)
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import OBSTACLES, Reading, Reason, Verdict

NO_VERDICT = "no verdict: only a part of the suite was run"


def report_evaluation(
    evaluation: Evaluation,
    *,
    store: Store | None = None,
    show_command: str = "",
    add_command: str = "",
    clean: Clean = iter,
) -> Report:
    """`store` holds the trials; without it a report has no cases. `show_command` shows them; empty: they are not kept.

    `add_command` appends cases, with {} for their number; empty: none can.
    """
    run = evaluation.run
    triggered = trigger_metrics(evaluation)
    data = document(evaluation)

    def read(limits: Limits) -> CaseReader | None:
        return CaseReader(evaluation, store, limits, clean) if store else None

    def read_groups() -> Iterable[CaseGroup]:
        reader = read(limits_of_page(run.passed + run.failed + run.errored))
        return reader.groups() if reader else ()

    next_command = NextCommand(show_command, "Read every answer")
    return Report(
        title=_title(evaluation, triggered),
        name=run.skill,
        subject=f"{run.id} · {datetime.fromisoformat(run.created):%Y-%m-%d %H:%M} UTC · {_size(evaluation)}",
        data=data,
        headlines=[*_headlines(evaluation, triggered, data, add_command)],
        summary="" if triggered else _summary(evaluation),
        tables=[*_tables(evaluation, triggered, data)],
        notes=[*find_notes(evaluation, data, show_command)],
        next=[next_command] if show_command else (),
        sections=[*_sections(evaluation)],
        groups=read_groups,
        tests=lambda: test_suites(evaluation, read(OF_TESTS)),
        rows=[verdict_row(run, verdict) for verdict in evaluation.verdicts],
    )


# Sentences
# ------------------------------------------------------------------------------------------------


def _title(evaluation: Evaluation, triggered: Sequence[TriggerMetrics]) -> str:
    skill = evaluation.run.skill
    verdicts = evaluation.verdicts
    if evaluation.leaked:
        return INVALID
    if triggered:
        return f"How {skill} triggers"
    if len(evaluation.unfinished) == len(verdicts):
        return f"No verdict on {skill} yet"
    if evaluation.run.plan.part:
        return f"{skill}: {NO_VERDICT}"
    claims: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        claims.setdefault((verdict.decision, verdict.about), []).append(verdict)
    parts = [
        _claim(alike[0], listed([verdict.model for verdict in alike])) for alike in claims.values()
    ]
    title = f"{skill} {'; '.join(parts)}"
    lift = lift_in_words(verdicts[0].heading) if len(verdicts) == 1 else ""
    return f"{title}: {lift}" if lift else title


def _claim(verdict: Verdict, models: str) -> str:
    """For a heading, after the name of the skill: helps MODEL on tasks like these."""
    claims = {
        "helps": f"helps {models}",
        "hurts": f"hurts {models}",
        "saves": f"saves {models} tokens",
        "no effect": f"has no effect of {100 * verdict.tolerance:g} points or more on {models},",
        "undecided": f"is undecided with {models}",
    }
    claim = claims[verdict.decision]
    if verdict.reason in OBSTACLES:
        return f"{claim} ({verdict.reason})"
    return f"{claim} on {cases_in_words(verdict.heading)}"


def _headlines(
    evaluation: Evaluation, triggered: Sequence[TriggerMetrics], data: Document, add_command: str
) -> Iterator[Headline]:
    """One for each model, with what was asked for beside it."""
    several = len(evaluation.verdicts) > 1
    if evaluation.leaked:
        yield Headline(INVALID, "bad", "✗")
    elif triggered:
        yield from (describe_metrics(each, several=several) for each in triggered)
    else:
        for verdict in evaluation.verdicts:
            model = f"{verdict.model}: " if several else ""
            text = describe_verdict(verdict, add_command)
            if evaluation.run.plan.part:
                text = NO_VERDICT
            yield Headline(model + text, TONES[verdict.decision], SIGNS[verdict.decision])
        yield from describe_target(evaluation, data)
    yield from describe_missed(evaluation.rulings)


def _summary(evaluation: Evaluation) -> str:
    """With the skill 37 of 48 answers pass, without it 1 of 48."""
    after = _passed(verdict.skill for verdict in evaluation.verdicts)
    before = _passed(verdict.baseline for verdict in evaluation.verdicts)
    if evaluation.leaked or not after:
        return ""
    other = "without it"
    if evaluation.run.plan.reference_skill:
        other = f"with {evaluation.plan.labels['baseline']}"
    line = f"With the skill {after} answers pass"
    return f"{line}, {other} {before}." if before else f"{line}."


def _passed(arms: Iterable[ArmSummary]) -> str:
    every = [*arms]
    scored = sum(arm.scored for arm in every)
    return f"{sum(arm.passed for arm in every):,} of {scored:,}" if scored else ""


def _size(evaluation: Evaluation) -> str:
    """48 cases, 3 draws a case."""
    plan = evaluation.run.plan
    draws = [(model, plan.describe_draws(model)) for model in evaluation.run.models]
    size = counted(len(plan.suite.cases), "case")
    planned = f"{size}, {'; '.join(grouped(draws, len(draws)))}"
    if not plan.in_rounds:
        return planned
    rounds = len({row.seed for row in evaluation.outcomes})
    return f"{planned}; stopped after {counted(rounds, 'round')}"


# Tables
# ------------------------------------------------------------------------------------------------

PAIRS = "The lift compares draws that were graded in both arms; pass rates and tokens count every graded draw."


def _tables(
    evaluation: Evaluation, triggered: Sequence[TriggerMetrics], data: Document
) -> Iterator[Table]:
    verdicts = evaluation.verdicts
    if triggered:
        yield from trigger_tables(triggered, evaluation.plan)
    else:
        rows = (_model_row(verdict, evaluation) for verdict in verdicts)
        yield Table.of(rows, note=" ".join(filter(None, _facts(evaluation))))
        controls = {
            "Model": "model",
            "Content": "controls.content",
            "Placebo": "controls.length",
            "A/A control": "controls.noise",
        }
        controlled = [verdict for verdict in verdicts if verdict.controls]
        yield Table.of(rows_of(controlled, controls), "Controls, in points", kind="points")
    if not evaluation.leaked:
        for kind in ("Tag", "Author"):
            rows = _groups_of_cases(data["groups"][kind.lower()], kind)
            yield Table.of(rows, f"Pass rate by {kind.lower()}", is_detail=True)
        activity = (_activity(verdict) for verdict in verdicts if _acts(verdict))
        yield Table.of(activity, "What agents did", note=ACTIVATION_CAVEAT, is_detail=True)
    details = {
        "Why answers could not pass": _failures_by_cause(verdicts),
        "Requirements": (_requirement(*each) for each in evaluation.rulings),
        "Evidence": _evidence(evaluation),
    }
    if len(evaluation.spent) > 1:
        details["Cost"] = (
            {"Spent on": role, "Tokens": tokens, "Cost": cost}
            for role, (tokens, cost) in evaluation.spent.items()
        )
    for title, rows in details.items():
        yield Table.of(rows, title, is_detail=True)


def _failures_by_cause(verdicts: Iterable[Verdict]) -> Iterator[Row]:
    for verdict in verdicts:
        before, after = verdict.baseline.causes, verdict.skill.causes
        for cause, words in CAUSES.items():
            if cause in before or cause in after:
                answers = Change(before.get(cause, 0), after.get(cause, 0))
                yield {"Model": verdict.model, "Cause": words, "Answers": answers}


def _model_row(verdict: Verdict, evaluation: Evaluation) -> Row:
    """A row of the table of models."""
    before, after = verdict.baseline, verdict.skill
    found = verdict.to_dict()
    decision = Headline.of_decision(found)
    if evaluation.leaked:
        decision = Headline("INVALID", "bad", "✗")
    elif evaluation.run.plan.part:
        decision = Headline("no verdict", "open")
    lift = None
    if verdict.reason not in OBSTACLES:
        other = verdict.other and _measure(verdict.other, verdict)
        lift = replace(_measure(verdict.heading, verdict), other=other)
    costs = [arm.cost_per_pass for arm in (before, after)]
    if not any(costs):
        costs = [0.0 if after.scored and after.cost_usd == 0 else None] * 2
    return {
        "Model": verdict.model,
        "Decision": decision,
        "Lift in points": lift,
        "Passes": Change.of_rates(found),
        "Tokens per task": Change.of_tokens(found),
        "Cost per pass": Change(*costs),
    }


def _measure(reading: Reading, verdict: Verdict) -> Measure:
    about = cases_in_words(reading)
    if reading.about == "tasks" and reading.cases < verdict.cases:
        about += f", {reading.cases} fresh of {verdict.cases}"
    return replace(Measure.of_lift(reading), about=about)


def _facts(evaluation: Evaluation) -> Iterator[str]:
    """What the table of models rests on."""
    # local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
    behind = [full for name, full in evaluation.full_names.items() if full != name]
    yield f"{'; '.join([_size(evaluation), *behind])}."
    yield describe_authors(case.metadata for case in evaluation.plan.suite.cases)
    levels: dict[str, str] = {}
    for verdict in evaluation.verdicts:
        for reading in (verdict.heading, verdict.other):
            if reading and reading.interval and not evaluation.leaked:
                level = f"{100 * reading.level:.3g}%"
                about = "tasks like these" if reading.about == "tasks" else "these cases"
                levels[f"{level} for {about}"] = level
    if levels:
        labels = evaluation.plan.labels
        several = len({*levels.values()}) > 1
        intervals = ", ".join(levels if several else {*levels.values()})
        yield f"Intervals: {intervals}. Arrows: {labels['baseline']} → {labels['skill']}."
    if any(
        0 < verdict.pairs < max(verdict.baseline.scored, verdict.skill.scored)
        for verdict in evaluation.verdicts
    ):
        yield PAIRS
    costs = [cost for _, cost in evaluation.spent.values()]
    if None in costs:
        yield "Spent: an unknown price."
    elif any(costs):
        yield f"Spent: {dollars(sum(cost or 0.0 for cost in costs))}."


def _groups_of_cases(rows: Iterable[Mapping[str, Any]], kind: str) -> Iterator[Row]:
    for row in rows:
        for model, split in row["models"].items():
            yield {
                kind: row["name"],
                "Cases": row["cases"],
                "Model": model,
                "Passes": Change(split["baseline"], split["skill"]),
                "Lift in points": Measure(split["lift"], *(split["interval"] or ())),
            }


def _acts(verdict: Verdict) -> bool:
    """Students that only answer do nothing."""
    calls = verdict.baseline.tool_calls or verdict.skill.tool_calls
    return bool(verdict.activation or calls)


def _activity(verdict: Verdict) -> Row:
    baseline, skill, activation = verdict.baseline, verdict.skill, verdict.activation
    lifts = activation.lifts if activation else (None, None)
    return {
        "Model": verdict.model,
        "Activated": activation and Measure(activation.rate, *activation.interval),
        "Lift activated": lifts[0],
        "Lift not activated": lifts[1],
        "Turns": Change(baseline.turns, skill.turns),
        "Tool calls": Change(baseline.tool_calls, skill.tool_calls),
        "Tool errors": Change(baseline.tool_errors, skill.tool_errors),
    }


def _requirement(model: str, ruling: Ruling) -> Row:
    return {
        "Requirement": ruling.requirement.text,
        "Model": model,
        "Met": Headline("yes", "good", "✓") if ruling.held else Headline("no", "bad", "✗"),
        "Measured": ruling.reason,
    }


def _evidence(evaluation: Evaluation) -> Iterator[Row]:
    """Where each line of a generated skill comes from."""
    skill = evaluation.plan.skill
    try:
        evidence = Provenance.of(skill).evidence
        lines = sourced_lines(skill)
    except UsageError:  # a broken file must not hide the result
        return
    for line in lines:
        if line.ids:
            texts = [evidence[name].get("text", "") for name in line.ids if name in evidence]
            yield {
                "Line of the skill": line.text,
                "Evidence": ", ".join(line.ids),
                "Its text": " ".join(" ".join(texts).split()),
            }


# Sections
# ------------------------------------------------------------------------------------------------


def _sections(evaluation: Evaluation) -> Iterator[Section]:
    run, plan = evaluation.run, evaluation.run.plan
    yield Section(title="The skill", text=plan.skill.body)
    settings = {
        "Description": plan.skill.description,
        "Agent": plan.agent,
        "Among": listed(plan.distractors),
        "Sandbox": _sandbox(plan.sandbox) if plan.sandbox else "",
        "Judge": plan.judge.name if plan.judge else "",
        "Seed": str(plan.seed),
        "Limit": f"{plan.max_output_tokens:,} tokens an answer",
        "Suite": plan.suite.fingerprint,
        "Skill": f"{plan.skill.name}, {plan.skill.fingerprint}, {plan.skill.tokens:,} tokens",
    }
    lines = {name: value for name, value in settings.items() if value}
    yield Section(title="Settings", lines=lines)
    commands = {"See every answer": f"`upskill show {run.id}`"}
    skill = find_skill(plan)
    if skill and skill.folder and read_json(skill.folder / RECEIPT).get("run") == run.id:
        commands["Check the receipt"] = f"`upskill verify {os.path.relpath(skill.folder)}`"
    yield Section(title="Commands", lines=commands)


def _sandbox(record: Mapping[str, Any]) -> str:
    name, version = record["name"], record["version"]
    line = version if version.startswith(name) else f"{name} ({version})"
    if not record.get("isolated", True):
        return f"{line}: NOTHING was blocked"
    line = f"{line}; self-test passed: {', '.join(record['passed'])}"
    return f"{line}; reduced: {record['reduced']}" if record.get("reduced") else line


# What there is to say beside a verdict: problems of a run, what to do next, and what its numbers mean
# ------------------------------------------------------------------------------------------------

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

    def of_models(find: Callable[[Verdict, Evaluation], Iterable[str]]) -> Iterator[str]:
        lines = ((each.model, find(each, evaluation)) for each in evaluation.verdicts)
        return grouped(
            [(model, line) for model, found in lines for line in found], len(evaluation.verdicts)
        )

    yield from find_alarms(evaluation, show_command)
    caveats = [*evaluation.caveats, *of_models(lambda verdict, _: verdict.caveats)]
    if evaluation.halted:
        again = "To continue, run the same command with a higher limit, e.g. --max-cost."
        caveats.append(f"Stopped: {evaluation.halted}. {again}")
    for line in caveats:
        yield Note(line, "caveat")
    notes = [*of_models(_judge_errors), *_errors(evaluation), *of_models(_missing)]
    notes += _not_run(evaluation)
    if not evaluation.leaked:
        notes += of_models(_causes)
    yield from map(Note, notes)
    # A warning that begins with a model's name says what a number of it means.
    names = tuple(f"{model}: " for model in evaluation.full_names)
    for line in evaluation.warnings:
        yield Note(line, "detail" if line.startswith(names) else "note")
    if not evaluation.leaked:
        yield from map(Note, _diagnosis(document["models"]))
        for line in of_models(_pays_off):
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


def _errors(evaluation: Evaluation) -> Iterator[str]:
    for model, message in evaluation.stopped.items():
        yield f"gave up on {model}: {message}"
    errors = [
        f"{counted(trials, 'trial')} of {model} missing: {message}"
        for model, message, trials in evaluation.errors
        if model not in evaluation.stopped
    ]
    yield from first_lines(errors, MAX_ERRORS)


def _not_run(evaluation: Evaluation) -> Iterator[str]:
    run = evaluation.run
    if is_cut_short(run):
        left = counted(run.trials - run.passed - run.failed - run.errored, "trial")
        # Where the run is unfinished, the verdict says so.
        finish = "" if evaluation.unfinished else "; run the same command again to finish"
        yield f"Not run: {left}{finish}"


def _missing(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    labels = evaluation.plan.labels
    arms = [arm for arm in (verdict.baseline, verdict.skill) if arm.missing]
    if not arms:
        return
    missing = sum(arm.missing for arm in arms)
    trials = counted(missing + verdict.baseline.scored + verdict.skill.scored, "trial")
    of_arms = ", ".join(f"{labels[arm.arm]} {arm.missing}" for arm in arms)
    excess = verdict.missing.excess
    against = f"; counting against the claim: {excess}" if excess else ""
    yield f"Missing: {missing} of {trials} ({of_arms}){against}"


def _judge_errors(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    labels, judge = evaluation.plan.labels, evaluation.plan.judge
    by_arm = evaluation.judge_errors.get(verdict.model)
    if judge and by_arm:
        counts = [f"{number} of {of} ({labels[arm]})" for arm, (number, of) in by_arm.items()]
        line = f"The judge ({judge.name}) gave no usable grade for answers: {', '.join(counts)}."
        yield f"{line} They are missing"


# What to do next
# ------------------------------------------------------------------------------------------------


def _causes(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """How many answers of each arm could not pass and why, and how many were verbose."""
    labels = evaluation.plan.labels
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
            yield f"{' and '.join(counts)}: {what}."
    for model, suggestion in evaluation.next_students:
        if model == verdict.model:
            yield suggestion


def _diagnosis(models: Sequence[Document]) -> Iterator[str]:
    """Problems of cases."""
    lines: list[tuple[str, str]] = []
    for model in models:
        for problem, cases in model["diagnosis"].items():
            if problem != "unscored":
                lines.append((model["model"], describe_problem(problem, cases)))
    yield from grouped(lines, len(models))


def _pays_off(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """After how many tasks the making of the skill has paid for itself."""
    if verdict.break_even is not None:
        analysis = evaluation.run.plan.analysis
        source = f" ({analysis.making_source})" if analysis.making_source else ""
        tasks = counted(math.ceil(verdict.break_even), "passed task")
        yield f"Made for {dollars(analysis.making_cost)}{source}, the skill pays off after {tasks}."


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


# Requirements and cases as tests, for JUnit
# ------------------------------------------------------------------------------------------------
#
# Red only if the command fails: a failing case is a failure only if a requirement on the pass rate, the lift or the
# decision does not hold for its model. Otherwise it is skipped, with the same details.

OF_TESTS = Limits(text=4_000, failing=1, passing=0)
ABOUT_CASES = ("lift", "pass_rate", "decision")  # what failing cases count against


def test_suites(evaluation: Evaluation, reader: CaseReader | None) -> Iterator[TestSuite]:
    """A suite for each model."""
    for verdict in evaluation.verdicts:
        of_model = reader and replace(reader, models=[verdict.model], arms=["skill"])
        warnings = [f"Note: {line}" for line in evaluation.warnings]
        yield TestSuite(
            name=evaluation.full_names[verdict.model],
            properties=_properties(verdict),
            tests=tuple(_tests(evaluation, verdict, of_model)),
            output="\n".join([verdict_line(verdict), *verdict.caveats, *warnings, ""]),
        )


def _tests(evaluation: Evaluation, verdict: Verdict, reader: CaseReader | None) -> Iterator[Test]:
    for trial, reason in evaluation.invalid[:1]:
        message = f"{INVALID} ({describe_leak(trial, reason)})"
        yield Test("isolation", "the arms are isolated", "error", message)
    bugs = [traceback for trial, _, traceback in evaluation.bugs if trial.model == verdict.model]
    if bugs:
        name = "no trial hits a bug in upskill"
        yield Test("upskill", name, "error", bug_heading(len(bugs)), bugs[0])
    rulings = [ruling for model, ruling in evaluation.rulings if model == verdict.model]
    for ruling in rulings:
        kind, reason = ("", "") if ruling.held else ("failure", ruling.reason)
        yield Test("requirement", ruling.requirement.text, kind, reason)
    cases = [*_cases(evaluation, verdict.model, rulings, reader)]
    yield from cases
    has_error = evaluation.invalid or bugs or any(test.kind == "error" for test in cases)
    if verdict.reason == Reason.ERRORS and not has_error:  # those of the baseline
        yield Test("upskill", "enough trials are graded", "error", describe_verdict(verdict))


def _cases(
    evaluation: Evaluation, model: str, rulings: Sequence[Ruling], reader: CaseReader | None
) -> Iterator[Test]:
    about_cases = [each for each in rulings if each.requirement.quantity in ABOUT_CASES]
    required = [ruling.requirement.text for ruling in about_cases]
    missed = any(not ruling.held for ruling in about_cases)
    holds = f"{', '.join(required)} holds" if required else "no requirement covers it"
    group = " and ".join(required) or evaluation.plan.skill.name
    unfinished = evaluation.unfinished.get(model)
    by_case: dict[str, list[Outcome]] = {}
    for row in evaluation.outcomes_of(model):
        if row.arm == "skill" and unfinished is None:
            by_case.setdefault(row.case, []).append(row)
    for case in evaluation.plan.suite.cases:
        rows = by_case.get(case.id, [])
        seconds = sum(row.seconds for row in rows)
        passed = [row.passed for row in rows]
        if rows and all(passed):
            yield Test(group, case.id, seconds=seconds)
            continue
        message = f"{passed.count(True)} of {counted(len(rows), 'run')} passed with the skill"
        kind = "failure" if missed else "skipped"
        if not rows or None in passed:
            kind = "error" if missed or evaluation.has_failed else "skipped"
            message = "missing; see `upskill show`" if rows else str(unfinished or "not run")
        if kind == "skipped":
            message += f"; allowed: {holds}"
        draws = reader.case(case.id).draws if rows and reader else []
        details = "".join(_describe(case.prompt, draw) for draw in draws[:1])
        yield Test(group, case.id, kind, message, details, seconds=seconds)


def _properties(verdict: Verdict) -> dict[str, str]:
    """Of both readings: the one in the heading, and the other."""
    properties: dict[str, str] = {}
    for prefix, reading in (("", verdict.heading), ("other:", verdict.other)):
        if reading is not None:
            interval = reading.interval and " to ".join(map(signed_points, reading.interval))
            found = pick(reading, "decision", "about", "reason") | {
                "lift": points(reading.lift),
                "interval": interval or UNKNOWN,
            }
            properties |= {f"{prefix}{name}": value or "" for name, value in found.items()}
    return properties


def _describe(prompt: str, draw: Draw) -> str:
    """A trial that did not pass: prompt, answer and why."""
    why = [*draw.problems, *(f"{each.check}: {each.reason}" for each in draw.failed)]
    parts = {
        "Prompt": prompt.strip(),
        f"Answer (seed {draw.seeds[0]})": (draw.answer or "").strip(),
        "Failed": "\n".join(why),
    }
    return "\n" + "\n\n".join(f"{name}:\n{text}" for name, text in parts.items()) + "\n"
