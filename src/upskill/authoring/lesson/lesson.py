"""A Lesson is a task that a teacher does in a sandbox; its Recording is named after all that defines the lesson."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upskill.agents import AGENTS, Agent, Bounds, ExternalAgent, Student, Task
from upskill.authoring.saving.output import as_name
from upskill.authoring.writing.prompts import read_prompt
from upskill.errors import ModelError, Paused, SandboxError, UsageError, wrap_trial_errors
from upskill.inputs import open_input, read_input
from upskill.models import Address, Model, ToolCall
from upskill.models.cache import CachedModel
from upskill.models.pool import Models
from upskill.outputs import make_private_folder, open_private
from upskill.plain import digest
from upskill.traces import Step, Trace
from upskill.traces.readers.atif import write
from upskill.traces.redaction.redact import redact_trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox, SandboxChoice, Setup

VERIFY = "verify"  # the tool name under which the check is recorded
LESSONS_FOLDER = "lessons"  # in the folder of runs
TEACHER_BOUNDS = Bounds(turns=60, seconds=1800.0)
OUTPUT_TOKENS = 8192  # of one turn
LOCAL_OUTPUT_TOKENS = 1024  # of the embedded model, whose context is small
BOUND_STOPS = ("turns", "tokens", "seconds")  # the teacher did not finish by itself
CHECK_SECONDS = 300.0
MAX_WORKSPACE_BYTES = 100_000_000
# Not copied into a workspace: what can be rebuilt, or holds secrets.
NOT_COPIED = (
    ".git",
    ".venv",
    "node_modules",
    "__pycache__",
    ".env",
    ".netrc",
    ".ssh",
    ".aws",
    ".gnupg",
)

MAX_JOURNAL_WORKSPACE = 200_000_000  # bytes
PACKED = ".upskill-workspace.tar"  # in the workspace, while it is packed or unpacked


@dataclass(frozen=True, slots=True)
class Lesson:
    task: str
    teacher: Address
    agent: str = "tools"
    bounds: Bounds = TEACHER_BOUNDS
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    runnable: frozenset[str] = frozenset()
    check: str = ""  # a command that succeeds if the task was done

    @property
    def name(self) -> str:
        """Name of its recording: another task, teacher, file or check is another lesson."""
        placed = {path: sha256(data).hexdigest() for path, data in self.files.items()}
        key = digest(
            [
                self.task,
                self.teacher,
                self.agent,
                self.bounds,
                placed,
                sorted(self.runnable),
                self.check,
            ]
        )
        return f"{as_name(self.task)[:40].strip('-') or 'lesson'}-{key}"


@dataclass(frozen=True, slots=True)
class Recording:
    trace: Trace  # without secrets
    redacted: Mapping[str, int] = field(default_factory=dict[str, int])
    path: Path | None = None

    @property
    def checked(self) -> bool | None:
        """Whether the check succeeded; None where there was none."""
        steps = [step for step in self.trace.steps if step.tool == VERIFY]
        return steps[-1].status == "ok" if steps else None

    @property
    def bound(self) -> str:
        return self.trace.stop if self.trace.stop in BOUND_STOPS else ""


def read_files(sources: Iterable[str | Path]) -> tuple[dict[str, bytes], frozenset[str], list[str]]:
    files: dict[str, bytes] = {}
    runnable: set[str] = set()
    left_out: list[str] = []
    size = 0
    for source in map(Path, sources):
        if not source.exists():
            raise UsageError(
                f"{source}: no such file or folder",
                "Pass --files a file or folder to copy into the workspace.",
            )
        if not source.is_dir():
            open_input(source, most=MAX_WORKSPACE_BYTES).close()
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            name = path.relative_to(source if source.is_dir() else source.parent)
            if skipped := next((part for part in name.parts if part in NOT_COPIED), ""):
                left_out.append(skipped)
            elif path.is_symlink():
                left_out.append(f"{name} (a link)")
            elif path.is_file():
                size += path.stat().st_size
                if size > MAX_WORKSPACE_BYTES:
                    raise UsageError(
                        f"{source}: larger than {MAX_WORKSPACE_BYTES // 10**6} MB",
                        "Pass only what is needed.",
                    )
                files[name.as_posix()] = read_input(path)
                if path.stat().st_mode & stat.S_IXUSR:
                    runnable.add(name.as_posix())
    return files, frozenset(runnable), list(dict.fromkeys(left_out))


def open_agent(lesson: Lesson, keys: Mapping[str, str], sandbox: str = "") -> Agent:
    kind = AGENTS.load(lesson.agent)
    if not kind.needs_sandbox:
        raise UsageError(
            f"the {lesson.agent!r} agent only answers, so there would be nothing to learn from it",
            "Choose one that can act, for example --agent tools.",
        )
    # Our own loop gets another system prompt than students do; a program brings its own.
    agent: Agent = kind(read_prompt("teach"), says=True) if lesson.agent == "tools" else kind()
    if isinstance(agent, ExternalAgent):
        agent.check(lesson.teacher, keys, sandbox)
    return agent


async def record_lesson(
    lesson: Lesson,
    models: Models,
    sandbox: SandboxChoice,
    *,
    folder: Path | None = None,
    fresh: bool = False,
    on_step: Callable[[Step], None] | None = None,
) -> Recording:
    """Let the teacher do the task and record it; a lesson that ends early is kept as NAME.part.json."""
    # Where answers come from files, each of them ends the command, and the next one goes on from a journal.
    by_hand = lesson.teacher.provider == "handoff"
    journal = Journal(Path(lesson.teacher.model), lesson.name) if by_hand else None
    while True:
        work = _LessonRun(lesson, models, folder, on_step, fresh, journal)
        try:
            recording = await work.record(sandbox)
        except Diverged:
            assert journal is not None
            journal.remove()
            continue
        if journal and recording.path:
            journal.remove()
        return recording


@dataclass
class _LessonRun:
    lesson: Lesson
    models: Models
    folder: Path | None
    on_step: Callable[[Step], None] | None
    fresh: bool
    journal: Journal | None
    steps: list[Step] = field(default_factory=list[Step])
    trace: Trace = field(default_factory=lambda: Trace(()))

    async def record(self, sandbox: SandboxChoice) -> Recording:
        lesson, journal, context = self.lesson, self.journal, self.models.context
        agent = open_agent(lesson, context.keys)
        is_local = lesson.teacher.provider == "local"
        limit = LOCAL_OUTPUT_TOKENS if is_local else OUTPUT_TOKENS
        task = Task(lesson.task, bounds=lesson.bounds, max_output_tokens=limit)
        try:
            with wrap_trial_errors(SandboxError, f"opening a sandbox ({sandbox.name})"):
                setup = agent.setup(task)
                files, runnable = {**setup.files, **lesson.files}, setup.runnable | lesson.runnable
                setup = replace(setup, files=files, runnable=runnable)
                opened = await sandbox.backend.open(journal.prepare(setup) if journal else setup)
            async with opened:
                try:
                    if journal and journal.done:
                        await opened.run(f"tar -xpf {PACKED}; rm -f {PACKED}")
                    with wrap_trial_errors(ModelError, f"asking {lesson.teacher.name}"):
                        student = Student(
                            address=lesson.teacher,
                            model=await self._model(),
                            sandbox=opened,
                            keys=context.keys,
                            ledger=self.models.ledger,
                            role="teacher",
                            prices=context.prices,
                            on_step=self.note,
                            replay=journal.replay if journal else None,
                        )
                        trace = await agent.run(task, student)
                except Paused:
                    if journal:
                        await journal.save(opened)
                    raise
                if self.on_step and not self.steps:  # a program reports its steps only at the end
                    for step in trace.steps:
                        self.on_step(step)
                self.trace, self.steps = trace, list(trace.steps)
                await opened.kill_processes()
                if lesson.check:
                    with wrap_trial_errors(SandboxError, "running the check"):
                        await self._check(opened)
        except BaseException:
            self.save("part.json")
            raise
        return self.save("json")

    async def _check(self, sandbox: Sandbox) -> None:
        from upskill.sandboxes import Limits  # noqa: PLC0415 - only where something acts

        command = self.lesson.check
        done = await sandbox.run(command, Limits(wall=CHECK_SECONDS, cpu=CHECK_SECONDS))
        exit_code = f"Exit code: {done.code}" if done.code else ""
        lines = [done.output.rstrip(), done.error.rstrip(), done.killed_why, exit_code]
        step = Step(
            "tool",
            tool=VERIFY,
            arguments={"command": command, "description": "Verify the result"},
            output="\n".join(filter(None, lines)),
            status="error" if done.code or done.killed_why else "ok",
            seconds=round(done.seconds, 4),
        )
        self.note(step)

    async def _model(self) -> Model:
        address, models = self.lesson.teacher, self.models
        if models.replies is None:
            return await models.uncached(address, "teacher")
        # Without a role its requests are not stored: each would repeat the whole conversation, with its secrets.
        mode = "refresh" if self.fresh or self.journal else models.cache
        cached = CachedModel(
            address, lambda: models.uncached(address, "teacher"), models.replies, mode
        )
        await cached.open()
        return cached

    def note(self, step: Step) -> None:
        self.steps.append(step)
        if self.journal:
            self.journal.note(step)
        if self.on_step:
            self.on_step(step)

    def save(self, ending: str) -> Recording:
        steps = tuple(self.steps)
        if not any(step.kind == "user" for step in steps):
            steps = (Step("user", self.lesson.task), *steps)
        clean = redact_trace(
            replace(
                self.trace,
                steps=steps,
                goal=self.lesson.task,
                agent=self.trace.agent or self.lesson.agent,
            )
        )
        path = None
        if self.folder and self.steps:
            part, path = (
                self.folder / f"{self.lesson.name}.{suffix}" for suffix in ("part.json", ending)
            )
            make_private_folder(self.folder)
            with open_private(path) as file:
                file.write(write(clean.trace))
            if path != part:
                part.unlink(missing_ok=True)
        return Recording(clean.trace, dict(clean.counts), path)


class Diverged(UsageError):
    """A call differs from the one that was recorded: an earlier answer was changed, so the work starts over."""


class Journal:
    """What a lesson by hand has done before a pause: the next command continues there, and runs nothing twice."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.journal.json"
        self.workspace = folder / f"{name}.workspace.tar"
        self.done: list[Step] = []
        if self.file.is_file() and self.workspace.is_file():
            try:
                rows: list[dict[str, Any]] = json.loads(self.file.read_text(encoding="utf-8"))
                self.done = [Step(**row) for row in rows]
            except (ValueError, RecursionError, TypeError) as error:
                raise UsageError(
                    f"{self.file} cannot be read: {error}", "Delete it to start the lesson over."
                ) from error
        self._left = list(self.done)

    def replay(self, call: ToolCall) -> Step | None:
        """The recorded result of this call; None if it was not made before."""
        if not self._left:
            return None
        step = self._left.pop(0)
        if (step.tool, dict(step.arguments)) != (call.name, dict(call.arguments)):
            raise Diverged(f"a different call than before: {call.name}")
        return step

    def note(self, step: Step) -> None:
        if step.kind == "tool" and not any(
            step is noted for noted in self.done
        ):  # not one that was replayed
            self.done.append(step)

    def prepare(self, setup: Setup) -> Setup:
        return replace(setup, files={PACKED: self.workspace.read_bytes()}) if self.done else setup

    async def save(self, sandbox: Sandbox) -> None:
        """Keep what was done so far. Without `tar` in the sandbox there is nothing to resume from."""
        if self._left or not self.done:
            return
        packed = await sandbox.run(f"tar -cf /tmp/{PACKED} . && mv /tmp/{PACKED} {PACKED}")
        if packed.code == 0:
            make_private_folder(self.file.parent)
            with open_private(self.workspace, "wb") as workspace:
                workspace.write(await sandbox.read(PACKED, MAX_JOURNAL_WORKSPACE))
            with open_private(self.file) as file:
                json.dump([asdict(step) for step in self.done], file, default=str)

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.workspace.unlink(missing_ok=True)
        self.done, self._left = [], []
