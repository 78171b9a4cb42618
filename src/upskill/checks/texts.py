"""Texts and patterns in suites."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from upskill.checks import Finding, Text
from upskill.errors import CheckError
from upskill.plain import as_list, quoted
from upskill.worker import work


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


def lacking(texts: list[str], content: str, *, ignore_case: bool) -> list[str]:
    """The texts that are not in the content."""
    if ignore_case:
        content = content.casefold()
        return [text for text in texts if text.casefold() not in content]
    return [text for text in texts if text not in content]


_FENCE = re.compile(r"^([ \t]*+)(`{3,}|~{3,})[ \t]*([^\s`{]*)")
_ITEM = re.compile(r"^[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]")


def blocks(answer: str) -> Iterator[tuple[str, str]]:
    """Every fenced block as in CommonMark: its language in lower case, and its text."""
    indent, fence, language, lines = "", "", "", list[str]()
    in_list = False
    for line in re.split(r"\r\n?|\n", answer.removeprefix("\ufeff")):
        mark = _FENCE.match(line)
        if not fence:
            if mark and (in_list or len(mark[1].expandtabs(4)) < 4):
                indent, fence, language, lines = mark[1], mark[2], mark[3].casefold(), []
            elif line[:1].strip() or _ITEM.match(line):
                in_list = _ITEM.match(line) is not None
        elif (
            mark
            and mark[2].startswith(fence)
            and not line.strip().strip(fence[0])
            and len(mark[1]) <= len(indent) + 3
        ):
            yield language, _joined(lines)
            fence = ""
        else:
            lines.append(line.removeprefix(indent))
    if (
        fence
    ):  # never closed: it holds everything, or as much as comes before the same marks behind code
        number = next(
            (number for number, line in enumerate(lines) if line.rstrip().endswith(fence)), None
        )
        if number is not None:
            lines = [*lines[:number], lines[number].rstrip().removesuffix(fence)]
        yield language, _joined(lines)


def whole_answers(answer: str) -> list[str]:
    """What counts as the answer where an explanation may stand before it: all of it, its last line, its only code."""
    candidates = [answer, answer.strip().rpartition("\n")[2]]
    codes = [code for _, code in blocks(answer)]
    if len(codes) == 1:
        candidates += codes
    return candidates


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def compiles(pattern: str) -> str:
    if not pattern:
        raise ValueError("empty, so it can never fail")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `[[` may mean something else one day
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{quoted(pattern)} is not a valid regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(compiles)]


def describe_match(where: str, pattern: str, match: str | None) -> Finding:
    if match is None:
        return Finding(False, f"{where} does not match {quoted(pattern)}")
    found = f" with {quoted(match[:80])}" if match else ""  # a lookahead takes no text
    return Finding(True, f"{where} matches {quoted(pattern)}{found}")


async def find(
    pattern: str, text: str, *, ignore_case: bool = False, multiline: bool = True
) -> str | None:
    """The first match or None."""
    flags = (re.IGNORECASE if ignore_case else 0) | (re.MULTILINE if multiline else 0)
    try:
        return await work(search, pattern, text, int(flags))
    except TimeoutError as error:
        raise CheckError(
            f"the pattern {quoted(pattern)} ran {error}; avoid nested repetition such as (a+)+"
        ) from None


def search(pattern: str, text: str, flags: int) -> str | None:
    match = re.search(pattern, text, flags)
    return match[0] if match else None
