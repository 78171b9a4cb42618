"""A placebo is a skill of the same form and length that says nothing: it shows what length alone is worth.

Headings, lists and code blocks stay what they are, and every line keeps its length; only the words are replaced, by
words about good work in general. The same skill always gives the same placebo.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

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
    """The same skill with its body emptied of content, and without its other files."""
    words = _words(skill.visible_hash)
    lines: list[str] = []
    for line, kind in read_fences(skill.body.split("\n")):
        if kind == "fence":
            lines.append(line)
        elif kind == "code":
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(indent + _fill(f"# {line.strip()}"[: len(line.strip())], words) if line.strip() else line)
        else:
            found = _PREFIX.match(line)
            assert found is not None
            lines.append(found[1] + _fill(found[2], words))
    body = "\n".join(lines)
    manifest = next(file for file in skill.with_body(body).files if file.path.lower() == "skill.md")
    return Skill(skill.name, skill.description, body, skill.frontmatter, (manifest,), skill.folder)


def _words(seed: str) -> Iterator[str]:
    """The filler words over and over, starting at a word that depends on the skill."""
    start = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) % len(FILLER_WORDS)
    while True:
        yield FILLER_WORDS[start]
        start = (start + 1) % len(FILLER_WORDS)


def _fill(text: str, words: Iterator[str]) -> str:
    """Filler words of the same length as a text, in bytes."""
    length = len(text.encode())
    if not text.strip():
        return text
    chosen: list[str] = []
    used = 0
    while used < length:
        word = next(words)
        chosen.append(word)
        used += len(word) + 1
    line = " ".join(chosen)
    line = line[:1].upper() + line[1:] if text[:1].isupper() else line
    return line[: max(length, 1)].rstrip() + ("." if text.rstrip().endswith(".") else "")
