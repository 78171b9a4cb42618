"""Checks of the answer's text."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import (
    Pattern,
    Texts,
    WrittenText,
    describe_match,
    enumerate_texts,
    find,
    lacking,
    whole_answers,
)
from upskill.plain import normal_form, quoted

_FENCE = re.compile(r"^(```|~~~)[^\n`]*\n(.*?)\n?\1$", re.DOTALL)
_QUOTES = str.maketrans("‘’‚‛“”„‟«»", '\'\'\'\'""""""')
_AROUND = "\"'*_ \n\t"  # emphasis and quotes
WORDS_IN_A_ROW = 6  # that an answer and a skill have in common by recital, not by chance
RECITED = 0.5  # share of a skill that makes an answer a recital


class _Search(Check):
    text: Texts
    ignore_case: bool = True

    def absent(self, evidence: Evidence) -> list[str]:
        return lacking(self.text, evidence.answer, ignore_case=self.ignore_case)

    def present(self, evidence: Evidence) -> list[str]:
        absent = self.absent(evidence)
        return [text for text in self.text if text not in absent]


class Contains(_Search):
    """Passes when the answer has this text, or every one of these texts, in it, whatever it says of them."""

    async def run(self, evidence: Evidence) -> Finding:
        if absent := self.absent(evidence):
            return Finding(False, f"the answer lacks {enumerate_texts(absent)}")
        return Finding(True, f"the answer has {enumerate_texts(self.text)}")


class ContainsAny(_Search):
    """Passes when the answer has at least one of these texts in it."""

    async def run(self, evidence: Evidence) -> Finding:
        if present := self.present(evidence):
            return Finding(True, f"the answer has {enumerate_texts(present)}")
        return Finding(False, f"the answer has none of {enumerate_texts(self.text)}")


class NotContains(_Search):
    """Passes when the answer has none of these texts in it. Says nothing about an empty answer."""

    async def run(self, evidence: Evidence) -> Finding:
        if present := self.present(evidence):
            return Finding(
                False, f"the answer contains {enumerate_texts(present)}, which it must not"
            )
        return Finding(True, f"the answer does not contain {enumerate_texts(self.text)}")


class Regex(Check):
    """Passes when this regular expression is found in the answer. Case counts unless `ignore_case` is true."""

    pattern: Pattern
    ignore_case: bool = False
    multiline: bool = True

    async def run(self, evidence: Evidence) -> Finding:
        match = await find(
            self.pattern,
            evidence.answer,
            ignore_case=self.ignore_case,
            multiline=self.multiline,
        )
        return describe_match("the answer", self.pattern, match)


class NotRegex(Regex):
    """Passes when this regular expression is nowhere in the answer."""

    async def run(self, evidence: Evidence) -> Finding:
        matches = await super().run(evidence)
        return Finding(
            not matches.passed, matches.reason + (", which it must not" if matches.passed else "")
        )


def normalize(text: str, *, ignore_case: bool = True) -> str:
    """Drops white space, code marks, emphasis, surrounding quotes and a final period."""
    plain = normal_form(text).strip()
    if fenced := _FENCE.match(plain):
        plain = fenced[2]
    plain = " ".join(plain.translate(_QUOTES).replace("`", "").replace("**", "").split())
    plain = re.sub(r"^(?:[-*>•+] )+", "", plain)  # marks of a list or a quotation
    plain = plain.lstrip(_AROUND)
    end = len(plain)
    while end and (plain[end - 1] in _AROUND or _is_final_period(plain, end)):
        end -= 1
    return plain[:end].casefold() if ignore_case else plain[:end]


def _is_final_period(text: str, end: int) -> bool:
    return text[end - 1] in ".。!" and not text.endswith("..", 0, end)


class Equals(Check):
    """Passes when the answer is this text, or one of these texts, or when its last line or its only code block is; an
    explanation may stand before them. Case, white space, quotes and code marks around it,
    emphasis and a period at its end do not count; with `exact` all but the white space around it does, and with
    `ignore_case: false` case does."""

    text: Texts
    ignore_case: bool = True
    exact: bool = False
    revision: ClassVar[int] = 1  # every character counted once

    async def run(self, evidence: Evidence) -> Finding:
        same = any(self._is(evidence.answer, text) for text in self.text)
        one_of = "one of " if len(self.text) > 1 else ""
        return Finding(
            same, f"the answer {'is' if same else 'is not'} {one_of}{enumerate_texts(self.text)}"
        )

    def _is(self, answer: str, text: str) -> bool:
        expected = normalize(text, ignore_case=self.ignore_case)
        if self.exact or not expected:  # a text of nothing but marks is meant as it is
            return answer.strip() == text.strip()
        return any(
            normalize(each, ignore_case=self.ignore_case) == expected
            for each in whole_answers(answer)
        )


class StartsWith(Check):
    """Passes when the answer begins with this text; white space, quotes, code marks and emphasis before it do not
    count, and neither does case unless `ignore_case` is false. With `exact` all but the white space does."""

    text: WrittenText
    ignore_case: bool = True
    exact: bool = False
    revision: ClassVar[int] = 1  # every character counted once

    async def run(self, evidence: Evidence) -> Finding:
        answer, text = evidence.answer.lstrip(), self.text.lstrip()
        if not self.exact:
            marks = _AROUND + "`“‘«"
            answer, text = answer.lstrip(marks), text.lstrip(marks) or text
            if self.ignore_case:
                answer, text = answer.casefold(), text.casefold()
        starts = answer.startswith(text)
        return Finding(
            starts,
            f"the answer {'starts' if starts else 'does not start'} with {quoted(self.text)}",
        )


class MinLength(Check):
    """Passes when the answer has at least this many characters, white space around it not counted."""

    characters: int = Field(ge=1)

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        reason = f"the answer has {length} characters; it needs at least {self.characters}"
        return Finding(length >= self.characters, reason)


class MaxLength(Check):
    """Says of an answer with more than this many characters that it is verbose, which changes no outcome. It fails one
    that also recites half of the skill, and with `brief`, where brevity is the task, every longer one."""

    characters: int = Field(ge=1)
    brief: bool = False
    revision: ClassVar[int] = 1  # a longer answer had failed once

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        if self.brief:
            reason = f"the answer has {length} characters; it may have at most {self.characters}"
            return Finding(length <= self.characters, reason)
        if length <= self.characters:
            return Finding(
                True,
                f"the answer has {length} characters; more than {self.characters} would be verbose",
            )
        reason = f"the answer has {length} characters, more than {self.characters}"
        skill = _word_runs(evidence.skill_body)
        if skill and len(skill & _word_runs(evidence.answer)) >= RECITED * len(skill):
            return Finding(False, f"{reason}, and it recites the skill")
        return Finding(False, f"verbose: {reason}", decides=False)


def _word_runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    size = min(WORDS_IN_A_ROW, len(words))
    return (
        {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}
        if words
        else set()
    )
