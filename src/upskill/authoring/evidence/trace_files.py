"""The files that the tool calls of a trace wrote, replayed to their last content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from upskill.authoring.evidence.trace_commands import shell_command, step_failed
from upskill.plain import as_list, dict_or_empty, list_or_empty
from upskill.traces import Step, Trace

_HEREDOC = re.compile(
    r"(?:cat|tee)\s*>?\s*(?P<path>[^\s<>|;&]+)\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)[^\n]*\n(?P<text>.*?)^(?P=end)$",
    re.S | re.M,
)
_HEREDOC_LATE = re.compile(
    r"cat\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)\s*>\s*(?P<path>[^\s<>|;&]+)[^\n]*\n(?P<text>.*?)^(?P=end)$",
    re.S | re.M,
)


WriteKind = Literal["whole", "edit", "delete"]


@dataclass(frozen=True, slots=True)
class FinalFile:
    """A file as it was left. `whole` is False when only the last piece written to it is known."""

    path: str
    content: str
    steps: tuple[int, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class FileWrite:
    """What a tool call did to one file."""

    path: str
    kind: WriteKind
    text: str = ""  # the whole content, or what an edit put in
    replacements: tuple[tuple[str, str, bool], ...] = ()  # of an edit: the old text, the new one, and if everywhere


def changed_files(trace: Trace) -> list[tuple[int, FileWrite]]:
    """The numbers of the steps that wrote to a file, with what they wrote."""
    return [(number, replace(write, path=_relative(write.path, trace.cwd))) for number, write in _writes(trace)]


def final_files(trace: Trace) -> list[FinalFile]:
    """The files that calls wrote, replayed to their last content."""
    files: dict[str, FinalFile] = {}
    for number, write in _writes(trace):
        name = _relative(write.path, trace.cwd)
        before = files.get(name)
        steps = (*(before.steps if before else ()), number)
        if write.kind == "delete":
            files.pop(name, None)
        elif write.kind == "whole":
            files[name] = FinalFile(name, write.text, steps)
        else:
            content = _edited(before, write)
            whole = content is not None
            files[name] = FinalFile(name, write.text if content is None else content, steps, whole=whole)
    return list(files.values())


def _edited(before: FinalFile | None, write: FileWrite) -> str | None:
    """The whole content after an edit; None where it is not known."""
    if before is None or not before.whole:
        return None
    content = before.content
    for old, new, everywhere in write.replacements:
        if old and old in content:
            content = content.replace(old, new) if everywhere else content.replace(old, new, 1)
        elif old:
            return None  # something that we did not see has changed the file
    return content


def _relative(path: str, cwd: str) -> str:
    return path.removeprefix(f"{cwd.rstrip('/')}/") if cwd else path


def _writes(trace: Trace) -> Iterator[tuple[int, FileWrite]]:
    for number, step in enumerate(trace.steps, start=1):
        if step.kind == "tool" and not step_failed(step):
            yield from ((number, write) for write in _writes_of(step))


def _writes_of(step: Step) -> Iterator[FileWrite]:
    if patch := _patch_in(step):
        yield from _writes_of_patch(patch)
        return
    given = step.arguments
    if path := _first_text(given, "file_path", "filePath", "path", "filename", "target_file", "absolute_path"):
        whole = _first_text(given, "content", "contents", "fileText", "file_text", "streamContent", "code_edit")
        if whole is not None:
            yield FileWrite(path, "whole", whole)
        elif replaced := tuple(_replacements(given)):
            yield FileWrite(path, "edit", "\n".join(new for _, new, _ in replaced), replaced)
        return
    command = shell_command(step)
    if "<<" in command:
        for pattern in (_HEREDOC, _HEREDOC_LATE):
            for found in pattern.finditer(command):
                if ">>" not in found[0].split("\n", 1)[0]:
                    yield FileWrite(found["path"].strip("'\""), "whole", found["text"])


def _first_text(given: Mapping[str, Any], *names: str) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)


def _replacements(given: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    edits = [dict_or_empty(edit) for edit in list_or_empty(given.get("edits"))] or [dict(given)]
    for edit in edits:
        old = _first_text(edit, "old_string", "oldString", "old_str", "oldText")
        new = _first_text(edit, "new_string", "newString", "new_str", "newText")
        if old is not None and new is not None:
            yield old, new, edit.get("replace_all") is True or edit.get("replaceAll") is True


def _patch_in(step: Step) -> str:
    """A patch in the form of Codex: `*** Begin Patch …`, given to its own tool or to a shell."""
    for value in step.arguments.values():
        if isinstance(value, str) and "*** Begin Patch" in value:
            return value[value.index("*** Begin Patch") :]
    listed = as_list(step.arguments.get("command"))
    return next((str(word) for word in listed or () if "*** Begin Patch" in str(word)), "")


def _writes_of_patch(patch: str) -> Iterator[FileWrite]:
    for part in re.split(r"^\*\*\* (?=Add File: |Update File: |Delete File: )", patch, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        verb, _, name = heading.partition(" File: ")
        lines = [line for line in body.split("\n") if not line.startswith("*** ")]
        if verb == "Delete":
            yield FileWrite(name.strip(), "delete")
        elif verb == "Add":
            text = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
            yield FileWrite(name.strip(), "whole", text)
        else:
            replaced = tuple((old, new, False) for old, new in _hunks(lines))
            yield FileWrite(name.strip(), "edit", "\n".join(new for _, new, _ in replaced), replaced)


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
