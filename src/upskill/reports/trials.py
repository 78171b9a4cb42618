from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from upskill.plain import counted
from upskill.reports.layout import indented
from upskill.reports.numbers import dollars, percent
from upskill.reports.terminal import invalid
from upskill.reports.trial_rows import OUTCOMES, write_arguments
from upskill.runs.planning.plan import Result, Trial
from upskill.runs.planning.stored_plan import StoredCase, StoredPlan
from upskill.runs.results.shown import Unfinished
from upskill.runs.stores import Progress, Run
from upskill.sandboxes import printable
from upskill.traces import Step
from upskill.verdicts.interval import Estimate, mean_share, rounded, rounded_interval

COLORS = {True: "green", False: "red", None: "yellow"}
MARKS = {"ok": ("✓", "green"), "error": ("✗", "red"), "unknown": ("·", "dim")}
BOUNDS = ("turns", "tokens", "seconds")  # what ends the work of an agent before its answer
MAX_LINES = 20  # of one step
MAX_CHARACTERS = 100_000  # of an answer; wrapping millions of characters takes minutes


def render_heading(
    run: Run,
    progress: Iterable[Progress],
    leaks: list[tuple[Trial, str]],
    notes: Iterable[str] = (),
    unfinished: Mapping[str, Unfinished] | None = None,
) -> Iterator[RenderableType]:
    yield Text(f"run {run.id}, started {run.created}", style="bold")
    counts = f": {run.passed + run.failed} graded, {run.errored} missing" if unfinished else ""
    yield Text(
        f"skill {run.skill} · {', '.join(run.models)} · {counted(run.trials, 'trial')}{counts}"
    )
    baseline = run.plan.labels["baseline"]
    for model, so_far in (unfinished or {}).items():
        yield indented(Text(f"{model}: {so_far}"))
    for row in progress:
        if (
            unfinished and row.model in unfinished
        ):  # the difference between its arms stays hidden until the end
            continue
        arm = baseline if row.arm == "baseline" else row.arm
        counts = f"{row.passed} passed, {row.failed} failed, {row.errored} missing"
        yield indented(Text(f"{row.model} · {arm}: {counts}"))
    if sandbox := run.plan.sandbox:
        distractors = run.plan.distractors
        others = (
            f", among {counted(len(distractors), 'other skill')} ({', '.join(distractors)})"
            if distractors
            else ""
        )
        yield Text(f"agent {run.plan.agent}{others}")
        yield Text(_sandbox(sandbox))
    if leaks:
        yield invalid(leaks, f"upskill show {run.id}")
    for line in notes:
        yield Text(f"Note: {printable(line)}", style="yellow")
    yield Text("")


def _sandbox(record: Mapping[str, Any]) -> str:
    name, version = record["name"], record["version"]
    line = f"sandbox {version}" if version.startswith(name) else f"sandbox {name} ({version})"
    if not record.get("isolated", True):
        return f"{line}: NOTHING was blocked"
    held = f"{line}; self-test passed: {', '.join(record['passed'])}"
    return f"{held}; reduced: {record['reduced']}" if record.get("reduced") else held


def render_case(
    case: StoredCase, results: list[Result], baseline: str, *, label: str, detailed: bool
) -> Iterator[RenderableType]:
    yield Text.assemble((case.id, "bold"), (f"  {label}" if label else "", "dim"))
    yield indented(Text(case.prompt.strip()))
    for name, text in case.files.items():
        yield indented(Text(f"{name}:\n{text}", style="dim"))
    if not detailed:
        for result in results:
            yield indented(_trial(result, baseline))
        yield Text("")
        return
    for _, group in groupby(results, key=lambda result: (result.trial.model, result.trial.seed)):
        pair = list(group)
        yield from side_by_side([panel(result, baseline) for result in pair], pair)
    yield Text("")


def panel(result: Result, baseline: str = "baseline", title: str | None = None) -> Panel:
    return Panel(
        _trial(result, baseline, detailed=True), title=title, border_style=COLORS[result.passed]
    )


def side_by_side(panels: Sequence[Panel], results: Iterable[Result]) -> Iterator[RenderableType]:
    """Side by side, or stacked if commands and code need the whole width."""
    if any(result.trace and result.trace.calls for result in results):
        yield from panels
        return
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in panels:
        grid.add_column(ratio=1)
    grid.add_row(*panels)
    yield grid


def _trial(result: Result, baseline: str, *, detailed: bool = False) -> RenderableType:
    trial = result.trial
    color = COLORS[result.passed]
    usage = result.usage
    cost = f" · {'price unknown' if usage.cost_usd is None else dollars(usage.cost_usd)}"
    arm = baseline if trial.arm == "baseline" else trial.arm
    parts: list[RenderableType] = [
        Text.from_markup(
            f"[{color}]{OUTCOMES[result.passed]}[/{color}]  {arm} · {escape(trial.model)} · seed {trial.seed}"
            f" · {usage.input_tokens}+{usage.output_tokens} tokens · {result.seconds:.1f} s{cost}{_activity(result)}"
        )
    ]
    if result.leak:
        parts.append(indented(Text(f"INVALID: {printable(result.leak)}", style="bold red")))
    if result.trace and result.trace.calls:
        for number, step in enumerate(result.trace.steps, start=1):
            if detailed or step.kind == "tool":
                parts.append(indented(render_step(number, step, detailed=detailed)))
    # In detail, the last step is the answer.
    if result.trace and not (detailed and result.trace.calls and result.trace.answer):
        parts.append(indented(Text(_cut(result.trace.answer) or "(an empty answer)")))
    for finding in result.findings:
        mark = "✓" if finding.passed else "✗" if finding.decides else "·"
        beside = "" if finding.decides else " (does not count)"
        line = Text(f"{finding.check}: {printable(finding.reason)}{beside}", style="dim")
        parts.append(_hanging(Text(f"  {mark}", style="dim"), line))
    if result.error:
        parts.append(indented(Text(printable(result.error), style="yellow")))
    return Group(*parts)


