"""Cases and their answers on a terminal: failures first, with prompt, answer and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.reports.layout import COLORS, Paragraph, indented
from upskill.reports.numbers import dollars
from upskill.reports.report import MARKS, OUTCOMES, ArmAnswers, CaseAnswers, CaseGroup, Draw
from upskill.reports.trial_rows import OUTCOMES as WORDS
from upskill.reports.trial_rows import write_arguments
from upskill.traces import Step

STEP_MARKS = {"ok": ("✓", "green"), "error": ("✗", "red"), "unknown": ("·", "dim")}
MAX_LINES = 20  # of one step
MAX_CHARACTERS = 100_000  # of a text; wrapping millions of characters takes minutes


def render_outcomes(groups: Iterable[CaseGroup]) -> Iterator[RenderableType]:
    """A line for each case, and why it fails."""
    for group in groups:
        yield _heading(group)
        for case in group.cases:
            marks = "  ".join(answers.marks for answers in case.models)
            yield Text(f"  {marks}  {case.case.id}", no_wrap=True, overflow="ignore")
            for draw in case.draws:
                reasons = [*draw.problems, *(each.reason for each in draw.failed)]
                if draw.result.trial.arm == "skill" and draw.result.passed is not True and reasons:
                    yield Paragraph(" ".join(reasons[0].split()), "dim", indent=6)
                    break
        yield Text("")


def render_group(group: CaseGroup, *, is_detailed: bool = False) -> Iterator[RenderableType]:
    yield _heading(group)
    yield Text("")
    for case in group.cases:
        yield from _case(case, is_detailed=is_detailed)
        yield Text("")


def _heading(group: CaseGroup) -> Text:
    color = COLORS[OUTCOMES[group.outcome]]
    return Text(f"{group.title}: {counted(len(group.cases), 'case')}", style=f"bold {color}")


def _case(answers: CaseAnswers, *, is_detailed: bool) -> Iterator[RenderableType]:
    case = answers.case
    yield Text.assemble((answers.title, "bold"), (f"  {case.id}", "dim"))
    details: list[str] = []
    if is_detailed:
        details += [f"{name}:\n{text}" for name, text in case.files.items()]
    if answers.title != case.prompt.strip():
        yield indented(Text(_cut(case.prompt.strip())))
    yield from _details(details)
    for of_model in answers.models:
        for arm in of_model.arms:
            for draw in arm.draws:
                model = of_model.model if len(answers.models) > 1 else ""
                yield indented(_draw(draw, arm, model, is_detailed=is_detailed))
    details = [f"reference: {case.reference.strip()}"] if case.reference else []
    if is_detailed:
        details += [f"{name}: {value}" for name, value in answers.facts.items()]
    yield from _details(details)


def _details(texts: Iterable[str]) -> Iterator[RenderableType]:
    for text in texts:
        yield indented(Text(_cut(text), style="dim"))


def _draw(draw: Draw, arm: ArmAnswers, model: str, *, is_detailed: bool) -> RenderableType:
    result = draw.result
    sign, tone = MARKS[result.passed]
    heading = f"  {' · '.join(filter(None, [arm.label, model, *describe_draw(draw)]))}"
    parts: list[RenderableType] = [
        Text.assemble((f"{sign} {WORDS[result.passed]}", COLORS[tone]), heading)
    ]
    for number, step in enumerate(draw.steps, start=1):
        if is_detailed or step.kind == "tool":
            parts.append(render_step(number, step, detailed=is_detailed))
    # In detail, the last step is the answer.
    if draw.answer is not None and not (is_detailed and draw.steps and draw.answer):
        parts.append(Text(_cut(draw.answer) or "(an empty answer)"))
    for finding in result.findings if is_detailed else draw.failed:
        sign = MARKS[finding.passed][0] if finding.decides else "·"
        beside = "" if finding.decides else " (does not count)"
        line = f"{sign} {finding.check}: {finding.reason}{beside}"
        parts.append(Paragraph(line, "dim", indent=0, hanging=2, folds=True))
    parts += [Text(problem, style="yellow") for problem in draw.problems]
    return Group(parts[0], *map(indented, parts[1:]))


def describe_draw(draw: Draw) -> Iterator[str]:
    result = draw.result
    yield f"seed {', '.join(map(str, draw.seeds))}"
    yield f"{result.usage.input_tokens}+{result.usage.output_tokens} tokens"
    yield f"{result.seconds:.1f} s"
    yield "price unknown" if result.usage.cost_usd is None else dollars(result.usage.cost_usd)
    if draw.result.activated is not None:
        yield "opened the skill" if draw.result.activated else "did not open the skill"
    calls = [step for step in draw.steps if step.kind == "tool"]
    if calls:
        errors = draw.result.tool_errors
        yield counted(len(calls), "tool call") + (f", {counted(errors, 'error')}" if errors else "")
    if draw.review:
        yield f"marked {draw.review}"


def render_step(
    number: int, step: Step, *, detailed: bool = True, max_lines: int | None = MAX_LINES
) -> RenderableType:
    """One step under its number, which is what findings cite."""
    agent = f"  ({step.agent})" if step.agent else ""
    if step.kind != "tool":
        style = "" if step.kind == "assistant" else "dim italic"
        kind = "" if step.kind == "assistant" else f"({step.kind}) "
        text = f"{kind}{_shorten(step.text, max_lines) or '(an empty answer)'}{agent}"
        return _hanging(f"{number:>2}  ", text, style)
    arguments = write_arguments(step.arguments)
    head = Text.assemble(f"{number:>2} ", STEP_MARKS[step.status], f" {step.tool or '(no tool)'} ")
    if not detailed:
        head.append(" ".join(arguments.split()), "bold")
        head.truncate(100, overflow="ellipsis")
        return head
    parts: list[RenderableType] = [head]
    if "\n" in arguments.strip():
        parts.append(Padding(Text(_shorten(arguments, max_lines), style="bold"), (0, 0, 0, 7)))
    else:
        head.append(arguments.strip(), "bold")
    if step.seconds is not None and step.seconds >= 0.05:
        head.append(f"  {step.seconds:.1f} s", "dim")
    head.append(agent, "dim")
    if step.output.strip():
        parts.append(_hanging("    →", _shorten(step.output, max_lines), "dim"))
    return Group(*parts)


def _hanging(mark: str, text: str, style: str) -> RenderableType:
    """A text beside its mark; wrapped lines align below the first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark), Text(text, style))
    return grid


def _shorten(text: str, most: int | None) -> str:
    """Cut to the size of one step."""
    lines = _cut(text.strip("\n")).splitlines()
    if most is not None and len(lines) > most + 1:
        lines[most:] = [f"… {len(lines) - most} more lines; --json has them all"]
    return "\n".join(lines)


def _cut(text: str) -> str:
    more = len(text) - MAX_CHARACTERS
    return text if more <= 0 else f"{text[:-more]}\n… {more:,} more characters; --json has them all"
