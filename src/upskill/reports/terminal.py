from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from upskill.plain import counted
from upskill.reports import ReportContext
from upskill.reports.layout import FittedTable, Paragraph, indented
from upskill.reports.numbers import UNKNOWN, mean_tokens, percent, points
from upskill.reports.view import (
    ACTIVATION_CAVEAT,
    RunView,
    VerdictView,
    describe_bugs,
    describe_leaks,
    grouped,
    view_of,
)
from upskill.runs.planning.plan import Result, Trial
from upskill.runs.results.evaluation import Evaluation
from upskill.sandboxes import printable

BAR_WIDTH = 20
MAX_NOTES = 1  # below the table; `upskill show` has them all
MARKS = {True: "✓", False: "✗", None: "!"}


def render(evaluation: Evaluation, context: ReportContext | None = None) -> RenderableType:
    context = context or ReportContext()
    view = view_of(evaluation, context.add_command)
    first = (*verdict_lines(evaluation, view), Text(""), _table(view))
    if context.quiet:
        return Group(*first)
    parts: list[RenderableType] = [Text(""), *first, Text("")]
    if evaluation.bugs:  # problems with the numbers come before them
        parts.insert(0, bug_panel(evaluation, context.show_command))
    if evaluation.leaked:
        parts += [indented(invalid(evaluation.invalid, context.show_command)), Text("")]
    if context.verbose:
        parts += details(evaluation)
        if context.results and not evaluation.unfinished:
            parts += [*_cases(evaluation, view.arms, context.results()), Text("")]
    else:
        names = "; ".join((*view.names, view.suite))
        asked: list[str] = []
        if not evaluation.leaked:
            asked += view.choices if evaluation.run.plan.analysis.target is not None else ()
            asked += view.controls
        facts = " ".join(filter(None, (f"{names}.", view.authors)))
        notes = (facts, *asked, *view.to_do[:MAX_NOTES])
        parts += [Paragraph(line, hanging=2) for line in notes]
    if context.show_command:
        hidden = 0 if context.verbose else max(0, len(view.to_do) - MAX_NOTES)
        more = "Read every answer"
        if hidden:
            more = f"Read {counted(hidden, 'more note')} and every answer"
        parts.append(Paragraph(f"{more}: {context.show_command}", "dim"))
    return Group(*parts)


def verdict_lines(evaluation: Evaluation, view: RunView) -> Iterator[RenderableType]:
    for each in view.verdicts[:1] if evaluation.leaked else view.verdicts:
        yield Paragraph(each.signed_line, each.mark.color, hanging=2)
    for caveat in view.caveats:
        yield Paragraph(caveat, "yellow", hanging=2)


def details(evaluation: Evaluation) -> Iterator[RenderableType]:
    """The evidence behind a verdict: bars, costs and every note."""
    view = view_of(evaluation)
    for verdict in () if evaluation.leaked else view.verdicts:
        if len(view.verdicts) > 1:
            yield Paragraph(verdict.model, "bold")
        yield bars(verdict, view.arms)
    skill = f"SKILL.md has about {evaluation.plan.skill.tokens:,} tokens"
    lines = [
        f"{'; '.join((*view.names, view.suite, skill))}.",
        *filter(None, [view.authors]),
        *view.problems,
    ]
    if not evaluation.leaked:
        students = grouped(evaluation.next_students, len(view.verdicts))
        lines += [*view.diagnosis, *view.choices, *view.findings, *students]
    yield from (Paragraph(line, hanging=2) for line in (*lines, *view.spending))
    yield from (Paragraph(note, "dim", hanging=2) for note in view.notes)


def invalid(leaks: Sequence[tuple[Trial, str]], show_command: str = "") -> RenderableType:
    lines = [
        f"{counted(len(leaks), 'trial')} saw or tried to open a skill that should have been hidden:",
    ]
    lines += [f"  {line}" for line in describe_leaks(leaks)]
    look = (
        f"See how with `{show_command} --case {leaks[0][0].case}`. "
        if show_command and leaks
        else ""
    )
    lines.append(f"{look}Remove whatever gave access to it, then run again with --redraw.")
    return _red_panel("INVALID", "\n".join(lines))


def bug_panel(evaluation: Evaluation, show_command: str = "") -> RenderableType:
    heading, *messages, report = describe_bugs(evaluation, show_command)
    return indented(
        _red_panel("BUG", "\n".join([heading, *(f"  {line}" for line in messages), report]))
    )


