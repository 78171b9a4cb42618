"""Pattern: a regular expression as a suite may write it, and looking for it within a time limit.

Python's `re` says what a pattern means, the `regex` package does the matching: it lets go of the interpreter while it
works and stops when its time is up. A search that is not over at once goes on in a thread, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import re
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Annotated

import regex
from pydantic import AfterValidator

from upskill.checks.denial import MOST_MENTIONS
from upskill.errors import CheckError
from upskill.plain import quoted

LIMIT = 2.0  # seconds of processor time
MULTILINE = int(regex.MULTILINE)
AT_ONCE = 0.005  # seconds that a search may hold up everything else

# What the two packages read differently: an escape, a class, a repetition, or a brace that is none.
_PART = re.compile(r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?:\d+(?:,\d*)?|,\d*)\}|\{", re.DOTALL)


class TooLong(CheckError):
    """The search was given up."""


def _compile(pattern: str, flags: int) -> regex.Pattern[str]:
    """The pattern for the matcher; what `re` does not take is an error, so that it means what Python says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `[[` might mean something else one day; it does not today
        re.compile(pattern)
        return regex.compile(_PART.sub(_as_in_python, pattern), flags | regex.VERSION0)


_compile_once = lru_cache(maxsize=10_000)(_compile)


def _as_in_python(part: re.Match[str]) -> str:
    """`x{i}` is three characters after an x and no fuzzy match, `[[:alpha:]]` a class and a bracket."""
    if part[0] == "{":
        return r"\{"
    if part[0][0] != "[":
        return part[0]
    return "[" + re.sub(r"\\.|\[", lambda found: r"\[" if found[0] == "[" else found[0], part[0][1:], flags=re.DOTALL)


def compiles(pattern: str) -> str:
    if not pattern:
        raise ValueError("is empty, which decides nothing")
    try:
        _compile_once(pattern, MULTILINE)  # as most searches want it, so that it is done once
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{quoted(pattern)} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(compiles)]


Accept = Callable[[str, int, int], bool]  # whether what a text has at this place counts


async def find(
    pattern: str, text: str, *, ignore_case: bool = False, multiline: bool = True, accept: Accept | None = None
) -> str | None:
    """The first thing that matches and is accepted, None where there is none."""
    flags = int((regex.IGNORECASE if ignore_case else 0) | (MULTILINE if multiline else 0))
    try:
        return _first(pattern, text, flags, AT_ONCE, accept)
    except (TimeoutError, MemoryError):
        return await asyncio.to_thread(search, pattern, text, flags, accept=accept)


def search(
    pattern: str, text: str, flags: int = 0, limit: float | None = None, accept: Accept | None = None
) -> str | None:
    """The first thing that matches and is accepted; TooLong when this thread works on it for longer than the limit."""
    limit = LIMIT if limit is None else limit
    timeout = limit
    while True:
        began = time.thread_time()
        try:
            return _first(pattern, text, flags, timeout, accept)
        except TimeoutError:
            # Its clock counts what all threads use, and others may be busy.
            if time.thread_time() - began < limit:
                timeout *= 2
                continue
            raise TooLong(
                f"the pattern {quoted(pattern)} did not come to an end within {LIMIT:g} s;"
                " write it so that nothing repeated is repeated again"
            ) from None
        except MemoryError:
            raise TooLong(f"the pattern {quoted(pattern)} took all memory") from None


def _first(pattern: str, text: str, flags: int, timeout: float, accept: Accept | None) -> str | None:
    compiled = _compile_once(pattern, flags)
    if accept is None:
        found = compiled.search(text, timeout=timeout)
        return found[0] if found else None
    matches = islice(compiled.finditer(text, timeout=timeout), MOST_MENTIONS)
    return next((found[0] for found in matches if accept(text, *found.span())), None)
