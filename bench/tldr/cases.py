"""From a page's examples to cases (rule 4 in README.md). Nothing here knows a tool: page and documentation decide."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pages import PLACEHOLDER, Page, rank

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
# How it writes two names of one option: `-o, --output`, `--output FILE, -o`, `-o | --output`.
SHORT, LONG = r"(?<![\w-])(-\w)(?![\w-])", r"(?<![\w-])(--[\w-]+)"
OR = r"(?:[ =][<\[{]?[\w.|-]+[>\]}]?)?(?:, ?| or | ?/ ?|\|)"
FIRST_SLOT = 0xE000  # private characters stand for placeholders while a line is split into words
SLOT = re.compile("[\ue000-\uf8ff]")

Case = dict[str, Any]  # as in a suite


class Dropped(Exception):
    """Why an example is no case."""


# What the cases ask of a documentation
# ------------------------------------------------------------------------------------------------


def has(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def takes_value(text: str, names: str) -> bool | None:
    """By usage and by the lines that define the option; None where neither shows it."""
    shown: set[bool] = set()
    for name in map(re.escape, names.split()):
        if re.search(rf"(?<![\w-]){name}(?:{METAVAR})", text):
            return True
        before = r"(?:^\s*|\[|^\s*-[^\s,]+(?:[ =]\S+)?, ?)"
        defined = rf"{before}{name}(?![\w-])(?:, ?--?[\w-]+)*(.*)"
        for rest in re.findall(defined, text, re.MULTILINE):
            if NAMED_METAVAR.match(rest):
                shown.add(True)
            elif NO_METAVAR.match(rest):
                shown.add(False)
    return max(shown, default=None)


def other_names(text: str, name: str) -> list[str]:
    """The long name of a short option, and the other way round."""
    pairs = re.findall(SHORT + OR + LONG, text) + re.findall(LONG + OR + SHORT, text)
    others = {each for pair in pairs if name in pair for each in pair} - {name}
    # Subcommands may use one letter for several options: then it stands for none.
    return [*others] if len(others) == 1 else []


@dataclass
class Documentation:
    """Answers are kept as facts, so that later the text is not needed."""

    text: str
    facts: dict[str, Any]

    def ask(self, question: Callable[[str, str], Any], words: str) -> Any:
        return self.facts.setdefault(f"{question.__name__} {words}", question(self.text, words))


# Examples
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A word of a command: an option, perhaps with its value, or something else, which has no name."""

    name: str
    value: str  # empty for a flag
    is_given: bool  # the value is the page's example of what people fill in


