"""Grounding: whether a line's code, names in backticks, flags, paths and numbers occur in the evidence it cites.

Small models copy these, so teachers must not invent them. An uncovered line goes back to the teacher once, then is
marked as the teacher's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from upskill.authoring.material.material import OWN_KNOWLEDGE, TASK, Material
from upskill.authoring.saving.provenance import Provenance
from upskill.plain import as_list, as_mapping, load_json
from upskill.skills import Skill
from upskill.skills.markdown import read_fences

CODE = re.compile(r"(`+)(.+?)\1")
PLACEHOLDER = re.compile(r"<[^<>\n]{1,40}>|\{\{?\w+\}?\}|\$\{?\w+\}?|…|\.\.\.")
GAP = "…"  # where a placeholder stood
SEPARATORS = re.compile(r"[\s\"'`()\[\]{}<>|;,&=$*?!\\]+")
# In prose.
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
PATH = re.compile(
    r"(?<![\w/.~])(?:~|\.{1,2})?/[\w.@%+-]+(?:/[\w.@%+-]+)*|(?<![\w/])[\w.-]+(?:/[\w.-]+)*/[\w-]+\.\w+"
)
NUMBER = re.compile(r"(?<![\w.-])\d+(?:[.:]\d+)*(?![\w-])")
# Numbers of the skill's own sections and steps: "## 4. Check it", "go to 4", "steps 2 and 3".
OWN_NUMBER = re.compile(
    r"^\s*(?:#+\s+)?\d+[.)]\s+|\b(?:steps?|sections?|go(?: back)? to|see) \d{1,2}(?:(?:,|,? (?:and|or|to)) \d{1,2})*"
    r"(?![\w-]|[.:]\d| \w)|\b(?:steps?|sections?) \d+\b",
    re.IGNORECASE,
)
SYNTAX = re.compile(
    r"if|then|else|elif|fi|for|in|do|done|while|case|esac|function|return|import|from|def|class|with|as|not|and|or|is|"
    r"True|False|None|true|false|null|cd|echo|set|export|source|[A-Z]{1,10}|[a-z]"
)


def uncovered(text: str, evidence: str) -> list[str]:
    """The exact things in a text that the evidence does not have."""
    known = _normal(evidence)
    things = dict.fromkeys(_exact_things(text))
    return [thing for thing in things if not re.search(_pattern(thing), known)]


def _pattern(thing: str) -> str:
    """What stands beside a placeholder is a part of a word; everything else is a whole word. Only a number may have a
    `v` before it or a unit after it: `v0.37.1`, `5s`.
    """
    if NUMBER.fullmatch(thing):
        return rf"(?<![\w-])v?{re.escape(thing)}[^\W\d_]{{0,4}}(?![\w-])"
    before = "" if thing.startswith(GAP) else r"(?<![\w-])"
    after = "" if thing.endswith(GAP) else r"(?![\w-])"
    return before + re.escape(thing.strip(GAP)) + after


def uncovered_by(
    text: str, ids: Iterable[str], material: Material, files: Mapping[str, str] | None = None
) -> list[str]:
    """The same for cited evidence. `files` are the skill's own, which a line may name with what they say."""
    cited = list(ids)
    if OWN_KNOWLEDGE in cited:
        return []
    named = [
        f"{path} ./{path}\n{content}" for path, content in (files or {}).items() if path in text
    ]
    return uncovered(text, "\n".join([evidence_text(cited, material), *named]))


def mark_own_lines(skill: Skill, material: Material) -> Skill:
    """Mark every line that its evidence does not cover as the teacher's own."""
    provenance = Provenance.of(skill)
    files = {
        path: (skill.read(path) or b"").decode("utf-8", errors="replace")
        for path in skill.resources
    }
    own = {
        key: (*ids, OWN_KNOWLEDGE)
        for key, ids in provenance.sources.items()
        for line in [key.rpartition("\n")[2]]
        # Of some pieces only the beginning is known.
        if ids
        and material.ids.issuperset(ids)
        and material.partial.isdisjoint(ids)
        and uncovered_by(line, ids, material, files)
    }
    return provenance.with_sources(own, {}).add_to(skill) if own else skill


def evidence_text(ids: Iterable[str], material: Material) -> str:
    cited = set(ids)
    behind = {name for piece in material.pieces if piece.id in cited for name in piece.based_on}
    texts = [material.task] if TASK in cited else []
    for piece in material.pieces:
        if piece.id in cited | behind:
            texts.append(piece.text)
            with suppress(ValueError):  # of JSON also the values in it, without quotes and escapes
                texts += _leaves(load_json(piece.text))
    return "\n".join(texts)


def _leaves(value: object) -> Iterator[str]:
    if (items := as_list(value)) is not None:
        for item in items:
            yield from _leaves(item)
    elif (fields := as_mapping(value)) is not None:
        for key, item in fields.items():
            yield key
            yield from _leaves(item)
    else:
        yield str(value)


def _exact_things(text: str) -> Iterator[str]:
    for line, kind in read_fences(text.splitlines()):
        if kind == "code":
            yield from _in_code(re.sub(r"(^|\s)#.*", "", line))
        elif kind == "text":
            prose = OWN_NUMBER.sub(" ", line)
            for match in CODE.finditer(prose):
                yield from _in_code(match.group(2))
            prose = _normal(_with_gaps(CODE.sub(" ", prose)))
            for pattern in (FLAG, PATH, NUMBER):
                for match in pattern.finditer(prose):
                    before, after = (
                        GAP if prose[at : at + 1] == GAP else ""
                        for at in (match.start() - 1, match.end())
                    )
                    yield before + match.group().rstrip(".:") + after


def _in_code(code: str) -> Iterator[str]:
    for word in SEPARATORS.split(_normal(_with_gaps(code))):
        thing = word.strip(".:/") if word.strip("./~") else ""
        thing = (
            word.rstrip(".:") if thing and word.startswith(("/", "./", "../", "~/", ".")) else thing
        )
        if re.search(r"\w", thing) and not SYNTAX.fullmatch(thing.strip(GAP)):
            yield thing


def _with_gaps(text: str) -> str:
    """A placeholder ends one word and begins another: `a/<b>/c` says `a…` and `…c`."""
    return re.sub(rf"[.:/]*(?:{PLACEHOLDER.pattern})[.:/]*", f"{GAP} {GAP}", text)


def _normal(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
