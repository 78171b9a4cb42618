"""The Report of an evaluation, for `eval`, `benchmark`, `report`, `show`, `view` and exports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.trigger.metrics import TriggerMetrics
from upskill.errors import UsageError
from upskill.plain import counted, listed, read_json
from upskill.reports.cases import CAUSES as CAUSES_IN_WORDS
from upskill.reports.cases import read_groups
from upskill.reports.evaluated_tests import test_suites
from upskill.reports.figures import document, verdict_row
from upskill.reports.numbers import INVALID, dollars
from upskill.reports.remarks import (
    ACTIVATION_CAVEAT,
    Document,
    describe_controls,
    describe_missed,
    describe_target,
    find_notes,
)
from upskill.reports.report import (
    TONES,
    CaseGroup,
    Cell,
    Change,
    Column,
    Headline,
    Kind,
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
from upskill.verdicts.line import (
    SIGNS,
    cases_in_words,
    describe_verdict,
    lift_in_words,
)
from upskill.verdicts.outcome import CAUSES
from upskill.verdicts.verdict import OBSTACLES, Reading, Verdict

NO_VERDICT = "no verdict: only a part of the suite was run"


def _as_they_are(results: Iterable[Result]) -> Iterable[Result]:
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """What a report needs beside its evaluation."""

    store: Store | None = None  # that holds the trials; without it a report has no cases
    show_command: str = ""  # the command that shows every trial; empty: the run is not stored
    add_command: str = ""  # that appends cases, with {} for their number; empty: none can
    clean: Callable[[Iterable[Result]], Iterable[Result]] = _as_they_are  # takes secrets out


def report_evaluation(evaluation: Evaluation, context: ReportContext | None = None) -> Report:
    context = context or ReportContext()
    run = evaluation.run
    triggered = trigger_metrics(evaluation)
    data = document(evaluation)
    commands: list[NextCommand] = []
    if context.show_command:
        commands.append(NextCommand(context.show_command, "Read every answer"))
    return Report(
        title=_title(evaluation, triggered),
        name=run.skill,
        subject=f"{run.id} · {_day(run.created)} · {_size(evaluation)}",
        data=data,
        headlines=tuple(_headlines(evaluation, triggered, data, context.add_command)),
        summary="" if triggered else _summary(evaluation),
        tables=tuple(_tables(evaluation, triggered, data["groups"])),
        notes=tuple(find_notes(evaluation, data, context.show_command)),
        next=tuple(commands),
        sections=tuple(_sections(evaluation)),
        groups=partial(_groups, evaluation, context),
        tests=partial(test_suites, evaluation, partial(_failed_results, evaluation, context)),
        rows=tuple(verdict_row(run, verdict) for verdict in evaluation.verdicts),
    )


def _groups(evaluation: Evaluation, context: ReportContext) -> Iterable[CaseGroup]:
    if context.store is None:
        return ()
    return read_groups(evaluation, context.store, context.clean)


def _failed_results(evaluation: Evaluation, context: ReportContext) -> Iterable[Result]:
    """Trials with the skill that did not pass."""
    if context.store is None:
        return ()
    return context.clean(context.store.results(evaluation.run, arm="skill", failed=True))


# Sentences
# ------------------------------------------------------------------------------------------------


def _title(evaluation: Evaluation, triggered: tuple[TriggerMetrics, ...]) -> str:
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
        "no effect": f"has no effect of {100 * verdict.tolerance:g} points or more on {models}",
        "undecided": f"is undecided with {models}",
    }
    claim = claims[verdict.decision]
    if verdict.reason in OBSTACLES:
        return f"{claim} ({verdict.reason})"
    comma = "," if verdict.decision == "no effect" else ""
    return f"{claim}{comma} on {cases_in_words(verdict.heading)}"


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
        for line in (*describe_target(evaluation, data), *describe_controls(evaluation)):
            yield Headline(line)
    yield from describe_missed(evaluation.rulings)


def _summary(evaluation: Evaluation) -> str:
    """With the skill 37 of 48 answers pass, without it 1 of 48."""
    after = _passed(verdict.skill for verdict in evaluation.verdicts)
    before = _passed(verdict.baseline for verdict in evaluation.verdicts)
    if evaluation.leaked or not after:
        return ""
    line = f"With the skill {after} answers pass"
    if not before:
        return f"{line}."
    other = "without it"
    if evaluation.run.plan.reference_skill:
        other = f"with {evaluation.plan.labels['baseline']}"
    return f"{line}, {other} {before}."


def _passed(arms: Iterable[ArmSummary]) -> str:
    passed = scored = 0
    for arm in arms:
        passed += arm.passed
        scored += arm.scored
    return f"{passed:,} of {scored:,}" if scored else ""


def _day(created: str) -> str:
    return f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M} UTC"


def _size(evaluation: Evaluation) -> str:
    """48 cases, 3 draws a case."""
    return f"{counted(len(evaluation.plan.suite.cases), 'case')}, {_draws(evaluation)}"


def _draws(evaluation: Evaluation) -> str:
    """How often each student answers each case."""
    plan = evaluation.run.plan
    by_draws: dict[str, list[str]] = {}
    for model in evaluation.run.models:
        by_draws.setdefault(plan.describe_draws(model), []).append(model)
    planned = next(iter(by_draws))
    if len(by_draws) > 1:
        planned = "; ".join(f"{listed(models)}: {draws}" for draws, models in by_draws.items())
    if not plan.in_rounds:
        return planned
    rounds = len({row.seed for row in evaluation.outcomes})
    return f"{planned}; stopped after {counted(rounds, 'round')}"


# Tables
# ------------------------------------------------------------------------------------------------

Row = Mapping[str, Cell]
BY_TAG = "Pass rate by tag"
BY_AUTHOR = "Pass rate by author"
WHAT_AGENTS_DID = "What agents did"
PAIRS = "The lift compares draws that were graded in both arms; pass rates and tokens count every graded draw."
KINDS: Mapping[str, Kind] = {
    "Cases": "count",
    "Passes": "share",
    "Lift in points": "points",
    "Answers": "count",
    "Activated": "share",
    "Lift activated": "points",
    "Lift not activated": "points",
    "Turns": "decimal",
    "Tool calls": "decimal",
    "Tool errors": "share",
    "Requirement": "code",
    "Tokens": "count",
    "Cost": "dollars",
}


def _model(verdict: Verdict, _: Evaluation) -> Cell:
    return verdict.model


def _decision(verdict: Verdict, evaluation: Evaluation) -> Cell:
    if evaluation.leaked:
        return Headline("INVALID", "bad", "✗")
    if evaluation.run.plan.part:
        return Headline("no verdict", "open")
    return Headline.of_decision(verdict.to_dict())


def _lift(verdict: Verdict, _: Evaluation) -> Cell:
    if verdict.reason in OBSTACLES:
        return None
    other = verdict.other and _measure(verdict.other, verdict)
    return _measure(verdict.heading, verdict, other)


def _measure(reading: Reading, verdict: Verdict, other: Measure | None = None) -> Measure:
    low, high = reading.interval or (None, None)
    about = cases_in_words(reading)
    if reading.about == "tasks" and reading.cases < verdict.cases:
        about += f", {reading.cases} fresh of {verdict.cases}"
    return Measure(reading.lift, low, high, about, other)


def _passes(verdict: Verdict, _: Evaluation) -> Cell:
    return Change(Rate.of_arm(verdict.baseline), Rate.of_arm(verdict.skill))


def _tokens(verdict: Verdict, _: Evaluation) -> Cell:
    return Change(_mean_tokens(verdict.baseline), _mean_tokens(verdict.skill))


def _mean_tokens(arm: ArmSummary) -> float | None:
    return arm.total_tokens / arm.scored if arm.scored else None


def _cost(verdict: Verdict, _: Evaluation) -> Cell:
    before, after = verdict.baseline.cost_per_pass, verdict.skill.cost_per_pass
    if not before and not after:
        return 0.0 if verdict.skill.scored and verdict.skill.cost_usd == 0 else None
    return Change(before, after)


# A row here is a column of the table of models.
MODELS: tuple[tuple[Column, Callable[[Verdict, Evaluation], Cell]], ...] = (
    (Column("Model"), _model),
    (Column("Decision"), _decision),
    (Column("Lift in points", "points"), _lift),
    (Column("Passes", "share"), _passes),
    (Column("Tokens per task", "count", spare=True), _tokens),
    (Column("Cost per pass", "dollars", spare=True), _cost),
)


def _tables(
    evaluation: Evaluation,
    triggered: tuple[TriggerMetrics, ...],
    groups: Mapping[str, list[dict[str, Any]]],
) -> Iterator[Table]:
    if triggered:
        yield from trigger_tables(triggered, evaluation.plan)
    else:
        yield _models_table(evaluation)
    details: dict[str, Iterator[Row]] = {}
    if not evaluation.leaked:
        details = {
            BY_TAG: _groups_of_cases(groups["tag"], "Tag"),
            BY_AUTHOR: _groups_of_cases(groups["author"], "Author"),
            "Why answers could not pass": _causes(evaluation),
            WHAT_AGENTS_DID: _activity(evaluation),
        }
    details["Requirements"] = _requirements(evaluation)
    details["Evidence"] = _evidence(evaluation)
    details["Cost"] = _spending(evaluation)
    pairs = _pairs(evaluation)
    notes = {BY_TAG: pairs, BY_AUTHOR: pairs, WHAT_AGENTS_DID: ACTIVATION_CAVEAT}
    for title, each in details.items():
        rows = list(each)
        if rows:
            columns = tuple(Column(name, KINDS.get(name, "text")) for name in rows[0])
            cells = tuple(tuple(row.values()) for row in rows)
            note = notes.get(title, "")
            yield Table(title=title, columns=columns, rows=cells, note=note, is_detail=True)


def _models_table(evaluation: Evaluation) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for verdict in evaluation.verdicts:
        rows.append(tuple(cell(verdict, evaluation) for _, cell in MODELS))
    # local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
    behind = [full for name, full in evaluation.full_names.items() if full != name]
    facts = [f"{'; '.join([_size(evaluation), *behind])}."]
    facts.append(describe_authors(case.metadata for case in evaluation.plan.suite.cases))
    facts += (_intervals(evaluation), _pairs(evaluation))
    costs = [cost for _, cost in evaluation.spent.values()]
    if None in costs:
        facts.append("Spent: an unknown price.")
    elif any(costs):
        facts.append(f"Spent: {dollars(sum(cost or 0.0 for cost in costs))}.")
    return Table(
        columns=tuple(column for column, _ in MODELS),
        rows=tuple(rows),
        note=" ".join(filter(None, facts)),
    )


def _intervals(evaluation: Evaluation) -> str:
    """At which level, and which arm comes first."""
    levels: dict[str, str] = {}
    for verdict in evaluation.verdicts:
        for reading in (verdict.heading, verdict.other):
            if reading is not None and reading.interval is not None:
                level = f"{100 * reading.level:.3g}%"
                about = "tasks like these" if reading.about == "tasks" else "these cases"
                levels[f"{level} for {about}"] = level
    if not levels or evaluation.leaked:
        return ""
    several = len(set(levels.values())) > 1
    intervals = ", ".join(levels) if several else next(iter(levels.values()))
    labels = evaluation.plan.labels
    return f"Intervals: {intervals}. Arrows: {labels['baseline']} → {labels['skill']}."


def _pairs(evaluation: Evaluation) -> str:
    for verdict in evaluation.verdicts:
        scored = max(verdict.baseline.scored, verdict.skill.scored)
        if 0 < verdict.pairs < scored and not evaluation.leaked:
            return PAIRS
    return ""


def _groups_of_cases(rows: Iterable[Mapping[str, Any]], kind: str) -> Iterator[Row]:
    for row in rows:
        for model, split in row["models"].items():
            low, high = split["interval"] or (None, None)
            yield {
                kind: row["name"],
                "Cases": row["cases"],
                "Model": model,
                "Passes": Change(split["baseline"], split["skill"]),
                "Lift in points": Measure(split["lift"], low, high),
            }


def _causes(evaluation: Evaluation) -> Iterator[Row]:
    for verdict in evaluation.verdicts:
        for cause in CAUSES:
            before, after = (arm.causes.get(cause, 0) for arm in (verdict.baseline, verdict.skill))
            if before or after:
                yield {
                    "Model": verdict.model,
                    "Cause": CAUSES_IN_WORDS[cause],
                    "Answers": Change(before, after),
                }


def _activity(evaluation: Evaluation) -> Iterator[Row]:
    """What agents did. Students that only answer do nothing."""
    for verdict in evaluation.verdicts:
        baseline, skill, activation = verdict.baseline, verdict.skill, verdict.activation
        if activation is None and not baseline.tool_calls and not skill.tool_calls:
            continue
        share, lifts = None, (None, None)
        if activation is not None:
            share = Measure(activation.rate, *activation.interval)
            lifts = activation.lifts
        yield {
            "Model": verdict.model,
            "Activated": share,
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
    yield Section(title="The skill", text=plan.skill.body, is_code=True)
    yield Section(title="Settings", lines=tuple(_settings(evaluation)))
    commands = [("See every answer", f"upskill show {run.id}")]
    folder = _folder_with_receipt(evaluation)
    if folder:
        commands.append(("Check the receipt", f"upskill verify {folder}"))
    lines = [(name, f"`{command}`") for name, command in commands]
    yield Section(title="Commands", lines=tuple(lines))


def _settings(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    plan = evaluation.run.plan
    optional = {
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
    for name, value in optional.items():
        if value:
            yield name, value


def _sandbox(record: Mapping[str, Any]) -> str:
    name, version = record["name"], record["version"]
    line = version if version.startswith(name) else f"{name} ({version})"
    if not record.get("isolated", True):
        return f"{line}: NOTHING was blocked"
    line = f"{line}; self-test passed: {', '.join(record['passed'])}"
    return f"{line}; reduced: {record['reduced']}" if record.get("reduced") else line


def _folder_with_receipt(evaluation: Evaluation) -> str:
    """Where a receipt of this run lies; empty where there is none."""
    skill = find_skill(evaluation.run.plan)
    if skill is None or skill.folder is None:
        return ""
    receipt = skill.folder / RECEIPT
    if not receipt.is_file() or read_json(receipt).get("run") != evaluation.run.id:
        return ""
    return os.path.relpath(skill.folder)
