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
from upskill.verdicts.advice import NOT_ISOLATED

BAR_WIDTH = 20
MAX_NOTES = 2  # below the table; `upskill show` has them all
MARKS = {True: "✓", False: "✗", None: "!"}
INTERVAL = "95% interval"


def render(evaluation: Evaluation, context: ReportContext | None = None) -> RenderableType:
    context = context or ReportContext()
    view = view_of(evaluation)
    conclusions = [
        Paragraph(
            f"{each.mark.sign} {each.conclusion}",
            f"bold {each.mark.color.removeprefix('bold ')}",
            hanging=2,
        )
        for each in (view.verdicts[:1] if evaluation.leaked else view.verdicts)
    ]
    replayed = [Paragraph(view.replayed, "yellow", hanging=2)] if view.replayed else []
    first = (*conclusions, *replayed, Text(""), _table(view))
    if context.quiet:
        return Group(*first)
    parts: list[RenderableType] = [Text(""), *first, Text("")]
    if evaluation.bugs:  # problems with the numbers come before them
        parts.insert(0, bug_panel(evaluation, context.show_command))
    if evaluation.leaked:
        parts += [indented(invalid(evaluation.invalid, context.show_command)), Text("")]
    names = "; ".join((*view.names, view.suite))
    if context.verbose:
        parts += details(evaluation)
        if context.results and not evaluation.unfinished:
            parts += [*_cases(evaluation, view.arms, context.results()), Text("")]
    else:
        results = (
            ()
            if evaluation.leaked
            else (
                *(view.choices if evaluation.run.plan.analysis.target is not None else ()),
                *view.controls,
            )
        )
        parts += [
            Paragraph(line, hanging=2)
            for line in (
                " ".join(filter(None, (f"{names}.", view.authors))),
                *results,
                *view.to_do[:MAX_NOTES],
            )
        ]
    if context.show_command:
        hidden = 0 if context.verbose else max(0, len(view.to_do) - MAX_NOTES)
        more = (
            f"Read {counted(hidden, 'more note')} and every answer"
            if hidden
            else "Read every answer"
        )
        parts.append(Paragraph(f"{more}: {context.show_command}", "dim"))
    return Group(*parts)


def details(evaluation: Evaluation) -> Iterator[RenderableType]:
    """The evidence behind a verdict: bars, splits, looks, costs and every note."""
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
        lines += [
            *view.splits,
            *view.looks,
            *view.diagnosis,
            *view.choices,
            *view.findings,
            *students,
        ]
    yield from (Paragraph(line, hanging=2) for line in (*lines, *view.spending))
    yield from (Paragraph(note, "dim", hanging=2) for note in view.notes)


def invalid(leaks: Sequence[tuple[Trial, str]], show_command: str = "") -> RenderableType:
    lines = [
        NOT_ISOLATED,
        f"{counted(len(leaks), 'trial')} saw or tried to open a skill that should have been hidden:",
    ]
    lines += [f"  {line}" for line in describe_leaks(leaks)]
    look = (
        f"See how with `{show_command} --case {leaks[0][0].case}`. "
        if show_command and leaks
        else ""
    )
    lines.append(f"{look}Remove whatever gave access to it, then run again with --fresh.")
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
        if not arm.scored + arm.errored:
            continue
        lift = ""
        if arm is verdict.skill and verdict.lift is not None:
            lift = f"  [{view.mark.color}]{points(verdict.lift)}[/{view.mark.color}]"
        errors = f"  [red]{arm.errored} errored[/red]" if arm.errored else ""
        lines.append(
            f"  {arms[arm.arm]:<{width}}{bar(arm.pass_rate)} {percent(arm.pass_rate):>5}{lift}{errors}"
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
    columns = (
        *("Model", view.arms["baseline"].capitalize(), view.arms["skill"].capitalize()),
        *("Lift", INTERVAL, "Tokens", "Cost", "Decision"),
    )
    rows: list[dict[str, Text]] = [
        dict(zip(columns, _row(verdict), strict=True)) for verdict in view.verdicts
    ]
    return FittedTable(rows, left=("Model", "Decision"), spare=("Cost", "Tokens"), last=INTERVAL)


def _row(view: VerdictView) -> Iterator[Text]:
    lift = points(view.verdict.lift)
    cells = (
        view.model,
        view.baseline_rate,
        view.skill_rate,
        lift,
        view.interval,
        view.tokens,
        view.cost,
    )
    yield from map(Text, cells)
    yield Text(view.decision, style=view.mark.color)


def _cases(
    evaluation: Evaluation, names: dict[str, str], results: Iterable[Result]
) -> Iterator[RenderableType]:
    arms, several = evaluation.plan.arms, len(evaluation.verdicts) > 1
    widths = {arm: max(len(names[arm]), evaluation.plan.runs) for arm in arms}
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
