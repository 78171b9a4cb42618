"""Facts: the evidence of a trace as lines of a skill that state one fact each, with questions that ask for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from upskill.authoring.evidence import ErrorFix, SuccessfulCommand, TraceEvidence
from upskill.authoring.trace_commands import program_and_verb, split_words
from upskill.authoring.trace_files import FinalFile
from upskill.traces.redact import MARK

MAX_VALUE, MAX_COMMAND = 60, 120  # characters
SETTINGS_FILES = (".toml", ".ini", ".cfg", ".conf", ".env", ".yaml", ".yml", ".json", ".properties")
_STOP_WORDS = frozenset(
    (
        *("the", "and", "for", "are", "was", "were", "with", "from", "that", "this", "then", "than", "into", "only"),
        *("also", "not", "one", "but", "you", "your", "has", "have", "had", "its", "always", "never", "use", "run"),
        *("before", "after", "first", "must", "should", "please", "until", "when", "while", "all", "any"),
    )
)
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*[=:]\s*(?P<value>[^\s#{\[|>&*].*?)\s*,?\s*$"""
)
_SECTION = re.compile(r"^\s*\[+(?P<name>[\w. -]+)\]+\s*$")


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a skill. Facts of one `group` are about the same thing, and stay on one side of the split."""

    kind: str
    line: str
    sources: tuple[str, ...]  # ids of steps: s12 is the twelfth of the first trace, r2-s12 of the second
    group: str
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    pattern: str  # of a right answer
    answer: str


def facts_of(evidence: TraceEvidence, prefix: str = "") -> Iterator[Fact]:
    """The facts of one trace, the most telling first."""
    known = _proven_words(evidence)
    for item in evidence.corrections:
        for sentence in _sentences(item.text):
            yield _rule(sentence, known, (f"{prefix}s{item.step}",))
    for fix in evidence.fixes:
        if fix.kind == "before":
            yield from _order(fix, prefix)
    for item in evidence.successes:
        yield from _command(item, prefix)
    for fix in evidence.fixes:
        if fix.kind == "command":
            yield from _error(fix, prefix)
    for file in evidence.files:
        yield from _settings(file, prefix)


def _quotable(*texts: str) -> bool:
    """Whether texts fit between backquotes on one line, and hold no redacted secret."""
    return all(text.strip() and "\n" not in text and MARK.rstrip() not in text and "`" not in text for text in texts)


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a correction, without openings such as "no, please"."""
    plain = " ".join(text.strip().strip("\"'").split())
    for part in re.split(r"(?<=[.!?])\s+", plain):
        sentence = re.sub(
            r"^(?:no|nope|yes|ok|okay|stop|wait|actually|and|but|please|well)\b[,.!:]*\s*", "", part, flags=re.I
        )
        sentence = re.sub(r"^(?:no|please|and)\b[,.!:]*\s*", "", sentence, flags=re.I)
        if len(sentence.split()) >= 3 and len(sentence) <= 200 and _quotable(sentence) and not sentence.endswith("?"):
            yield sentence[0].upper() + sentence[1:] + ("" if sentence[-1] in ".!" else ".")


def _proven_words(evidence: TraceEvidence) -> set[str]:
    """Words that proved to matter: those of commands that succeeded and of files that were left."""
    texts = [item.command for item in evidence.successes] + [file.content for file in evidence.files]
    return {word.lower() for text in texts for word in re.findall(r"(?<![\w-])[A-Za-z][\w-]{2,}", text)}


def _rule(sentence: str, known: set[str], sources: tuple[str, ...]) -> Fact:
    questions: list[Question] = []
    words = re.findall(r"[\w-]+", sentence)
    telling = [
        word
        for word in words
        if word.lower() in known and word.lower() not in _STOP_WORDS and len(word) > 2 and words.count(word) == 1
    ]
    if telling:
        blank = telling[0]
        gap = re.sub(rf"\b{re.escape(blank)}\b", "____", sentence, count=1)
        questions.append(Question(f"Fill in the blank: {gap}", _pattern(blank), blank))
    return Fact("rule", sentence, sources, _slug(sentence), tuple(questions))


def _order(fix: ErrorFix, prefix: str) -> Iterator[Fact]:
    later, first = program_and_verb(split_words(fix.command)), program_and_verb(split_words(fix.fix))
    if later and first and later != first and _quotable(later, first):
        question = Question(f"What is the command that must run before {later}?", _pattern(first), f"`{first}`")
        line = f"The command that must run before `{later}` is `{first}`."
        yield Fact("before", line, _steps(fix.steps, prefix), _slug(f"before {later}"), (question,))


