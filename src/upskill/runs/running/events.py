"""Events tell a caller what a verb is doing: the command line shows them, a library user may ignore them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.stores import Run


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Events:
    """Callbacks, all optional. If one raises, the work stops and can be resumed."""

    started: Callable[[Plan, Run, Collection[Trial]], None] = (
        _ignore  # a run, and its trials that are still missing
    )
    result: Callable[[Result], None] = _ignore  # after it was stored
    message: Callable[[str], None] = _ignore  # a line for the person
    reading: Callable[[str, int, int], None] = (
        _ignore  # an embedded model, tokens of its prompt read, and in all
    )
    estimate: Callable[[CostEstimate], None] = _ignore  # before the first paid call
