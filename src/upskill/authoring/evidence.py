"""Evidence: what a trace has to teach, as typed items that each cite the steps they come from (counted from 1).

The goal, errors and what mended them, corrections by the person, commands that worked, the files that were left
behind, helpers that were run again, and the cost. Found by rules, without a model; the text of a trace is quoted
here and never obeyed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Any, Literal

from upskill.plain import as_list, as_mapping
from upskill.traces import Step, Trace, Usage

# Programs that everyone knows, and that mostly look around: nothing to learn from their success.
INSPECTION_PROGRAMS = frozenset(
    (
        *("ls", "cat", "pwd", "cd", "echo", "head", "tail", "wc", "grep", "rg", "find", "mkdir", "sed", "awk", "sort"),
        *("uniq", "tree", "stat", "file", "which", "type", "env", "printenv", "printf", "true", "sleep", "date", "du"),
        *("whoami", "touch", "rm", "cp", "mv", "chmod", "less", "more", "diff", "test", "export", "source", "set"),
        *("clear", "history", "df"),
    )
)
SHELLS = ("bash", "sh", "zsh", "dash", "fish", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/env")
_SHELL_TOOL = re.compile(r"bash|shell|terminal|exec|run_|command|console|^sh$", re.I)
_EDITOR_COMMANDS = ("create", "view", "str_replace", "insert", "undo_edit")
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|\bcommand not found\b|\bNo such file or directory\b"
    r"|^(?:\S+: )*(?:error|fatal):|^\S*(?:Error|Exception):"
    r"|^exit(?:ed with)? (?:code|status):? [1-9]|\bpermission denied\b",
    re.I | re.M,
)
_EXIT_LINE = re.compile(r"^\[?(?:Exit code:? \d+|exit status \d+|Process exited with code \d+)\]?$", re.I)
_ERROR_LINE = re.compile(r"error|fatal|fail|cannot|can't|not |missing|unknown|invalid|denied|required|exception", re.I)
_CONFIRMS = re.compile(
    r"\b(?:test|tests|pytest|unittest|check|verify|validate|lint|ruff|mypy|pyright|tsc|build|compile"
    r"|status|doctor|health)\b"
)
_CORRECTS = re.compile(
    r"^\s*(?:no\b|nope|stop\b|wait\b|actually\b|wrong)|\b(?:not|don't|do not|never|always|instead|rather|wrong"
    r"|forgot|should(?:n't)?|must(?:n't)?|make sure|prefer|only use|use the|you missed|incorrect"
    r"|again)\b|^\[Request interrupted",
    re.I,
)
_HEREDOC = re.compile(
    r"(?:cat|tee)\s*>?\s*(?P<path>[^\s<>|;&]+)\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)[^\n]*\n(?P<text>.*?)^(?P=end)$",
    re.S | re.M,
)
_HEREDOC_LATE = re.compile(
    r"cat\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)\s*>\s*(?P<path>[^\s<>|;&]+)[^\n]*\n(?P<text>.*?)^(?P=end)$",
    re.S | re.M,
)
VERIFY = "verify"  # the tool under whose name a recording of our own has the check that decided on success
FIX_WINDOW = 25  # calls after an error in which it may still be mended

FixKind = Literal["command", "before", "file"]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Words of the person: the goal, or a correction."""

    text: str
    step: int


@dataclass(frozen=True, slots=True)
class ErrorFix:
    """An error and what mended it: another `command`, a command that had to run `before`, or a changed `file`."""

    command: str
    error: str  # the line that says what was wrong
    kind: FixKind
    fix: str  # a command, or the path of a file
    steps: tuple[int, ...]  # the error first