def _hanging(mark: Text, text: Text) -> RenderableType:
    """A text beside its mark; wrapped lines align below the first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    return grid


def _activity(result: Result) -> str:
    trace = result.trace
    parts: list[str] = []
    if result.activated is not None:
        parts.append("opened the skill" if result.activated else "did not open the skill")
    if trace and (trace.calls or result.activated is not None):
        errors = f", {counted(result.tool_errors, 'error')}" if result.tool_errors else ""
        parts += [counted(trace.turns, "turn"), counted(len(trace.calls), "tool call") + errors]
        if trace.stop in BOUNDS:
            parts.append(f"stopped at its limit on {trace.stop}")
    return "".join(f" · {part}" for part in parts)


def render_step(
    number: int, step: Step, *, detailed: bool = True, max_lines: int | None = MAX_LINES
) -> RenderableType:
    """One step under its number, which is what findings cite."""
    agent = f"  ({step.agent})" if step.agent else ""
    if step.kind != "tool":
        style = "" if step.kind == "assistant" else "dim italic"
        kind = "" if step.kind == "assistant" else f"({step.kind}) "
        text = Text(
            f"{kind}{_shorten(step.text, max_lines) or '(an empty answer)'}{agent}", style=style
        )
        return _hanging(Text(f"{number:>2}  ", style=style), text)
    mark, color = MARKS[step.status]
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


def _shorten(text: str, most: int | None) -> str:
    """Text that is safe for a terminal, cut to the size of one step."""
    lines = _cut(text.strip("\n")).splitlines()
    if most is not None and len(lines) > most + 1:
        lines[most:] = [f"… {len(lines) - most} more lines; --json has them all"]
    return "\n".join(lines)


def _cut(text: str) -> str:
    more = len(text) - MAX_CHARACTERS
    beginning = printable(text[:MAX_CHARACTERS])
    return (
        f"{beginning}\n… {more:,} more characters; --json has them all" if more > 0 else beginning
    )


@dataclass
class CheckRate:
    """How often one check passed in one arm. Missing trials are not counted."""

    model: str
    check: str
    arm: str
    passed: list[bool] = field(default_factory=list[bool])
    cases: list[str] = field(default_factory=list[str])

    @cached_property
    def rate(self) -> Estimate:
        """Mean over cases, at 95 %."""
        of_case: dict[str, list[bool]] = {}
        for case, passed in zip(self.cases, self.passed, strict=True):
            of_case.setdefault(case, []).append(passed)
        return mean_share([sum(each) / len(each) for each in of_case.values()])

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "check": self.check,
            "arm": self.arm,
            "passed": sum(self.passed),
            "trials": len(self.passed),
            "rate": rounded(self.rate.value),
            "interval": rounded_interval(self.rate.interval),
        }

    def __str__(self) -> str:
        low, high = map(percent, self.rate.interval)
        return f"{percent(self.rate.value)} [{low}, {high}] of {len(self.passed)}"


def check_rates(plan: StoredPlan, results: Iterable[Result]) -> list[CheckRate]:
    """Every check in the order of the suite. One that never ran because the answer was cut off has failed."""
    checks = {case.id: list(dict.fromkeys(case.check_names)) for case in plan.suite.cases}
    order = list(dict.fromkeys(name for names in checks.values() for name in names))
    rates: dict[tuple[str, str, str], CheckRate] = {}
    for result in results:
        if result.passed is None:
            continue
        trial = result.trial
        for name in checks[trial.case]:
            rate = rates.setdefault(
                (trial.model, name, trial.arm), CheckRate(trial.model, name, trial.arm)
            )
            findings = [finding.passed for finding in result.findings if finding.check == name]
            rate.passed.append(bool(findings) and all(findings))
            rate.cases.append(trial.case)
    arms: list[str] = list(plan.arms)
    return sorted(
        rates.values(), key=lambda rate: (rate.model, order.index(rate.check), arms.index(rate.arm))
    )


def render_check_rates(rates: Iterable[CheckRate], baseline: str) -> Iterator[Table]:
    for model, group in groupby(rates, key=lambda rate: rate.model):
        rows = list(group)
        arms = list(dict.fromkeys(row.arm for row in rows))
        table = Table(title=model, title_justify="left", box=None, pad_edge=False)
        table.add_column("check")
        for arm in arms:
            table.add_column(baseline if arm == "baseline" else arm)
        for check in dict.fromkeys(row.check for row in rows):
            by_arm = {row.arm: str(row) for row in rows if row.check == check}
            table.add_row(check, *(by_arm.get(arm, "") for arm in arms))
        yield table