@dataclass
class Example:
    tool: str
    number: int
    description: str
    documentation: Documentation
    slots: list[str] = field(default_factory=list[str])
    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # that the page has
    values: list[str] = field(default_factory=list[str])
    aliases: list[list[str]] = field(default_factory=list[list[str]])

    def hash(self, text: str) -> int:
        return int(rank(f"{self.tool}:{self.number}:{text}")[:12], 16)

    def choose(self, choices: str, content: str) -> str:
        options = choices.split("|")
        return options[self.hash(content) % len(options)]

    def fill(self, content: str) -> str:
        """The content of a placeholder, with choices made and numbers set by a hash."""
        if OPEN.fullmatch(content):
            raise Dropped("open placeholder")
        content = re.sub(r"[ ,|]*\.\.\.$", "", content)
        for part in re.findall(r"\[[^\[\]]*\]", content):
            content = content.replace(part, self.choose(part[1:-1], content))
        content = self.choose(content, content)
        if between := RANGE.fullmatch(content):
            low, high = map(int, between.groups())
            return str(low + self.hash(content) % max(high - low + 1, 1))
        return str(2 + self.hash(content) % 90) if NUMBER.fullmatch(content) else content

    def open_slots(self, match: re.Match[str]) -> str:
        """What stands for a placeholder: a slot, or one for each word of a list."""
        if names := OPTION_NAMES.fullmatch(match[1]):
            texts = [names[2]]
            self.names[names[2]] = [*names.groups()]
        else:
            filled = self.fill(match[1].strip())
            is_quoted = match.string[: match.start()].endswith(('"', "'"))
            texts = [filled] if is_quoted else filled.split() or [""]
        first = FIRST_SLOT + len(self.slots)
        self.slots += texts
        return " ".join(map(chr, range(first, first + len(texts))))

    def restore(self, text: str) -> str:
        return SLOT.sub(lambda match: self.slots[ord(match[0]) - FIRST_SLOT], text)

    def read_words(self, command: str) -> list[Word]:
        try:
            words = split_words(PLACEHOLDER.sub(self.open_slots, command.removeprefix("sudo ")))
        except ValueError:
            raise Dropped("shell syntax") from None
        if words[:1] != [self.tool]:
            raise Dropped("another program comes first")
        if not words[1:]:
            raise Dropped("bare command")
        return [*map(self.read_word, words[1:])]

    def read_word(self, word: str) -> Word:
        name, equals, value = word.partition("=")
        if not equals and (glued := re.fullmatch(r"(-\w)([^\w-].*)", word)):
            name, value = glued.groups()
        is_option = self.restore(name[:1]) in self.names or (
            re.match(r"-[\w?-]", name) and word != "--"
        )
        if not is_option:
            name, value = "", word
        return Word(self.restore(name), self.restore(value), bool(SLOT.search(value)))

    def read_value(self, word: Word) -> str:
        """The value as the checked line has it; the prompt gives it if the page's reader has to fill it in."""
        text = word.value
        if word.is_given:
            if not text or text.startswith("-"):
                raise Dropped("open placeholder")
            self.values.append(text)
        elif text.casefold() not in self.description.casefold():
            is_word = re.fullmatch(r"[A-Za-z][\w.:-]*", text)
            if not (is_word and self.documentation.ask(has, text)):
                raise Dropped("literal that nobody could know")
        return shlex.quote(text)

    def read_argument(self, word: Word) -> str:
        text = word.value
        if text in HELP:
            raise Dropped("help or version")
        is_subcommand = not word.is_given and not self.values and text.isidentifier()
        if is_subcommand and not self.documentation.ask(has, text):
            raise Dropped(UNDOCUMENTED)
        return text if text == "--" else self.read_value(word)

    def read_names(self, name: str) -> list[str]:
        """All names of an option, by page and documentation."""
        names = self.names.get(name, [name])
        if not HELP.isdisjoint(names):
            raise Dropped("help or version")
        if not any(self.documentation.ask(has, each) for each in names):
            raise Dropped(UNDOCUMENTED)
        others = [other for each in names for other in self.documentation.ask(other_names, each)]
        spellings = sorted({*names, *others})
        if len(spellings) > 1 and spellings not in self.aliases:
            self.aliases.append(spellings)
        return spellings

    def read_option(self, option: Word, following: list[Word]) -> list[str]:
        """How the option may be read: with the next word where it takes one, or where nothing shows whether it does."""
        name = option.name
        names = self.read_names(name)
        if option.value:
            return [f"{name}={self.read_value(option)}"]
        is_last = not following or following[0].name or following[0].value == "--"
        takes_next = False if is_last else self.documentation.ask(takes_value, " ".join(names))
        if takes_next is False:
            return [name]
        value = self.read_value(following.pop(0))
        with_value = f"{name}={value}"
        return [with_value] if takes_next else [with_value, f"{name} {value}"]

    def build_lines(self, words: list[Word]) -> list[str]:
        """The lines to check: more than one where nothing shows whether an option takes the next word."""
        lines = [self.tool]
        following = list(words)
        while following:
            word = following.pop(0)
            if word.name:
                readings = self.read_option(word, following)
            else:
                readings = [self.read_argument(word)]
            lines = [f"{line} {reading}" for line in lines for reading in readings]
        return lines

    def describe_values(self) -> str:
        # file1 and file2 stay together, in their order.
        values = sorted(
            dict.fromkeys(self.values),
            key=lambda value: self.hash("order:" + re.sub(r"\d+(\.\w+)?$", "", value)),
        )
        return f"Use exactly: {', '.join(f'`{value}`' for value in values)}. " if values else ""


def make_case(page: Page, number: int, documentation: Documentation) -> tuple[str, Case]:
    """A case, and its shape, which leaves out its values."""
    description, command = page.examples[number]
    if ABOUT_HELP.match(description):
        raise Dropped("help or version")
    example = Example(page.name, number, description, documentation)
    words = example.read_words(command)
    lines = example.build_lines(words)
    task = re.sub(r"\[(\w+)\]", r"\1", description).rstrip(".:")
    prompt = (
        f"Tool: {page.name} ({page.heading}). Task: {task}. {example.describe_values()}"
        "Answer with the one command line and nothing else."
    )
    check = {"command_line": {"command": lines, "aliases": example.aliases}}
    case = {
        "id": f"{page.name}-{number + 1}",
        "group": page.name,
        "prompt": prompt,
        "checks": [check],
    }
    shape = [word.name or ("VALUE" if word.is_given else word.value) for word in words]
    return " ".join(shape), case


def make_cases(page: Page, documentation: Documentation, counts: Counter[str]) -> list[Case]:
    """Up to five cases of a tool, chosen by a hash; none if there are fewer than four."""
    cases: dict[str, Case] = {}
    for number in range(len(page.examples)):
        try:
            shape, case = make_case(page, number, documentation)
        except Dropped as reason:
            counts[f"example: {reason}"] += 1
            continue
        counts["example: duplicate but for its values"] += shape in cases
        cases.setdefault(shape, case)
    if len(cases) < MIN_CASES:
        counts["example: of a tool with fewer than 4 cases"] += len(cases)
        return []
    by_hash = sorted(cases.values(), key=lambda case: rank(case["id"]))
    chosen = by_hash[:MAX_CASES]
    counts["example: beyond the fifth of a tool"] += len(by_hash) - len(chosen)
    counts["example: case"] += len(chosen)
    return sorted(chosen, key=lambda case: case["id"])
