"""Files that a skill's instructions send a reader to, and that the skill does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import normpath
from urllib.parse import unquote

from upskill.skills.hidden_text import blank_code

# In the folders of the specification: what is named there is meant to be in the skill, inside a command, too.
_NAMED = re.compile(
    r"(?<![\w/.~$}>@%*-])(?:\./)?(?P<path>(?:scripts|references|assets)/[\w./-]*\w\.[A-Za-z]\w*)(?![\w/*{<])"
)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<path>[^()\s<>]+)\)")
_ELSEWHERE = re.compile(r"[A-Za-z][\w+.-]*:|[/#~]|.*[{}$*<>|\\…]|.*\.\.\.")  # addresses, anchors, patterns
MAX_SHOWN = 5


def missing_files(body: str, paths: Iterable[str]) -> list[str]:
    """The files that a body links to, or names in the usual folders, and that are not among these paths."""
    there = set(paths)
    folders = {path[: slash.start()] for path in there for slash in re.finditer("/", path)}
    return [path for path in _mentioned_files(body) if path not in there and path not in folders]


def _mentioned_files(body: str) -> Iterator[str]:
    links = (unquote(found["path"].partition("#")[0]) for found in _LINK.finditer(blank_code(body)))
    named = (found["path"] for found in _NAMED.finditer(body))
    paths = [*(path for path in links if path and not _ELSEWHERE.match(path) and "." in path), *named]
    yield from dict.fromkeys(path for path in map(normpath, paths) if not path.startswith(".."))


def describe_missing(paths: list[str]) -> str:
    """One line for all of them."""
    more = f" and {len(paths) - MAX_SHOWN} more" if len(paths) > MAX_SHOWN else ""
    some = ", ".join(paths[:MAX_SHOWN]) + more
    return f"the instructions name {some}, and the skill has no such file{'s' if len(paths) > 1 else ''}"
