"""The Report of an evaluation, for `eval`, `benchmark`, `report`, `show`, `view` and exports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.trigger.metrics import TriggerMetrics
from upskill.errors import UsageError
from upskill.plain import counted, listed, read_json
from upskill.reports.cases import CAUSES, CaseReader, Clean, limits_of_page
from upskill.reports.evaluated_tests import test_suites
from upskill.reports.figures import document, verdict_row
from upskill.reports.numbers import INVALID, dollars
from upskill.reports.remarks import (
    ACTIVATION_CAVEAT,
    Document,
    describe_missed,
    describe_target,
    find_notes,
    grouped,
)
from upskill.reports.report import (
    TONES,
    CaseGroup,
    Cell,
    Change,
    Headline,
    Measure,
    NextCommand,
    Rate,
    Report,
    Section,
    Table,
)
from upskill.reports.triggered import describe_metrics, trigger_metrics, trigger_tables
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.shown import find_skill
from upskill.runs.stores import Store
from upskill.skills import RECEIPT
from upskill.suites import describe_authors
from upskill.verdicts.arms import ArmSummary
from upskill.verdicts.line import SIGNS, cases_in_words, describe_verdict, lift_in_words
from upskill.verdicts.verdict import OBSTACLES, Reading, Verdict

NO_VERDICT = "no verdict: only a part of the suite was run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """What a report needs beside its evaluation."""

    store: Store | None = None  # that holds the trials; without it a report has no cases
    show_command: str = ""  # the command that shows every trial; empty: the run is not stored
    add_command: str = ""  # that appends cases, with {} for their number; empty: none can
    clean: Clean = iter


def report_evaluation(evaluation: Evaluation, context: ReportContext | None = None) -> Report:
    context = context or ReportContext()
    store = context.store
    run = evaluation.run
    triggered = trigger_metrics(evaluation)
    data = document(evaluation)
    done = run.passed + run.failed + run.errored

    def read_groups() -> Iterable[CaseGroup]:
        limits = limits_of_page(done)
        return CaseReader(evaluation, store, limits, context.clean).groups() if store else ()

    def read_failed() -> Iterable[Result]:
        """Trials with the skill that did not pass."""
        return context.clean(store.results(run, arm="skill", failed=True)) if store else ()

    return Report(
        title=_title(evaluation, triggered),
        name=run.skill,
        subject=f"{run.id} · {datetime.fromisoformat(run.created):%Y-%m-%d %H:%M} UTC · {_size(evaluation)}",
        data=data,
        headlines=[*_headlines(evaluation, triggered, data, context.add_command)],
        summary="" if triggered else _summary(evaluation),
        tables=[*_tables(evaluation, triggered, data)],
        notes=[*find_notes(evaluation, data, context.show_command)],
        next=[NextCommand(context.show_command, "Read every answer")]
        if context.show_command
        else (),
        sections=[*_sections(evaluation)],
        groups=read_groups,
        tests=lambda: test_suites(evaluation, read_failed),
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
    parts: list[str] = []
    for alike in claims.values():
        parts.append(_claim(alike[0], listed([verdict.model for verdict in alike])))
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
            text = describe_verdict(verdict, add_command)
            if evaluation.run.plan.part:
                text = NO_VERDICT
            if several:
                text = f"{verdict.model}: {text}"
            yield Headline(text, TONES[verdict.decision], SIGNS[verdict.decision])
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

Row = Mapping[str, Cell]
ACTIVITY = "What agents did"
PAIRS = "The lift compares draws that were graded in both arms; pass rates and tokens count every graded draw."


def _tables(
    evaluation: Evaluation, triggered: Sequence[TriggerMetrics], data: Document
) -> Iterator[Table]:
    if triggered:
        yield from trigger_tables(triggered, evaluation.plan)
    else:
        rows = (_model_row(verdict, evaluation) for verdict in evaluation.verdicts)
        yield Table.of(rows, note=" ".join(filter(None, _facts(evaluation))))
        yield Table.of(_controls(evaluation), "Controls, in points")
    details: dict[str, Iterator[Row]] = {}
    if not evaluation.leaked:
        groups: Mapping[str, list[dict[str, Any]]] = data["groups"]
        details = {
            "Pass rate by tag": _groups_of_cases(groups["tag"], "Tag"),
            "Pass rate by author": _groups_of_cases(groups["author"], "Author"),
            "Why answers could not pass": _causes(evaluation),
            ACTIVITY: _activity(evaluation),
        }
    details["Requirements"] = _requirements(evaluation)
    details["Evidence"] = _evidence(evaluation)
    details["Cost"] = _spending(evaluation)
    for title, rows in details.items():
        note = ACTIVATION_CAVEAT if title == ACTIVITY else ""
        yield Table.of(rows, title, note=note, is_detail=True)


def _model_row(verdict: Verdict, evaluation: Evaluation) -> Row:
    """A row of the table of models."""
    before, after = verdict.baseline, verdict.skill
    decision = Headline.of_decision(verdict.to_dict())
    if evaluation.leaked:
        decision = Headline("INVALID", "bad", "✗")
    elif evaluation.run.plan.part:
        decision = Headline("no verdict", "open")
    lift = None
    if verdict.reason not in OBSTACLES:
        lift = _measure(
            verdict.heading, verdict, verdict.other and _measure(verdict.other, verdict)
        )
    tokens = [arm.total_tokens / arm.scored if arm.scored else None for arm in (before, after)]
    costs = [arm.cost_per_pass for arm in (before, after)]
    if not any(costs):
        costs = [0.0 if after.scored and after.cost_usd == 0 else None] * 2
    return {
        "Model": verdict.model,
        "Decision": decision,
        "Lift in points": lift,
        "Passes": Change(Rate.of_arm(before), Rate.of_arm(after)),
        "Tokens per task": Change(*tokens),
        "Cost per pass": Change(*costs),
    }


def _measure(reading: Reading, verdict: Verdict, other: Measure | None = None) -> Measure:
    about = cases_in_words(reading)
    if reading.about == "tasks" and reading.cases < verdict.cases:
        about += f", {reading.cases} fresh of {verdict.cases}"
    return Measure(reading.lift, *(reading.interval or (None, None)), about, other)


def _facts(evaluation: Evaluation) -> Iterator[str]:
    """What the table of models rests on."""
    # local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
    behind = [full for name, full in evaluation.full_names.items() if full != name]
    yield f"{'; '.join([_size(evaluation), *behind])}."
    yield describe_authors(case.metadata for case in evaluation.plan.suite.cases)
    levels: dict[str, float] = {}
    for verdict in evaluation.verdicts:
        for reading in (verdict.heading, verdict.other):
            if reading is not None and reading.interval is not None and not evaluation.leaked:
                about = "tasks like these" if reading.about == "tasks" else "these cases"
                levels[f"{100 * reading.level:.3g}% for {about}"] = reading.level
    if levels:
        labels = evaluation.plan.labels
        intervals = ", ".join(levels)
        if len(set(levels.values())) == 1:
            intervals = intervals.partition(" ")[0]
        yield f"Intervals: {intervals}. Arrows: {labels['baseline']} → {labels['skill']}."
    for verdict in evaluation.verdicts:
        if 0 < verdict.pairs < max(verdict.baseline.scored, verdict.skill.scored):
            yield PAIRS
            break
    costs = [cost for _, cost in evaluation.spent.values()]
    if None in costs:
        yield "Spent: an unknown price."
    elif any(costs):
        yield f"Spent: {dollars(sum(cost or 0.0 for cost in costs))}."


def _controls(evaluation: Evaluation) -> Iterator[Row]:
    """The parts of the lift, where controls were run."""
    for verdict in evaluation.verdicts:
        controls = verdict.controls
        if controls is not None:
            yield {
                "Model": verdict.model,
                "Content": Measure.of(controls.content),
                "Placebo": Measure.of(controls.length),
                "A/A control": Measure.of(controls.noise),
            }


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


def _causes(evaluation: Evaluation) -> Iterator[Row]:
    for verdict in evaluation.verdicts:
        before, after = verdict.baseline.causes, verdict.skill.causes
        for cause, words in CAUSES.items():
            if cause in before or cause in after:
                answers = Change(before.get(cause, 0), after.get(cause, 0))
                yield {"Model": verdict.model, "Cause": words, "Answers": answers}


def _activity(evaluation: Evaluation) -> Iterator[Row]:
    """What agents did. Students that only answer do nothing."""
    for verdict in evaluation.verdicts:
        baseline, skill, activation = verdict.baseline, verdict.skill, verdict.activation
        if activation is None and not baseline.tool_calls and not skill.tool_calls:
            continue
        lifts = activation.lifts if activation else (None, None)
        yield {
            "Model": verdict.model,
            "Activated": activation and Measure(activation.rate, *activation.interval),
            "Lift activated": lifts[0],
            "Lift not activated": lifts[1],
            "Turns": Change(baseline.turns, skill.turns),
            "Tool calls": Change(baseline.tool_calls, skill.tool_calls),
            "Tool errors": Change(baseline.tool_errors, skill.tool_errors),
        }


def _requirements(evaluation: Evaluation) -> Iterator[Row]:
    for model, ruling in evaluation.rulings:
        yield {
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


def _spending(evaluation: Evaluation) -> Iterator[Row]:
    if len(evaluation.spent) > 1:
        for role, (tokens, cost) in evaluation.spent.items():
            yield {"Spent on": role, "Tokens": tokens, "Cost": cost}


# Sections
# ------------------------------------------------------------------------------------------------


def _sections(evaluation: Evaluation) -> Iterator[Section]:
    run, plan = evaluation.run, evaluation.run.plan
    yield Section(title="The skill", text=plan.skill.body)
    settings = {
        "Description": plan.skill.description,
        "Agent": plan.agent,
        "Among": listed(plan.distractors) if plan.distractors else "",
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
