"""`terminal`: the verdict and the table, then bars and what else was found, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from upskill.plain import counted
from upskill.reports import ReportContext, sentences
from upskill.reports.layout import FittedTable, Paragraph
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
from upskill.runs.planning.plan import Result, Trial
from upskill.runs.results.evaluation import Evaluation
from upskill.sandboxes import printable
from upskill.verdicts.advice import conclude, decision_in_words
from upskill.verdicts.verdict import LOOK_UP, Verdict

BAR_WIDTH = 20
ARM_NAMES = {"baseline": "baseline", "skill": "with skill", "placebo": "placebo", "baseline_repeat": "baseline again"}
ARM_NAMES_OF_TWO_SKILLS = {
    "baseline": "older skill",
    "skill": "this skill",
    "placebo": "placebo",
    "baseline_repeat": "older skill again",
}
INTERVAL = "95% interval"
MARKS = {
    "helps": ("✓", "green"),
    "saves": ("✓", "green"),
    "hurts": ("✗", "red"),
    "no effect": ("=", "yellow"),
    "undecided": ("?", "yellow"),
}


def render(evaluation: Evaluation, context: ReportContext | None = None) -> RenderableType:
    context = context or ReportContext()
    first = (*_conclusions(evaluation), Text(""), _table(evaluation))
    if context.quiet:
        return Group(*first)
    parts: list[RenderableType] = [Text(""), *first, Text("")]
    if evaluation.bugs:  # that something is wrong with the numbers comes before them
        parts.insert(0, bug_panel(evaluation, context.show_command))
    if evaluation.leaked:
        parts += [_indented(invalid(evaluation.invalid, context.show_command)), Text("")]
    else:
        parts += _all_bars(evaluation)
    if context.verbose and context.results:
        parts += [*_cases(evaluation, context.results()), Text("")]
    parts += [Paragraph(line, style, hanging=2) for line, style in _details(evaluation)]
    if context.show_command:
        parts.append(Paragraph(f"Read every answer: {context.show_command}", "dim"))
    return Group(*parts)


def _conclusions(evaluation: Evaluation) -> Iterator[RenderableType]:
    """What each verdict comes to, a line each."""
    older, skill = evaluation.plan.reference_skill is not None, evaluation.plan.skill.name
    shown = evaluation.verdicts[:1] if evaluation.leaked else evaluation.verdicts
    for verdict in shown:
        mark, colour = MARKS[verdict.decision] if not evaluation.leaked else MARKS["hurts"]
        said = conclude(verdict, skill, verdict.model, has_reference=older)
        yield Paragraph(f"{mark} {said}", f"bold {colour}", hanging=2)


def _all_bars(evaluation: Evaluation) -> Iterator[RenderableType]:
    verdicts, has_reference = evaluation.verdicts, evaluation.plan.reference_skill is not None
    for verdict in verdicts:
        if len(verdicts) > 1:
            yield Paragraph(verdict.model, "bold")
        yield bars(verdict, has_reference=has_reference)


def _details(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """What the numbers rest on and what else was found, in words, with the style of each line."""
    plan = evaluation.plan
    most = "up to " if evaluation.scope else ""
    runs = "one run each" if plan.runs == 1 else f"{most}{plan.runs} runs each"
    cases = f"{counted(len(plan.suite.cases), 'case')} ({len(plan.suite.held_out)} held out), {runs}"
    yield f"{cases}; SKILL.md has about {plan.skill.tokens:,} tokens.", ""
    for line in sentences.troubles(evaluation):
        yield line, ""
    if not evaluation.leaked:
        for line in _findings(evaluation):
            yield line, ""
    for line in sentences.spending(evaluation):
        yield line, ""
    for warning in evaluation.warnings:
        yield f"Note: {warning}", "dim"


def _findings(evaluation: Evaluation) -> Iterator[str]:
    plan, verdicts = evaluation.plan, evaluation.verdicts
    if plan.suite.held_out and plan.suite.train:
        yield from sentences.splits(evaluation)
    yield from sentences.looks(evaluation)
    yield from sentences.diagnosis(evaluation)
    yield from sentences.choices(evaluation)
    for verdict in verdicts:
        name = f"{verdict.model}: " if len(verdicts) > 1 else ""
        told = (*sentences.cost_and_controls(verdict, evaluation), *sentences.causes(verdict, evaluation))
        for line in filter(None, (*told, verdict.advice)):
            yield f"{name}{line}"


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


def bars(verdict: Verdict, *, has_reference: bool = False) -> RenderableType:
    """The pass rates of both arms, what a task takes, and what an agent that acts did."""
    names = ARM_NAMES_OF_TWO_SKILLS if has_reference else ARM_NAMES
    width = max(11, 1 + max(len(names[arm]) for arm in ("baseline", "skill")))
    lines: list[str] = []
    for arm in (verdict.baseline, verdict.skill):
        if not arm.scored + arm.errored:
            continue
        lift = ""
        if arm is verdict.skill and verdict.lift is not None:
            colour = MARKS[verdict.decision][1]
            lift = f"  [{colour}]{points(verdict.lift)}[/{colour}]"
        errors = f"  [red]{arm.errored} errored[/red]" if arm.errored else ""
        lines.append(f"  {names[arm.arm]:<{width}}{bar(arm.pass_rate)} {percent(arm.pass_rate):>5}{lift}{errors}")
    change = verdict.total_tokens
    if change is not None and change.relative is not None and verdict.pairs:
        before, after = mean_tokens(verdict.baseline), mean_tokens(verdict.skill)
        lines.append(f"  tokens a task: {before:,.0f} → {after:,.0f} ({percent(change.relative, signed=True)})")
    return Group(Text.from_markup("\n".join([*lines, ""])), *_activity(verdict, has_reference=has_reference))


def _activity(verdict: Verdict, *, has_reference: bool) -> Iterator[RenderableType]:
    """What an agent that acts did: whether it opened the skill, what that was worth, turns and tool calls."""
    rows = list(_activity_rows(verdict, has_reference=has_reference))
    yield from (Paragraph(f"{label:<8}{said}", hanging=8) for label, said in rows)
    if rows:
        yield Text("")


def _activity_rows(verdict: Verdict, *, has_reference: bool) -> Iterator[tuple[str, str]]:
    arms = (verdict.baseline, verdict.skill)
    found = verdict.activation
    if found is not None:
        low, high = (percent(bound) for bound in found.interval)
        line = f"in {found.activated} of {counted(found.trials, 'trial')} ({percent(found.rate)}, {low} to {high})"
        if has_reference and verdict.baseline.activated is not None:
            line += f"; the older skill in {verdict.baseline.activated} of {verdict.baseline.scored}"
        yield "activated", line
        if verdict.lift is not None:
            offered = lift_in_points(verdict.lift, verdict.interval, verdict.pairs)
            parts = [
                f"{words} {lift_in_points(part.lift, part.interval, part.pairs)}"
                for words, part in (("activated", found.where_activated), ("not activated", found.where_not_activated))
                if part.lift is not None
            ]
            yield "lift", " · ".join([f"offered {offered}", *parts])
            yield "", sentences.ACTIVATION_CAVEAT
    if found is None and not any(arm.tool_calls for arm in arms):
        return
    turns = before_after(*(decimal(arm.turns) for arm in arms))
    calls = before_after(*(decimal(arm.tool_calls) for arm in arms))
    failed = before_after(*(percent(arm.tool_errors) for arm in arms))
    yield "turns", f"{turns} a task · tool calls {calls} · tool errors {failed}"


def _table(evaluation: Evaluation) -> RenderableType:
    arms = ("Older skill", "This skill") if evaluation.plan.reference_skill else ("Baseline", "With skill")
    columns: tuple[str, ...] = ("Model", *arms, "Lift", INTERVAL, "Tokens", "Cost", "Decision")
    rows: list[dict[str, Text]] = [dict(zip(columns, _row(verdict), strict=True)) for verdict in evaluation.verdicts]
    return FittedTable(rows, left=("Model", "Decision"), spare=("Cost", "Tokens"), last=INTERVAL)


def _row(verdict: Verdict) -> Iterator[Text]:
    arms = (verdict.baseline, verdict.skill)
    yield Text(verdict.model)
    yield from (Text(pass_rate(arm)) for arm in arms)
    yield Text(points(verdict.lift))
    yield Text(interval_in_points(verdict.interval))
    yield Text(before_after(*(f"{mean_tokens(arm):,.0f}" if arm.scored else UNKNOWN for arm in arms)))
    yield Text(_cost(verdict))
    if verdict.reason == "isolation":
        yield Text("INVALID", style="bold red")
    elif verdict.reason == LOOK_UP:
        yield Text(LOOK_UP, style="yellow")
    else:
        yield Text(decision_in_words(verdict.decision, verdict.reason), style=MARKS[verdict.decision][1])


def _cost(verdict: Verdict) -> str:
    costs = [arm.cost_usd for arm in (verdict.baseline, verdict.skill) if arm.scored]
    known = [cost for cost in costs if cost is not None]
    return dollars(sum(known)) if costs and len(known) == len(costs) else UNKNOWN


def _cases(evaluation: Evaluation, results: Iterable[Result]) -> Iterator[RenderableType]:
    """Every case: how each arm did, run by run, and the last thing that was wrong with the skill."""
    arms, several = evaluation.plan.arms, len(evaluation.verdicts) > 1
    names = ARM_NAMES_OF_TWO_SKILLS if evaluation.plan.reference_skill else ARM_NAMES
    widths = {arm: max(len(names[arm]), evaluation.plan.runs) for arm in arms}
    yield Paragraph("  ".join([*(f"{names[arm]:<{widths[arm]}}" for arm in arms), "case"]), "bold")
    indent = 2 + sum(widths.values()) + 2 * len(arms)
    for (case, model), group in groupby(results, key=lambda result: (result.trial.case, result.trial.model)):
        found = list(group)
        marks = {arm: "".join(_mark(result) for result in found if result.trial.arm == arm) for arm in arms}
        told = "".join(f"{marks[arm]:<{widths[arm]}}  " for arm in arms)
        yield Text(f"  {told}{case}{f' · {model}' if several else ''}", no_wrap=True, overflow="ignore")
        if finding := printable(" ".join(_last_finding(found).split())):
            yield Paragraph(finding, "dim", indent=indent + 2)


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
