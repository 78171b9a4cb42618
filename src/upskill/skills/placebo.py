"""A placebo keeps the form and length of each line and replaces its words: it shows what length alone is worth."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import cycle

from upskill.skills.markdown import read_fences
from upskill.skills.skill import Skill

# Common words without any fact, name, number or command.
_TEXT = """
work carefully and keep the result clear for everyone who reads it later when something changes
take time to think about what matters most before going on with the next part of the task
good practice is to stay calm and to look at each point from more than one side
this section describes general ideas that may be helpful in many situations of daily work
it is often useful to write down what was done and why it was done in that way
"""
FILLER_WORDS = re.findall(r"\w+", _TEXT)
_PREFIX = re.compile(r"^(\s*(?:#{1,6}\s+|[-*+]\s+|\d+[.)]\s+|>\s+|\|\s*)*)(.*)$")


def placebo(skill: Skill) -> Skill:
    """The same skill always gives the same placebo."""
    start = int(hashlib.sha256(skill.visible_hash.encode()).hexdigest()[:8], 16) % len(FILLER_WORDS)
    fillers = cycle(FILLER_WORDS[start:] + FILLER_WORDS[:start])
    lines: list[str] = []
    for line, kind in read_fences(skill.body.split("\n")):
        if kind == "fence":
            lines.append(line)
        elif kind == "code":
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(
                indent + _fill(f"# {line.strip()}"[: len(line.strip())], fillers)
                if line.strip()
                else line
            )
        else:
            prefix = _PREFIX.match(line)
            assert prefix is not None
            lines.append(prefix[1] + _fill(prefix[2], fillers))
    body = "\n".join(lines)
    manifest = next(file for file in skill.with_body(body).files if file.path.lower() == "skill.md")
    return Skill(skill.name, skill.description, body, skill.frontmatter, (manifest,), skill.folder)


def _fill(text: str, fillers: Iterator[str]) -> str:
    """Filler words of the same length as a text, in bytes."""
    if not text.strip():
        return text
    length, line = len(text.encode()), ""
    while len(line) < length:
        line += f"{next(fillers)} "
    line = line[:1].upper() + line[1:] if text[:1].isupper() else line
    return line[:length].rstrip() + ("." if text.rstrip().endswith(".") else "")
