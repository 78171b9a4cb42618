"""Secrets in a tool's arguments that their neighbours give away: a flag before them, or a field that names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from upskill.traces.redaction.secret_contexts import ABOUT, FLAGS, NAME, SECRET_NAME, kind_of_name
from upskill.traces.redaction.secret_rules import MARK, matched_spans

MAX_ITEM = 1000  # letters; what is longer is a script, which is looked at by itself
MAX_VALUE = 200  # what is longer is no password
NAMING = ("name", "key", "element", "selector", "field", "label", "variable")
NAMED = ("value", "text")
_ODD = re.compile(r"[\n\"'`\\]")  # would end a value in a line, and is part of it here
_FLAG = re.compile(r"--?[\w-]+=|-\w(?=.)|")
_ABOUT = ABOUT.replace("field|label|", "")  # of a page, both hold it
# "#password", "Password field", "input[name=db_password]"; `SECRET_NAME` knows a name that is nothing else.
_MENTION = re.compile(
    rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{NAME})(?![ _-]?(?i:{_ABOUT}))(?=[^A-Za-z]|$|Input|Field|Box)"
)


def names_of_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """What `value` and `text` are the value of, where a field beside them names a secret."""
    names = [
        kind_of_name(name)
        for field, name in fields.items()
        if field.lower() in NAMING and isinstance(name, str) and len(name) <= MAX_ITEM
        if SECRET_NAME.search(name) or _MENTION.search(name)
    ]
    return {
        field: names[0]
        for field, value in fields.items()
        if names and field.lower() in NAMED and isinstance(value, str) and len(value) <= MAX_VALUE and "\n" not in value
    }


def flag_spans(items: Sequence[Any]) -> Iterator[tuple[int, tuple[int, int], str]]:
    """Where a list holds secrets when it is read as a command line: which item, where in it, and the kind."""
    number, done = -1, 0
    for (item, start), end, kind in sorted(_found(items), key=lambda one: (one[0], -one[1])):
        if item != number or start >= done:  # of those that overlap, the longest
            yield item, (start, end), kind
            number, done = item, end


def _found(items: Sequence[Any]) -> Iterator[tuple[tuple[int, int], int, str]]:
    for quote in ("", '"'):
        line, origin = _command_line(items, quote)
        lowered = line.lower()
        for rule in FLAGS:
            if rule.hints and not any(hint in lowered for hint in rule.hints):
                continue
            for found in rule.pattern.finditer(line):
                for start, end in matched_spans(found):
                    first, last = origin[start], origin[end - 1]
                    value = line[start:end]
                    if first[0] != last[0] or MARK.rstrip() in value or (rule.is_secret and not rule.is_secret(value)):
                        continue
                    yield first, last[1] + 1, rule.kind


def _command_line(items: Sequence[Any], quote: str) -> tuple[str, list[tuple[int, int]]]:
    """The items in one line, and which item each letter is from, and where in it."""
    pieces: list[str] = []
    origin: list[tuple[int, int]] = []
    for number, item in enumerate(items):
        text = _ODD.sub("’", item) if isinstance(item, str) and len(item) <= MAX_ITEM else "…"
        flag = _FLAG.match(text)
        begin = flag.end() if flag else 0
        mark = quote if begin < len(text) and not text[begin:].startswith("-") else ""
        pieces += [" ", text[:begin], mark, text[begin:], mark]
        origin += [(-1, -1), *((number, at) for at in range(begin)), *([(-1, -1)] * len(mark))]
        origin += [*((number, at) for at in range(begin, len(text))), *([(-1, -1)] * len(mark))]
    return "".join(pieces), origin
