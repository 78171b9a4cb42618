"""Checks for the whole answer, or its beginning. Its marks and quotes do not count, unless a suite says so."""

from __future__ import annotations

import re
import unicodedata
from typing import ClassVar

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import Texts, WrittenText, enumerate_texts
from upskill.plain import quoted

_FENCE = re.compile(r"^```[^\n`]*\n(.*?)\n?```$", re.DOTALL)
_QUOTES = str.maketrans("‘’‚‛“”„‟«»", '\'\'\'\'""""""')
_AROUND = "\"'*_ \n\t"  # emphasis and quotes


def normalize(text: str, *, ignore_case: bool = True) -> str:
    """A text without what says nothing: white space, code marks, emphasis, quotes around it and a period at its end."""
    plain = unicodedata.normalize("NFKC", text).strip()
    if fenced := _FENCE.match(plain):
        plain = fenced[1]
    plain = " ".join(plain.translate(_QUOTES).replace("`", "").replace("**", "").split())
    plain = re.sub(r"^(?:[-*>•+] )+", "", plain)  # marks of a list or a quotation
    while plain != (inner := _without_period(plain).strip(_AROUND)):
        plain = inner
    return plain.casefold() if ignore_case else plain


def _without_period(text: str) -> str:
    return text[:-1] if text.endswith((".", "。", "!")) and not text.endswith("..") else text


class Equals(Check):
    """Passes when the answer is this text, or one of these texts. Case, white space, quotes and code marks around it,
    emphasis and a period at its end do not count; with `exact` all but the white space around it does, and with
    `ignore_case: false` case does."""

    text: Texts
    ignore_case: bool = True
    exact: bool = False
    revision: ClassVar[int] = 1  # every character counted once

    async def run(self, evidence: Evidence) -> Finding:
        same = any(self._is(evidence.answer, text) for text in self.text)
        return Finding(same, f"the answer {'is' if same else 'is not'} {enumerate_texts(self.text)}")

    def _is(self, answer: str, text: str) -> bool:
        expected = normalize(text, ignore_case=self.ignore_case)
        if self.exact or not expected:  # a text of nothing but marks is meant as it is
            return answer.strip() == text.strip()
        return normalize(answer, ignore_case=self.ignore_case) == expected


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
        return Finding(starts, f"the answer {'starts' if starts else 'does not start'} with {quoted(self.text)}")