@dataclass(frozen=True, slots=True)
class SuccessfulCommand:
    """A command that succeeded, in the form in which it did last."""

    command: str
    purpose: str  # in the agent's words, where it said
    output: str
    step: int
    confirms: bool = False  # it looks at the result: a test, a check, a build


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was left. `whole` is False when only the last piece written to it is known."""

    path: str
    content: str
    steps: tuple[int, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ReusedCommand:
    """A script that was written and run, or a command that was run again."""

    command: str
    steps: tuple[int, ...]
    path: str = ""  # of the script


@dataclass(frozen=True, slots=True)
class Cost:
    usage: Usage
    calls: int
    failed: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    goal: UserMessage
    fixes: tuple[ErrorFix, ...]
    corrections: tuple[UserMessage, ...]
    successes: tuple[SuccessfulCommand, ...]
    files: tuple[File, ...]
    reused: tuple[ReusedCommand, ...]
    cost: Cost
    cwd: str = ""

    @property
    def confirmed(self) -> tuple[SuccessfulCommand, ...]:
        """The commands that looked at the result and found it good."""
        return tuple(item for item in self.successes if item.confirms)


@dataclass(frozen=True, slots=True)
class _ShellRun:
    """A shell command as one step of a trace ran it."""

    number: int
    command: str
    words: tuple[str, ...]
    step: Step
    failed: bool
    error: str = field(default="")

    @property
    def head(self) -> str:
        return program_and_verb(self.words)


def evidence_of(trace: Trace) -> TraceEvidence:
    """All that a trace has to teach."""
    runs = list(_runs(trace))
    files = final_files(trace)
    asked = [(number, step) for number, step in _numbered(trace) if step.kind == "user" and not step.agent]
    goal = UserMessage(trace.goal or (asked[0][1].text if asked else ""), asked[0][0] if asked else 0)
    corrections = [UserMessage(step.text.strip(), number) for number, step in asked[1:] if _CORRECTS.search(step.text)]
    calls = trace.calls
    took = [step.seconds for step in calls if step.seconds is not None]
    cost = Cost(trace.usage, len(calls), sum(step_failed(step) for step in calls), sum(took) if took else None)
    return TraceEvidence(
        goal,
        tuple(_fixes(runs, _changes(trace))),
        tuple(corrections),
        tuple(_worked(trace, runs)),
        tuple(files),
        tuple(_helpers(runs, files)),
        cost,
        trace.cwd,
    )


def _numbered(trace: Trace) -> Iterator[tuple[int, Step]]:
    return enumerate(trace.steps, start=1)


# Commands.


def shell_command(step: Step) -> str:
    """The shell command that a call runs; empty when it runs none."""
    if step.kind != "tool":
        return ""
    given = step.arguments
    value: Any = None
    for name in ("command", "cmd", "commands", "script"):
        if given.get(name):
            value = given[name]
            break
    if value is None and _SHELL_TOOL.search(step.tool):
        value = given.get("input") or given.get("code")
    if isinstance(value, str) and value in _EDITOR_COMMANDS and "path" in given:
        return ""
    listed = as_list(value)
    if listed is not None:
        words = [str(word) for word in listed]
        return _unwrapped(words) or shlex.join(words)
    if not isinstance(value, str):
        return ""
    return _unwrapped(split_words(value)) or value.strip()


def _unwrapped(words: Iterable[str]) -> str:
    """The command inside of `bash -lc '…'`."""
    listed = list(words)
    if len(listed) == 3 and listed[0] in SHELLS and re.fullmatch(r"-[a-z]*c", listed[1]):
        return listed[2].strip()
    return ""


def split_words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())


def program_and_verb(words: tuple[str, ...]) -> str:
    """A command's name and verb: `git commit` of `git commit -m x`; what makes two commands tries of one thing."""
    plain = [word for word in words if not re.match(r"^\w+=", word)]  # variables before it
    if not plain:
        return ""
    head = PurePosixPath(plain[0]).name or plain[0]
    rest = plain[1:]
    if re.fullmatch(r"python[\d.]*|node|ruby|perl|sudo|npx|uvx?|poetry|time", head) and rest:
        inner = [word for word in rest if not word.startswith("-")]
        return f"{head} {inner[0]}" if inner else head
    verb = rest[0] if rest and re.fullmatch(r"[a-zA-Z][\w:.-]*", rest[0]) and "." not in rest[0] else ""
    return f"{head} {verb}".strip()


def step_failed(step: Step) -> bool:
    """Did a call fail, by its status or, where none is told, by its words?"""
    if step.status == "unknown":
        return bool(_FAILED.search(step.output[-20_000:]))
    return step.status == "error"


