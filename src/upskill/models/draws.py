"""Draws: a reply is a sample. If an answer fails on the way and is requested again, that is another draw.

A server can cause such failures by what the model wrote, so a trial keeps how many of its draws failed, and why, over
retries and over commands. `FAILURES` lists what counts; `docs/how-to/models.md` shows the same table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from upskill.errors import CheckError, MissingTool, ModelError, SandboxError, TrialError

Retries = Literal[
    "none", "one", "some", "many"
]  # without the first try: 0, 1, `retries`, twice that


class Failure(NamedTuple):
    """One kind of failure of a call or of a trial."""

    what: str  # in the words of the documentation
    is_draw: bool
    retries: Retries = "none"  # within one call


FAILURES: dict[str, Failure] = {
    # Nothing was drawn: the server did not start on an answer.
    "no connection": Failure(
        "connection refused, name not found, no TLS, refused by a proxy", False, "some"
    ),
    "status 401": Failure(
        "status 401, or LiteLLM's `no_db_connection`: the API key was rejected", False
    ),
    "no such model": Failure("status 400 or 404 that says the server has no such model", False),
    "rate limit": Failure("status 429 with `retry-after` or a rate-limit header", False, "many"),
    "not admitted": Failure(
        "status 503 that says the model is loading or the queue is full", False, "many"
    ),
    "unsupported parameter": Failure(
        "status 400 or 422 about a parameter or an answer limit; retried without it, or with a smaller limit",
        False,
    ),
    "not asked": Failure(
        "no call was made: the model was stopped, the batch was rejected, or no reply was recorded",
        False,
    ),
    "missing tool": Failure(
        "a program that a check needs is not installed; the answer is kept", False
    ),
    # Everything else is a draw.
    "overload": Failure("status 429 without such a header, any other 503, 529", True, "many"),
    "server error": Failure("any other 5xx status; 408, 409, 425", True, "some"),
    "other status": Failure(
        "any other status except 200: 400, 402, 403, 404, 413, 422, a redirect", True
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
    "judge reply": Failure("a judge's reply that is unusable and is requested again", True),
    "bug": Failure("a bug in upskill", True),
    "interrupted": Failure(
        "Ctrl-C while the student was working (free for an embedded model that chats)", True
    ),
    "killed": Failure("a command or a worker killed during a call (likewise)", True),
}


# By their own account, these servers did not start on an answer: llama.cpp's, Ollama, vLLM.
NOT_ADMITTED = r"Loading model|maximum pending requests exceeded|cannot accept new requests|token backlog limit"
NO_SUCH_MODEL = {  # by status; a 400 may be about what the model wrote
    400: r"(?i)model_not_found|invalid model name",
    404: r"(?i)model_not_found|\bmodel\b.{0,200}(not found|does not exist)",
}


def status_failure(status: int, headers: Mapping[str, str], error: str = "") -> str:
    """The row of FAILURES for a response that is not 200."""
    if status == 401 or (status == 400 and "no_db_connection" in error):
        return "status 401"
    if status in NO_SUCH_MODEL and re.search(NO_SUCH_MODEL[status], error):
        return "no such model"
    if status == 503 and re.search(NOT_ADMITTED, error):
        return "not admitted"
    if status == 429 and any(_tells_limit(name) for name in headers):
        return "rate limit"
    if status in (429, 503, 529):
        return "overload"
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


def max_retries(failure: str, allowed: int) -> int:
    """Many where a server is overloaded: it takes a while to find the right number of calls."""
    return {"none": 0, "one": min(allowed, 1), "some": allowed, "many": 2 * allowed}[
        FAILURES[failure].retries
    ]


def _tells_limit(header: str) -> bool:
    name = header.lower().removeprefix("llm_provider-")  # what LiteLLM hands on
    return name in ("retry-after", "retry-after-ms") or "ratelimit" in name.replace("-", "")


def proxy_failures(headers: Mapping[str, str]) -> list[str]:
    """The failed draws behind a 200, which a LiteLLM proxy names in its headers."""
    if headers.get("x-litellm-attempted-fallbacks", "0") != "0":
        return ["another model"]
    retries = headers.get("x-litellm-attempted-retries", "0")
    return ["retried by a proxy"] * (int(retries) if retries.isdecimal() else 0)


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


class OpenDraw(Protocol):
    """A durable note that an answer to a trial may be under way: who is killed can leave none."""

    def begin(self) -> Awaitable[int]:
        """Returns how many earlier draws of it were cut off; done when the note is kept."""
        ...

    def end(self) -> None: ...


@dataclass
class Draws:
    """The failed draws of one trial, by reason."""

    reasons: Counter[str] = field(default_factory=Counter[str])
    save: Callable[[Mapping[str, int]], None] = lambda _: (
        None
    )  # at once: the command may be stopped at any time
    note: OpenDraw | None = None
    begun: bool = False

    async def begin(self) -> None:
        """Called before a request leaves. The note stays until the trial's result is stored."""
        if not self.begun:
            self.begun = True
            for _ in range(await self.note.begin() if self.note else 0):
                self.add("killed")

    def end(self) -> None:
        """Called where the trial has no result, and what it drew is counted or free."""
        if self.begun and self.note:
            self.note.end()

    def add(self, failure: str, status: int | None = None) -> None:
        """Count a failed call, if it was a draw."""
        if FAILURES[failure].is_draw:
            self.reasons[f"status {status}" if status and status != 200 else failure] += 1
            self.save(self.reasons)

    def include(self, earlier: Mapping[str, int]) -> None:
        """Draws that may be known already: the larger count of each reason stands."""
        self.reasons |= Counter(earlier)


_DRAWS: ContextVar[Draws | None] = ContextVar("draws", default=None)


@contextmanager
def track_draws(draws: Draws) -> Generator[Draws]:
    before = _DRAWS.set(draws)
    try:
        yield draws
    finally:
        _DRAWS.reset(before)


def current_draws() -> Draws | None:
    """Those of the trial that is running here."""
    return _DRAWS.get()


def count_failure(error: TrialError) -> None:
    """Count what an error says, once."""
    if (draws := _DRAWS.get()) is not None and not error.counted:
        error.counted = True
        draws.add(failure_of(error), getattr(error, "status", None))
