"""Every error upskill raises on purpose: one tree, each with a hint that says what to do next."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_SHOWN = 6  # files that are named in one message


class UpskillError(Exception):
    """An error that a person can understand; `hint` says what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(UpskillError):
    """The input cannot be used. Ends the command with exit code 2, before anything is paid for."""

    case = ""  # of a suite, which it is about


class SeveralErrors(UsageError):
    """Several problems in one file. The message is that of the first."""

    def __init__(self, errors: Sequence[UsageError]) -> None:
        first, more = errors[0], len(errors) - 1
        others = f"{more} more problem{'' if more == 1 else 's'}; `upskill validate SKILL` lists them all."
        super().__init__(first.message, f"{first.hint} {others}".lstrip())
        self.errors = errors


MAX_ERRORS = 1_000  # that are collected


class ErrorCollector:
    """Collects usage errors, so that a person sees everything wrong with a file at once."""

    def __init__(self) -> None:
        self.errors: list[UsageError] = []

    @contextmanager
    def collect(self, case: str = "") -> Generator[None]:
        try:
            yield
        except UsageError as error:
            errors = error.errors if isinstance(error, SeveralErrors) else [error]
            for each in errors:
                each.case = case
            self.errors += errors
            if len(self.errors) >= MAX_ERRORS:
                self.raise_any()

    def raise_any(self) -> None:
        if self.errors:
            raise as_one(self.errors)


def as_one(errors: Sequence[UsageError]) -> UsageError:
    return errors[0] if len(errors) == 1 else SeveralErrors(errors)


class Paused(UsageError):
    """Waiting for someone to write the answers in `files`. Ends the command with exit code 0."""

    def __init__(self, files: Iterable[str]) -> None:
        self.files = sorted(set(files))
        listing = ", ".join(self.files[:MAX_SHOWN]) + (", …" if len(self.files) > MAX_SHOWN else "")
        answers = "1 answer" if len(self.files) == 1 else f"{len(self.files)} answers"
        size = sum(path.stat().st_size for path in map(Path, self.files) if path.is_file())
        super().__init__(
            f"waiting for {answers}: {listing}"
            + (f" ({-(-size // 1000):,} kB to read)" if size else ""),
            "Write each answer to the file named in the last line of its prompt. Then run the same command again.",
        )


class StoreError(UpskillError):
    """Results could not be read or stored. Everything acknowledged before is safe."""


class CeilingReached(UpskillError):
    """A ceiling on calls, tokens or dollars ends the run here. What was not run is missing, and can be resumed."""


class RunFailed(UpskillError):
    """The numbers of a run mean nothing: too many trials errored, a bug ended one, or an arm saw a hidden skill."""

    def __init__(self, message: str, evaluation: Any) -> None:
        super().__init__(
            message,
            "`RunOptions(partial=True)` returns the Evaluation instead of raising; `error.evaluation` has it too.",
        )
        self.evaluation = evaluation  # an Evaluation; this module imports no other


class TrialError(UpskillError):
    """Belongs to one trial: stored with it, shown in the report, retried on resume, never scored."""

    usage: Any = None  # what it cost anyway: a Usage; this module imports no other
    traceback: str = ""  # set when the cause is a bug in upskill
    failure: str = ""  # its kind, a row of `models.failures.FAILURES`, if known


class ModelError(TrialError):
    """The model gave no answer that can be graded."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int | None = None,
        fatal: bool = False,
        failure: str = "",
    ) -> None:
        super().__init__(message, hint)
        self.status = status  # the HTTP status, if any
        self.failure = failure
        self.fatal = fatal  # the next trial would fail the same way: a wrong key, an unknown model
        self.is_final = (
            False  # the server says that asking again is of no use, or wants a long wait
        )


class AgentError(TrialError):
    """The agent around the model broke down."""


class SandboxError(TrialError):
    """The sandbox of a trial broke down."""


class CheckError(TrialError):
    """A check could not run, so the answer is neither right nor wrong."""


class JudgeError(CheckError):
    """The judge gave no grade, which says nothing about the student."""


class MissingTool(CheckError):
    """A program that a check needs is not installed, which is not the student's fault."""


@contextmanager
def wrap_trial_errors(kind: type[TrialError], doing: str) -> Generator[None]:
    """Turn any exception inside into a TrialError of this kind that says what was being done.

    System errors are not bugs; any other exception that is not ours is a bug in upskill and keeps its
    traceback. A sandbox that breaks down while a model works in it is not blamed on the model.
    """
    try:
        yield
    except (UsageError, CeilingReached, StoreError):
        raise
    except TrialError as error:
        beside = kind is ModelError and isinstance(error, SandboxError)
        if not beside and not error.message.startswith(doing):
            error.message = f"{doing}: {error.message}"
        raise
    except Exception as error:
        wrapped = kind(f"{doing}: {type(error).__name__}: {str(error) or 'no message'}")
        if not isinstance(error, OSError | EOFError):  # TimeoutError is an OSError too
            wrapped.traceback = traceback.format_exc()
        raise wrapped from error


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, name, word).ratio() for name in near]
    best = [
        repr(name) for name, likely in zip(near, likeness, strict=True) if likely == likeness[0]
    ]
    if best:
        return f"Did you mean {' or '.join(best)}?"
    return otherwise or (f"Known: {', '.join(names)}." if names else "")
