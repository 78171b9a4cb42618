"""Cases and their answers on a terminal: failures first, with prompt, answer and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.reports.layout import Paragraph, indented
from upskill.reports.numbers import dollars
from upskill.reports.report import ArmAnswers, CaseAnswers, CaseGroup, Draw, ModelAnswers, Outcome
from upskill.reports.trial_rows import OUTCOMES, write_arguments
from upskill.runs.planning.plan import CheckFinding
from upskill.sandboxes import printable
from upskill.traces import Step

SIGNS = {True: "✓", False: "✗", None: "·"}
COLORS = {True: "green", False: "red", None: "yellow"}
STEP_MARKS = {"ok": ("✓", "green"), "error": ("✗", "red"), "unknown": ("·", "dim")}
GROUPS: dict[Outcome, str] = {"worse": "red", "failing": "red", "sometimes": "red"}
MAX_LINES = 20  # of one step
MAX_CHARACTERS = 100_000  # of a text; wrapping millions of characters takes minutes


def render_outcomes(groups: Iterable[CaseGroup]) -> Iterator[RenderableType]:
    """A line for each case, and why it fails."""
    for group in groups:
        yield _heading(group)
        for case in group.cases:
            marks = "  ".join(map(_marks, case.models))
            yield Text(f"  {marks}  {printable(case.id)}", no_wrap=True, overflow="ignore")
            reasons = [_why(model.arms[0]) for model in case.models if model.arms]
            for why in [*filter(None, reasons)][:1]:
                yield Paragraph(printable(why), "dim", indent=6)
        yield Text("")


def render_group(group: CaseGroup, *, is_detailed: bool = False) -> Iterator[RenderableType]:
    yield _heading(group)
    yield Text("")
    for case in group.cases:
        yield from _case(case, is_detailed=is_detailed)
        yield Text("")


def _heading(group: CaseGroup) -> Text:
    style = GROUPS.get(group.outcome, "green" if group.outcome == "fixed" else "")
    return Text(f"{group.title}: {counted(len(group.cases), 'case')}", style=f"bold {style}")


def _marks(answers: ModelAnswers) -> str:
    """✓✓✗ → ✓✓✓: without the skill, then with it."""
    arms = [arm for arm in reversed(answers.arms) if not arm.is_control]
    return " → ".join("".join(SIGNS[passed] for passed in arm.outcomes) for arm in arms)


def _why(arm: ArmAnswers) -> str:
    for draw in arm.draws:
        failed = [each.reason for each in draw.findings if each.decides and not each.passed]
        reasons = [draw.error, *failed, draw.cause]
        if draw.passed is not True and any(reasons):
            return " ".join(next(filter(None, reasons)).split())
    return ""


def _case(case: CaseAnswers, *, is_detailed: bool) -> Iterator[RenderableType]:
    yield Text.assemble((printable(case.title), "bold"), (f"  {printable(case.id)}", "dim"))
    if case.title != case.prompt.strip():
        yield indented(Text(_cut(case.prompt.strip())))
    several = len(case.models) > 1
    if is_detailed:
        for name, text in case.files.items():
            yield indented(Text(f"{printable(name)}:\n{_cut(text)}", style="dim"))
    for answers in case.models:
        for arm in answers.arms:
            for draw in arm.draws:
                model = answers.model if several else ""
                yield indented(_draw(draw, arm, model, is_detailed=is_detailed))
    if case.reference:
        yield indented(Text(f"reference: {_cut(case.reference.strip())}", style="dim"))
    if is_detailed:
        for name, value in case.settings:
            yield indented(Text(f"{name}: {printable(value)}", style="dim"))


def _draw(draw: Draw, arm: ArmAnswers, model: str, *, is_detailed: bool) -> RenderableType:
    seeds = f"seed {', '.join(map(str, draw.seeds))}"
    cost = "price unknown" if draw.cost_usd is None else dollars(draw.cost_usd)
    facts = [
        arm.label,
        model,
        seeds,
        f"{draw.input_tokens}+{draw.output_tokens} tokens",
        f"{draw.seconds:.1f} s",
        cost,
        *_activity(draw),
    ]
    if draw.review:
        facts.append(f"marked {draw.review}")
    heading = Text.assemble(
        (f"{SIGNS[draw.passed]} {OUTCOMES[draw.passed]}", COLORS[draw.passed]),
        f"  {' · '.join(map(printable, filter(None, facts)))}",
    )
    parts: list[RenderableType] = [heading]
    acts = any(step.kind == "tool" for step in draw.steps)
    for number, step in enumerate(draw.steps, start=1):
        if is_detailed or step.kind == "tool":
            parts.append(indented(render_step(number, step, detailed=is_detailed)))
    # In detail, the last step is the answer.
    if draw.answer is not None and not (is_detailed and acts and draw.answer):
        parts.append(indented(Text(_cut(draw.answer) or "(an empty answer)")))
    parts += [indented(_finding(each)) for each in draw.findings if is_detailed or _is_news(each)]
    for problem in (draw.cause, draw.error):
        if problem:
            parts.append(indented(Text(printable(problem), style="yellow")))
    return Group(*parts)


def _is_news(finding: CheckFinding) -> bool:
    return finding.decides and not finding.passed


def _finding(finding: CheckFinding) -> RenderableType:
    mark = SIGNS[finding.passed] if finding.decides else "·"
    beside = "" if finding.decides else " (does not count)"
    line = f"{mark} {finding.check}: {printable(finding.reason)}{beside}"
    return Paragraph(line, "dim", indent=0, hanging=2, folds=True)


def _activity(draw: Draw) -> Iterator[str]:
    if draw.activated is not None:
        yield "opened the skill" if draw.activated else "did not open the skill"
    calls = [step for step in draw.steps if step.kind == "tool"]
    if calls:
        errors = sum(step.status == "error" for step in calls)
        yield counted(len(calls), "tool call") + (f", {counted(errors, 'error')}" if errors else "")


def render_step(
    number: int, step: Step, *, detailed: bool = True, max_lines: int | None = MAX_LINES
) -> RenderableType:
    """One step under its number, which is what findings cite."""
    agent = f"  ({step.agent})" if step.agent else ""
    if step.kind != "tool":
        style = "" if step.kind == "assistant" else "dim italic"
        kind = "" if step.kind == "assistant" else f"({step.kind}) "
        text = f"{kind}{_shorten(step.text, max_lines) or '(an empty answer)'}{agent}"
        return _hanging(Text(f"{number:>2}  ", style=style), Text(text, style=style))
    mark, color = STEP_MARKS[step.status]
    arguments = write_arguments(step.arguments)
    head = Text.assemble(f"{number:>2} ", (mark, color), f" {printable(step.tool) or '(no tool)'} ")
    if not detailed:
        head.append(printable(" ".join(arguments.split())), "bold")
        head.truncate(100, overflow="ellipsis")
        return head
    parts: list[RenderableType] = [head]
    if "\n" in arguments.strip():
        parts.append(Padding(Text(_shorten(arguments, max_lines), style="bold"), (0, 0, 0, 7)))
    else:
        head.append(printable(arguments.strip()), "bold")
    if step.seconds is not None and step.seconds >= 0.05:
        head.append(f"  {step.seconds:.1f} s", "dim")
    head.append(agent, "dim")
    if step.output.strip():
        parts.append(_hanging(Text("    →"), Text(_shorten(step.output, max_lines), style="dim")))
    return Group(*parts)


def _hanging(mark: Text, text: Text) -> RenderableType:
    """A text beside its mark; wrapped lines align below the first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    return grid


def _shorten(text: str, most: int | None) -> str:
    """Text that is safe for a terminal, cut to the size of one step."""
    lines = _cut(text.strip("\n")).splitlines()
    if most is not None and len(lines) > most + 1:
        lines[most:] = [f"… {len(lines) - most} more lines; --json has them all"]
    return "\n".join(lines)


def _cut(text: str) -> str:
    more = len(text) - MAX_CHARACTERS
    beginning = printable(text[:MAX_CHARACTERS])
    if more <= 0:
        return beginning
    return f"{beginning}\n… {more:,} more characters; --json has them all"
