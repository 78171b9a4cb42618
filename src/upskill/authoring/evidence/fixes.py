"""Fixes: errors in a trace, each with what changed before the same command worked.

A command is the same when its program and subcommand are. Between its failure and its next run lie other words on its
line, edited files, or other commands; what only looks around mends nothing. An error that came back unchanged was not
mended by what was tried before it, and a success that does less than the failure tried (`weaker`) mends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from upskill.authoring.evidence.trace_commands import CommandRun
from upskill.authoring.evidence.trace_files import FileWrite
from upskill.authoring.evidence.weaker import is_weaker, refuses_option

FixKind = Literal["command", "before", "file"]
MAX_STEPS = 80  # between a failure and the success that explains it
MAX_OTHER_WORDS = 8  # words in which two runs of one command differ, where both try the same
# Options that change what is shown and not what is done.
_SHOWS = re.compile(
    r"-v+|-q|-x|-s|-n\d+|--verbose|--quiet|--silent|--no-?color|--color(?:=.*)?|--tb=.*|--ci|--no-pager|--|-k|-rA?|-lf"
    r"|--lf|--maxfail.*|--progress=.*|--reporter.*|--output-on-failure"
)
# Commands that examine something, and their options that choose what.
_CHECKS = re.compile(
    r"\b(?:test|tests|pytest|vitest|jest|lint|vet|tsc|mypy|pyright|eslint|clippy|golangci-lint|ruff|flake8)\b"
)
_CHOOSES = re.compile(r"-run|-k|-t|-g|--filter|--grep|--testNamePattern|-bench|--select|--only|-count\b.*|--project|-p")
_NOT_INSTALLED = re.compile(r"(?:^|[\s:])([\w.-]+): (?:command )?not found$|command not found: ([\w.-]+)")
_EVERYWHERE = frozenset(
    (
        *("error", "errors", "failed", "file", "files", "line", "python", "python3", "install", "package", "packages"),
        *("local", "site", "usr", "lib", "bin", "home", "src", "test", "tests", "from", "with", "node", "modules"),
        *("module", "run", "npm", "the", "and", "for", "not", "version", "name", "command", "path", "main", "index"),
        "build",
    )
)
# What passes by itself: the next attempt works whatever was done in between.
_PASSES = re.compile(
    r"connection (?:reset|refused|closed|timed out|aborted)|\b50[234]\b|service unavailable|bad gateway"
    r"|too many requests|rate limit|temporar|try again|\bECONN\w+|network is unreachable|unexpected EOF"
    r"|broken pipe|\bflaky\b|\b429\b|resource busy",
    re.I,
)
# A line of an output that advises, and an error that says that something is not there.
_ADVISES = re.compile(
    r"\b(?:run|try|use|using|hint|help|please|install|perhaps|did you|first|forg[eo]t|needs?|must|with)\b", re.I
)
_LACKS = re.compile(
    r"\bno\b|\bnot\b|n't\b|missing|cannot find|could not|unknown|unable|stale|out of date|outdated|expired|lacks"
    r"|required?s?\b|needs|un\w{4,}ed\b|inconsistent|conflict",
    re.I,
)
_PREPARES = re.compile(
    r"\b(?:install|sync|init|add|up|update|start|create|mkdir|touch|login|migrate|generate|pull|fetch|open|rm|mv|cp|fix|format)\b"
    r"|fmt\b"
)


@dataclass(frozen=True, slots=True)
class ErrorFix:
    """An error and its fix: another `command`, a command that had to run `before`, or a changed `file`."""

    command: str
    error: str  # the line that says what was wrong
    kind: FixKind
    fix: str  # a command, or the path of a file
    steps: tuple[int, ...]  # the error first
    subcommand: str = ""
    added: tuple[str, ...] = ()  # what the command that worked has and the failed one has not
    dropped: tuple[str, ...] = ()
    folder: str = ""  # where it worked, if it failed elsewhere
    change: tuple[str, str] | None = None  # of a file: the old text and the new one
    written: bool = False  # the whole file was written
    related: bool = True  # False: nothing but the order of things says that this was the fix


def find_fixes(runs: Sequence[CommandRun], writes: Sequence[tuple[int, FileWrite]]) -> Iterator[ErrorFix]:
    """The errors that were mended, in their order, each once."""
    attempts: dict[str, list[CommandRun]] = {}
    for run in runs:
        if run.role == "work" and run.outcome != "unknown" and run.subcommand:
            attempts.setdefault(run.subcommand, []).append(run)
    seen: set[tuple[str, str]] = set()
    found: list[ErrorFix] = []
    for subcommand, tries in attempts.items():
        for place, run in enumerate(tries):
            if run.outcome != "failed" or not run.error or (subcommand, run.error) in seen:
                continue
            later = [other for other in tries[place + 1 :] if other.number - run.number <= MAX_STEPS]
            fix = _find_fix(run, later, runs, writes)
            if fix is not None:
                seen.add((subcommand, run.error))
                found.append(fix)
    yield from sorted(found, key=lambda fix: fix.steps)


def _find_fix(
    run: CommandRun, later: list[CommandRun], runs: Sequence[CommandRun], writes: Sequence[tuple[int, FileWrite]]
) -> ErrorFix | None:
    exact = next((other for other in later if other.outcome == "ok" and _same_line(other, run)), None)
    worked = exact or next(
        (
            other
            for other in later
            if other.outcome == "ok" and _alike(run, other) and not is_weaker(other, [run, *later])
        ),
        None,
    )
    if worked is None:
        return None
    tries = [other for other in later if other.order <= worked.order]
    # Where a run with other words is part of the cure (`db -e "create …"` before `db …`), it is no attempt.
    following = next((other for other in tries if other.outcome == "failed" or other is worked), worked)
    if following.outcome == "failed" and following.error == run.error and following is not worked:
        return None  # what was tried in between did not help; the later failure is looked at by itself
    between = [
        other
        for other in runs
        if run.order < other.order < following.order
        and other.outcome == "ok"
        and other.role in ("work", "files")
        and other.whole
        and not _same_line(other, run)
        and (other.subcommand != run.subcommand or exact is not None)
    ]
    by_sed = [other for other in between if other.words[0] in ("sed", "perl") and len(other.words) > 2]
    between = [other for other in between if other not in by_sed]
    edits = [
        (number, write)
        for number, write in sorted(
            [*writes, *((other.number, FileWrite(other.words[-1], "edit")) for other in by_sed)],
            key=lambda item: item[0],
        )
        if run.number < number < following.number and (not _is_prose(write.path) or _names(run, write.path))
    ]
    if missing := _NOT_INSTALLED.search(run.error):
        name = missing[1] or missing[2]
        between = [other for other in between if any(name in word for word in other.words)]
        return _ran_before(run, between) if between else None
    words = _changed_words(run, following, worked)
    if edits and not any(_names(run, write.path) for _, write in edits) and any(_shared(run, one) for one in between):
        edits = []
    return (
        _other_words(run, worked, words, edits, between)
        or _edited(run, edits)
        or _ran_before(run, between)
        or _other_words(run, worked, words, [], [])
    )


def _same_line(one: CommandRun, two: CommandRun) -> bool:
    return (one.runner, one.words, one.folder) == (two.runner, two.words, two.folder)


def _alike(one: CommandRun, two: CommandRun) -> bool:
    """Whether two runs of one command try the same, so that what differs can be the cure."""
    added, dropped = _difference(one, two), _difference(two, one)
    return len(added) + len(dropped) <= max(MAX_OTHER_WORDS, len(one.words)) and len(added) <= MAX_OTHER_WORDS


def _difference(one: CommandRun, two: CommandRun) -> list[str]:
    """The words that the second run has and the first has not."""
    left = [*one.runner, *one.words]
    new: list[str] = []
    for word in (*two.runner, *two.words):
        if word in left:
            left.remove(word)
        else:
            new.append(word)
    return new


def _changed_words(run: CommandRun, following: CommandRun, worked: CommandRun) -> tuple[list[str], list[str], str]:
    """What is new and what is gone in the run that worked, of what the next attempt changed; and its folder."""
    added, dropped = _difference(run, worked), _difference(worked, run)
    if following is not worked:
        tried = [word.partition("=")[0] for word in _difference(run, following)]
        flags = [word for word in tried if word.startswith("-")]
        kept = [
            word
            for place, word in enumerate(added)
            if word.partition("=")[0] in tried or (place and added[place - 1] in flags and not word.startswith("-"))
        ]
        gone = [word for word in dropped if word in _difference(following, run)]
        added, dropped = (kept, gone) if kept or gone or not tried else (added, dropped)
    folder = following.folder if following.folder != run.folder else ""
    return _that_matter(added, run, worked), _that_matter(dropped, run, run), folder


def _that_matter(words: list[str], run: CommandRun, other: CommandRun) -> list[str]:
    """The changed words without those that change what is shown, or which part is examined."""
    whole = [*other.runner, *other.words]
    checks = bool(_CHECKS.search(run.subcommand))
    kept: list[str] = []
    for word in words:
        before = whole[whole.index(word) - 1] if word in whole else ""
        chooses = checks and (
            not word.startswith("-")
            and (not before.startswith("-") or _CHOOSES.fullmatch(before) or _SHOWS.fullmatch(before))
        )
        if not _SHOWS.fullmatch(word) and "::" not in word and not chooses and not (checks and _CHOOSES.match(word)):
            kept.append(word)
    return kept


def _other_words(
    run: CommandRun,
    worked: CommandRun,
    words: tuple[list[str], list[str], str],
    edits: Sequence[tuple[int, FileWrite]],
    between: Sequence[CommandRun],
) -> ErrorFix | None:
    added, dropped, folder = words
    if not added and not dropped and not folder:
        return None
    told = run.step.output.lower()
    named = any(re.sub(r"^-+|=.*", "", word).lower() in told for word in [*added, *dropped] if word.startswith("-"))
    if edits and not named:
        return None
    if between and not named and not folder and any(_shared(run, other) for other in between):
        return None
    fix = f"cd {worked.folder} && {worked.text}" if folder else worked.text
    shared = named or bool(folder) or any(word.lower() in told for word in [*added, *dropped] if len(word) > 2)
    new, old = list(with_flags(added, worked)), list(with_flags(dropped, run))
    if worked.words[0] in new and run.words[0] in old:  # the program was called in another way; the rest is beside that
        new, old = [worked.words[0]], [run.words[0]]
    same = [part for part in new if part.split()[0] in {gone.split()[0] for gone in old}]
    new = same or new  # another value of an option; what came along is beside that
    about = [part for part in new if _is_told(part, run)]
    # Of several new options those that the error speaks of are the cure; where it speaks of none, nobody knows which.
    options = [part for part in about if part.startswith("-") or re.match(r"[A-Z_]+=", part)]
    unsure = len(new) > 1 and not old and not options
    return ErrorFix(
        *(run.text, run.error, "command", fix, (run.number, worked.number), run.subcommand),
        added=tuple(options if options and not old else new),
        dropped=tuple(old),
        folder=worked.folder if folder else "",
        related=(shared or (not edits and not between))
        and not unsure
        and not (_PASSES.search(run.error) and not about)
        and (bool(new) or bool(folder) or all(refuses_option(run, part) for part in old)),
    )


def _is_told(part: str, run: CommandRun) -> bool:
    """Whether a failed command printed a word of this part of a command line, or one from it: `signed` of `--sign`."""
    told = run.step.output.lower()
    program = run.words[0].rsplit("/", 1)[-1].lower()
    words = [word for word in re.findall(r"[a-z][a-z0-9]{2,}", part.lower()) if word != program]
    return any(re.search(rf"(?<![a-z0-9]){re.escape(word)}", told) for word in words)


def with_flags(words: Sequence[str], run: CommandRun) -> Iterator[str]:
    """Changed words as a person would say them: an option together with its value."""
    whole = [*run.runner, *run.words]
    taken = -1
    for word in words:
        try:
            place = whole.index(word, taken + 1)
        except ValueError:
            continue
        before = whole[place - 1] if place else ""
        after = whole[place + 1] if place + 1 < len(whole) else ""
        if place <= taken:
            continue
        if not word.startswith("-") and before.startswith("-") and "=" not in before and before not in words:
            yield f"{before} {word}"
        elif word.startswith("-") and "=" not in word and after in words and not after.startswith("-"):
            yield f"{word} {after}"
            taken = place + 1
            continue
        else:
            yield word
        taken = place


def _edited(run: CommandRun, edits: Sequence[tuple[int, FileWrite]]) -> ErrorFix | None:
    if not edits:
        return None
    named = [(number, write) for number, write in edits if _names(run, write.path)]
    _, write = (named or list(edits))[-1]
    same = [(n, w) for n, w in edits if w.path == write.path]
    change = write.replacements[0][:2] if len(same) == 1 and len(write.replacements) == 1 else None
    return ErrorFix(
        *(run.text, run.error, "file", write.path, (run.number, *(n for n, _ in same)), run.subcommand),
        change=change,
        written=write.kind == "whole",
        related=bool(named) or len({w.path for _, w in edits}) == 1,
    )


def _names(run: CommandRun, path: str) -> bool:
    """Whether what a failed command printed names a file, with or without its ending."""
    name = path.rsplit("/", 1)[-1]
    stem = name.lstrip(".").partition(".")[0].lower()
    return name in run.step.output or (len(stem) > 3 and stem in run.step.output.lower())


def _is_prose(path: str) -> bool:
    return path.lower().endswith((".md", ".txt", ".rst", ".log"))


def _ran_before(run: CommandRun, between: Sequence[CommandRun]) -> ErrorFix | None:
    if not between:
        return None
    best = max(between, key=lambda other: (_shared(run, other), other.order))
    # What examines the work finds nothing to say after a fix or a preparation, and not after just any command.
    able = not _CHECKS.search(run.subcommand) or bool(_PREPARES.search(best.text))
    prepares = len(between) == 1 and bool(_PREPARES.search(best.subcommand)) and bool(_LACKS.search(run.error))
    return ErrorFix(
        *(run.text, run.error, "before", best.text, (run.number, best.number), run.subcommand),
        related=able and not _PASSES.search(run.error) and (bool(_shared(run, best)) or prepares),
    )


def _shared(run: CommandRun, other: CommandRun) -> int:
    """How many telling words a command shares with the error it may have mended."""
    advice = [line for line in run.step.output[-2000:].splitlines() if _ADVISES.search(line)]
    told = _tokens("\n".join([run.error, *advice]))
    return len((told & _tokens(" ".join(other.words))) - _tokens(" ".join(run.words)) - _EVERYWHERE)


def _tokens(text: str) -> set[str]:
    return set(re.findall(r"[a-z][a-z0-9]{2,}|[a-z][\w@/.-]{4,}", text.lower()))
