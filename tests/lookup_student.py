"""A student that only looks things up: it answers with the line of its prompt that shares most rare words."""

from __future__ import annotations

import re
from collections import Counter

IGNORANT = "I do not know."


def look_up(skill: str, question: str) -> str:
    """The line of the skill that answers best; without a skill, or where no line fits, it does not know."""
    lines = [
        line.strip("-* ") for line in skill.splitlines() if line.strip().startswith(("-", "*"))
    ]
    words = [_words(line) for line in lines]
    known = Counter(word for line in words for word in line)  # in how many lines each word is
    asked = _words(question)
    scores = [sum(1 / known[word] for word in line & asked) for line in words]
    best = max(range(len(lines)), key=scores.__getitem__, default=None)
    return IGNORANT if best is None or not scores[best] else lines[best]


def _words(text: str) -> set[str]:
    """Words without their endings, so that `pushed` meets `push`."""
    return {
        re.sub(r"(ing|ed|es|s)$", "", word)
        for word in re.findall(r"[a-z0-9]+", text.lower())
        if len(word) > 2
    }
