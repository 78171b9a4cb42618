"""Test cases that can show a difference: most of them are ones that a student fails without the skill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from upskill.authoring.writing.suite_writer import TooFewCases
from upskill.suites import FAILED_BY, Case

MAX_WRITTEN = 4  # times as many as are wanted
UNASKED_SHARE = 4  # one in four is kept whatever the student says, so that harm can show

Write = Callable[[int, tuple[Case, ...]], Awaitable[tuple[Case, ...]]]  # so many, beside these
Ask = Callable[[tuple[Case, ...]], Awaitable[Collection[str]]]  # the ids of those that fail


@dataclass(frozen=True)
class HardCases:
    kept: tuple[Case, ...]
    written: int
    unasked: int

    def __str__(self) -> str:
        failed = len(self.kept) - self.unasked
        return f"{self.written} written, {failed} that it fails and {self.unasked} unasked are kept"


async def write_hard_cases(write: Write, ask: Ask, count: int, student: str) -> HardCases:
    """Until there are so many, or four times as many are written. Each says whether the student failed it."""
    unasked = -(-count // UNASKED_SHARE)
    written: tuple[Case, ...] = ()
    kept: list[Case] = []
    while len(kept) < count and len(written) < MAX_WRITTEN * count:
        try:
            cases = await write(min(count, MAX_WRITTEN * count - len(written)), written)
        except TooFewCases:
            if not written:
                raise
            break
        if not written:
            kept += cases[:unasked]
        asked = cases[unasked:] if not written else cases
        written += cases
        failing = await ask(asked) if asked else ()
        for case in asked:
            if case.id in failing:
                kept.append(replace(case, metadata={**case.metadata, FAILED_BY: student}))
    return HardCases(tuple(kept[:count]), len(written), min(unasked, len(kept)))
