"""Checks for text that the answer must, or must not, have in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from upskill.checks import Check, Evidence, Finding, Text
from upskill.plain import as_list


def _as_texts(value: object) -> object:
    return [value] if as_list(value) is None else value


def _not_empty(texts: list[str]) -> list[str]:
    if not texts:
        raise ValueError("is an empty list, which decides nothing")
    return texts


Texts = Annotated[list[Text], BeforeValidator(_as_texts), AfterValidator(_not_empty)]


class _Search(Check):
    text: Texts
    ignore_case: bool = True

    def found(self, evidence: Evidence) -> dict[str, bool]:
        answer = evidence.trace.answer
        if self.ignore_case:
            answer = answer.casefold()
            return {text: text.casefold() in answer for text in self.text}
        return {text: text in answer for text in self.text}


class Contains(_Search):
    """Passes when the answer has this text, or every one of these texts, in it."""

    async def look(self, evidence: Evidence) -> Finding:
        lacking = [text for text, there in self.found(evidence).items() if not there]
        if lacking:
            return Finding(False, f"the answer lacks {_and(lacking)}")
        return Finding(True, f"the answer has {_and(self.text)}")


class ContainsAny(_Search):
    """Passes when the answer has at least one of these texts in it."""

    async def look(self, evidence: Evidence) -> Finding:
        there = [text for text, found in self.found(evidence).items() if found]
        if there:
            return Finding(True, f"the answer has {_and(there)}")
        return Finding(False, f"the answer has none of {_and(self.text)}")


class NotContains(_Search):
    """Passes when the answer has none of these texts in it. Says nothing about an empty answer."""

    async def look(self, evidence: Evidence) -> Finding:
        there = [text for text, found in self.found(evidence).items() if found]
        if there:
            return Finding(False, f"the answer has {_and(there)}, which it must not")
        return Finding(True, f"the answer is free of {_and(self.text)}")


def _and(texts: list[str]) -> str:
    return ", ".join(repr(text) for text in texts)
