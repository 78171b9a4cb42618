"""A check of a command line: what the program would be given, however the line is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field, model_validator

from upskill.checks import Check, Evidence, Finding, Text
from upskill.checks.texts import Texts, enumerate_texts, whole_answers

_PART = re.compile(
    r"""
    (?P<blank> [^\S\n]+ | (?<!\S)\#[^\n]* )
  | (?P<newline> \n )
  | (?P<word> (?: [^\s"'\\|&;<>()`$] | \\. | \$(?!\() | '[^']*' | "(?: [^"\\`$] | \\. | \$(?!\() )*" )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_LIST_MARKS = re.compile(r"\A(?:[-*>•+$] )+")
_MARKED = re.compile(r"(\*\*|`{1,3}|[*_\"'])((?:(?!\1).)+)\1\.?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    arguments: list[str]  # the program, its subcommands and its arguments
    options: dict[str, list[str | None]]  # the values in their order; None for a flag


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a command line alone does not say of its options."""

    main_names: dict[str, str]  # of an option, by any of its names
    with_value: set[str]  # main names of the options that take a value

    def parse(self, words: list[str]) -> ParsedCommand:
        command = ParsedCommand([], {})
        remaining = iter(words)
        for word in remaining:
            if word == "--":
                command.arguments.extend(remaining)
            elif word == "-" or not word.startswith("-"):
                command.arguments.append(word)
            else:
                for name, value in self._split_options(word):
                    if value is None and name in self.with_value:
                        value = next(remaining, None)  # noqa: PLW2901
                        if value is None:
                            raise ValueError(f"{name} has no value")
                    command.options.setdefault(name, []).append(value)
        return command

    def _split_options(self, word: str) -> Iterator[tuple[str, str | None]]:
        name, equals, value = word.partition("=")
        if name.startswith("--") or name in self.main_names:
            yield self.main_names.get(name, name), value if equals else None
            return
        letters = word[1:]
        for position, letter in enumerate(letters, start=1):
            short = f"-{letter}"
            option = self.main_names.get(short, short)
            if option in self.with_value:
                yield option, letters[position:].removeprefix("=") or None
                return
            yield option, None


class CommandLine(Check):
    """Passes when the answer is this command, or one of these commands, or when its last line or its only code block
    is. An option written with `=` takes a value (`--env=prod`, `-o=FILE`), every other is a flag. Options may stand
    anywhere and be written in any usual way (`--env prod`, `-oFILE`, `-la` for `-l -a`); subcommands, arguments and the
    values of an option that is given twice keep their order. Case counts, quotes do not. Each list of `aliases` has
    names of one option: `[-f, --force]`. An answer with a pipe, a redirection or a second command fails."""

    command: Texts
    aliases: list[list[Text]] = Field(default_factory=list[list[str]])

    @model_validator(mode="after")
    def _can_be_read(self) -> CommandLine:
        names = [name for group in self.aliases for name in group]
        for name in names:
            if not name.startswith("-"):
                raise ValueError(f"{name!r} in aliases is no option; they begin with a dash")
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is in aliases twice")
        for line in self.command:
            words = split_words(line)
            if not words:
                raise ValueError(f"{line!r} is no command")
            self._find_syntax(words).parse(words)
        return self

    def _find_syntax(self, words: list[str]) -> Syntax:
        """The options that the suite's own line gives a value take one in answers too."""
        syntax = Syntax({name: group[0] for group in self.aliases for name in group}, set())
        for word in words:
            if word == "--":
                break
            name, equals, _ = word.partition("=")
            if equals and name.startswith("-"):
                main_name = syntax.main_names.setdefault(name, name)
                syntax.with_value.add(main_name)
        return syntax

    async def run(self, evidence: Evidence) -> Finding:
        answers = [*read_commands(evidence.answer)]
        same = any(self._is(words, line) for line in self.command for words in answers)
        one_of = "one of the commands" if len(self.command) > 1 else "the command"
        return Finding(
            same,
            f"the answer {'is' if same else 'is not'} {one_of} {enumerate_texts(self.command)}",
        )

    def _is(self, answer: list[str], line: str) -> bool:
        expected = split_words(line)
        syntax = self._find_syntax(expected)
        try:
            return syntax.parse(answer) == syntax.parse(expected)
        except ValueError:  # an option of the answer lacks its value
            return False


def split_words(text: str) -> list[str]:
    """The words of one plain command, without their quotes; ValueError if it is more than that."""
    words: list[str] = []
    has_ended = False
    position = 0
    text = text.strip()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or (part["word"] and has_ended):
            raise ValueError(
                f"{text!r} is not one plain command; pipes, redirections, substitutions and second"
                " commands cannot be compared"
            )
        if part["word"]:
            words += shlex.split(part["word"])
        elif part["newline"]:
            has_ended = bool(words)
        position = part.end()
    return words


def read_commands(answer: str) -> Iterator[list[str]]:
    """What can be meant as the answer's command, without marks around it."""
    for text in whole_answers(re.sub(r"\\\r?\n", "", answer)):
        plain = _LIST_MARKS.sub("", text.strip())
        while marked := _MARKED.fullmatch(plain):
            plain = marked[2].strip()
        lines = [plain]
        if re.search(r"[^\s.]\.$", plain):  # the period of a sentence, and not a folder
            lines.append(plain[:-1])
        for line in lines:
            try:
                yield split_words(line)
            except ValueError:
                continue
