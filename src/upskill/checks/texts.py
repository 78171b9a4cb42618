"""Texts and patterns in suites. `re` says what a pattern means; `regex` matches, without the GIL and with a timeout."""

from __future__ import annotations

import asyncio
import re
import time
import warnings
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from upskill.checks import Finding, Text
from upskill.checks.denial import MAX_MENTIONS, is_denied
from upskill.errors import CheckError
from upskill.plain import as_list, quoted

LIMIT = 2.0  # seconds of processor time for a search
MULTILINE = int(regex.MULTILINE)


def as_list_of_texts(value: object) -> object:
    return [value] if as_list(value) is None else value


def not_empty(texts: list[str]) -> list[str]:
    if not texts:
        raise ValueError("an empty list, so it can never fail")
    return texts


def _as_written(value: object) -> object:
    """Whole numbers and booleans as JSON writes them. Of 9.10 nobody could say how it was written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


_ONE: dict[str, Any] = {
    "type": ["string", "number", "boolean"]
}  # in a file; all of them are read as text
_SEVERAL: dict[str, Any] = {"anyOf": [_ONE, {"type": "array", "items": _ONE, "minItems": 1}]}
WrittenText = Annotated[Text, BeforeValidator(_as_written), WithJsonSchema(_ONE)]
Texts = Annotated[
    list[WrittenText],
    BeforeValidator(as_list_of_texts),
    AfterValidator(not_empty),
    WithJsonSchema(_SEVERAL),
]


def enumerate_texts(texts: list[str]) -> str:
    return ", ".join(map(quoted, texts))


def _readings(text: str) -> list[str]:
    """The text as it is, and as a person reads it: continued lines are one line, and bold text is text."""
    joined = re.sub(r"[ \t]*\\\r?\n[ \t]*", " ", text)
    return [*dict.fromkeys((text, re.sub(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*", r"\1", joined)))]


def lacking(
    texts: list[str], content: str, *, ignore_case: bool, asserted: bool = False
) -> list[str]:
    """The texts that the content lacks or, with `asserted`, only denies."""
    if asserted:
        flags = re.IGNORECASE if ignore_case else 0
        return [
            text
            for text in texts
            if all(
                is_denied(reading, *match.span())
                for reading in _readings(content)
                for match in islice(re.finditer(re.escape(text), reading, flags), MAX_MENTIONS)
            )
        ]
    if ignore_case:
        content = content.casefold()
        return [text for text in texts if text.casefold() not in content]
    return [text for text in texts if text not in content]


# What the two packages read differently: an escape, a class, a repetition, or a brace that is none.
_PART = re.compile(
    r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?:\d+(?:,\d*)?|,\d*)\}|\{", re.DOTALL
)


class TooLong(CheckError):
    """The search was given up."""


@lru_cache(maxsize=10_000)
def _compile(pattern: str, flags: int) -> regex.Pattern[str]:
    """The pattern for the matcher; what `re` does not take is an error, so that it means what Python says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `[[` might mean something else one day; it does not today
        re.compile(pattern)
        return regex.compile(_PART.sub(_as_in_python, pattern), flags | regex.VERSION0)


def _as_in_python(part: re.Match[str]) -> str:
    """`x{i}` is three characters after an x and no fuzzy match, `[[:alpha:]]` a class and a bracket."""
    if part[0] == "{":
        return r"\{"
    if part[0][0] != "[":
        return part[0]
    return "[" + re.sub(
        r"\\.|\[",
        lambda match: r"\[" if match[0] == "[" else match[0],
        part[0][1:],
        flags=re.DOTALL,
    )


def compiles(pattern: str) -> str:
    if not pattern:
        raise ValueError("empty, so it can never fail")
    try:
        _compile(pattern, MULTILINE)  # as most searches want it, so that it is done once
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{quoted(pattern)} is not a valid regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(compiles)]


def describe_match(where: str, pattern: str, match: str | None) -> Finding:
    if match is None:
        return Finding(False, f"{where} does not match {quoted(pattern)}")
    found = f" with {quoted(match[:80])}" if match else ""  # a lookahead takes no text
    return Finding(True, f"{where} matches {quoted(pattern)}{found}")


async def find(
    pattern: str,
    text: str,
    *,
    ignore_case: bool = False,
    multiline: bool = True,
    asserted: bool = False,
) -> str | None:
    """The first match or None; with `asserted` one that the text, as it is or as a person reads it, does not deny."""
    flags = int((regex.IGNORECASE if ignore_case else 0) | (MULTILINE if multiline else 0))
    for reading in _readings(text) if asserted else [text]:
        if (
            match := await asyncio.to_thread(search, pattern, reading, flags, asserted=asserted)
        ) is not None:
            return match
    return None


def search(
    pattern: str, text: str, flags: int = 0, limit: float | None = None, *, asserted: bool = False
) -> str | None:
    """The first match; TooLong when this thread works on it for longer than the limit."""
    timeout = limit = LIMIT if limit is None else limit
    while True:
        began = time.thread_time()
        try:
            matches = _compile(pattern, flags).finditer(text, timeout=timeout)
            if asserted:
                matches = (
                    match
                    for match in islice(matches, MAX_MENTIONS)
                    if not is_denied(text, *match.span())
                )
            return next((match[0] for match in matches), None)
        except TimeoutError:
            # Its clock counts what all threads use, and others may be busy.
            if time.thread_time() - began < limit:
                timeout *= 2
                continue
            raise TooLong(
                f"the pattern {quoted(pattern)} ran longer than {LIMIT:g} s; avoid nested repetition such as (a+)+"
            ) from None
        except MemoryError:
            raise TooLong(f"the pattern {quoted(pattern)} used all the memory") from None
