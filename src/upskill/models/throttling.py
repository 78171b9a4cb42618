"""How to treat a server under load: how many calls at once, when to retry, and when to give up."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from upskill.errors import ModelError
from upskill.models import Model, Reply, Request
from upskill.models.failures import failure_of, further_tries, may_have_reached
from upskill.models.ledger import count_retry

PERMANENT = frozenset({400, 401, 402, 403, 404, 405, 413, 422})  # a retry would fail too
INITIAL_BACKOFF = 0.5  # seconds
MAX_BACKOFF = 30.0
MAX_RETRY_AFTER = 120.0  # a longer wait is reported to the user instead
MAX_FAILURES = 10  # in a row, before a model is given up

logger = logging.getLogger(__name__)


def backoff(attempt: int) -> float:
    """Seconds to wait before this attempt (the first retry is 2), with jitter."""
    longest = min(MAX_BACKOFF, INITIAL_BACKOFF * 2 ** (attempt - 2))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  only spreads calls out


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a server asks to wait, in whichever form."""
    milliseconds = headers.get("retry-after-ms")
    text = (headers.get("Retry-After") or headers.get("llm_provider-retry-after") or "").strip()
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        if text.replace(".", "", 1).isdigit():
            return float(text)
        if text:
            from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow, and dates are rare

            when = parsedate_to_datetime(text)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        pass  # malformed: use our own backoff
    return None


class AdaptiveLimiter:
    """Limits calls to one endpoint: halved when it is overloaded, paused on request."""

    def __init__(self, max_concurrency: int) -> None:
        self.max_concurrency = max_concurrency
        self.limit = float(max_concurrency)
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._halved_at = 0.0
        self._paused_until = 0.0
        self._resume_timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> float:
        """Wait for a slot; returns the time at which this call got it."""
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        self._admit_waiting()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.release()  # admitted and cancelled at once: the slot goes to the next
            raise
        return time.monotonic()

    def release(self) -> None:
        self.in_flight -= 1
        self._admit_waiting()

    def record_success(self, calls: int = 1) -> None:
        if self.limit < self.max_concurrency:
            self.limit = min(float(self.max_concurrency), self.limit + calls / self.limit)
            self._admit_waiting()

    def record_overload(self, since: float, wait: float | None = None) -> None:
        """A call with a slot since then was turned away. The first of a wave halves the limit."""
        now = time.monotonic()
        if since >= self._halved_at:
            self._halved_at = now
            self.limit = max(1.0, self.limit / 2)
            logger.info("the server is overloaded: at most %d calls at once", int(self.limit))
        if wait:
            self._paused_until = max(self._paused_until, now + wait)
            logger.info("the server asked for a pause of %.1f s", wait)

    @property
    def free(self) -> int:
        return max(1, int(self.limit)) - self.in_flight

    @property
    def was_overloaded(self) -> bool:
        return self._halved_at > 0

    @property
    def pause(self) -> float:
        """Seconds until the next call may be made."""
        return max(0.0, self._paused_until - time.monotonic())

    def _has_room(self) -> bool:
        return self.free > 0 and not self.pause

    def _admit_waiting(self) -> None:
        while self._waiting and self._has_room():
            slot = self._waiting.popleft()
            if not slot.done():
                self.in_flight += 1
                slot.set_result(None)
        if (
            self._waiting
            and self._resume_timer is None
            and (wait := self._paused_until - time.monotonic()) > 0
        ):
            self._resume_timer = asyncio.get_running_loop().call_later(wait, self._resume)

    def _resume(self) -> None:
        self._resume_timer = None
        self._admit_waiting()


_limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AdaptiveLimiter]] = (
    WeakKeyDictionary()
)


def limiter_for(endpoint: str, max_concurrency: int) -> AdaptiveLimiter:
    """The limiter that all models at this base URL share, in the running event loop."""
    limiters = _limiters.setdefault(asyncio.get_running_loop(), {})
    limiter = limiters.setdefault(endpoint, AdaptiveLimiter(max_concurrency))
    at_maximum = limiter.limit >= limiter.max_concurrency
    if limiter.in_flight:
        max_concurrency = max(limiter.max_concurrency, max_concurrency)
    limiter.max_concurrency = max_concurrency
    limiter.limit = (
        float(max_concurrency) if at_maximum else min(limiter.limit, float(max_concurrency))
    )
    return limiter


def forget_limiters() -> None:
    _limiters.pop(asyncio.get_running_loop(), None)


def overload() -> float | None:
    """Seconds to wait where a server of this event loop wants fewer calls; or None."""
    limiters = _limiters.get(asyncio.get_running_loop(), {}).values()
    return max((limiter.pause for limiter in limiters if limiter.was_overloaded), default=None)


class CircuitBreaker:
    """Stops calling a model after MAX_FAILURES permanent errors in a row."""

    def __init__(self, name: str, failures: int = 0) -> None:
        self.name = name
        self.failures = failures  # in a row; those that are given happened elsewhere
        self.answered = False
        self._stopped: tuple[str, str, int | None] | None = None

    def check(self) -> None:
        if self._stopped is not None:
            message, hint, status = self._stopped
            raise ModelError(message, hint, status=status, fatal=True, failure="not asked")

    def record_success(self) -> None:
        self.failures = 0
        self.answered = True

    def record_failure(self, error: ModelError) -> None:
        """Count a permanent error. The last one allowed raises the error that says so."""
        self.failures += 1
        if self.failures >= MAX_FAILURES and self._stopped is None:
            message = f"{self.name} was stopped after {MAX_FAILURES} errors in a row; the last one: {error.message}"
            self._stopped = (message, error.hint, error.status)
            logger.info("circuit breaker opened: %s", message)
            self.check()


class PatientModel:
    """Asks again after any failure that may pass. For judges, teachers and writers; never for a student."""

    def __init__(self, model: Model, retries: int) -> None:
        self.model = model
        self.retries = retries

    async def reply(self, request: Request) -> Reply:
        tries = 0
        while True:
            tries += 1
            try:
                return await self.model.reply(request)
            except ModelError as error:
                # The model itself has retried what cannot have reached it.
                is_new = may_have_reached(error) and not error.is_final
                if not is_new or tries > further_tries(failure_of(error), self.retries):
                    raise
            await asyncio.sleep(backoff(tries + 1))
            count_retry()
