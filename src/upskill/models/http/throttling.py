"""Manners towards a server under load: how many calls at once, when to try again, and when to stop asking.

A Gate is shared by every model of one endpoint, a Breaker belongs to one model, and `wait_before` and `retry_after`
say how long to be quiet.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from weakref import WeakKeyDictionary

from upskill.errors import ModelError

BUSY = frozenset({429, 503, 529})  # the server asks for fewer calls
HEALING = frozenset({408, 409, 425, 429}) | frozenset(range(500, 600))
HOPELESS = frozenset({400, 401, 402, 403, 404, 405, 413, 422})  # the next call would most likely end the same way
FIRST_WAIT = 0.5  # seconds
LONGEST_WAIT = 30.0
LONGEST_RETRY_AFTER = 120.0  # whoever asks for more is told to the person instead
STRIKES = 10


class Overlong(ModelError):
    """The prompt does not fit the model: this trial's own trouble, not a sign that the model is out of order."""


def wait_before(attempt: int) -> float:
    """Seconds to wait before this attempt (the second is 2): twice as long each time, with full jitter above half."""
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 2))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads calls out; nothing secret hangs on it


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a server asks to wait: `Retry-After` in seconds or as a date, or its millisecond cousin."""
    milliseconds = headers.get("retry-after-ms")
    text = (headers.get("Retry-After") or "").strip()
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        if text.replace(".", "", 1).isdigit():
            return float(text)
        if text:
            when = parsedate_to_datetime(text)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        pass  # not a form anyone agreed on; our own waiting serves
    return None


class Gate:
    """How many calls one endpoint gets at a time: half as many after it says 429, then slowly more again.

    A server that names a time to come back closes the gate for everyone until then.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.inside = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._halved = 0.0
        self._closed_until = 0.0
        self._opening: asyncio.TimerHandle | None = None

    async def enter(self) -> float:
        """Wait for a place; returns the time at which this call went in."""
        if self._queue or not self._open():
            place = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            self._admit()
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self.leave()  # admitted and cancelled in the same turn: the place goes to the next
                raise
        else:
            self.inside += 1
        return time.monotonic()

    def leave(self) -> None:
        self.inside -= 1
        self._admit()

    def succeeded(self) -> None:
        if self.limit < self.most:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._admit()

    def refused(self, since: float, wait: float | None = None) -> None:
        """A call that went in at `since` was told to slow down. The others of its wave do not count again."""
        now = time.monotonic()
        if since >= self._halved:
            self._halved = now
            self.limit = max(1.0, self.limit / 2)
        if wait:
            self._closed_until = max(self._closed_until, now + wait)

    def _open(self) -> bool:
        return self.inside < max(1, int(self.limit)) and time.monotonic() >= self._closed_until

    def _admit(self) -> None:
        while self._queue and self._open():
            place = self._queue.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)
        if self._queue and self._opening is None and (wait := self._closed_until - time.monotonic()) > 0:
            self._opening = asyncio.get_running_loop().call_later(wait, self._reopen)

    def _reopen(self) -> None:
        self._opening = None
        self._admit()


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Gate]] = WeakKeyDictionary()


def gate_of(endpoint: str, most: int) -> Gate:
    """The gate that all models at this base URL go through, in the running event loop."""
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    gate = gates.setdefault(endpoint, Gate(most))
    unhindered = gate.limit >= gate.most
    gate.most = most if gate.inside == 0 else max(gate.most, most)
    gate.limit = float(gate.most) if unhindered else min(gate.limit, float(gate.most))
    return gate


class Breaker:
    """Stops asking a model that has said no ten times in a row in a way that does not heal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._strikes = 0
        self._stopped: tuple[str, str, int | None] | None = None

    def check(self) -> None:
        if self._stopped is not None:
            message, hint, status = self._stopped
            raise ModelError(message, hint, status=status, fatal=True)

    def succeeded(self) -> None:
        self._strikes = 0

    def failed(self, error: ModelError) -> None:
        """Count an error that would repeat. The tenth in a row opens the breaker, and is itself the clear message."""
        self._strikes += 1
        if self._strikes >= STRIKES and self._stopped is None:
            message = f"{self.name} was stopped after {STRIKES} errors in a row, the last: {error.message}"
            self._stopped = (message, error.hint, error.status)
            self.check()
