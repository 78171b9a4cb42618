"""`terminal`: bars, what changed, what went wrong, and always the table at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.runs.evaluation import Evaluation
from upskill.runs.plan import Result, Trial
from upskill.runs.stores import Run
from upskill.sandboxes import printable
from upskill.verdicts.advice import ACTIVATION_CAVEAT, signed_points
from upskill.verdicts.arms import ArmSummary, Interval
from upskill.verdicts.choices import Choice, cheapest, list_choices, pareto
from upskill.verdicts.diagnosis import Kind, advice_for, diagnose
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

WIDTH = 20
MODEL_WIDTH = 16  # a model's name may be folded to this
NAMES = {"baseline": "baseline", "skill": "with skill", "placebo": "placebo", "baseline_repeat": "baseline again"}
NAMES_AGAINST = {
    "baseline": "older skill",
    "skill": "this skill",
    "placebo": "placebo",
    "baseline_repeat": "older skill again",
}
COLOURS = {"helps": "green", "saves": "green", "hurts": "red", "no effect": "yellow", "undecided": "yellow"}

Results = Callable[[Run], Iterator[Result]]


def of_evaluation(
    evaluation: Evaluation,
    *,
    verbose: bool = False,
    results: Results | None = None,
    stored: bool = True,
    found_with: str = "",
) -> list[RenderableType]:
    """`found_with` is what `upskill show` needs besides the run's id."""
    verdicts, against = evaluation.verdicts, evaluation.plan.reference_skill is not None
    shown: list[RenderableType] = [_heading(evaluation)]
    if len(verdicts) == 1 and not evaluation.leaked:
        shown.append(bars(verdicts[0], against=against))
    if verbose and results:
        shown += [_cases(evaluation, results), Text("")]
    said: list[tuple[str, str]] = [(f"Note: {warning}", "dim") for warning in evaluation.warnings]
    if evaluation.leaked:
        said += [(line, "") for line in (*_troubles(evaluation), *_spending(evaluation))]
    else:
        if len(verdicts) > 1:
            shown += _acted(verdicts, against)
        said += _findings(evaluation)
    if stored:
        said.append((f"Every trial: upskill show {evaluation.run.id}{found_with}", "dim"))
    shown += [_indented(Text(line, style=style)) for line, style in said]
    if evaluation.leaked:
        run = f"{evaluation.run.id}{found_with}"
        shown += [Text(""), _indented(invalid(run, evaluation.invalid, stored=stored))]
    shown.append(_table(evaluation))
    return shown


def _findings(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """What the numbers say, in words, with the style of each line."""
    plan, verdicts = evaluation.plan, evaluation.verdicts
    for line in _diagnosis(evaluation):
        yield line, "dim"
    if plan.suite.held_out and plan.suite.train:
        for line in _splits(evaluation):
            yield line, ""
    for line in (*_troubles(evaluation), *_choices(evaluation), *_spending(evaluation)):
        yield line, ""
    for verdict in verdicts:
        name = f"{verdict.model}: " if len(verdicts) > 1 else ""
        for line in (*_card(verdict, evaluation), verdict.recommendation):
            yield f"{name}{line}", ""


def _indented(shown: RenderableType, by: int = 2) -> RenderableType:
    return Padding(shown, (0, 0, 0, by))


def invalid(run: str, leaks: list[tuple[Trial, str]], *, stored: bool = True, most: int = 3) -> RenderableType:
    """That the arms of a run were not isolated, what shows it, and what to do."""
    trials = counted(len(leaks), "trial")
    lines = [
        "The arms were not isolated, so no number of this run means anything.",
        f"{trials} saw or reached for a skill that was kept from {'it' if len(leaks) == 1 else 'them'}:",
    ]
    for trial, reason in leaks[:most]:
        where = f"{trial.case} · {trial.arm} · {trial.model} · seed {trial.seed}"
        lines.append(f"  {where}: {printable(' '.join(reason.split()))}")
    if len(leaks) > most:
        lines.append(f"  … and {len(leaks) - most} more")
    look = f"See how with `upskill show {run} --case {leaks[0][0].case}`. " if stored and leaks else ""
    lines.append(f"{look}Close the way by which it was reached, then run again with --fresh.")
    return Panel(Text("\n".join(lines)), title="[bold]INVALID[/bold]", title_align="left", style="red")


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
        f"[bold]{escape(plan.skill.name)}[/bold]",
        escape(" ".join(plan.skill.description.split())),
        "",
        f"SKILL.md   ~{plan.skill.tokens:,} tokens",
        f"cases      {len(suite.cases)} ({len(suite.held_out)} held out), {runs}",
        "",
    ]
    return _indented(Text.from_markup("\n".join(lines)))


