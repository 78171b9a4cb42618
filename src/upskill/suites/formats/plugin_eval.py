"""Cases of `claude plugin eval`: a folder each, with `prompt.md`, `case.yaml` or both, and `graders/*.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

from upskill.errors import UsageError
from upskill.plain import list_or_empty
from upskill.skills.frontmatter import split
from upskill.suites.files import Folder, decode
from upskill.suites.formats import ONLY_TRIGGERS, Draft, Source, folder_format
from upskill.suites.shapes import absent, as_python, mapping_or_empty, meets, text_of, texts_of

OPTIONS = {  # of a grader, by its type
    "regex": {"pattern", "flags", "match", "target"},
    "tool_used": {"tool", "input_match", "min", "max"},
    "file_exists": {"path", "exists"},
    "llm": {"criteria", "focus"},
}
REPORTED = "Skill: `skill_activated`, of the tested skill and only reported"
NAMES = "tools have their names in Claude Code; use --agent claude-code"
MATCHES = {"": "regex", "contains": "regex", "not_contains": "not_regex"}
USED = {
    "name",
    "schema_version",
    "prompt",
    "append_system_prompt",
    "tags",
    "expected_outcome",
    "plugins",
}


def _folders(paths: Folder) -> list[str]:
    cases = paths.having("prompt.md", "case.yaml")
    return [path for path in cases if paths.below(f"{path}graders/", f"{path}case.yaml")]


def _read(folder: str, paths: Folder, draft: Draft, source: Source) -> None:
    case = (
        mapping_or_empty(source.load(f"{folder}case.yaml")) if f"{folder}case.yaml" in paths else {}
    )
    case |= mapping_or_empty(case.pop("execution", None))
    context = mapping_or_empty(case.pop("context", None))
    graders = [mapping_or_empty(grader) for grader in list_or_empty(case.pop("graders", None))]
    if f"{folder}prompt.md" in paths:
        head, body = _front(f"{folder}prompt.md", source)
        case |= head | {"prompt": body}
    for path in paths.below(f"{folder}graders/"):
        head, body = _front(path, source)
        rubric = {"criteria": "\n\n".join(filter(None, (text_of(head.get("criteria")), body)))}
        fields = {"pattern": body} | head if head.get("type") == "regex" else head | rubric
        graders.append({"name": PurePosixPath(path).stem} | fields)
    draft.id = text_of(case.get("name")) or draft.id
    draft.prompt = text_of(case.get("prompt"))
    if system := text_of(case.get("append_system_prompt")).strip():
        draft.prompt = f"{system}\n\n{draft.prompt}"
        draft.change("append_system_prompt: put before the prompt")
    draft.more = {
        "tags": texts_of(case.get("tags")),
        "expected_output": text_of(case.get("expected_outcome")),
    }
    draft.keep(case, USED)
    if setup := next((key for key in context if key != "add_dirs"), ""):
        raise UsageError(
            f"it has `{setup}`, but a case can only have files", "Add the files that it creates."
        )
    draft.more["files"] = source.files(paths, folder, *texts_of(context.get("add_dirs")))
    draft.note_weights({text_of(each.get("name")): each.get("weight", 1) for each in graders})
    parents = [folder[: end + 1] for end, mark in enumerate(folder) if mark == "/"]
    if paths.below("evals/mocks/", *(f"{parent}mocks/" for parent in ("", *parents))):
        draft.leave_out("mocks", "upskill does not stand in for MCP servers")
    for grader in graders:
        draft.checks += _grader(grader, draft)
    if draft.checks and all("skill_activated" in check for check in draft.checks):
        draft.checks, draft.nothing = [], ONLY_TRIGGERS


def _front(path: str, source: Source) -> tuple[dict[str, Any], str]:
    text = source.read(path)
    head, body = split(text, path) if text.startswith("---") else ("", text)
    return mapping_or_empty(decode(head.encode(), path)), body.strip()


def _grader(grader: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    kind = text_of(grader.get("type")) or ("llm" if grader.get("criteria") else "")
    more = (
        set(grader)
        - OPTIONS.get(kind, set[str]())
        - {"type", "name", "weight", "arm", "criteria", "description"}
    )
    target = grader.get("target", grader.get("focus", "last_message"))
    file = text_of(mapping_or_empty(target).get("path"))
    flags, match, path = (text_of(grader.get(name)) for name in ("flags", "match", "path"))
    wanted = as_python(text_of(grader.get("pattern")), flags)
    if kind not in OPTIONS or more:
        draft.refuse(kind, more if kind in OPTIONS else ())
    elif (arm := text_of(grader.get("arm"))) not in ("", "both") and grader.get("tool") != "Skill":
        draft.leave_out(f"{kind} with arm: {arm}", "a comparison of two arms does not score it")
    elif not file and target != "last_message":
        draft.leave_out(
            f"{kind} of {text_of(target)}", "a check sees the answer, or a file by its name"
        )
    elif kind == "llm":
        draft.change(
            f"{'llm' if 'type' in grader else 'a grader without a type'}: a judge checks it"
        )
        statement = meets(text_of(grader.get("criteria")))
        yield {"judge": {"statement": statement, "files": [file]} if file else statement}
    elif kind == "regex" and match in MATCHES:
        pattern = {
            "pattern": absent(wanted) if file and match == "not_contains" else wanted,
            "multiline": "m" in flags,
        }
        yield {"file_matches": {"path": file} | pattern} if file else {MATCHES[match]: pattern}
    elif kind == "tool_used":
        yield from _tool_used(grader, draft)
    elif kind == "file_exists" and path and not set("*?[{") & set(path):
        yield (
            {"file_exists": path}
            if grader.get("exists", True)
            else {"command": f"test ! -e {quote(path)}"}
        )
    else:
        what = "file_exists with a pattern" if path else f"{kind} with match: {match}"
        draft.leave_out(what, "use a `command` check")


def _tool_used(grader: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    least, most = grader.get("min", 1), grader.get("max")
    fields: dict[str, Any] = {"tool": text_of(grader.get("tool"))}
    if written := text_of(
        grader.get("input_match")
    ):  # for JSON without spaces; upskill writes it with them
        fields["arguments"] = re.sub(r'("(?:\\s\*)?:|",)(?!\\s)', r"\1\\s*", as_python(written))
    draft.change(f"tool_used: {REPORTED if fields['tool'] == 'Skill' else NAMES}")
    if fields["tool"] == "Skill":
        yield {"skill_activated": most != 0}
    elif most == 0:
        yield {"tool_not_called": fields}
    elif least == 0:
        draft.leave_out(
            "tool_used with min: 0", "upskill has no check of calls that may be missing"
        )
    else:
        yield {
            "tool_called": fields
            | {"at_least": least}
            | ({} if most is None else {"at_most": most})
        }


FORMAT = folder_format("claude plugin eval", _folders, _read)
