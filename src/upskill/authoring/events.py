"""Events of the verbs that make a skill, on top of those of every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from upskill.runs.running.events import Events
from upskill.traces import Step


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class AuthoringEvents(Events):
    replace_edited: Callable[[Path, str], bool] | None = (
        None  # asks whether a skill edited by hand may be replaced
    )
    ask: Callable[[str], str] | None = (
        None  # asks a person what the material does not say; "" is no answer
    )
    step: Callable[[Step], None] = _ignore  # of a teacher that does a task
