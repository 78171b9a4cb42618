"""Frontmatter: the YAML between the two `---` lines of a SKILL.md, read the way lenient clients read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import yaml

from upskill.errors import UsageError

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something the specification forbids (error) or advises against (warning)."""

    level: Level
    message: str


_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


def split(text: str, where: str) -> tuple[str, str]:
    """Frontmatter and body; the closing line is the first `---` that stands alone."""
    opening = _FENCE.match(text)
    if not opening:
        raise UsageError(
            f"{where}: does not start with frontmatter",
            "The first line is ---, then name: and description:, then --- again.",
        )
    closing = _FENCE.search(text, opening.end())
    if not closing:
        raise UsageError(f"{where}: the frontmatter is not closed", "Add a line --- after the last field.")
    return text[opening.end() : closing.start()], text[closing.end() :].strip()


def parse(head: str, where: str, notes: list[Problem]) -> dict[str, Any]:
    try:
        node = _compose(head)
    except yaml.YAMLError as first:
        mended = _quote_colons(head)
        try:
            node = _compose(mended)
        except yaml.YAMLError:
            node = None
        if node is None or mended == head:
            raise UsageError(f"{where}: {yaml_words(first)}", "Fix the YAML between the two --- lines.") from first
        notes.append(Problem("error", "a value with a colon in it needs quotes; read as if it had them"))
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{where}: the frontmatter cannot be read: {error}") from error
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{where}: the frontmatter is not a list of `field: value` lines", "See agentskills.io.")
    try:
        return _mapping(node, notes, depth=0)
    except RecursionError as error:
        raise UsageError(f"{where}: the frontmatter refers to itself", "Write the values out.") from error


def _compose(text: str) -> yaml.Node | None:
    return cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))


def yaml_words(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark else ""
    said = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{place}not valid YAML: {said}"


_PLAIN = re.compile(r"^(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s'\"\[{|>&*!%@`#].*)$")


def _quote_colons(head: str) -> str:
    def mend(line: str) -> str:
        found = _PLAIN.match(line.rstrip())
        if found and ": " in found["value"] + " ":
            return f"{found['key']}: {json.dumps(found['value'], ensure_ascii=False)}"
        return line

    return "\n".join(mend(line) for line in head.split("\n"))


def _mapping(node: yaml.MappingNode, notes: list[Problem], depth: int) -> dict[str, Any]:
    if depth > 20:
        raise RecursionError
    if node.flow_style and node.value:
        notes.append(Problem("error", "the frontmatter uses {…}; write one `field: value` a line"))
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        if key in found:
            notes.append(Problem("error", f"the field {key!r} is there twice"))
        found[key] = _value(value_node, notes, depth + 1)
    return found


def _value(node: yaml.Node, notes: list[Problem], depth: int) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, notes, depth)
    if isinstance(node, yaml.SequenceNode):
        if depth > 20:
            raise RecursionError
        if node.flow_style:
            notes.append(Problem("error", "the frontmatter uses […]; write one `- item` a line"))
        return [_value(item, notes, depth + 1) for item in node.value]
    return str(node.value)


def render(frontmatter: Mapping[str, Any], body: str) -> str:
    head = yaml.safe_dump(dict(frontmatter), sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{head}---\n\n{body}"
