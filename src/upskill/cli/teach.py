"""`upskill teach`: a teacher does a task with tools in a sandbox, and a skill is made from how it did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from upskill.agents import Bounds
from upskill.authoring.evidence import error_line, shell_command, step_failed
from upskill.authoring.teach import (
    LESSONS_FOLDER,
    TEACHER_BOUNDS,
    Lesson,
    Recording,
    find_recording,
    open_agent,
    read_files,
    record_lesson,
)
from upskill.cli.console import note, show_json
from upskill.cli.generating import EXTRACT, run_generate
from upskill.cli.options import acting, with_options
from upskill.cli.wish import MAKING, SOURCES, GenerateOptions
from upskill.errors import UsageError
from upskill.models import Address, Models
from upskill.plain import counted
from upskill.skills.agent_specs import REAL_AGENTS
from upskill.traces import NO_USAGE, Step, Trace, Usage
from upskill.traces.redact import describe_counts

LINE = 110  # characters


@click.command("teach")
@click.argument("task")
@click.option("-m", "--model", metavar="MODEL", help="The teacher: it does the task and writes the skill.")
@click.option(
    "--agent",
    default="tools",
    show_default=True,
    metavar="AGENT",
    help=f"How the teacher works: tools (our own loop), or a real agent: {REAL_AGENTS}.",
)
@with_options(acting("the teacher", TEACHER_BOUNDS))
@click.option(
    "--files",
    multiple=True,
    metavar="PATH",
    help="A file, or a folder with all that is in it, to lie in the workspace; repeatable.",
)
@click.option(
    "--check", default="", metavar="COMMAND", help="Run in the workspace afterwards: it succeeds if the task was done."
)
@click.option("--fresh", is_flag=True, help="Have it done again, even if this very lesson was recorded before.")
@click.option("--only-record", is_flag=True, help="Make no skill; print where the recording is.")
@with_options(SOURCES)
@with_options(MAKING)
def command(
    agent: str,
    sandbox: str,
    max_turns: int | None,
    trial_tokens: int | None,
    trial_timeout: float | None,
    files: tuple[str, ...],
    check: str,
    fresh: bool,
    only_record: bool,
    **given: Any,
) -> None:
    """Let a teacher do TASK with tools in a sandbox, and make a skill from what it did.

    Everything it does is recorded in the folder of runs, under lessons/, and handed to generate. Where --check fails,
    or the teacher did not come to an end, the recording is kept, no skill is made, and the command ends with 1.

    \b
    upskill teach "pack the release with tern" -m opus --files ./project --check "tern verify" --eval-model haiku
    upskill teach "…" -m sonnet --agent claude-code --no-eval
    """
    wish = GenerateOptions(**given)
    wish.no_eval = wish.no_eval or only_record  # no student is needed
    if only_record and not wish.log_runs:
        raise UsageError("--only-record and --no-log-runs contradict each other", "Nothing would be left.")
    if not wish.task.strip():
        raise UsageError("there is no task", 'Say what is to be done: upskill teach "…".')
    if wish.model == EXTRACT:
        raise UsageError(
            "extract does nothing by itself, so it cannot be a teacher",
            "Name a model; `upskill generate -m extract --from TRACE` compiles a recording by rules.",
        )
    bounds = Bounds(max_turns or TEACHER_BOUNDS.turns, trial_tokens, trial_timeout or TEACHER_BOUNDS.seconds)
    run_generate(wish, _Teaching(agent, sandbox, bounds, files, check, fresh, only_record))


@dataclass
class _Teaching:
    """What happens before there is anything to make a skill from."""

    agent: str
    sandbox: str
    bounds: Bounds
    files: tuple[str, ...]
    check: str
    fresh: bool
    only_record: bool
    calls: int = 0
    recording: Recording | None = field(default=None)

    def describe(self) -> str:
        tokens = f" or {self.bounds.tokens:,} tokens" if self.bounds.tokens else ""
        return f"the teacher's own work, of at most {self.bounds.turns} turns{tokens}"

    async def learn(self, wish: GenerateOptions, teacher: Address, models: Models) -> Trace:
        lesson = self._lesson(wish, teacher)
        open_agent(lesson, models.context.keys)
        folder = wish.runs_folder / LESSONS_FOLDER if wish.log_runs else None
        found = None if self.fresh else find_recording(lesson, folder)
        if found:
            wish.tell(f"This lesson was recorded before, in {found.path}; --fresh has it done again.")
        else:
            found = await self._have_it_done(lesson, wish, models, folder)
        self.recording = found
        self._judge(wish, found)
        if self.only_record:
            if wish.as_json:
                show_json({"lesson": dict(self.told())})
            else:
                click.echo(found.path)
            raise click.exceptions.Exit(0)
        return found.trace

    def _lesson(self, wish: GenerateOptions, teacher: Address) -> Lesson:
        files, runnable, left_out = read_files(self.files)
        if left_out:
            wish.tell(f"Not placed in the workspace: {', '.join(left_out)}.")
        return Lesson(wish.task, teacher, self.agent, self.bounds, files, runnable, self.check)

    async def _have_it_done(
        self, lesson: Lesson, wish: GenerateOptions, models: Models, folder: Path | None
    ) -> Recording:
        from upskill.sandboxes import choose_sandbox  # noqa: PLC0415 - only where something acts

        chosen = await choose_sandbox(self.sandbox or None)
        if chosen.warning:
            wish.tell(f"Note: {chosen.warning}")
        where = f"in {chosen.name}" if chosen.isolated else "without a sandbox"
        wish.tell(f"{lesson.teacher.name} does the task ({self.agent}, {where})...")

        def watch(step: Step) -> None:
            if step.kind == "tool":
                self.calls += 1
                wish.tell(line_of(self.calls, step))

        try:
            found = await record_lesson(lesson, models, chosen, folder=folder, fresh=self.fresh, watch=watch)
        except BaseException:
            part = folder / f"{lesson.name}.part.json" if folder else None
            if part and part.is_file() and not wish.silent:
                note(f"What the teacher did so far is in {part}; the same command goes on from there.")
            raise
        failures = sum(step_failed(step) for step in found.trace.calls)
        where = f"recorded in {found.path}" if found.path else "not kept: --no-log-runs"
        wish.tell(f"{counted(len(found.trace.calls), 'tool call')}, of which {failures} failed, {where}.")
        if found.redacted:
            wish.tell(f"Before it was kept: {describe_counts(found.redacted)}.")
        return found

    def _judge(self, wish: GenerateOptions, found: Recording) -> None:
        """Go on only with work that was done."""
        if found.checked:
            wish.tell(f"The check holds: {self.check}")
            return
        acted = bool(found.trace.calls)
        if found.checked is None and acted and not found.bound:
            return
        if found.checked is None and not acted:
            why, hint = "the teacher did nothing, it only answered", "Name a stronger model with -m."
        elif found.checked is None:
            why, hint = f"the teacher was stopped by its bound on {found.bound}", "Give it more room, or a --check."
        else:
            said = error_line(next(step.output for step in reversed(found.trace.steps) if step.kind == "tool"))
            why, hint = f"the check failed: {self.check}{f': {said}' if said else ''}", "--fresh lets it try again."
        if wish.as_json:
            show_json({"lesson": dict(self.told()), "failed": why})
        note(f"upskill: no skill was made: {why}")
        if found.path:
            hint += f" To use the recording all the same: upskill generate --from {found.path}"
        note(f"  {hint}")
        raise click.exceptions.Exit(1)

    def told(self) -> Mapping[str, Any]:
        found = self.recording
        if found is None:
            return {}
        return {
            "trace": str(found.path) if found.path else None,
            "agent": self.agent,
            "calls": len(found.trace.calls),
            "failed": sum(step_failed(step) for step in found.trace.calls),
            "turns": found.trace.turns,
            "stop": found.trace.stop,
            "check": found.checked,
            "tokens": found.trace.usage.total_tokens,
            "cost_usd": found.trace.usage.cost_usd,
        }

    def usage(self) -> Usage:
        return self.recording.trace.usage if self.recording else NO_USAGE


def line_of(number: int, step: Step) -> str:
    """A call as one line."""
    given = step.arguments
    what = shell_command(step) or next(
        (str(given[name]) for name in ("path", "file_path", "name") if name in given), ""
    )
    said = f"{number:>4}  {step.tool}: {' '.join(what.split())}".rstrip()
    if not step_failed(step):
        return shorten(said, LINE)
    said = shorten(said, LINE // 2)
    return shorten(f"{said} — failed{f': {wrong}' if (wrong := error_line(step.output)) else ''}", LINE)


def shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
