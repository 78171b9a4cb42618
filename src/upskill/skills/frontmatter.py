"""Frontmatter: the YAML between the two `---` lines of a SKILL.md, read leniently, and what is wrong with it."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import yaml

from upskill.errors import UsageError
from upskill.plain import bound_yaml, refuse_depth, refused_yaml, yaml_words
from upskill.skills.files import MANIFEST, SkillFile

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something the specification forbids (error) or advises against (warning)."""

    level: Level
    rule: str  # problems that break the same rule are shown together
    message: str
    is_style: bool = False  # YAML that strict readers refuse, and every other reads
    file: str = MANIFEST  # in the skill's folder
    line: int = 0
    field: str = ""  # of the frontmatter, from which the line follows
    case: str = ""  # of the suite
    summary: str = ""  # what is wrong with this case and others
    reason: str = ""  # why, in this case


_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


def split(text: str, where: str) -> tuple[str, str]:
    """Frontmatter and body, split at the first `---` on a line of its own, or else at the first of any kind."""
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    rough = reference_split(text)
    if opening and closing:
        head = text[opening.end() : closing.start()]
        is_sure = rough is None or rough[0].strip() == head.strip() or not _is_mapping(rough[0])
        if is_sure or _is_mapping(head) or _is_mapping(quote_colons(head)):
            return head, text[closing.end() :].strip()
    if rough is not None and _is_mapping(rough[0]):
        return rough
    if not opening:
        raise UsageError(
            f"{where}: no frontmatter at the start",
            "Start with ---, then name: and description:, then --- again.",
        )
    raise UsageError(
        f"{where}: the frontmatter is not closed", "Add a line with --- after the last field."
    )


def reference_split(text: str) -> tuple[str, str] | None:
    """Frontmatter and body as the reference validator splits them: at the first two `---`, wherever they are."""
    if not text.startswith("---") or text.count("---") < 2:
        return None
    _, head, body = text.split("---", 2)
    return head, body.strip()


def parse(head: str, where: str, problems: list[Problem]) -> dict[str, Any]:
    """Every field, each scalar as it was written; what strict readers refuse goes into `problems`."""
    _, node = _compose_leniently(head, where, problems)
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(
            f"{where}: the frontmatter is not a list of `field: value` lines", "See agentskills.io."
        )
    try:
        bound_yaml(node, deepest=20, most=10_000)
    except yaml.YAMLError as error:
        raise UsageError(
            f"{where}: {yaml_words(error)}", "Write the values out, one `field: value` per line."
        ) from error
    return _mapping(node, problems)


def replace_value(head: str, key: str, value: str) -> str:
    """The frontmatter with the value of this field replaced, every other character as it was."""
    text, node = _compose_leniently(head, key, [])
    assert isinstance(node, yaml.MappingNode)
    old = next(item for name, item in reversed(node.value) if name.value == key)
    quoted = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9).strip()
    if isinstance(old, yaml.ScalarNode) and old.style in (
        "|",
        ">",
    ):  # it ends where the next line starts
        quoted += "\n"
    return text[: old.start_mark.index] + quoted + text[old.end_mark.index :]


def _compose_leniently(
    head: str, where: str, problems: list[Problem]
) -> tuple[str, yaml.Node | None]:
    try:
        node = _compose(head)
    except yaml.YAMLError as first:
        quoted_head = quote_colons(head)
        try:
            node = _compose(quoted_head) if quoted_head != head else None
        except yaml.YAMLError:
            node = None
        if node is None:
            raise UsageError(
                f"{where}: {yaml_words(first)}", "Fix the YAML between the two --- lines."
            ) from first
        problems.append(
            Problem("error", "yaml", "a value with a colon needs quotes; it was read as if quoted")
        )
        return quoted_head, node
    problems += _strictness_problems(head)
    return head, node


def _is_mapping(head: str) -> bool:
    try:
        return isinstance(_compose(head), yaml.MappingNode)
    except yaml.YAMLError:
        return False