def _command(item: SuccessfulCommand, prefix: str) -> Iterator[Fact]:
    words = split_words(item.command)
    head = program_and_verb(words)
    if not _quotable(item.command) or len(item.command) > MAX_COMMAND or not head:
        return
    program = head.split()[0]
    purpose = _as_infinitive(item.purpose)
    what = f"to {purpose}" if purpose else f"for {head}"
    pattern = _pattern(" ".join(_arguments(words, head)) or item.command)
    question = Question(f"What is the command {what} with {program}?", pattern, f"`{item.command}`")
    sources = (f"{prefix}s{item.step}",)
    yield Fact("command", f"The command {what} is `{item.command}`.", sources, _slug(head), (question,))
    for option in [word for word in words if re.match(r"--[a-z]", word)]:
        value = _value_of(option, words)
        name = option.partition("=")[0].lstrip("-").replace("-", " ")
        if value and not value.startswith("-") and _quotable(value) and len(value) <= MAX_VALUE:
            question = Question(f"What is the {name} for {head}?", _pattern(value), value)
            yield Fact("option", f"The {name} for {head} is `{value}`.", sources, _slug(head), (question,))


def _error(fix: ErrorFix, prefix: str) -> Iterator[Fact]:
    head = program_and_verb(split_words(fix.command))
    cure = _cure(fix)
    message = _bare_message(fix.error, head)
    if not cure or not message or not _quotable(message, cure) or len(message) > 120 or len(cure) > MAX_COMMAND:
        return
    telling = [word for word in cure.split() if word.lower() not in message.lower()]
    if not telling or any(word.startswith("-") and word in message for word in cure.split()):
        return  # a wrong value: the fact on the option has the right one
    question = Question(f'What is the cure for "{message}"?', _pattern(telling[-1]), f"`{cure}`")
    yield Fact("error", f'The cure for "{message}" is `{cure}`.', _steps(fix.steps, prefix), _slug(head), (question,))


def _settings(file: FinalFile, prefix: str) -> Iterator[Fact]:
    """One fact for each setting in a file."""
    name = PurePosixPath(file.path).name
    if not name.endswith(SETTINGS_FILES) or not file.whole:
        return
    section = ""
    for line in file.content.splitlines()[:200]:
        if found := _SECTION.match(line):
            section = found["name"].strip() + "."
        elif found := _SETTING.match(line):
            key, value = f"{section}{found['key']}", found["value"].strip("\"'")
            if _quotable(key, value) and len(value) <= MAX_VALUE and not key.lower().endswith(("version", "schema")):
                question = Question(f"What is the {key} in {name}?", _pattern(value), value)
                text = f"The {key} in {name} is `{value}`."
                yield Fact("setting", text, _steps(file.steps, prefix), _slug(f"{name} {key}"), (question,))


# Words.


def _steps(numbers: Iterable[int], prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}s{number}" for number in numbers)


def _as_infinitive(purpose: str) -> str:
    """What an agent said a command is for, if it can follow the word "to"; else empty."""
    plain = purpose.strip().rstrip(".:!").strip()
    if not re.fullmatch(r"[A-Za-z]+(?: [\w'./-]+){1,9}", plain) or re.match(
        r"(?i)(?:i|it|now|the|this|that|let)\b", plain
    ):
        return ""
    first, _, rest = plain.partition(" ")
    if first.lower().endswith(("ing", "ed")):
        return ""
    return f"{first if first.isupper() else first.lower()} {rest}"


def _arguments(words: tuple[str, ...], head: str) -> tuple[str, ...]:
    """The words of a command after its program and verb."""
    known = head.split()
    rest = list(words)
    for word in known:
        for place, other in enumerate(rest):
            if other == word or PurePosixPath(other).name == word:
                del rest[place]
                break
    return tuple(rest)


def _value_of(option: str, words: tuple[str, ...]) -> str:
    if "=" in option:
        return option.partition("=")[2]
    place = words.index(option)
    return words[place + 1] if place + 1 < len(words) else ""


def _cure(fix: ErrorFix) -> str:
    """What only the command that worked has: an option with its value, or all of it."""
    before, after = split_words(fix.command), split_words(fix.fix)
    if program_and_verb(before) != program_and_verb(after):
        return fix.fix
    new: list[str] = []
    for place, word in enumerate(after):
        if word in before:
            continue
        if place and after[place - 1].startswith("-") and after[place - 1] not in new and not word.startswith("-"):
            new.append(after[place - 1])
        new.append(word)
    return " ".join(new)


def _bare_message(error: str, head: str) -> str:
    """An error message without the program's name in front and the advice at its end."""
    message = error.strip()
    for word in head.split():
        message = re.sub(rf"^{re.escape(word)}:\s*", "", message)
    message = re.sub(r"^(?:\w*error|fatal):\s*", "", message, flags=re.I)
    message = re.split(r"\s*[;(]|\.\s", message)[0].strip().rstrip(".:")
    return message.replace('"', "'")


def _pattern(answer: str) -> str:
    """A regular expression that finds the words of an answer, whole and in order."""
    words = [re.escape(word) for word in re.split(r"[\s=]+", answer) if word]
    return r"(?<![\w-])" + r"[\s=\"'`]+".join(words) + r"(?![\w-])"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())[:6])
