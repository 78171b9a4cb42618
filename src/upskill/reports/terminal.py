"""`terminal`: bars, what changed, what went wrong, and always the table at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upskill.choices import Choice, cheapest, choices, pareto
from upskill.diagnosis import CaseDiagnosis, diagnose
from upskill.evaluation import Evaluation
from upskill.records import Run
from upskill.trial import Outcome, Result
from upskill.verdict import ArmSummary, Verdict, points

WIDTH = 20
NAMES = {"baseline": "baseline", "skill": "with skill", "placebo": "placebo", "again": "baseline again"}
COLOURS = {"helps": "green", "saves": "green", "hurts": "red", "no effect": "yellow", "undecided": "yellow"}

Results = Callable[[Run], Iterator[Result]]


def of_evaluation(
    evaluation: Evaluation, *, verbose: bool = False, results: Results | None = None, stored: bool = True
) -> list[RenderableType]:
    plan, verdicts = evaluation.plan, evaluation.verdicts
    shown: list[RenderableType] = [_heading(evaluation)]
    if len(verdicts) == 1:
        shown.append(bars(verdicts[0]))
    if verbose and results:
        shown += [_cases(evaluation, results), Text("")]
    said: list[tuple[str, str]] = [(f"Note: {warning}", "dim") for warning in evaluation.warnings]
    said += [(line, "dim") for line in _diagnosis(evaluation)]
    if plan.suite.held_out and plan.suite.train:
        said += [(line, "") for line in _splits(evaluation)]
    said += [(line, "") for line in (*_troubles(evaluation), *_choices(evaluation), *_spending(evaluation))]
    for verdict in verdicts:
        name = f"{verdict.model}: " if len(verdicts) > 1 else ""
        said += [(f"{name}{line}", "") for line in (*_card(verdict), verdict.recommendation)]
    if stored:
        said.append((f"Every trial: upskill show {evaluation.run.id}", "dim"))
    shown += [Padding(Text(line, style=style), (0, 0, 0, 2)) for line, style in said]
    shown.append(_table(evaluation))
    return shown


def bar(share: float | None, width: int = WIDTH) -> str:
    filled = round((share or 0.0) * width)
    return "█" * filled + "░" * (width - filled)


def percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return "–"
    rounded = round(100 * share)
    return f"{rounded:+d}%" if signed and rounded else f"{rounded}%"


def _heading(evaluation: Evaluation) -> RenderableType:
    plan = evaluation.plan
    suite = plan.suite
    most = "up to " if evaluation.scope else ""
    runs = "one run each" if plan.runs == 1 else f"{most}{plan.runs} runs each"
    lines = [
        "",
        f"  [bold]{escape(plan.skill.name)}[/bold]",
        f"  {escape(' '.join(plan.skill.description.split()))}",
        "",
        f"  SKILL.md   ~{plan.skill.tokens:,} tokens",
        f"  cases      {len(suite.cases)} ({len(suite.held_out)} held out), {runs}",
        "",
    ]
    return Text.from_markup("\n".join(lines))


def bars(verdict: Verdict) -> RenderableType:
    lines: list[str] = []
    for arm in (verdict.baseline, verdict.skill):
        if not arm.scored + arm.errored:
            continue
        lift = ""
        if arm is verdict.skill and verdict.lift is not None:
            colour = COLOURS[verdict.decision]
            lift = f"  [{colour}]({percent(verdict.lift, signed=True)})[/{colour}]"
        errors = f"  [red]{arm.errored} errored[/red]" if arm.errored else ""
        rate = f"{percent(arm.pass_rate):>5}" if arm.scored else "    –"
        lines.append(f"  {NAMES[arm.arm]:<11}{bar(arm.pass_rate)} {rate}{lift}{errors}")
    change = verdict.total_tokens
    if change is not None and change.relative is not None and verdict.pairs:
        before = _mean_tokens(verdict.baseline)
        after = _mean_tokens(verdict.skill)
        lines += ["", f"  tokens a task: {before:,.0f} → {after:,.0f}  ({percent(change.relative, signed=True)})"]
    return Text.from_markup("\n".join([*lines, ""]))


def _mean_tokens(arm: ArmSummary) -> float:
    return arm.total_tokens / arm.scored if arm.scored else 0.0


def _troubles(evaluation: Evaluation) -> Iterator[str]:
    for model, message in evaluation.stopped.items():
        yield f"{model} was given up: {message}"
    for model, message, trials in evaluation.errors[:10]:
        if model not in evaluation.stopped:
            yield f"{trials} {'trial' if trials == 1 else 'trials'} of {model} errored: {message}"
    if len(evaluation.errors) > 10:
        yield f"… and {len(evaluation.errors) - 10} other errors"
    missing = evaluation.run.trials - len(evaluation.outcomes)
    if missing and evaluation.scope and not (evaluation.halted or evaluation.stopped):
        yield f"{missing} of the {evaluation.run.trials} trials were not needed"
    elif missing:
        yield f"{missing} trials were not run; the same command goes on with them"


def _table(evaluation: Evaluation) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Model", overflow="fold")
    for column in ("Baseline", "With skill", "Lift", "95% interval", "Assertions", "Tokens", "Cost", "Decision"):
        table.add_column(column, justify="left" if column == "Decision" else "right", no_wrap=True)
    for verdict in evaluation.verdicts:
        rows = [row for row in evaluation.outcomes if row.model == verdict.model]
        low_high = "–"
        if verdict.interval is not None:
            low_high = " to ".join(f"{round(100 * bound):+d}" for bound in verdict.interval)
        colour = COLOURS[verdict.decision]
        reason = " (errors)" if verdict.reason == "errors" else ""
        table.add_row(
            escape(verdict.model),
            _passes(verdict.baseline),
            _passes(verdict.skill),
            percent(verdict.lift, signed=True),
            low_high,
            _arrow(*(_assertions(rows, arm) for arm in ("baseline", "skill"))),
            _arrow(*(f"{_mean_tokens(arm):,.0f}" if arm.scored else "–" for arm in (verdict.baseline, verdict.skill))),
            _cost(verdict),
            f"[{colour}]{verdict.decision}{reason}[/{colour}]",
        )
    return Group(Text(""), Padding(table, (0, 0, 0, 2)))


def _passes(arm: ArmSummary) -> str:
    if not arm.scored:
        return "–"
    return f"{percent(arm.pass_rate)} ({arm.passed}/{arm.scored})"


def _assertions(rows: list[Outcome], arm: str) -> str:
    """The mean share of checks that held, over scored trials."""
    shares = [
        row.checks_passed / row.checks for row in rows if row.arm == arm and row.passed is not None and row.checks
    ]
    return percent(sum(shares) / len(shares)) if shares else "–"


def _arrow(before: str, after: str) -> str:
    return after if before == "–" else f"{before} → {after}"


def _cost(verdict: Verdict) -> str:
    costs = [arm.cost_usd for arm in (verdict.baseline, verdict.skill) if arm.scored]
    if any(cost is None for cost in costs):
        return "unknown"
    return f"${sum(cost or 0.0 for cost in costs):.4f}"


def _card(verdict: Verdict) -> Iterator[str]:
    """What a decision needs beyond the lift: money, and what the controls say."""
    before, after = verdict.baseline.cost_per_pass, verdict.skill.cost_per_pass
    if verdict.baseline.cost_usd or verdict.skill.cost_usd:
        said = [
            f"${cost:.5f} {words}" if cost is not None else f"(none passed) {words}"
            for cost, arm, words in (
                (before, verdict.baseline, "in the baseline"),
                (after, verdict.skill, "with the skill"),
            )
            if arm.scored
        ]
        line = f"A passed task costs {' and '.join(said)}"
        if verdict.break_even is not None:
            line += f"; making it has paid off after {math.ceil(verdict.break_even):,} passed tasks"
        yield line + "."
    if verdict.controls:
        parts = [
            f"{word} {points(found.value)} ({points(found.low)} to {points(found.high)})"
            for word, found in (
                ("content", verdict.controls.content),
                ("length alone", verdict.controls.length),
                ("noise", verdict.controls.noise),
            )
            if found is not None
        ]
        yield f"Of the lift, in points: {' · '.join(parts)}."


def _choices(evaluation: Evaluation) -> Iterator[str]:
    """Which model and arm to take, where there is a choice."""
    target = evaluation.target
    if len(evaluation.plan.models) < 2 and target is None:
        return
    found = choices(evaluation.outcomes)
    front = pareto(found)
    if front and len(evaluation.plan.models) > 1:
        parts = [
            f"{_arm_of(choice)} {percent(choice.pass_rate)} at ${choice.cost_per_task:.5f} a task" for choice in front
        ]
        yield f"Worth their price: {' · '.join(parts)}."
    if target is not None:
        best = cheapest(found, target)
        unpriced = [choice for choice in found if choice.cost_per_task is None and choice.reaches(target)]
        if best is None and unpriced:
            yield f"{_arm_of(unpriced[0])} reaches {percent(target)}; its price is not known."
        elif best is None:
            yield f"Nothing reaches {percent(target)}."
        else:
            low, high = (percent(bound) for bound in best.interval)
            cost = f"${best.cost_per_task:.5f} a task"
            rate = f"{percent(best.pass_rate)}, {low} to {high}, {cost}"
            yield f"Cheapest that reaches {percent(target)}: {_arm_of(best)} ({rate})."


def _arm_of(choice: Choice) -> str:
    return f"{choice.model} {'with the skill' if choice.arm == 'skill' else 'as the baseline'}"


def _diagnosis(evaluation: Evaluation) -> Iterator[str]:
    """Cases that cannot show a lift, by kind."""
    for address in evaluation.plan.models:
        name = f"{address.name}: " if len(evaluation.plan.models) > 1 else ""
        by_kind: dict[str, list[CaseDiagnosis]] = {}
        for found in diagnose(evaluation.rows_of(address.name)):
            for kind in found.kinds:
                if kind != "unscored":
                    by_kind.setdefault(kind, []).append(found)
        for kind, cases in by_kind.items():
            names = ", ".join(found.case for found in cases[:3]) + (", …" if len(cases) > 3 else "")
            advice = cases[0].advice[cases[0].kinds.index(kind)]
            yield f"{name}{len(cases)} {kind} ({names}): {advice}"


def _splits(evaluation: Evaluation) -> Iterator[str]:
    fit, held_out = evaluation.part(held_out=False), evaluation.part(held_out=True)
    for model, verdict in held_out.items():
        if verdict.lift is None or fit[model].lift is None:
            continue
        name = f"{model}: " if len(held_out) > 1 else ""
        parts: list[str] = []
        for word, part in (("fit", fit[model]), ("held-out", verdict)):
            low, high = part.interval or (0.0, 0.0)
            spread = f"{round(100 * low):+d} to {round(100 * high):+d}"
            parts.append(f"{word} cases {percent(part.lift, signed=True)} ({spread}, {part.pairs} pairs)")
        yield f"{name}{' · '.join(parts)}"


def _spending(evaluation: Evaluation) -> Iterator[str]:
    """Who used what; nothing when all of it was free."""
    if all(cost == 0 for _, cost in evaluation.spent.values()):
        return
    parts = [
        f"{role} {tokens:,} tokens, {'price unknown' if cost is None else f'${cost:.4f}'}"
        for role, (tokens, cost) in evaluation.spent.items()
    ]
    yield f"Spent: {' · '.join(parts)}"


def _cases(evaluation: Evaluation, results: Results) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Case", overflow="fold")
    table.add_column("Model", overflow="fold")
    for arm in evaluation.plan.arms:
        table.add_column(NAMES[arm])
    table.add_column("Last finding with the skill", overflow="fold")
    rows = results(evaluation.run)
    for (case, model), group in groupby(rows, key=lambda result: (result.trial.case, result.trial.model)):
        found = list(group)
        marks = ["".join(_mark(result) for result in found if result.trial.arm == arm) for arm in evaluation.plan.arms]
        table.add_row(escape(case), escape(model), *marks, escape(_last_word(found)))
    return Padding(table, (0, 0, 0, 2))


def _mark(result: Result) -> str:
    return {True: "✓", False: "✗", None: "!"}[result.passed]


def _last_word(results: list[Result]) -> str:
    for result in reversed(results):
        if result.trial.arm != "skill":
            continue
        if result.error:
            return result.error
        failed = [judgement.reason for judgement in result.judgements if not judgement.passed]
        if failed:
            return failed[0]
    return ""
