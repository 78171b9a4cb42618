"""From a page's examples to cases (rule 4 in README.md). Nothing here knows a tool: page and documentation decide."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pages import PLACEHOLDER, Page

from upskill.checks.command_line import split_words

MIN_CASES, MAX_CASES = 4, 5
OPTION_NAMES = re.compile(r"\[(-[^|\]]+)\|(-[^|\]]+)\]")
NUMBER = re.compile(
    r"number|count|n|port|seconds|milliseconds|minutes|hours|days|limit|depth|width|height|size|pid|lines|integer|int"
)
RANGE = re.compile(r"(\d+)(?:\.{2,3}|-)(\d+)")
OPEN = re.compile(r"-.*|\.\.\.|.*\b(command|option|argument|arg|subcommand|flag|parameter)s?\d*")
HELP = {"--help", "-h", "-?", "help", "--version", "-V", "version"}
ABOUT_HELP = re.compile(
    r"(display|show|print|view|get)\b.*\b(help|version|usage|manual)\b", re.IGNORECASE
)
UNDOCUMENTED = "option or subcommand that the documentation lacks"
# How documentation writes that an option takes a value: `-o FILE`, `--output=<file>`, `--output string   `.
METAVAR = r"\[?[= ]\[?(?:[<{]|[A-Z][A-Z_]+\b)|\[?=\w"
NAMED_METAVAR = re.compile(METAVAR + r"| [a-z_-]+(?=\]|  |,|$)")
NO_METAVAR = re.compile(r"\s{2,}\S|\]|\s*\|")
FIRST_SLOT = 0xE000  # private characters stand for placeholders while a line is split into words
SLOT = re.compile("[\ue000-\uf8ff]")


class Dropped(Exception):
    """Why an example is no case."""


@dataclass(frozen=True)
class Case:
    id: str
    tool: str
    prompt: str
    shape: str  # without its values
    check: dict[str, list[object]]

    def to_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "group": self.tool,
            "prompt": self.prompt,
            "checks": [{"command_line": self.check}],
        }


@dataclass
class Documentation:
    """What the cases ask of a documentation. The answers are kept, so that later the text is not needed."""

    text: str
    facts: dict[str, Any]

    def ask(self, question: str, answer: Callable[[str], Any], word: str) -> Any:
        key = f"{question} {word}"
        if key not in self.facts:
            self.facts[key] = answer(word)
        return self.facts[key]

    def has(self, word: str) -> bool:
        return self.ask("has", self._has, word)

    def takes_value(self, names: list[str]) -> bool | None:
        return self.ask("takes_value", self._takes_value, " ".join(names))

    def other_names(self, name: str) -> list[str]:
        return self.ask("other_names", self._other_names, name)

    def _has(self, word: str) -> bool:
        return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", self.text) is not None

    def _takes_value(self, names: str) -> bool | None:
        """By usage and by the lines that define the option; None where neither shows it."""
        shown: set[bool] = set()
        for name in names.split():
            if re.search(rf"(?<![\w-]){re.escape(name)}(?:{METAVAR})", self.text):
                return True
            defined = rf"(?:^\s*|\[|^\s*-[^\s,]+(?:[ =]\S+)?, ?){re.escape(name)}(?![\w-])((?:, ?--?[\w-]+)*)(.*)"
            for match in re.finditer(defined, self.text, re.MULTILINE):
                if NAMED_METAVAR.match(match[2]):
                    shown.add(True)
                elif NO_METAVAR.match(match[2]):
                    shown.add(False)
        return max(shown, default=None)

    def _other_names(self, name: str) -> list[str]:
        """The long name of a short option, and the other way round: `-o, --output`, with or without a value."""
        value = r"(?:[ =][<\[{]?[\w.|-]+[>\]}]?)?(?:, ?| or | ?/ ?|\|)"
        pairs = re.findall(rf"(?<![\w-])(-\w){value}(--[\w-]+)", self.text)
        pairs += [
            (short, long)
            for long, short in re.findall(rf"(?<![\w-])(--[\w-]+){value}(-\w)(?![\w-])", self.text)
        ]
        others = {
            long if name == short else short for short, long in pairs if name in (short, long)
        }
        # Subcommands may use one letter for several options: then it stands for none.
        return [*others] if len(others) == 1 else []


@dataclass(frozen=True)
class Word:
    """A word of a command: an option by all its names, perhaps with its value, or something else."""

    text: str
    names: list[str]
    value: str | None
    is_given: bool  # the text, or the value, is the page's example of what people fill in

    @property
    def shape(self) -> str:
        return (
            "VALUE"
            if self.is_given and not self.names
            else self.names[-1]
            if self.names
            else self.text
        )


@dataclass
class Example:
    page: Page
    number: int
    documentation: Documentation
    slots: list[str] = field(default_factory=list[str])
    values: list[str] = field(default_factory=list[str])
    aliases: list[list[str]] = field(default_factory=list[list[str]])
    unsaid_flags: int = 0

    @property
    def description(self) -> str:
        return self.page.examples[self.number][0]

    def hash(self, *parts: object) -> int:
        text = ":".join(map(str, ("bench/tldr", self.page.name, self.number, *parts)))
        return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)

    def fill(self, content: str) -> str:
        """The content of a placeholder, with choices made and numbers set by a hash."""
        if OPEN.fullmatch(content):
            raise Dropped("open placeholder")
        content = re.sub(r"[ ,|]*\.\.\.$", "", content)
        for part in re.findall(r"\[[^\[\]]*\]", content):
            choices = part[1:-1].split("|")
            content = content.replace(part, choices[self.hash(content) % len(choices)])
        choices = content.split("|")
        content = choices[self.hash(content) % len(choices)]
        if between := RANGE.fullmatch(content):
            low, high = int(between[1]), int(between[2])
            return str(low + self.hash(content) % max(high - low + 1, 1))
        return str(2 + self.hash(content) % 90) if NUMBER.fullmatch(content) else content

    def read_words(self, command: str) -> list[Word]:
        def replace(match: re.Match[str]) -> str:
            slots: list[str] = [match[1]]
            if not OPTION_NAMES.fullmatch(match[1]):
                filled = self.fill(match[1].strip())
                is_quoted = command[: match.start()].endswith(('"', "'"))
                slots = [filled] if is_quoted else filled.split() or [""]  # a list is several words
            self.slots += slots
            first = FIRST_SLOT + len(self.slots) - len(slots)
            return " ".join(chr(first + number) for number in range(len(slots)))

        try:
            words = split_words(PLACEHOLDER.sub(replace, command))
        except ValueError:
            raise Dropped("shell syntax") from None
        words = words[1:] if words[:1] == ["sudo"] else words
        if words[:1] != [self.page.name]:
            raise Dropped("another program comes first")
        return [self.read_word(word) for word in words[1:]]

    def read_word(self, word: str) -> Word:
        def content(text: str) -> str:
            return SLOT.sub(lambda match: self.slots[ord(match[0]) - FIRST_SLOT], text)

        names = OPTION_NAMES.match(content(word[:1]))
        head, equals, value = word.partition("=")
        if not names and not equals and (glued := re.fullmatch(r"(-\w)([^\w-].*)", word)):
            head, equals, value = glued[1], "=", glued[2]
        if names:
            both = [names[1], names[2]]
            return Word(
                names[2], both, content(value) if equals else None, bool(SLOT.search(value))
            )
        if not re.match(r"-[\w?-]", head) or word == "--":
            return Word(content(word), [], None, bool(SLOT.search(word)))
        return Word(
            content(head),
            [content(head)],
            content(value) if equals else None,
            bool(SLOT.search(value)),
        )

    def note_value(self, text: str, *, is_given: bool) -> str:
        """The value as the checked line has it; the prompt gives it if the page's reader has to fill it in."""
        if is_given and (not text or text.startswith("-")):
            raise Dropped("open placeholder")
        is_word = re.fullmatch(r"[A-Za-z][\w.:-]*", text) is not None
        if is_given:
            self.values.append(text)
        elif text.casefold() not in self.description.casefold() and not (
            is_word and self.documentation.has(text)
        ):
            raise Dropped("literal that nobody could know")
        return shlex.quote(text)

    def build_lines(self, words: list[Word]) -> list[str]:
        """The lines to check: more than one where nothing shows whether an option takes the next word."""
        parts: list[list[str]] = []
        remaining = list(words)
        while remaining:
            word = remaining.pop(0)
            if not word.names:
                is_subcommand = not word.is_given and all(
                    not other.is_given for other in words[: words.index(word)]
                )
                if word.text in HELP:
                    raise Dropped("help or version")
                if (
                    is_subcommand
                    and word.text.isidentifier()
                    and not self.documentation.has(word.text)
                ):
                    raise Dropped(UNDOCUMENTED)
                parts.append(
                    [
                        word.text
                        if word.text == "--"
                        else self.note_value(word.text, is_given=word.is_given)
                    ]
                )
                continue
            following = (
                remaining[0]
                if remaining and not remaining[0].names and remaining[0].text != "--"
                else None
            )
            readings, takes_following = self.read_option(word, following)
            parts.append(readings)
            if takes_following:
                remaining.pop(0)
        if sum(len(readings) > 1 for readings in parts) > 2:
            raise Dropped("values of options that the documentation does not show")
        return [" ".join([self.page.name, *line]) for line in product(*parts)]

    def read_option(self, option: Word, following: Word | None) -> tuple[list[str], bool]:
        """How the option may be read, and whether that takes the word after it, too."""
        if not HELP.isdisjoint(option.names):
            raise Dropped("help or version")
        name, names = option.text, option.names
        if not any(map(self.documentation.has, names)):
            raise Dropped(UNDOCUMENTED)
        spellings = sorted(
            {*names, *(other for each in names for other in self.documentation.other_names(each))}
        )
        if len(spellings) > 1 and spellings not in self.aliases:
            self.aliases.append(spellings)
        if option.value is not None:
            return [f"{name}={self.note_value(option.value, is_given=option.is_given)}"], False
        takes_value = self.documentation.takes_value(spellings) if following else False
        if takes_value is False or following is None:
            self.unsaid_flags += not self.is_said(spellings)
            return [name], False
        value = self.note_value(following.text, is_given=following.is_given)
        with_value = f"{name}={value}"
        return ([with_value] if takes_value else [with_value, f"{name} {value}"]), True

    def is_said(self, names: list[str]) -> bool:
        """Whether the description has a word of the option's long name, or marks its letter."""
        text = self.description.lower()
        words = [word for name in names for word in re.findall(r"[a-z]{3,}", name)]
        return any(word[:4] in text for word in words) or any(
            f"[{name[1]}]" in self.description for name in names
        )

    def make_case(self) -> Case:
        if ABOUT_HELP.match(self.description):
            raise Dropped("help or version")
        words = self.read_words(self.page.examples[self.number][1])
        if not words:
            raise Dropped("bare command")
        lines = self.build_lines(words)
        if self.unsaid_flags >= 2:
            raise Dropped("two or more flags unsaid")
        names = [name for group in self.aliases for name in group]
        if len(names) != len(set(names)):
            raise Dropped("one name for two options")
        # file1 and file2 stay together, in their order.
        values = sorted(
            dict.fromkeys(self.values),
            key=lambda value: self.hash("order", re.sub(r"\d+(\.\w+)?$", "", value)),
        )
        task = re.sub(r"\[(\w+)\]", r"\1", self.description).rstrip(".:")
        given = f"Use exactly: {', '.join(f'`{value}`' for value in values)}. " if values else ""
        prompt = (
            f"Tool: {self.page.name} ({self.page.heading}). Task: {task}. {given}"
            "Answer with the one command line and nothing else."
        )
        shape = " ".join(word.shape for word in words)
        check: dict[str, list[object]] = {"command": [*lines], "aliases": [*self.aliases]}
        return Case(f"{self.page.name}-{self.number + 1}", self.page.name, prompt, shape, check)


def make_cases(page: Page, documentation: Documentation, counts: Counter[str]) -> list[Case]:
    """Up to five cases of a tool, chosen by a hash; none if there are fewer than four."""
    cases: dict[str, Case] = {}
    for number in range(len(page.examples)):
        try:
            case = Example(page, number, documentation).make_case()
        except Dropped as reason:
            counts[f"example: {reason}"] += 1
            continue
        counts["example: duplicate but for its values"] += case.shape in cases
        cases.setdefault(case.shape, case)
    if len(cases) < MIN_CASES:
        counts["example: of a tool with fewer than 4 cases"] += len(cases)
        return []
    by_hash = sorted(
        cases.values(), key=lambda case: hashlib.sha256(f"bench/tldr:{case.id}".encode()).digest()
    )
    counts["example: beyond the fifth of a tool"] += len(by_hash[MAX_CASES:])
    counts["example: case"] += len(by_hash[:MAX_CASES])
    return sorted(by_hash[:MAX_CASES], key=lambda case: case.id)