def _red_panel(title: str, text: str) -> RenderableType:
    return Panel(Text(text), title=f"[bold]{title}[/bold]", title_align="left", style="red")


def bar(share: float | None) -> str:
    filled = round((share or 0.0) * BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def bars(view: VerdictView, arms: dict[str, str]) -> RenderableType:
    verdict = view.verdict
    width = max(11, 1 + max(len(arms[arm]) for arm in ("baseline", "skill")))
    lines: list[str] = []
    for arm in (verdict.baseline, verdict.skill):
        if not arm.scored + arm.missing:
            continue
        lift = ""
        if arm is verdict.skill and verdict.lift is not None:
            lift = f"  [{view.mark.color}]{points(verdict.lift)}[/{view.mark.color}]"
        missing = f"  [red]{arm.missing} missing[/red]" if arm.missing else ""
        lines.append(
            f"  {arms[arm.arm]:<{width}}{bar(arm.pass_rate)} {percent(arm.pass_rate):>5}{lift}{missing}"
        )
    if view.token_change != UNKNOWN:
        before, after = mean_tokens(verdict.baseline), mean_tokens(verdict.skill)
        lines.append(f"  tokens per task: {before:,.0f} → {after:,.0f} ({view.token_change})")
    rows = list(_activity_rows(view, arms))
    activity: list[RenderableType] = [
        Paragraph(f"{label:<11}{line}", hanging=11) for label, line in rows
    ]
    return Group(
        Text.from_markup("\n".join([*lines, ""])), *activity, *([Text("")] if rows else [])
    )


def _activity_rows(view: VerdictView, arms: dict[str, str]) -> Iterator[tuple[str, str]]:
    baseline, skill = view.verdict.baseline, view.verdict.skill
    activation = view.verdict.activation
    if activation is not None:
        low, high = (percent(bound) for bound in activation.interval)
        trials = counted(activation.trials, "trial")
        line = (
            f"in {activation.activated} of {trials} ({percent(activation.rate)}, {low} to {high})"
        )
        if baseline.activated is not None:
            line += f"; the {arms['baseline']} in {baseline.activated} of {baseline.scored}"
        yield "activated", line
        if view.verdict.lift is not None:
            yield (
                "lift",
                " · ".join(
                    f"{name} {lift}" for name, lift in view.lifts.items() if lift != UNKNOWN
                ),
            )
            yield "", ACTIVATION_CAVEAT
    if activation is not None or baseline.tool_calls or skill.tool_calls:
        yield (
            "turns",
            f"{view.turns} per task · tool calls {view.tool_calls} · tool errors {view.tool_errors}",
        )


def _table(view: RunView) -> RenderableType:
    rows = [
        {
            "Model": Text(each.model),
            view.arms["baseline"].capitalize(): Text(each.baseline_rate),
            view.arms["skill"].capitalize(): Text(each.skill_rate),
            "Tokens": Text(each.tokens),
            "Cost": Text(each.cost),
        }
        for each in view.verdicts
    ]
    return FittedTable(rows, left=("Model",), spare=("Cost", "Tokens"))


def _cases(
    evaluation: Evaluation, names: dict[str, str], results: Iterable[Result]
) -> Iterator[RenderableType]:
    arms, several = evaluation.plan.arms, len(evaluation.verdicts) > 1
    draws = max(map(evaluation.plan.rounds_of, evaluation.plan.addresses), default=1)
    widths = {arm: max(len(names[arm]), draws) for arm in arms}
    yield Paragraph("  ".join([*(f"{names[arm]:<{widths[arm]}}" for arm in arms), "case"]), "bold")
    indent = 2 + sum(widths.values()) + 2 * len(arms)
    for (case, model), group in groupby(
        results, key=lambda result: (result.trial.case, result.trial.model)
    ):
        of_case = list(group)
        marks = {
            arm: "".join(MARKS[each.passed] for each in of_case if each.trial.arm == arm)
            for arm in arms
        }
        columns = "".join(f"{marks[arm]:<{widths[arm]}}  " for arm in arms)
        yield Text(
            f"  {columns}{case}{f' · {model}' if several else ''}", no_wrap=True, overflow="ignore"
        )
        if finding := printable(" ".join(_last_finding(of_case).split())):
            yield Paragraph(finding, "dim", indent=indent + 2)


def _last_finding(results: list[Result]) -> str:
    for result in (result for result in reversed(results) if result.trial.arm == "skill"):
        failed = [
            finding.reason for finding in result.findings if finding.decides and not finding.passed
        ]
        if result.error or failed:
            return result.error or failed[0]
    return ""
