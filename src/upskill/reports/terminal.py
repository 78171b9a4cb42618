"""`terminal`: bars, what changed, what went wrong, and always the table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.reports import ReportContext, sentences
from upskill.reports.numbers import (
    UNKNOWN,
    before_after,
    decimal,
    interval_in_points,
    lift_in_points,
    mean_tokens,
    pass_rate,
    percent,
)
from upskill.runs.evaluation import Evaluation
from upskill.runs.plan import Result, Trial
from upskill.sandboxes import printable
from upskill.verdicts.advice import ACTIVATION_CAVEAT, LOOK_UP
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import ERRORS_COULD_EXPLAIN, Verdict

BAR_WIDTH = 20
MODEL_WIDTH = 16  # a model's name may be folded to this
ARM_NAMES = {"baseline": "baseline", "skill": "with skill", "placebo": "placebo", "baseline_repeat": "baseline again"}
ARM_NAMES_OF_TWO_SKILLS = {
    "baseline": "older skill",
    "skill": "this skill",
    "placebo": "placebo",
    "baseline_repeat": "older skill again",
}
COLOURS = {"helps": "green", "saves": "green", "hurts": "red", "no effect": "yellow", "undecided": "yellow"}


def render(evaluation: Evaluation, context: ReportContext | None = None) -> RenderableType:
    context = context or ReportContext()
    verdicts, baseline_is_skill = evaluation.verdicts, evaluation.plan.reference_skill is not None
    parts: list[RenderableType] = [_heading(evaluation)]
    if evaluation.bugs:
        parts.insert(0, bug_panel(evaluation, context.show_command))
    if len(verdicts) == 1 and not evaluation.leaked:
        parts.append(bars(verdicts[0], baseline_is_skill=baseline_is_skill))
    if context.verbose and context.results:
        parts += [_cases(evaluation, context.results()), Text("")]
    notes: list[tuple[str, str]] = [(f"Note: {warning}", "dim") for warning in evaluation.warnings]
    if evaluation.leaked:
        notes += [(line, "") for line in (*sentences.troubles(evaluation), *sentences.spending(evaluation))]
    else:
        if len(verdicts) > 1:
            parts += _activity(verdicts, baseline_is_skill=baseline_is_skill)
        notes += _findings(evaluation)
    if context.show_command:
        notes.append((f"Every trial: {context.show_command}", "dim"))
    parts += [_indented(Text(line, style=style)) for line, style in notes]
    if evaluation.leaked:
        parts += [Text(""), _indented(invalid(evaluation.invalid, context.show_command))]
    parts.append(_table(evaluation))
    return Group(*parts)


def _findings(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """What the numbers say, in words, with the style of each line."""
    plan, verdicts = evaluation.plan, evaluation.verdicts
    for line in sentences.troubles(evaluation):
        yield line, ""
    for line in sentences.diagnosis(evaluation):
        yield line, "dim"
    if plan.suite.held_out and plan.suite.train:
        for line in sentences.splits(evaluation):
            yield line, ""
    for line in (*sentences.looks(evaluation), *sentences.choices(evaluation), *sentences.spending(evaluation)):
        yield line, ""
    for verdict in verdicts:
        name = f"{verdict.model}: " if len(verdicts) > 1 else ""
        told = (*sentences.cost_and_controls(verdict, evaluation), *sentences.causes(verdict, evaluation))
        for line in (*told, verdict.recommendation):
            yield f"{name}{line}", ""


def _indented(shown: RenderableType, by: int = 2) -> RenderableType:
    return Padding(shown, (0, 0, 0, by))


def invalid(leaks: list[tuple[Trial, str]], show_command: str = "", most: int = 3) -> RenderableType:
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
    look = f"See how with `{show_command} --case {leaks[0][0].case}`. " if show_command and leaks else ""
    lines.append(f"{look}Close the way by which it was reached, then run again with --fresh.")
    return _red_panel("INVALID", "\n".join(lines))


def bug_panel(evaluation: Evaluation, show_command: str = "") -> RenderableType:
    return _indented(_red_panel("BUG", "\n".join(sentences.bugs(evaluation, show_command))))


def _red_panel(title: str, text: str) -> RenderableType:
    return Panel(Text(text), title=f"[bold]{title}[/bold]", title_align="left", style="red")


def bar(share: float | None, width: int = BAR_WIDTH) -> str:
    filled = round((share or 0.0) * width)
    return "█" * filled + "░" * (width - filled)


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


def bars(verdict: Verdict, *, baseline_is_skill: bool = False) -> RenderableType:
    """The pass rates of both arms, what a task takes, and what an agent that acts did."""
    names = ARM_NAMES_OF_TWO_SKILLS if baseline_is_skill else ARM_NAMES
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
        lines.append(f"  {names[arm.arm]:<{width}}{bar(arm.pass_rate)} {percent(arm.pass_rate):>5}{lift}{errors}")
    change = verdict.total_tokens
    if change is not None and change.relative is not None and verdict.pairs:
        before = mean_tokens(verdict.baseline)
        after = mean_tokens(verdict.skill)
        lines += ["", f"  tokens a task: {before:,.0f} → {after:,.0f}  ({percent(change.relative, signed=True)})"]
    return Group(Text.from_markup("\n".join([*lines, ""])), *_activity([verdict], baseline_is_skill=baseline_is_skill))


def _activity(verdicts: list[Verdict], *, baseline_is_skill: bool) -> Iterator[RenderableType]:
    """What agents that act did: whether they opened the skill, what that was worth, turns and tool calls."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in verdicts:
        rows = list(_activity_rows(verdict, baseline_is_skill=baseline_is_skill))
        if rows and len(verdicts) > 1:
            table.add_row(Text(verdict.model, style="bold"), "")
        for label, said in rows:
            table.add_row(label, Text(said))
    if table.row_count:
        yield _indented(table)
        yield Text("")


