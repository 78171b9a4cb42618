"""Cures: what to do about an error, as the end of a sentence, where that is sure."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from upskill.authoring.evidence.fixes import ErrorFix
from upskill.authoring.evidence.placeholders import is_relative, portable, quotable

MAX_COMMAND = 160  # characters of a command that fits into a sentence
SETTINGS_FILES = (".toml", ".ini", ".cfg", ".conf", ".env", ".yaml", ".yml", ".json", ".properties")
CODE_FILES = re.compile(
    r"\.(?:py|pyi|ipynb|[cm]?[jt]sx?|rs|go|java|kt|scala|c|h|cc|cpp|hpp|cs|rb|php|swift|m|lua|pl|r|jl|ex|exs|hs|ml|css"
    r"|scss|html?|vue|svelte|sql|sh|bash|zsh|ps1|proto|graphql|tex|dart|zig)$",
    re.I,
)


def cure_of(fix: ErrorFix, template: str, cwd: str = "") -> tuple[str, str] | None:
    """What to do, as the end of a sentence, and the words in it that matter; None where that is not clear."""
    if fix.kind == "before":
        first = portable(fix.fix, cwd)
        return (f"run `{first}` first", first) if quotable(first) and len(first) <= MAX_COMMAND else None
    if fix.kind == "file":
        return _cure_in_file(fix)
    if fix.folder:
        return (f"run it in `{fix.folder}`", fix.folder) if quotable(fix.folder) and is_relative(fix.folder) else None
    new, old = tuple(portable(part, cwd) for part in fix.added), tuple(portable(part, cwd) for part in fix.dropped)
    if not quotable(*new, *old) or len(new) > 3 or len(old) > 2 or new == old:
        return None
    added = " ".join(new)
    if new and old:
        return (f"use `{added}` instead of `{' '.join(old)}`", added) if _replaces(fix) else None
    if new:
        # A value that varied later is no part of the cure.
        parts = [re.sub(r"\s.*", "", part) for part in new]
        varied = [re.search(rf"{re.escape(part)} (<[\w-]+>)", template) for part in parts]
        added = " ".join(
            f"{part} {found[1]}" if found else whole for part, found, whole in zip(parts, varied, new, strict=True)
        )
        verb = "set" if re.match(r"[A-Z_]+=", new[0]) else "run it with" if new[0] in ("sudo", "uv") else "add"
        return f"{verb} `{added}`", added
    return f"leave out `{' '.join(old)}`", " ".join(old)


def _replaces(fix: ErrorFix) -> bool:
    """Whether the new words stand in for the old ones, and are not just another thing to work on."""
    old, new = " ".join(fix.dropped), " ".join(fix.added)
    return (
        any(word.lstrip("-") in fix.error for word in old.split())
        or old.split()[0] == new.split()[0]
        or all(part.startswith("-") for part in (*fix.dropped, *fix.added))
        or SequenceMatcher(None, old, new).ratio() >= 0.6
    )


def _cure_in_file(fix: ErrorFix) -> tuple[str, str] | None:
    name = PurePosixPath(fix.fix).name
    path = fix.fix if not fix.fix.startswith(("/", "~")) else name
    if CODE_FILES.search(name) or not quotable(path):
        return None  # code that was mended is mended
    if fix.change is not None:
        old, new = (_about(_changed_part(*sides), fix.error) for sides in (fix.change, (fix.change[1], fix.change[0])))
        if old and new and quotable(old, new) and len(old) + len(new) <= MAX_COMMAND:
            return f"in `{path}`, change `{old}` to `{new}`", new
        if new and quotable(new) and len(new) <= MAX_COMMAND and not old:
            return f"add `{new}` to `{path}`", new
    stem, message = name.lstrip(".").partition(".")[0].lower(), bare_message(fix.error, fix.subcommand)
    named = name in message or (len(stem) > 3 and stem in message.lower())
    if not named or (fix.written and not name.endswith(SETTINGS_FILES)):
        return None  # that a missing file has to be written goes without saying, unless it is told what is in it
    return f"{'write' if fix.written else 'edit'} `{path}`", path


def _about(lines: list[str], error: str) -> str:
    """The lines of a change, or of several those that the error speaks of."""
    told = error.lower()
    named = [line for line in lines if any(word in told for word in re.findall(r"[a-z]\w{3,}", line.lower()))]
    return "\n".join(named if len(lines) > 1 and len(named) == 1 else lines)


def _changed_part(text: str, other: str) -> list[str]:
    """The lines of an edit that the other side has not."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return [line for line in lines if line not in {" ".join(line.split()) for line in other.splitlines()}]


def bare_message(error: str, subcommand: str) -> str:
    """An error message without the program's name in front and the advice at its end."""
    message = re.sub(r"^(?:[^\w\-\"'(\[./~]+|\S+ error=)+", "", " ".join(error.split()))
    message = re.sub(r"^(?:E {1,3}|! |npm (?:ERR!|error) |thread .{0,40}panicked at \S+ )", "", message)
    message = re.sub(
        r"^/?(?:usr/)?(?:bin/)?(?:ba|z)?sh: (?:(?:line )?\d+: )?|^\S*\(?\d+[:,]\d+\)?:? +(?:error +)?", "", message
    )
    message = re.sub(r"^(?:[a-z_]\w*\.)+[A-Z]\w+: ", "", message)
    message = re.sub(rf"^{re.escape(subcommand)}:\s*", "", message)
    for word in subcommand.split():
        message = re.sub(rf"^{re.escape(word)}:\s*", "", message)
    message = re.sub(r"^(?:[\w.]*error|fatal)\b(?: TS\d+)?(?::\s*| - )", "", message, flags=re.I)
    for word in subcommand.split():
        message = re.sub(rf"^{re.escape(word)}:\s*", "", message)
    message = re.split(r"\s*;\s|\s+\((?=use |run |try |no |hint|--|see )|(?<=\w)\.\s", message)[0].strip()
    message = re.sub(r"(?<=\S)[.:,]+$", "", message)
    return message.replace('"', "'").replace("`", "'")