# In YAML 1.2, which other clients read, only \n and \r end a line. PyYAML reads YAML 1.1, where these end one, too, so
# they are replaced by private characters while it parses.
_LINE_BREAKS = {0x85: 0xF7085, 0x2028: 0xF7028, 0x2029: 0xF7029}
_LINE_BREAKS_BACK = {alias: chr(real) for real, alias in _LINE_BREAKS.items()}


@lru_cache(maxsize=16)  # a skill is read, and then checked
def _compose(text: str) -> yaml.Node | None:
    try:
        text = text.translate(_LINE_BREAKS)
        refuse_depth(text)
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise refused_yaml("nested too deeply") from error
    except ValueError as error:  # an escape that is no character
        raise refused_yaml(str(error)) from error


_PLAIN = re.compile(r"^(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s'\"\[{|>&*!%@`#].*)$")


def quote_colons(head: str) -> str:
    def quote_value(line: str) -> str:
        field = _PLAIN.match(line.rstrip())
        if field and ": " in field["value"] + " ":
            return f"{field['key']}: {json.dumps(field['value'], ensure_ascii=False)}"
        return line

    return "\n".join(quote_value(line) for line in head.split("\n"))


@lru_cache(maxsize=16)
def _strictness_problems(head: str) -> tuple[Problem, ...]:
    messages: dict[type[Any], str] = {
        yaml.FlowMappingStartToken: "the frontmatter uses {…}; write one `field: value` per line",
        yaml.FlowSequenceStartToken: "the frontmatter uses […]; write one `- item` per line",
        yaml.AnchorToken: "the frontmatter uses an anchor (&…); write the value out, or put it in quotes",
        yaml.TagToken: "the frontmatter uses a tag (!…); leave it out, or put the value in quotes",
    }
    if not re.search(r"[{\[&!]", head):
        return ()
    scanned = cast("Iterator[object]", yaml.scan(head.translate(_LINE_BREAKS), yaml.SafeLoader))
    tokens = {type(token) for token in scanned}
    return tuple(
        Problem("error", "yaml", message, is_style=True)
        for kind, message in messages.items()
        if kind in tokens
    )


def _mapping(node: yaml.MappingNode, problems: list[Problem]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _text(key_node) if isinstance(key_node, yaml.ScalarNode) else "?"
        if key in fields:
            problems.append(Problem("error", "yaml", f"the field {key!r} appears twice"))
        fields[key] = _value(value_node, problems)
    if (
        len(
            {
                value.start_mark.column
                for _, value in node.value
                if isinstance(value, yaml.MappingNode)
            }
        )
        > 1
    ):
        message = "nested fields are indented differently; indent them all by the same width"
        problems.append(Problem("error", "yaml", message, is_style=True))
    return fields


def _value(node: yaml.Node, problems: list[Problem]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, problems)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, problems) for item in node.value]
    return _text(node)


def _text(node: yaml.Node) -> str:
    """The scalar as text. \\uD83D\\uDE00 is one character, as in JSON, and a lone half of such a pair is replaced."""
    text = str(node.value).translate(_LINE_BREAKS_BACK)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Dumper(yaml.SafeDumper):
    """Escapes what YAML 1.1 and 1.2 would read differently."""


def _represent_str(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text.translate(_LINE_BREAKS) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_str)