def bars(verdict: Verdict, *, against: bool = False) -> RenderableType:
    """The pass rates of both arms, what a task takes, and what an agent that acts did."""
    names = NAMES_AGAINST if against else NAMES
    width = max(11, 1 + max(len(names[arm]) for arm in ("baseline", "skill")))
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
        lines.append(f"  {names[arm.arm]:<{width}}{bar(arm.pass_rate)} {rate}{lift}{errors}")
    change = verdict.total_tokens
    if change is not None and change.relative is not None and verdict.pairs:
        before = _mean_tokens(verdict.baseline)
        after = _mean_tokens(verdict.skill)
        lines += ["", f"  tokens a task: {before:,.0f} → {after:,.0f}  ({percent(change.relative, signed=True)})"]
    return Group(Text.from_markup("\n".join([*lines, ""])), *_acted([verdict], against))


def _acted(verdicts: list[Verdict], against: bool) -> Iterator[RenderableType]:
    """What agents that act did: whether they opened the skill, what that was worth, turns and tool calls."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in verdicts:
        rows = list(_acts(verdict, against))
        if rows and len(verdicts) > 1:
            table.add_row(Text(verdict.model, style="bold"), "")
        for label, said in rows:
            table.add_row(label, Text(said))
    if table.row_count:
        yield _indented(table)
        yield Text("")


def _acts(verdict: Verdict, against: bool) -> Iterator[tuple[str, str]]:
    arms = (verdict.baseline, verdict.skill)
    found = verdict.activation
    if found is not None:
        low, high = (percent(bound) for bound in found.interval)
        line = f"in {found.opened} of {counted(found.trials, 'trial')} ({percent(found.rate)}, {low} to {high})"
        if against and verdict.baseline.opened is not None:
            line += f"; the older skill in {verdict.baseline.opened} of {verdict.baseline.scored}"
        yield "opened", line
        if verdict.lift is not None:
            offered = _lift(verdict.lift, verdict.interval, verdict.pairs)
            parts = [
                f"{words} {_lift(part.lift, part.interval, part.pairs)}"
                for words, part in (("opened", found.activated), ("not opened", found.not_activated))
                if part.lift is not None
            ]
            yield "lift", " · ".join([f"offered {offered}", *parts])
            yield "", ACTIVATION_CAVEAT
    if found is None and not any(arm.tool_calls for arm in arms):
        return
    turns = _arrow(*(_short(arm.turns) for arm in arms))
    calls = _arrow(*(_short(arm.tool_calls) for arm in arms))
    failed = _arrow(*(percent(arm.tool_errors) for arm in arms))
    yield "turns", f"{turns} a task · tool calls {calls} · tool errors {failed}"


def _short(number: float | None) -> str:
    return "–" if number is None else f"{number:.1f}"


def _lift(lift: float | None, interval: Interval | None, pairs: int) -> str:
    if lift is None or interval is None:
        return "–"
    low, high = interval
    return f"{signed_points(lift)} ({signed_points(low)} to {signed_points(high)}, {counted(pairs, 'pair')})"


def _mean_tokens(arm: ArmSummary) -> float:
    return arm.total_tokens / arm.scored if arm.scored else 0.0


def _troubles(evaluation: Evaluation) -> Iterator[str]:
    for model, message in evaluation.stopped.items():
        yield f"{model} was given up: {message}"
    for model, message, trials in evaluation.errors[:10]:
        if model not in evaluation.stopped:
            yield f"{counted(trials, 'trial')} of {model} errored: {printable(message)}"
    if len(evaluation.errors) > 10:
        yield f"… and {counted(len(evaluation.errors) - 10, 'other error')}"
    missing = evaluation.run.trials - len(evaluation.outcomes)
    if missing and evaluation.scope and not (evaluation.halted or evaluation.stopped):
        yield f"{missing} of the {evaluation.run.trials} trials were not needed"
    elif missing:
        ones = "was not run; the same command goes on with it"
        many = "were not run; the same command goes on with them"
        yield f"{counted(missing, 'trial')} {ones if missing == 1 else many}"


def _table(evaluation: Evaluation) -> RenderableType:
    arms = ("Older skill", "This skill") if evaluation.plan.reference_skill else ("Baseline", "With skill")
    columns = ("Model", *arms, "Lift", "95% interval", "Assertions", "Tokens", "Cost", "Decision")
    rows: list[dict[str, str]] = [
        dict(zip(columns, _row(evaluation, verdict), strict=True)) for verdict in evaluation.verdicts
    ]
    return Group(Text(""), _indented(_Fitting(rows)))


class _Fitting:
    """A table that leaves columns out, the least telling first, where there is no room for all of them."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out: set[str] = set()
        for column in ("", "Assertions", "Cost", "Tokens"):
            left_out.add(column)
            table = self._table(left_out)
            widest = max(len(row["Model"]) for row in self.rows)
            spare = max(0, widest - MODEL_WIDTH)  # a long name can be folded
            if Measurement.get(console, options.update(max_width=1000), table).maximum - spare <= options.max_width:
                break
        yield table

    def _table(self, left_out: set[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = [column for column in self.rows[0] if column not in left_out]
        for column in columns:
            if column == "Model":
                table.add_column(column, overflow="fold")
            else:
                table.add_column(column, justify="left" if column == "Decision" else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[column] for column in columns))
        return table


def _row(evaluation: Evaluation, verdict: Verdict) -> Iterator[str]:
    rows, arms = evaluation.outcomes_of(verdict.model), (verdict.baseline, verdict.skill)
    yield escape(verdict.model)
    yield from (_passes(arm) for arm in arms)
    yield percent(verdict.lift, signed=True)
    if verdict.interval is None:
        yield "–"
    else:
        yield " to ".join(f"{round(100 * bound):+d}" for bound in verdict.interval)
    yield _arrow(*(_assertions(rows, arm) for arm in ("baseline", "skill")))
    yield _arrow(*(f"{_mean_tokens(arm):,.0f}" if arm.scored else "–" for arm in arms))
    yield _cost(verdict)
    if verdict.reason == "isolation":
        yield "[bold red]INVALID[/bold red]"
    else:
        colour, errors = COLOURS[verdict.decision], " (errors)" if verdict.reason == "errors" else ""
        yield f"[{colour}]{verdict.decision}{errors}[/{colour}]"


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


def _card(verdict: Verdict, evaluation: Evaluation) -> Iterator[str]:
    """What a decision needs beyond the lift: money, and what the controls say."""
    before, after = verdict.baseline.cost_per_pass, verdict.skill.cost_per_pass
    against = evaluation.plan.reference_skill is not None
    if verdict.baseline.cost_usd or verdict.skill.cost_usd:
        words = ("with the older skill", "with this one") if against else ("in the baseline", "with the skill")
        said = [
            f"${cost:.5f} {where}" if cost is not None else f"(none passed) {where}"
            for cost, arm, where in ((before, verdict.baseline, words[0]), (after, verdict.skill, words[1]))
            if arm.scored
        ]
        line = f"A passed task costs {' and '.join(said)}"
        if verdict.break_even is not None:
            tasks = counted(math.ceil(verdict.break_even), "passed task")
            line += f"; {_made_for(evaluation)}, it has paid off after {tasks}"
        yield line + "."
    if verdict.controls:
        parts = [
            f"{word} {signed_points(found.value)} ({signed_points(found.low)} to {signed_points(found.high)})"
            for word, found in (
                ("content", verdict.controls.content),
                ("length alone", verdict.controls.length),
                ("noise", verdict.controls.noise),
            )
            if found is not None
        ]
        yield f"Of the lift, in points: {' · '.join(parts)}."


def _made_for(evaluation: Evaluation) -> str:
    cost = evaluation.making_cost or 0.0
    source = f" ({evaluation.making_source})" if evaluation.making_source else ""
    return f"made for ${cost:.{4 if 0 < cost < 0.1 else 2}f}{source}"


def _choices(evaluation: Evaluation) -> Iterator[str]:
    """Which model and arm to take, where there is a choice."""
    target, against = evaluation.target, evaluation.plan.reference_skill is not None
    if len(evaluation.plan.models) < 2 and target is None:
        return
    found = list_choices(evaluation.outcomes)
    front = pareto(found)
    if front and len(evaluation.plan.models) > 1:
        parts = [
            f"{_arm_of(choice, against)} {percent(choice.pass_rate)} at ${choice.cost_per_task:.5f} a task"
            for choice in front
        ]
        yield f"Worth their price: {' · '.join(parts)}."
    if target is not None:
        best = cheapest(found, target)
        unpriced = [choice for choice in found if choice.cost_per_task is None and choice.reaches(target)]
        if best is None and unpriced:
            yield f"{_arm_of(unpriced[0], against)} reaches {percent(target)}; its price is not known."
        elif best is None:
            yield f"Nothing reaches {percent(target)}."
        else:
            low, high = (percent(bound) for bound in best.interval)
            cost = f"${best.cost_per_task:.5f} a task"
            rate = f"{percent(best.pass_rate)}, {low} to {high}, {cost}"
            yield f"Cheapest that reaches {percent(target)}: {_arm_of(best, against)} ({rate})."


def _arm_of(choice: Choice, against: bool) -> str:
    words = ("with the older skill", "with this skill") if against else ("as the baseline", "with the skill")
    return f"{choice.model} {words[choice.arm == 'skill']}"


def _diagnosis(evaluation: Evaluation) -> Iterator[str]:
    """Cases that cannot show a lift, by kind."""
    for address in evaluation.plan.models:
        name = f"{address.name}: " if len(evaluation.plan.models) > 1 else ""
        by_kind: dict[Kind, list[str]] = {}
        for found in diagnose(evaluation.outcomes_of(address.name)):
            for kind in found.kinds:
                if kind != "unscored":
                    by_kind.setdefault(kind, []).append(found.case)
        for kind, cases in by_kind.items():
            names = ", ".join(cases[:3]) + (", …" if len(cases) > 3 else "")
            advice = advice_for(kind, baseline_is_skill=evaluation.plan.reference_skill is not None)
            yield f"{name}{len(cases)} {kind} ({names}): {advice}"


def _splits(evaluation: Evaluation) -> Iterator[str]:
    fit, held_out = evaluation.by_split(held_out=False), evaluation.by_split(held_out=True)
    for model, verdict in held_out.items():
        if verdict.lift is None or fit[model].lift is None:
            continue
        name = f"{model}: " if len(held_out) > 1 else ""
        parts: list[str] = []
        for word, part in (("fit", fit[model]), ("held-out", verdict)):
            low, high = part.interval or (0.0, 0.0)
            spread = f"{round(100 * low):+d} to {round(100 * high):+d}"
            pairs = counted(part.pairs, "pair")
            parts.append(f"{word} cases {percent(part.lift, signed=True)} ({spread}, {pairs})")
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
    names = NAMES_AGAINST if evaluation.plan.reference_skill else NAMES
    for arm in evaluation.plan.arms:
        table.add_column(names[arm])
    table.add_column("Last finding with the skill", overflow="fold")
    rows = results(evaluation.run)
    for (case, model), group in groupby(rows, key=lambda result: (result.trial.case, result.trial.model)):
        found = list(group)
        marks = ["".join(_mark(result) for result in found if result.trial.arm == arm) for arm in evaluation.plan.arms]
        table.add_row(escape(case), escape(model), *marks, escape(printable(_last_word(found))))
    return _indented(table)


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
