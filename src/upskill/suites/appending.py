"""Adds cases to a suite file and leaves its text alone: comments, order and spacing stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import indent
from typing import Any

import yaml

from upskill.errors import UsageError
from upskill.plain import JsonMember, json_members
from upskill.skills import Skill
from upskill.suites.shapes import LISTS
from upskill.suites.suite import Case, Suite, yaml_of

BY_HAND = (
    "Add the cases by hand, or convert the file first: upskill import FILE -o evals/suite.yaml"
)


def append_cases(skill: Skill, path: str, cases: Sequence[Case]) -> tuple[bytes, Suite]:
    """The suite file at this path of the skill with more cases, and what it says now.

    UsageError where the file is of a form that they cannot be added to.
    """
    where = str(skill.folder / path) if skill.folder else path
    data = skill.read(path) or b""
    text = data.decode("utf-8-sig")
    rows = [case.to_dict() for case in cases]
    try:
        longer = _append_json(text, rows) if text.lstrip()[:1] in ("{", "[") else None
        longer = longer or _append_yaml(text, rows)
        written = data[: data.find(text.encode())] + longer.encode()
        before, after = (_read(skill, path, each) for each in (data, written))
    except (UsageError, yaml.YAMLError, ValueError, LookupError) as error:
        raise UsageError(
            f"{where}: cases cannot be added to a file of this form", BY_HAND
        ) from error
    is_whole = after.cases[: len(before.cases)] == before.cases
    if not is_whole or [case.id for case in after.cases[len(before.cases) :]] != [
        case.id for case in cases
    ]:
        raise UsageError(f"{where}: adding cases would change those that are there", BY_HAND)
    return written, after


def _read(skill: Skill, path: str, data: bytes) -> Suite:
    suite = Suite.of(skill.with_file(path, data))
    assert suite is not None
    return suite


def _append_json(text: str, rows: Sequence[dict[str, Any]]) -> str | None:
    """None for what is no JSON: YAML in braces."""
    try:
        json.loads(text)
    except ValueError:
        return None
    start, members = json_members(text)
    if text[start - 1] == "{":
        lists = [each for each in members if each.key in LISTS and text[each.value] == "["]
        _, members = json_members(text, lists[0].value)
    last: JsonMember = members[-1]
    line = text[text.rfind("\n", 0, last.value) + 1 : last.value]
    if line.strip():  # several on one line
        added = "".join(f", {json.dumps(row, ensure_ascii=False)}" for row in rows)
    else:
        items = (indent(json.dumps(row, indent=2, ensure_ascii=False), line) for row in rows)
        added = "".join(f",\n{item}" for item in items)
    return text[: last.end] + _with_line_ends(added, text) + text[last.end :]


def _append_yaml(text: str, rows: Sequence[dict[str, Any]]) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        root = next(value for key, value in root.value if key.value in LISTS)
    if not isinstance(root, yaml.SequenceNode):
        raise LookupError("no list of cases")
    last = root.value[-1]
    if root.flow_style:
        added = "".join(f", {json.dumps(row, ensure_ascii=False)}" for row in rows)
        return text[: last.end_mark.index] + added + text[last.end_mark.index :]
    column = root.start_mark.column
    end = _end_of_block(text, last, column)
    gap = "" if text[:end].endswith("\n") else "\n"
    between = _line_before(text, last) if len(root.value) > 1 else ""
    items = (between + indent(yaml_of([row]), " " * column) for row in rows)
    return text[:end] + _with_line_ends(gap + "".join(items), text) + text[end:]


def _end_of_block(text: str, node: Any, column: int) -> int:
    """Where the line after a block begins, with the comments that are further in than the block."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last: Any = node.value[-1]
        node = last[1] if isinstance(node, yaml.MappingNode) else last
    end: int = node.end_mark.index
    is_literal = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    lines = text[end:].splitlines(keepends=True)
    if lines and not is_literal:
        end += len(lines.pop(0))
    for line in lines:
        if not line.lstrip().startswith("#") or len(line) - len(line.lstrip()) <= column:
            break
        end += len(line)
    return end


def _line_before(text: str, node: yaml.Node) -> str:
    """A line break where an empty line stands before this item."""
    lines = text[: node.start_mark.index].splitlines()
    return "\n" if len(lines) > 1 and not lines[-2].strip() else ""


def _with_line_ends(added: str, text: str) -> str:
    return added.replace("\n", "\r\n") if "\r\n" in text else added
