"""Texts: one text or a list of them, as a suite may write it."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from upskill.checks import Text
from upskill.checks.denial import MOST_MENTIONS, is_asserted
from upskill.plain import as_list, quoted


def as_texts(value: object) -> object:
    return [value] if as_list(value) is None else value


def _not_empty(texts: list[str]) -> list[str]:
    if not texts:
        raise ValueError("is an empty list, which decides nothing")
    return texts


def _as_written(value: object) -> object:
    """Whole numbers and booleans as JSON writes them. Of 9.10 nobody could say how it was written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


_ONE: dict[str, Any] = {"type": ["string", "number", "boolean"]}  # in a file; all of them are read as text
_SEVERAL: dict[str, Any] = {"anyOf": [_ONE, {"type": "array", "items": _ONE, "minItems": 1}]}
WrittenText = Annotated[Text, BeforeValidator(_as_written), WithJsonSchema(_ONE)]
Texts = Annotated[list[WrittenText], BeforeValidator(as_texts), AfterValidator(_not_empty), WithJsonSchema(_SEVERAL)]


def enumerate_texts(texts: list[str]) -> str:
    return ", ".join(map(quoted, texts))


def lacking(texts: list[str], content: str, *, ignore_case: bool, asserted: bool = False) -> list[str]:
    """Which of these texts the content does not have; with `asserted`, or has only where it denies them."""
    if asserted:
        return [text for text in texts if not _is_asserted(text, content, ignore_case=ignore_case)]
    if ignore_case:
        content = content.casefold()
        return [text for text in texts if text.casefold() not in content]
    return [text for text in texts if text not in content]


def _is_asserted(text: str, content: str, *, ignore_case: bool) -> bool:
    found = re.finditer(re.escape(text), content, re.IGNORECASE if ignore_case else 0)
    return any(is_asserted(content, *match.span()) for match in islice(found, MOST_MENTIONS))