def render(frontmatter: Mapping[str, Any], body: str) -> str:
    head = yaml.dump(
        dict(frontmatter), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return f"---\n{head}---\n\n{body}"


FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# What clients, registries and authors have added, as found in public skills.
CLIENT_FIELDS = (
    "agent", "argument-hint", "context", "disable-model-invocation", "effort", "hooks", "model", "paths", "tools",
    "user-invocable", "when_to_use",
    "author", "capabilities", "category", "compatible-with", "dependencies", "domain", "emoji", "homepage", "icon",
    "keywords", "language", "origin", "priority", "repository", "requires", "risk", "scope", "source", "tags",
    "triggers", "type", "version",
)  # fmt: skip

Profile = Literal["strict", "clients"]


def manifest_problems(manifest: SkillFile) -> Iterator[Problem]:
    if manifest.path != MANIFEST:
        yield Problem("warning", "manifest-name", f"{manifest.path} should be called {MANIFEST}")
    if manifest.data.startswith(b"\xef\xbb\xbf"):
        yield Problem(
            "error",
            "byte-order-mark",
            f"{manifest.path} starts with a byte order mark; save it as plain UTF-8",
        )


def read_fields(
    text: str, where: str, profile: Profile
) -> tuple[Mapping[str, Any], list[Problem], bool]:
    """The fields, what is wrong with their YAML, and whether the reference validator reads others than we do.

    It ends the frontmatter at the first two `---`, wherever they are; for the strict profile, so do we.
    """
    head = split(text, where)[0]
    cut = reference_split(text)
    is_ambiguous = cut is not None and cut[0].strip() != head.strip()
    syntax: list[Problem] = []
    if cut is not None and is_ambiguous and profile == "strict":
        try:
            return parse(cut[0], MANIFEST, syntax), syntax, is_ambiguous
        except UsageError as error:
            problem = Problem("error", "yaml", f"{error.message} (up to the first ---)")
            return {}, [problem], is_ambiguous
    if "\t" in text.partition("\n")[0]:
        syntax.append(Problem("error", "yaml", "remove the tab after the first ---", is_style=True))
    return parse(head, where, syntax), syntax, is_ambiguous


def field_problems(fields: Mapping[str, Any], profile: Profile) -> Iterator[Problem]:
    for key, value in fields.items():
        if key not in FIELDS:
            level: Level = "warning" if profile == "clients" else "error"
            rule = "client-field" if key in CLIENT_FIELDS else "unknown-field"
            yield Problem(level, rule, f"{key!r} is {_kind_of_field(key, fields)}", field=key)
        elif key == "metadata":
            if not isinstance(value, Mapping):
                message = "metadata should be a list of `name: text` lines"
                yield Problem("warning", "metadata", message, field=key)
        elif not isinstance(value, str):
            level = "error" if key in ("name", "description", "compatibility") else "warning"
            yield Problem(level, "not-text", f"{key} is not text", field=key)
    compatibility = fields.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > 500:
        yield Problem(
            "error",
            "compatibility-length",
            f"compatibility is longer than 500 characters ({len(compatibility)})",
            field="compatibility",
        )


def _kind_of_field(key: str, fields: Mapping[str, Any]) -> str:
    if key in CLIENT_FIELDS:
        return "a client's own field"
    free = [name for name in FIELDS if name not in fields]
    near = difflib.get_close_matches(key.lower().replace("_", "-"), free, n=1, cutoff=0.8)
    return "not a field of the specification" + (f". Did you mean {near[0]!r}?" if near else "")


def name_problems(written: object, folder: str | None) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "name-missing", "name is missing")
        return
    name = unicodedata.normalize("NFKC", written.strip())
    if len(name) > 64:
        message = f"name is longer than 64 characters ({len(name)})"
        yield Problem("error", "name-length", message, field="name")
    if name != name.lower():
        yield Problem("error", "name-case", f"name {name!r} has capital letters", field="name")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        message = f"name {name!r} has characters other than letters, digits and -"
        yield Problem("error", "name-characters", message, field="name")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        message = f"name {name!r} starts or ends with - or has two in a row"
        yield Problem("error", "name-hyphens", message, field="name")
    if folder is not None and unicodedata.normalize("NFKC", folder) != name:
        message = f"name {name!r} differs from the folder's name {folder!r}"
        yield Problem("error", "name-folder", message, field="name")


def description_problems(written: object) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "description-missing", "description is missing")
    elif len(written) > 1024:
        yield Problem(
            "error",
            "description-length",
            f"description is longer than 1024 characters ({len(written)})",
            field="description",
        )
