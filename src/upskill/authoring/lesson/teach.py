"""Teach: a teacher does a task in a sandbox, and a skill is made from the recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.generate import Generated, begin, open_work, run
from upskill.authoring.inputs import Inputs, check
from upskill.authoring.lesson.lesson import (
    LESSONS_FOLDER,
    Lesson,
    Recording,
    open_agent,
    read_files,
    record_lesson,
)
from upskill.authoring.material.sessions import error_line, step_failed
from upskill.authoring.options import TeachOptions
from upskill.errors import UpskillError, UsageError
from upskill.models.pool import Models
from upskill.plain import counted
from upskill.runs.stores import Store
from upskill.traces import Trace
from upskill.traces.formats import read_trace
from upskill.traces.redaction.redact import describe_counts


@dataclass(frozen=True)
class TeachResult:
    recording: Recording
    generated: Generated | None  # None: `only_record` was asked for


class LessonFailed(UpskillError):
    """The teacher did not do the task, so no skill was made. The recording is kept."""

    def __init__(self, message: str, hint: str, recording: Recording) -> None:
        if recording.path:
            hint += f" To use the recording anyway: upskill generate --from {recording.path}"
        super().__init__(message, hint)
        self.recording = recording


async def teach(
    options: TeachOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> TeachResult:
    """LessonFailed if the check fails or, without a check, if the teacher did nothing or hit a limit."""
    events = events or AuthoringEvents()
    if options.only_record and not options.keeps_runs:
        raise UsageError(
            "--only-record and log_runs=false cannot be used together", "Nothing would be saved."
        )
    if not options.task.strip():
        raise UsageError("no task was given", 'Describe the task: upskill teach "…".')
    if options.only_record:  # no student is needed
        options = replace(options, no_eval=True, student=None, base_url="")
    inputs = await check(options, store=store, models=models, events=events)
    teaching = _Teaching.prepare(options, inputs, events)
    recordings: list[Recording] = []

    async def learn(models: Models) -> Trace:
        recordings.append(await teaching.learn(models))
        return recordings[0].trace

    if not options.only_record:
        generated = await run(inputs, store=store, models=models, events=events, learn=learn)
        return TeachResult(recordings[0], generated)
    with open_work(inputs, store, models, events) as (_, opened):
        async with opened:
            await begin(inputs, opened, events)
            await learn(opened)
    return TeachResult(recordings[0], None)


@dataclass(frozen=True, kw_only=True)
class _Teaching:
    lesson: Lesson
    events: AuthoringEvents
    folder: Path | None  # of recordings
    sandbox: str
    fresh: bool

    @classmethod
    def prepare(cls, options: TeachOptions, inputs: Inputs, events: AuthoringEvents) -> _Teaching:
        files, executable, left_out = read_files(options.files)
        if left_out:
            events.message(f"Not copied into the workspace: {', '.join(left_out)}.")
        lesson = Lesson(
            options.task,
            inputs.teacher,
            options.teacher_agent,
            options.bounds,
            files,
            executable,
            options.check,
        )
        open_agent(lesson, inputs.keys, options.sandbox)
        folder = options.runs_folder / LESSONS_FOLDER if options.keeps_runs else None
        return cls(
            lesson=lesson,
            events=events,
            folder=folder,
            sandbox=options.sandbox,
            fresh=options.fresh,
        )

    async def learn(self, models: Models) -> Recording:
        path = self.folder / f"{self.lesson.name}.json" if self.folder and not self.fresh else None
        if path and path.is_file():
            recording = Recording(read_trace(path, "atif"), {}, path)
            self.events.message(
                f"This lesson is already recorded in {path}. Use --fresh to record it again."
            )
        else:
            recording = await self._record(models)
        self._require_success(recording)
        return recording

    async def _record(self, models: Models) -> Recording:
        from upskill.sandboxes import choose_sandbox  # noqa: PLC0415 - only where something acts

        lesson, folder, tell = self.lesson, self.folder, self.events.message
        sandbox = await choose_sandbox(self.sandbox or None)
        if sandbox.warning:
            tell(f"Note: {sandbox.warning}")
        where = f"in {sandbox.name}" if sandbox.isolated else "without a sandbox"
        tell(f"{lesson.teacher.name} is doing the task ({lesson.agent}, {where})...")
        try:
            recording = await record_lesson(
                lesson, models, sandbox, folder=folder, fresh=self.fresh, on_step=self.events.step
            )
        except BaseException:
            part = folder / f"{lesson.name}.part.json" if folder else None
            if part and part.is_file():
                tell(
                    f"What the teacher did so far is in {part}. Run the same command again to continue."
                )
            raise
        calls = recording.trace.calls
        where = f"recorded in {recording.path}" if recording.path else "not kept: log_runs is off"
        tell(
            f"{counted(len(calls), 'tool call')}, of which {sum(map(step_failed, calls))} failed, {where}."
        )
        if recording.redacted:
            tell(f"Before it was saved, upskill {describe_counts(recording.redacted)}.")
        return recording

    def _require_success(self, recording: Recording) -> None:
        check, acted = self.lesson.check, bool(recording.trace.calls)
        if recording.checked:
            self.events.message(f"The check passed: {check}")
        elif recording.checked is False:
            output = next(
                step.output for step in reversed(recording.trace.steps) if step.kind == "tool"
            )
            reason = f": {line}" if (line := error_line(output)) else ""
            raise LessonFailed(
                f"the check failed: {check}{reason}", "Use --fresh to let it try again.", recording
            )
        elif not acted:
            raise LessonFailed(
                "the teacher only answered and did nothing",
                "Choose a stronger model with -m.",
                recording,
            )
        elif recording.bound:
            raise LessonFailed(
                f"the teacher was stopped by the limit on {recording.bound}",
                "Raise the limit, or add a --check.",
                recording,
            )
