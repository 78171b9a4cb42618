"""Failures: which failed attempts may have reached the student.

A trial counts if the first attempt that may have reached the student was graded; otherwise it is missing, and stays so.
An answer that may have been on its way is never asked for again: a server could cause such failures by what the model
wrote, and a student would gain by failing. What cannot have reached it is tried again and costs nothing. `FAILURES` is
the whole rule; `docs/how-to/models.md` shows the same table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from upskill.errors import CheckError, MissingTool, ModelError, SandboxError, TrialError

Retries = Literal[
    "none", "one", "some", "many"
]  # without the first try: 0, 1, `retries`, twice that


class Failure(NamedTuple):
    """One kind of failure of a call or of a trial."""

    what: str  # in the words of the documentation
    reached: bool  # the student may have been asked
    # Further tries within one call: of a student only where it cannot have been reached.
    retries: Retries = "none"


OVERLOADED = frozenset({429, 503, 529})  # the server wants fewer calls

FAILURES: dict[str, Failure] = {
    # The student cannot have been asked.
    "no connection": Failure(
        "connection refused, name not found, no TLS, refused by a proxy", False, "some"
    ),
    "wrong key": Failure(
        "status 401 or 403, or LiteLLM's `no_db_connection`: the API key was rejected", False
    ),
    "no such model": Failure("status 400 or 404 that says the server has no such model", False),
    "rate limit": Failure("status 429, 503 or 529", False, "many"),
    "unsupported parameter": Failure(
        "status 400 or 422 about a parameter or an answer limit; retried without it, or with a smaller limit",
        False,
    ),
    "not asked": Failure(
        "no call was made: the model was stopped, the batch was rejected, or no reply was recorded",
        False,
    ),
    "not started": Failure("an agent program that ends before its first call", False),
    "missing tool": Failure(
        "a program that a check needs is not installed; the answer is kept and graded later", False
    ),
    # It may have been asked.
    "server error": Failure("any other 5xx status; 408, 409, 425", True, "some"),
    "other status": Failure(
        "any other status except 200: 400, 402, 404, 413, 422, a redirect", True
    ),
    "dropped connection": Failure(
        "the connection dropped before or during the answer", True, "some"
    ),
    "timeout": Failure("no answer, or only part of one, within `timeout`", True, "one"),
    "too large": Failure("a body of more than 32 MiB", True),
    "unreadable body": Failure(
        "an empty body, an HTML page, no JSON object, or an encoding we cannot decode", True
    ),
    "error in a 200": Failure("status 200 with an error in its body", True),
    "no answer": Failure(
        "status 200 without choices or content; a finish reason that is null or `error`", True
    ),
    "retried by a proxy": Failure(
        "a LiteLLM proxy that retried before it answered, by its headers", True
    ),
    "another model": Failure("a LiteLLM proxy that let another model answer, by its headers", True),
    "model": Failure("any other model error: a command, an embedded model, a batch", True),
    "agent": Failure("an agent program that exits without an answer", True),
    "sandbox": Failure("a sandbox that fails", True),
    "check": Failure("a check or a judge that fails", True),
    "bug": Failure("a bug in upskill", True),
}


NO_SUCH_MODEL = {  # by status; a 400 may be about what the model wrote
    400: r"(?i)model_not_found|invalid model name",
    404: r"(?i)model_not_found|\bmodel\b.{0,200}(not found|does not exist)",
}


def status_failure(status: int, error: str = "") -> str:
    """The row of FAILURES for a response that is not 200."""
    if status in (401, 403) or (status == 400 and "no_db_connection" in error):
        return "wrong key"
    if status in NO_SUCH_MODEL and re.search(NO_SUCH_MODEL[status], error):
        return "no such model"
    if status in OVERLOADED:
        return "rate limit"
    return "server error" if status in (408, 409, 425) or status >= 500 else "other status"


# What servers say when they stopped an answer themselves.
BROKEN_OFF = frozenset(
    (
        *("error", "server_error", "internal_error", "insufficient_system_resource"),
        *("abort", "aborted", "cancelled", "canceled", "failed", "timeout"),
    )
)


def why_no_answer(reason: str | None, *, is_empty: bool) -> str:
    """Why a 200 holds no whole answer ("no answer" in FAILURES), by its finish reason; nothing where it holds one."""
    if reason is None:
        return "the answer was cut off: it has no finish reason"
    if reason.lower() in BROKEN_OFF:
        return f"the provider cut off the answer ({reason})"
    return "the answer has no content" if is_empty else ""


def further_tries(failure: str, allowed: int) -> int:
    """Many where a server is overloaded: it takes a while to find the right number of calls."""
    tries = {"none": 0, "one": min(allowed, 1), "some": allowed, "many": 2 * allowed}
    return tries[FAILURES[failure].retries]


def may_have_reached(error: TrialError) -> bool:
    """Whether the model may have been asked before this error of one call."""
    return FAILURES[failure_of(error)].reached


def stays_missing(error: TrialError, *, asked: bool, answered: bool) -> bool:
    """Whether a trial that ended with this error is missing for good, or is tried again when its run goes on.

    `asked`, `answered`: whether any call of this attempt left for the student, and whether any came back.
    """
    if isinstance(
        error, MissingTool
    ):  # the answer is kept, and graded where the program is installed
        return False
    return answered or (asked and may_have_reached(error))


def proxy_retries(headers: Mapping[str, str]) -> int:
    """How often a LiteLLM proxy asked before it answered, by its headers."""
    retries = headers.get("x-litellm-attempted-retries", "0")
    return int(retries) if retries.isdecimal() else 0


def proxy_failure(headers: Mapping[str, str]) -> str:
    """The row of FAILURES behind a 200 of a LiteLLM proxy, which its headers tell; empty if there is none."""
    if headers.get("x-litellm-attempted-fallbacks", "0") != "0":
        return "another model"
    return "retried by a proxy" if proxy_retries(headers) else ""


PROXY_ERRORS = {
    "another model": (
        "the proxy let another model answer",
        "Turn off its fallbacks for this model.",
    ),
    "retried by a proxy": (
        "the proxy asked several times before it answered",
        "Turn off its retries (num_retries: 0).",
    ),
}


def failure_of(error: TrialError) -> str:
    """The row of FAILURES for an error that ended a trial."""
    if error.failure:
        return error.failure
    if error.traceback:
        return "bug"
    kinds = (
        (MissingTool, "missing tool"),
        (CheckError, "check"),
        (SandboxError, "sandbox"),
        (ModelError, "model"),
    )
    return next((name for kind, name in kinds if isinstance(error, kind)), "agent")
