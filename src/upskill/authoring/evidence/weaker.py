"""Weaker: a later success of a command that does less than the run that failed, and so proves and mends nothing.

It skips, forces or narrows (`--skip-slow`, `--force`, `-k one`), leaves out what made it strict, or moves the bar that
it did not reach.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from upskill.authoring.evidence.trace_commands import CommandRun

_SKIPS = re.compile(
    r"--?(?:[a-z]+-)*(?:skip|ignore|force|bypass|override|unsafe|insecure|disable|lenient|relax|loose|exclude|omit|deselect"
    r"|dry-run|simulate|partial|sample|subset|fast|quick|keep-going|warn-only|exit-zero|yolo)(?:ed|d|s)?(?:-.*)?"
    r"|--no-(?:verify|check|test|lint|sign|hook|strict|fail|valid|auth|gpg|ssl|tls|proof|audit|integr|confirm|gate|prompt|edit)[\w-]*"
    r"|-f"
)
_MAY_SKIP = re.compile(r"--?(?:[a-z]+-)*(?:allow|only|continue)(?:-.*)?")  # unless the error asks for it
_STRICT = re.compile(
    r"--?(?:strict|check|verify|deep|full|all|deny|werror|Werror|pedantic|fail-[\w-]+|max-warnings|sign|audit|require[\w-]*)"
)
_CHECKS = re.compile(
    r"\b(?:test|tests|pytest|vitest|jest|lint|vet|tsc|mypy|pyright|eslint|clippy|golangci-lint|ruff|flake8)\b"
)
_CHOOSES = re.compile(r"-run|-k|-t|-g|-m|--filter|--grep|--testNamePattern|--select|--project|-p|--test")
_TOO_LOW = re.compile(r"\b(?:below|under|less than|at least|minimum|lower than|too low|threshold|short of)\b", re.I)
_TOO_HIGH = re.compile(
    r"\b(?:above|over|more than|at most|maximum|higher than|exceed\w*|too (?:high|many|large|big|long))\b", re.I
)
_REFUSES = re.compile(
    r"unknown|unrecogni[sz]ed|no such|unexpected|invalid|unsupported"
    r"|not (?:supported|allowed|possible|valid|known|an?|available)"
    r"|deprecated|cannot be used|can't be used|mutually|removed|conflict|bad|illegal|only works"
    r"|incompatible|does not (?:exist|take)|extra",
    re.I,
)


def is_weaker(worked: CommandRun, attempts: Sequence[CommandRun]) -> bool:
    """Whether a run that worked does less than an earlier attempt at the same command that failed."""
    failed = [run for run in attempts if run.outcome == "failed" and run.order < worked.order]
    told = "\n".join(run.step.output for run in failed)
    return any(_does_less(worked, run, told) for run in failed)


def _does_less(worked: CommandRun, failed: CommandRun, told: str) -> bool:
    new = [word for word in worked.words if word not in failed.words]
    gone = [word for word in failed.words if word not in worked.words]
    options = [word.partition("=")[0] for word in new]
    unasked = [option for option in options if option not in told]
    if any(_SKIPS.fullmatch(option) for option in options) or any(_MAY_SKIP.fullmatch(option) for option in unasked):
        return True
    if any(_STRICT.fullmatch(word.partition("=")[0]) and not refuses_option(failed, word) for word in gone):
        return True
    if _CHECKS.search(failed.subcommand) and not gone and any(_narrows(word) for word in new):
        return True
    return _moves_the_bar(new, gone, failed.error)


def _narrows(word: str) -> bool:
    return not word.startswith("-") or bool(_CHOOSES.fullmatch(word.partition("=")[0]))


def _moves_the_bar(new: list[str], gone: list[str], error: str) -> bool:
    """`--min 70` after "71 is below the minimum 80"."""
    after, before = _numbers(new), _numbers(gone)
    if len(after) != 1 or len(before) != 1:
        return False
    return bool(_TOO_LOW.search(error) if after[0] < before[0] else _TOO_HIGH.search(error))


def _numbers(words: list[str]) -> list[float]:
    found = [re.fullmatch(r"(?:-[\w-]+=)?(\d+(?:\.\d+)?)%?", word) for word in words]
    return [float(match[1]) for match in found if match]


def refuses_option(failed: CommandRun, option: str) -> bool:
    """Whether a failed command said that it does not take this word."""
    name = re.sub(r"^-+|[= ].*", "", option).lower()
    lines = [line for line in failed.step.output.lower().splitlines() if name in line]
    return any(_REFUSES.search(line) for line in lines)
