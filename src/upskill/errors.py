"""Every error upskill raises on purpose: one tree, each with a hint that says what to do next."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

MAX_SHOWN = 6  # files that are named in one message


class UpskillError(Exception):
    """Something went wrong that a person can understand; `hint` is the next thing to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(UpskillError):
    """What the person gave us cannot be used. Ends the command with exit code 2, before anything is paid for."""


class SeveralErrors(UsageError):
    """Several things in one file that cannot be used. The message is that of the first."""

    def __init__(self, errors: Sequence[UsageError]) -> None:
        first, more = errors[0], len(errors) - 1
        others = f"{more} more problem{'' if more == 1 else 's'} in it; `upskill validate SKILL` lists all."
        super().__init__(first.message, f"{first.hint} {others}".lstrip())
        self.errors = errors


class ErrorCollector:
    """Goes on after a usage error, so that a person reads of all that is wrong in a file at once."""

    def __init__(self) -> None:
        self.errors: list[UsageError] = []

    @contextmanager
    def collect(self) -> Generator[None]:
        try:
            yield
        except SeveralErrors as error:
            self.errors += error.errors
        except UsageError as error:
            self.errors.append(error)

    def raise_any(self) -> None:
        if self.errors:
            raise as_one(self.errors)


def as_one(errors: Sequence[UsageError]) -> UsageError:
    return errors[0] if len(errors) == 1 else SeveralErrors(errors)


class Paused(UsageError):
    """It is somebody else's turn: `files` wait for an answer. Ends the command with exit code 0."""

    def __init__(self, files: Iterable[str]) -> None:
        self.files = sorted(set(files))
        listing = ", ".join(self.files[:MAX_SHOWN]) + (", …" if len(self.files) > MAX_SHOWN else "")
        answers = "1 answer" if len(self.files) == 1 else f"{len(self.files)} answers"
        super().__init__(
            f"waiting for {answers}: {listing}",
            "Each prompt says at its end which file its answer goes into. Then run the same command again.",
        )


class StoreError(UpskillError):
    """Results could not be read or kept. Everything acknowledged before is still there."""


class CeilingReached(UpskillError):
    """A ceiling on calls, tokens or dollars ends the run here. What was not run is missing, and can be resumed."""


class RunFailed(UpskillError):
    """No number of a run can be relied on: too many trials errored, a bug ended one, or an arm saw a hidden skill."""

    def __init__(self, message: str, evaluation: Any) -> None:
        super().__init__(message, "`RunOptions(partial=True)` returns the Evaluation, which this error has, too.")
        self.evaluation = evaluation  # an Evaluation; this page imports no other


class TrialError(UpskillError):
    """Belongs to one trial: stored with it, told in the report, tried again on resume, never scored."""

    usage: Any = None  # what was paid for all the same: a Usage; this page imports no other
    traceback: str = ""  # set when the cause is a bug in upskill
    failure: str = ""  # its kind, a row of `models.draws.FAILURES`, where whoever raises it knows
    counted: bool = False  # among the failed draws of the trial


class ModelError(TrialError):
    """The model did not give an answer that can be judged."""

    def __init__(
        self, message: str, hint: str = "", *, status: int | None = None, fatal: bool = False, failure: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.status = status  # of HTTP, where there was one
        self.failure = failure
        self.fatal = fatal  # the next trial would fail the same way: a wrong key, an unknown model


class AgentError(TrialError):
    """The agent around the model broke down."""


class SandboxError(TrialError):
    """The place where a trial's commands run broke down."""


class CheckError(TrialError):
    """A check could not be carried out, so the answer was neither right nor wrong."""


class JudgeError(CheckError):
    """The judge gave no grade: that says nothing about the student, whatever it had written."""


class MissingTool(CheckError):
    """A program that a check needs is not installed: whatever a student left, it has no part in that."""


@contextmanager
def wrap_trial_errors(kind: type[TrialError], doing: str) -> Generator[None]:
    """Turn whatever goes wrong inside into a TrialError of this kind that says what was being done.

    Errors of the system are nobody's bug; any other exception that is not ours is a bug in upskill and keeps its
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
    best = [repr(name) for name, likely in zip(near, likeness, strict=True) if likely == likeness[0]]
    if best:
        return f"Did you mean {' or '.join(best)}?"
    return otherwise or (f"Known: {', '.join(names)}." if names else "")
