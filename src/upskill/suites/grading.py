"""Grades what a student left, or an answer alone, in a room where none of its processes ever ran."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from upskill.checks import Evidence, Finding, SuiteCheck
from upskill.checks.room import Delivery, collect, furnish
from upskill.checks.workspace import in_words, read_left
from upskill.errors import (
    CheckError,
    JudgeError,
    MissingTool,
    ModelError,
    SandboxError,
    TrialError,
    wrap_trial_errors,
)
from upskill.sandboxes import Sandbox, Setup
from upskill.suites.suite import Case

OpenSandbox = Callable[[Setup], AbstractAsyncContextManager[Sandbox]]
NO_FAULT_OF_THE_STUDENT = (MissingTool, JudgeError, ModelError, SandboxError)


async def collect_delivery(sandbox: Sandbox, case: Case) -> Delivery:
    """What is graded of what a student left in its sandbox, once its processes have ended."""
    await sandbox.kill_processes()
    return await collect(sandbox, case.delivered, case.kept_files)


async def grade(
    case: Case,
    evidence: Evidence,
    open_sandbox: OpenSandbox,
    delivery: Delivery | None = None,
    checks: Sequence[SuiteCheck] | None = None,
) -> AsyncGenerator[tuple[SuiteCheck, Finding]]:
    """Each check with what it finds, in the order of the suite. Without a delivery there is only the answer.

    A check that crashes fails. Errors are what no student can cause, and bugs.
    """
    checks = case.checks if checks is None else checks
    reads_output = delivery is not None and bool(case.output_file)
    if not reads_output and not any(named.check.needs_sandbox for named in checks):
        for named in checks:
            yield named, await _look(case, named, evidence)
        return
    async with _open_room(case, checks, open_sandbox, delivery) as (room, folder):
        in_own_workspace = delivery is not None and case.outputs is None
        evidence = replace(evidence, sandbox=room, in_own_workspace=in_own_workspace)
        if reads_output:
            # Where an agent only said what it should have written, that is looked at.
            left = await read_left(evidence, case.output_file)
            evidence = evidence if isinstance(left, Finding) else replace(evidence, output=left)
        for number, named in enumerate(checks):
            unlaid = await _lay_tests(room, case) if named.check.needs_sandbox else None
            evidence = replace(evidence, check_files=str(folder / str(number)))
            yield named, unlaid or await _look(case, named, evidence)


@asynccontextmanager
async def _open_room(
    case: Case,
    checks: Sequence[SuiteCheck],
    open_sandbox: OpenSandbox,
    delivery: Delivery | None,
) -> AsyncGenerator[tuple[Sandbox, Path]]:
    """The room, and the folder with the checks' own files, which nothing in there can write to."""
    with TemporaryDirectory(prefix="upskill-checks-") as made:
        folder = _lay_own_files(made, checks)
        kept = case.files if delivery is None else case.kept_files
        delivery = delivery or Delivery()
        scripts = {path for path, text in kept.items() if _is_script(text)}
        setup = Setup(
            files={**kept, **delivery.files},
            runnable=delivery.executable | scripts,
            readonly_mounts={str(folder): folder},
            gpu=case.gpu,
        )
        async with open_sandbox(setup) as room:
            await furnish(room, delivery, case.files)
            yield room, folder


def _lay_own_files(made: str, checks: Sequence[SuiteCheck]) -> Path:
    folder = Path(made).resolve()
    folder.chmod(0o755)
    for number, named in enumerate(checks):
        own = folder / str(number)
        own.mkdir()
        for name, text in named.check.own_files.items():
            path = own / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            path.chmod(0o755 if _is_script(text) else 0o644)
    return folder


async def _lay_tests(room: Sandbox, case: Case) -> Finding | None:
    for path, text in case.tests.items():
        try:
            await room.write(path, text, executable=_is_script(text))
        except OSError as error:
            return Finding(False, f"{path} of the case cannot be laid: {in_words(error)}")
    return None


def _is_script(text: str) -> bool:
    return text.startswith("#!")


async def _look(case: Case, named: SuiteCheck, evidence: Evidence) -> Finding:
    doing = f"checking {named.name} of {case.id}"
    try:
        with wrap_trial_errors(CheckError, doing):
            finding = await named.check.run(evidence)
    except NO_FAULT_OF_THE_STUDENT as error:
        if isinstance(error, MissingTool):  # whatever the case: reports count these together
            error.message = f"checking {named.name}{error.message.removeprefix(doing)}"
        raise
    except TrialError as error:
        if error.traceback:  # a bug of ours, or of a plug-in
            raise
        return Finding(
            False, f"the check broke: {error.message.removeprefix(f'{doing}: ')}", broke=True
        )
    if named.check.reads_answer and evidence.output is not None:
        return replace(finding, reason=f"{case.output_file} as the answer: {finding.reason}")
    return finding
