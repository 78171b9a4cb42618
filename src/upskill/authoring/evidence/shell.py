"""Shell: the simple commands in a line of shell, read with the grammar of tree-sitter.

A line is split at `&&`, `||`, `;`, `|` and newlines. Each command knows what joins it to the one before, the folder
that `cd` went to in front of it, and its text without the redirections that only quieten it. What the grammar cannot
read is split at the operators that stand outside quotes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Joint = Literal["", "&&", "||", ";", "|"]
SHELLS = frozenset(("bash", "sh", "zsh", "dash", "fish"))
MAX_LENGTH = 20_000  # characters of a line that is worth reading
_COMPOUND = frozenset(
    (
        *("if_statement", "for_statement", "while_statement", "case_statement", "c_style_for_statement"),
        *("function_definition", "subshell", "compound_statement", "negated_command"),
    )
)
_JOINTS: dict[str, Joint] = {"&&": "&&", "||": "||", "|": "|", "|&": "|"}
_QUIET = re.compile(r"/dev/|/tmp/|\.log$|^&?\d$")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command of a line."""

    words: tuple[str, ...]  # without quotes and redirections, with the variables in front of it
    text: str  # as it was typed, without pagers and redirections that only quieten it
    joint: Joint = ""  # what joins it to the command before
    folder: str = ""  # where `cd` went earlier in the line
    nested: bool = False  # in a loop, a condition or a function, where its words depend on more than the line
    fed: bool = False  # it reads a here-document
    background: bool = False  # nobody waits for it


def parse_shell(line: str) -> tuple[ShellCommand, ...]:
    """The simple commands of a line or a script, in their order, with those of `bash -c '…'` in place of it."""
    if not line.strip("\\ \t\r\n") or len(line) > MAX_LENGTH:
        return ()
    root = _parser().parse(line.encode("utf-8", "replace")).root_node
    try:
        found = list(_split_roughly(line)) if root.has_error else list(_commands(root, "", nested=False))
        return tuple(_with_folders(_unwrap_shells(found)))
    except RecursionError:  # thousands of brackets
        return tuple(_split_roughly(line))


@cache
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - only traces need it
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def unquoted(text: str) -> str:
    """A word as the program gets it."""
    try:
        parts = shlex.split(text, comments=False)
    except ValueError:
        return text
    return parts[0] if len(parts) == 1 else text


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _commands(node: Node, joint: Joint, *, nested: bool) -> Iterator[ShellCommand]:
    kind = node.type
    if kind in ("command", "declaration_command", "unset_command", "test_command", "variable_assignment"):
        yield _simple(node, joint, nested=nested)
    elif kind == "redirected_statement":
        yield from _redirected(node, joint, nested=nested)
    elif kind != "comment":
        inner = nested or kind in _COMPOUND
        then: Joint = joint
        for child in node.children:
            if child.type in ("&&", "||"):
                then = "&&" if child.type == "&&" else "||"
            elif child.type in ("|", "|&"):
                then = "|"
            elif child.is_named and child.type not in ("comment", "heredoc_body", "word", "variable_name"):
                found = list(_commands(child, then, nested=inner))
                if child.next_sibling is not None and child.next_sibling.type == "&":
                    found = [replace(command, background=True) for command in found]
                yield from found
                if found:
                    then = ";"


def _simple(node: Node, joint: Joint, *, nested: bool) -> ShellCommand:
    parts = [child for child in node.children if child.type not in ("file_redirect", "herestring_redirect")]
    if node.type == "variable_assignment":
        return ShellCommand((_source(node),), _source(node), joint, nested=nested)
    words = tuple(unquoted(_source(child)) for child in parts)
    return ShellCommand(words, " ".join(_source(child) for child in parts), joint, nested=nested)


def _redirected(node: Node, joint: Joint, *, nested: bool) -> Iterator[ShellCommand]:
    body = node.child_by_field_name("body")
    redirects = [child for child in node.children if child.type.endswith("_redirect")]
    found = list(_commands(body, joint, nested=nested)) if body is not None else []
    fed = any(child.type == "heredoc_redirect" for child in redirects)
    # A pipeline or list after a here-document belongs to its redirection.
    after = [
        command
        for child in redirects
        for inner in child.children
        if inner.type in ("pipeline", "list", "command", "redirected_statement")
        for command in _commands(inner, "|" if inner.type == "pipeline" else "&&", nested=nested)
    ]
    if found:
        extra = " ".join(_source(child) for child in redirects if child.type == "file_redirect" and _matters(child))
        last = found[-1]
        found[-1] = replace(last, text=f"{last.text} {extra}".strip(), fed=fed or last.fed)
    yield from [*found, *after]


def _matters(redirect: Node) -> bool:
    """Whether a redirection is part of what the command does: its input, or a file that it makes."""
    text = _source(redirect)
    target = unquoted(text.lstrip("0123456789<>&| "))
    return not text.startswith("2") and not _QUIET.search(target)


def _unwrap_shells(commands: list[ShellCommand]) -> Iterator[ShellCommand]:
    """The commands, with the script of `bash -lc '…'` in place of the call."""
    for command in commands:
        words = command.words
        name = words[0].rsplit("/", 1)[-1] if words else ""
        flag = next((place for place, word in enumerate(words[1:4], 1) if re.fullmatch(r"-[a-z]*c", word)), 0)
        if name in SHELLS and flag and len(words) > flag + 1:
            inner = parse_shell(words[flag + 1])
            yield from (replace(one, joint=command.joint) if not place else one for place, one in enumerate(inner))
        else:
            yield command


def _with_folders(commands: Iterator[ShellCommand]) -> Iterator[ShellCommand]:
    folder = ""
    for command in commands:
        yield replace(command, folder=command.folder or folder)
        if len(command.words) > 1 and command.words[0] in ("cd", "pushd") and not command.nested:
            target = command.words[1]
            folder = target if target.startswith(("/", "~")) or not folder else f"{folder.rstrip('/')}/{target}"


def _split_roughly(line: str) -> Iterator[ShellCommand]:
    """The commands of a line that is not quite shell: cut at operators outside quotes."""
    lexer = shlex.shlex(line.replace("\n", " ; "), posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    joint: Joint = ""
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is never closed
        yield ShellCommand(tuple(line.split()), line.strip(), nested=True)
        return
    for token in [*tokens, ";"]:
        if not re.fullmatch(r"[&|;]+", token):
            words.append(token)
            continue
        if words:
            yield ShellCommand(tuple(words), " ".join(words), joint, nested=True)
        joint = _JOINTS.get(token, ";")
        words = []
