"""Pattern: a regular expression as a suite may write it, and looking for it within a time limit."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator

from upskill.checks.time_limit import within_limit


@lru_cache(maxsize=10_000)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `[[` might mean something else one day; it does not today
        return re.compile(pattern, flags)


def _compiles(pattern: str) -> str:
    if not pattern:
        raise ValueError("is empty, which decides nothing")
    try:
        _compile(pattern, 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]


async def find(pattern: str, text: str, *, ignore_case: bool = False, multiline: bool = True) -> str | None:
    """The first thing that matches, None where nothing does."""
    flags = (re.IGNORECASE if ignore_case else 0) | (re.MULTILINE if multiline else 0)
    return await within_limit(f"the pattern {pattern!r}", search, pattern, int(flags), text)


def search(pattern: str, flags: int, text: str) -> str | None:
    found = _compile(pattern, flags).search(text)
    return found[0] if found else None