def _activity_rows(verdict: Verdict, *, baseline_is_skill: bool) -> Iterator[tuple[str, str]]:
    arms = (verdict.baseline, verdict.skill)
    found = verdict.activation
    if found is not None:
        low, high = (percent(bound) for bound in found.interval)
        line = f"in {found.opened} of {counted(found.trials, 'trial')} ({percent(found.rate)}, {low} to {high})"
        if baseline_is_skill and verdict.baseline.opened is not None:
            line += f"; the older skill in {verdict.baseline.opened} of {verdict.baseline.scored}"
        yield "opened", line
        if verdict.lift is not None:
            offered = lift_in_points(verdict.lift, verdict.interval, verdict.pairs)
            parts = [
                f"{words} {lift_in_points(part.lift, part.interval, part.pairs)}"
                for words, part in (("opened", found.activated), ("not opened", found.not_activated))
                if part.lift is not None
            ]
            yield "lift", " · ".join([f"offered {offered}", *parts])
            yield "", ACTIVATION_CAVEAT
    if found is None and not any(arm.tool_calls for arm in arms):
        return
    turns = before_after(*(decimal(arm.turns) for arm in arms))
    calls = before_after(*(decimal(arm.tool_calls) for arm in arms))
    failed = before_after(*(percent(arm.tool_errors) for arm in arms))
    yield "turns", f"{turns} a task · tool calls {calls} · tool errors {failed}"


def _table(evaluation: Evaluation) -> RenderableType:
    arms = ("Older skill", "This skill") if evaluation.plan.reference_skill else ("Baseline", "With skill")
    columns = ("Model", *arms, "Lift", "95% interval", "Assertions", "Tokens", "Cost", "Decision")
    rows: list[dict[str, str]] = [
        dict(zip(columns, _row(evaluation, verdict), strict=True)) for verdict in evaluation.verdicts
    ]
    return Group(Text(""), _indented(_FittedTable(rows)))


class _FittedTable:
    """A table that leaves columns out, the least important first, where there is no room for all of them."""

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
    yield from (pass_rate(arm) for arm in arms)
    yield percent(verdict.lift, signed=True)
    yield interval_in_points(verdict.interval)
    yield before_after(*(_assertions(rows, arm) for arm in ("baseline", "skill")))
    yield before_after(*(f"{mean_tokens(arm):,.0f}" if arm.scored else UNKNOWN for arm in arms))
    yield _cost(verdict)
    if verdict.reason == "isolation":
        yield "[bold red]INVALID[/bold red]"
    elif verdict.reason == LOOK_UP:
        yield f"[yellow]{LOOK_UP}[/yellow]"
    else:
        colour, errors = (
            COLOURS[verdict.decision],
            " (errors)" if verdict.reason in ("errors", ERRORS_COULD_EXPLAIN) else "",
        )
        yield f"[{colour}]{verdict.decision}{errors}[/{colour}]"


def _assertions(rows: list[Outcome], arm: str) -> str:
    """The mean share of checks that held, over scored trials."""
    shares = [
        row.checks_passed / row.checks for row in rows if row.arm == arm and row.passed is not None and row.checks
    ]
    return percent(sum(shares) / len(shares)) if shares else UNKNOWN


def _cost(verdict: Verdict) -> str:
    costs = [arm.cost_usd for arm in (verdict.baseline, verdict.skill) if arm.scored]
    if any(cost is None for cost in costs):
        return "unknown"
    return f"${sum(cost or 0.0 for cost in costs):.4f}"


def _cases(evaluation: Evaluation, results: Iterable[Result]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Case", overflow="fold")
    table.add_column("Model", overflow="fold")
    names = ARM_NAMES_OF_TWO_SKILLS if evaluation.plan.reference_skill else ARM_NAMES
    for arm in evaluation.plan.arms:
        table.add_column(names[arm])
    table.add_column("Last finding with the skill", overflow="fold")
    for (case, model), group in groupby(results, key=lambda result: (result.trial.case, result.trial.model)):
        found = list(group)
        marks = ["".join(_mark(result) for result in found if result.trial.arm == arm) for arm in evaluation.plan.arms]
        table.add_row(escape(case), escape(model), *marks, escape(printable(_last_finding(found))))
    return _indented(table)


def _mark(result: Result) -> str:
    return {True: "✓", False: "✗", None: "!"}[result.passed]


def _last_finding(results: list[Result]) -> str:
    for result in reversed(results):
        if result.trial.arm != "skill":
            continue
        if result.error:
            return result.error
        failed = [judgement.reason for judgement in result.judgements if judgement.decides and not judgement.passed]
        if failed:
            return failed[0]
    return ""
