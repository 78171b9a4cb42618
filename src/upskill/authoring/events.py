"""Events of the verbs that make a skill, on top of those of every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from upskill.runs.planning.plan import Plan
from upskill.runs.running.events import Events
from upskill.traces import Step

if TYPE_CHECKING:
    from upskill.authoring.search.comparison import Attempt


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class AuthoringEvents(Events):
    attempt_started: Callable[[int, Plan], None] = (
        _ignore  # its number, and the train trials that measure it
    )
    attempt_ended: Callable[[Attempt], None] = _ignore  # after it was stored
    duel_started: Callable[[Plan], None] = (
        _ignore  # two candidates against each other, on new draws
    )
    replace_edited: Callable[[Path, str], bool] | None = (
        None  # asks whether a skill edited by hand may be replaced
    )
    held_out_started: Callable[[Plan], None] = _ignore  # the last evaluation
    ask: Callable[[str], str] | None = (
        None  # asks a person what the material does not say; "" is no answer
    )
    step: Callable[[Step], None] = _ignore  # of a teacher that does a task