def error_line(output: str) -> str:
    """The line of an output that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _EXIT_LINE.match(line.strip())]
    if not lines:
        return ""
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return lines[-1]
    return next((line for line in lines if _ERROR_LINE.search(line)), lines[-1])


def _runs(trace: Trace) -> Iterator[_ShellRun]:
    for number, step in _numbered(trace):
        if command := shell_command(step):
            wrong = step_failed(step)
            yield _ShellRun(
                number, command, split_words(command), step, wrong, error_line(step.output) if wrong else ""
            )


def only_inspects(words: tuple[str, ...]) -> bool:
    return not words or PurePosixPath(words[0]).name in INSPECTION_PROGRAMS


def _worked(trace: Trace, runs: list[_ShellRun]) -> Iterator[SuccessfulCommand]:
    """Each thing that was done, as it worked last."""
    last: dict[str, _ShellRun] = {}
    for run in runs:
        if not run.failed and not _is_check(run) and not only_inspects(run.words) and "\n" not in run.command:
            last.pop(run.head, None)  # in the order of the last success
            last[run.head] = run
    for run in last.values():
        confirms = bool(_CONFIRMS.search(run.command))
        yield SuccessfulCommand(run.command, _purpose(trace, run), run.step.output, run.number, confirms)
    # Whatever it looks like: somebody said beforehand that this is what decides.
    for run in runs:
        if _is_check(run) and not run.failed:
            yield SuccessfulCommand(run.command, _purpose(trace, run), run.step.output, run.number, confirms=True)


def _is_check(run: _ShellRun) -> bool:
    return run.step.tool == VERIFY


def _purpose(trace: Trace, run: _ShellRun) -> str:
    """What the agent said that the command is for."""
    told = run.step.arguments.get("description") or run.step.arguments.get("explanation")
    if isinstance(told, str) and told.strip():
        return " ".join(told.split())
    before = trace.steps[run.number - 2] if run.number >= 2 else None
    if before is not None and before.kind == "assistant" and before.agent == run.step.agent:
        return re.split(r"(?<=[.!?:])\s", " ".join(before.text.split()))[-1]
    return ""


# Errors and what mended them.


def _changes(trace: Trace) -> list[tuple[int, str]]:
    """The steps that wrote to a file, with its path."""
    return [
        (number, _relative(path, trace.cwd))
        for number, step in _numbered(trace)
        if not step_failed(step)
        for path, _, _ in _writes(step)
    ]


def _fixes(runs: list[_ShellRun], changes: list[tuple[int, str]]) -> Iterator[ErrorFix]:
    told: set[tuple[str, str]] = set()
    for place, run in enumerate(runs):
        if not run.failed or only_inspects(run.words) or (run.head, run.error) in told:
            continue
        found = _find_fix(run, runs[place + 1 : place + 1 + FIX_WINDOW], changes)
        if found is not None:
            told.add((run.head, run.error))
            yield found


def _find_fix(run: _ShellRun, later: list[_ShellRun], changes: list[tuple[int, str]]) -> ErrorFix | None:
    tries = [other for other in later if other.head == run.head]
    # The first try that comes further: it succeeds, or something else is wrong with it.
    further = next((other for other in tries if not other.failed or other.error != run.error), None)
    if further is not None and further.command == run.command:
        between = [(number, path) for number, path in changes if run.number < number < further.number]
        before = [
            other
            for other in later
            if other.number < further.number
            and not other.failed
            and other.head != run.head
            and not only_inspects(other.words)
        ]
        if between:
            return ErrorFix(run.command, run.error, "file", between[-1][1], (run.number, *(n for n, _ in between)))
        if before:
            return ErrorFix(run.command, run.error, "before", before[-1].command, (run.number, before[-1].number))
    worked = next((other for other in tries if not other.failed), None)
    if worked is None:
        worked = next((other for other in later[:5] if not other.failed and _similar(run, other)), None)
    if worked is None or worked.command == run.command:
        return None
    return ErrorFix(run.command, run.error, "command", worked.command, (run.number, worked.number))


def _similar(one: _ShellRun, two: _ShellRun) -> bool:
    return not only_inspects(two.words) and SequenceMatcher(None, one.words, two.words).ratio() >= 0.6


# Files.


def final_files(trace: Trace) -> list[File]:
    """The files that calls wrote, replayed to their last content."""
    files: dict[str, File] = {}
    for number, step in _numbered(trace):
        if step_failed(step):
            continue
        for path, kind, text in _writes(step):
            name = _relative(path, trace.cwd)
            before = files.get(name)
            steps = (*(before.steps if before else ()), number)
            if kind == "delete":
                files.pop(name, None)
            elif kind == "whole":
                files[name] = File(name, text, steps)
            else:
                files[name] = _edited(name, before, text, steps, step, path)
    return list(files.values())


def _edited(name: str, before: File | None, text: str, steps: tuple[int, ...], step: Step, path: str) -> File:
    if before is None or not before.whole:
        return File(name, text, steps, whole=False)
    content = before.content
    for old, new, everywhere in _replacements(step, path):
        if old and old in content:
            content = content.replace(old, new) if everywhere else content.replace(old, new, 1)
        elif old:
            return File(name, text, steps, whole=False)  # it was changed by something that we did not see
    return File(name, content, steps)


def _relative(path: str, cwd: str) -> str:
    return path.removeprefix(f"{cwd.rstrip('/')}/") if cwd else path


def _text(given: Mapping[str, Any], *names: str) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)


def _writes(step: Step) -> Iterator[tuple[str, Literal["whole", "edit", "delete"], str]]:
    """What a call does to files: the path, how, and the text."""
    if step.kind != "tool":
        return
    given = step.arguments
    path = _text(given, "file_path", "filePath", "path", "filename", "target_file", "absolute_path")
    patch = _patch_of(step)
    if patch:
        for name, kind, text, _ in _patched(patch):
            yield name, kind, text
        return
    if path:
        whole = _text(given, "content", "contents", "fileText", "file_text", "streamContent", "code_edit")
        if whole is not None:
            yield path, "whole", whole
        elif replaced := list(_replacements(step, path)):
            yield path, "edit", "\n".join(new for _, new, _ in replaced)
        return
    command = shell_command(step)
    if "<<" in command:
        for pattern in (_HEREDOC, _HEREDOC_LATE):
            for found in pattern.finditer(command):
                if ">>" not in found[0].split("\n", 1)[0]:
                    yield found["path"].strip("'\""), "whole", found["text"]


def _replacements(step: Step, path: str) -> Iterator[tuple[str, str, bool]]:
    given = step.arguments
    if patch := _patch_of(step):
        for name, _, _, replaced in _patched(patch):
            if name == path:
                yield from ((old, new, False) for old, new in replaced)
        return
    edits = [as_mapping(edit) or {} for edit in as_list(given.get("edits")) or []] or [dict(given)]
    for edit in edits:
        old = _text(edit, "old_string", "oldString", "old_str", "oldText")
        new = _text(edit, "new_string", "newString", "new_str", "newText")
        if old is not None and new is not None:
            yield old, new, edit.get("replace_all") is True or edit.get("replaceAll") is True


def _patch_of(step: Step) -> str:
    """A patch in the form of Codex: `*** Begin Patch …`, given to its own tool or to a shell."""
    for value in step.arguments.values():
        if isinstance(value, str) and "*** Begin Patch" in value:
            return value[value.index("*** Begin Patch") :]
    listed = as_list(step.arguments.get("command"))
    return next((str(word) for word in listed or () if "*** Begin Patch" in str(word)), "")


Patched = tuple[str, Literal["whole", "edit", "delete"], str, list[tuple[str, str]]]


def _patched(patch: str) -> Iterator[Patched]:
    for part in re.split(r"^\*\*\* (?=Add File: |Update File: |Delete File: )", patch, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        verb, _, name = heading.partition(" File: ")
        lines = [line for line in body.split("\n") if not line.startswith("*** ")]
        if verb == "Delete":
            yield name.strip(), "delete", "", []
        elif verb == "Add":
            text = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
            yield name.strip(), "whole", text, []
        else:
            replaced = list(_hunks(lines))
            yield name.strip(), "edit", "\n".join(new for _, new in replaced), replaced


def _hunks(lines: list[str]) -> Iterator[tuple[str, str]]:
    old: list[str] = []
    new: list[str] = []
    for line in [*lines, "@@"]:
        if line.startswith("@@"):
            if old or new:
                yield "\n".join(old), "\n".join(new)
            old, new = [], []
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" "):
            old.append(line[1:])
            new.append(line[1:])


# Helpers.


def _helpers(runs: list[_ShellRun], files: list[File]) -> Iterator[ReusedCommand]:
    scripts = {file.path: file for file in files if re.search(r"\.(?:sh|py|js|ts|rb|pl|mjs)$", file.path)}
    worked = [run for run in runs if not run.failed]
    for path, file in scripts.items():
        ran = [run for run in worked if any(word.removeprefix("./") == path for word in run.words)]
        if ran:
            yield ReusedCommand(ran[-1].command, (*file.steps, *(run.number for run in ran)), path)
    again: dict[str, list[int]] = {}
    for run in worked:
        if not only_inspects(run.words):
            again.setdefault(run.command, []).append(run.number)
    for command, numbers in again.items():
        if len(numbers) > 1 and not any(path in command for path in scripts):
            yield ReusedCommand(command, tuple(numbers))
