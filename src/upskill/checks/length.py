"""Checks for how long the answer is, in characters."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from upskill.checks import Check, Evidence, Finding

WORDS_IN_A_ROW = 6  # that an answer and a skill have in common by recital, not by chance
RECITED = 0.5  # share of a skill that makes an answer a recital


class MinLength(Check):
    """Passes when the answer has at least this many characters, white space around it not counted."""

    characters: int = Field(ge=1)

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        return Finding(
            length >= self.characters, f"the answer has {length} characters, at least {self.characters} wanted"
        )


class MaxLength(Check):
    """Says of an answer with more than this many characters that it is verbose, which changes no outcome. It fails one
    that also recites half of the skill, and with `brief`, where brevity is the task, every longer one."""

    characters: int = Field(ge=1)
    brief: bool = False
    revision: ClassVar[int] = 1  # a longer answer had failed once

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        said = f"the answer has {length} characters, at most {self.characters} wanted"
        if length <= self.characters or self.brief:
            return Finding(length <= self.characters, said)
        if recites(evidence.answer, evidence.skill_body):
            return Finding(False, f"{said}, and it recites the skill")
        return Finding(False, f"verbose: {said}", decides=False)


def recites(answer: str, skill: str) -> bool:
    """Whether an answer repeats at least half of a skill word by word."""
    wanted, said = _runs(skill), _runs(answer)
    return bool(wanted) and len(wanted & said) >= RECITED * len(wanted)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    size = min(WORDS_IN_A_ROW, len(words))
    return {tuple(words[place : place + size]) for place in range(len(words) - size + 1)} if words else set()
