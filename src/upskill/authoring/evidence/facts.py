"""Facts: the evidence of a trace as lines of a skill, with questions that ask for what they state.

Only what is sure becomes a fact: commands that worked, errors whose cure follows from what changed, rules that the
person gave in so many words, lines that a command printed, and the settings that an error asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from upskill.authoring.evidence.cures import SETTINGS_FILES, bare_message, cure_of
from upskill.authoring.evidence.evidence import Observation, TraceEvidence, UserMessage, WorkflowCommand
from upskill.authoring.evidence.fixes import ErrorFix
from upskill.authoring.evidence.placeholders import is_relative, portable, quotable
from upskill.authoring.evidence.trace_commands import split_words
from upskill.authoring.evidence.trace_files import FinalFile
from upskill.authoring.evidence.user_rules import STOP_WORDS, Objections, in_order, rules_of

MAX_VALUE, MAX_COMMAND, MAX_MESSAGE = 60, 160, 120  # characters
MAX_SETTINGS = 10
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*[=:]\s*(?P<value>[^\s#{\[|>&*].*?)\s*,?\s*$"""
)
_GENERIC_ERROR = re.compile(
    r"^(?:npm error )?(?:command failed|exit(?:ed)?\b.*|failed|error|errors? (?:found|occurred)|build failed|code \d+"
    r"|make: \*\*\*.*|killed|terminated|aborted|traceback.*|assertionerror|assert .*"
    r"|-* ?fail(?:ed)?: .*|test .*failed|\W*)$|[│┌└▲✖❯─]",
    re.I,
)
_UNDOES = re.compile(
    r" (?:\S+[-:])?(?:reset|undo|clean|cleanup|prune|purge|rollback|revert|destroy|delete|del|remove|rm|uninstall"
    r"|teardown|down|drop|stop|kill|abort|cancel|discard|downgrade|wipe|logout)$|^(?:dropdb|pkill|killall|clean)\b"
)
_EVERYONE_KNOWS = re.compile(
    r"(?:sudo )?(?:apt-get|apt|apk|brew|dnf|yum) (?:-\S+ )*(?:update|upgrade|install|add)\b.*"
    r"|(?:npm|pnpm|yarn|bun)(?: install| i)?"
    r"|\S+ (?:-\S+ )*(?:uninstall|remove)\b.*|pip\d? install (?:-U |--upgrade )?pip|make clean|git \w+"
)
# Programs that are worth a step without any word after them.
_ALONE = frozenset(("make", "pytest", "tox", "ninja", "just", "tsc", "mypy", "pyright", "eslint", "vitest", "jest"))
_AT_THAT_MOMENT = re.compile(
    r"\b(?:remaining|fixed|updated|new|newly|failing|still|final|same|rebuild|re-?run|retry|clean(?:ly)?)\b", re.I
)
# What an agent adds to the purpose of a command, about the moment and not about the command.
_MOMENT = re.compile(
    r"\s(?:again|after|before|to (?:verify|test|check|see|confirm|make sure)|directly|with fixed?|once more|now"
    r"|so that|since|because|instead|with)\b.*"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a skill. Facts of one `group` are about the same thing."""

    kind: str
    line: str
    sources: tuple[str, ...]  # ids of steps: s12 is the twelfth of the first trace, r2-s12 of the second
    group: str
    questions: tuple[Question, ...] = ()
    telling: bool = True  # False: nobody needs a skill for it


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    pattern: str  # of a right answer
    answer: str


def facts_of(evidence: TraceEvidence, prefix: str = "") -> Iterator[Fact]:
    """The facts of one trace: the workflow, errors and their cures, rules, what was printed, settings."""
    bundled = {command.path for command in evidence.reused if command.path}
    for_once = {
        PurePosixPath(file.path).name
        for file in evidence.files
        if file.whole and file.path not in bundled and not file.path.endswith(SETTINGS_FILES)
    }
    objections = Objections(evidence.turns)
    wanted = [item for item in evidence.workflow if not objections.against(item.command, item.step)]
    for item in in_order(_without_undoing(wanted, evidence.turns), evidence.turns):
        yield from _command(item, prefix, for_once, evidence.cwd)
    templates = {item.subcommand: item.command for item in evidence.workflow}
    for fix in evidence.fixes:
        cure = cure_of(fix, templates.get(fix.subcommand, ""), evidence.cwd)
        if cure is None or not fix.related:
            continue
        told = [fix.subcommand, cure[1] if fix.kind != "command" else f"{fix.subcommand} {cure[1]}"]
        if not any(objections.against(command, fix.steps[-1]) for command in told):
            yield from _error(fix, cure, prefix, evidence.cwd)
    known = _proven_words(evidence)
    for sentence, step in rules_of(evidence.corrections, evidence.turns, known):
        yield _rule(sentence, known, (f"{prefix}s{step}",))
    errors = {" ".join(fix.error.split()) for fix in evidence.fixes}
    for seen in evidence.observations:
        once = any(PurePosixPath(word).name in for_once for word in split_words(seen.command))
        if seen.line not in errors and not once and not objections.against(seen.command, seen.step):
            yield from _printed(seen, prefix)
    asked_for = {fix.fix for fix in evidence.fixes if fix.kind == "file"}
    for file in evidence.files:
        if file.path in asked_for:
            yield from _settings(file, prefix)


# Commands that worked.


def _without_undoing(items: Sequence[WorkflowCommand], turns: Sequence[UserMessage]) -> list[WorkflowCommand]:
    """The commands without those that undo or clean up before the work is done, unless that was the task."""
    asked = {word for turn in turns for word in re.findall(r"[a-z]+", turn.text.lower())}
    last = max((place for place, item in enumerate(items) if not _undoes(item)), default=-1)
    return [
        item
        for place, item in enumerate(items)
        if not _undoes(item) or place > last >= 0 or item.subcommand.split()[-1] in asked
    ]


def _undoes(item: WorkflowCommand) -> bool:
    return bool(_UNDOES.search(item.subcommand))


def _command(item: WorkflowCommand, prefix: str, for_once: set[str], cwd: str) -> Iterator[Fact]:
    command = re.sub(r"^(npm|npx|pnpm|yarn)\.cmd\b", r"\1", portable(item.command, cwd))
    words = split_words(command)
    if words[:1] and (words[0].startswith(("<", "/", "~")) or "\\" in command.split()[0]):
        return  # a program that is on one machine only
    if re.search(r"\$\{?[a-z_]", command) or (len(words) == 1 and words[0] not in _ALONE):
        return  # it takes a variable or a function that was made before
    if not quotable(command) or len(command) > MAX_COMMAND:
        return
    program = (item.subcommand or command).split()[0]
    paths = [PurePosixPath(word) for word in split_words(item.command)]
    temporary = any(
        path.name in for_once or (path.name == program and portable(str(path), cwd) != str(path)) for path in paths
    )
    if item.subcommand and (temporary or _EVERYONE_KNOWS.fullmatch(command)):
        return
    varies = command != item.command or re.search(r"<(?:name|path|file)>", command)
    purpose = as_infinitive(item.purpose) if not varies else ""
    where = f" (in `{item.folder}`)" if is_relative(item.folder) and quotable(item.folder) else ""
    said = f"{purpose[0].upper()}{purpose[1:]}: `{command}`{where}" if purpose else f"`{command}`{where}"
    arguments = _arguments(words, item.subcommand)
    what = f"to {purpose}" if purpose else f"for {item.subcommand}"
    after = next((place for place, word in enumerate(words) if PurePosixPath(word).name == program), -1) + 1
    # The program may be left out, but where it is said the match begins with it, so that "not" before it is seen.
    front = r"\s+".join(re.escape(word.removeprefix("./")) for word in words[:after])
    pattern = (rf"(?:{front}\s+)?" if words[after:] else "") + _pattern(" ".join(words[after:]) or command)
    questions = (
        Question(f"What is the command {what} with {program}?", pattern, f"`{command.removeprefix('./')}`"),
        *_about_options(words, item.subcommand),
    )
    yield Fact(
        "workflow",
        said,
        steps_of(item.steps[-3:], prefix),
        slug(item.subcommand),
        questions,
        telling=any(not re.match(r"[./~<]|-v$|-q$|.*/", word) for word in arguments),
    )


def _about_options(words: tuple[str, ...], subcommand: str) -> Iterator[Question]:
    for place, option in enumerate(words):
        if not re.match(r"--[a-z]", option):
            continue
        name, equals, value = option.partition("=")
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        if value and re.fullmatch(r"[\w./:@+-]+", value) and not value.startswith("-") and len(value) <= MAX_VALUE:
            said = name.lstrip("-").replace("-", " ")
            yield Question(f"What is the {said} for {subcommand}?", _pattern(value), value)


# Errors and their cures.


def _error(fix: ErrorFix, cure: tuple[str, str], prefix: str, cwd: str) -> Iterator[Fact]:
    message = portable(bare_message(fix.error, fix.subcommand), cwd)
    if not quotable(message) or _GENERIC_ERROR.search(message):
        return
    if len(message) > MAX_MESSAGE or len(message.split()) < 2:
        return
    if message.endswith("not found") and fix.kind == "before" and fix.fix.split()[-1] == fix.subcommand:
        return  # everyone installs a program that is missing
    said, key = cure
    line = f'`{fix.subcommand}` fails with "{message}": {said}.'
    telling = [word for word in split_words(key) if word.lower() not in message.lower() and re.match(r"[^<].", word)]
    questions = (
        (Question(f'What is the cure for "{message}" of {fix.subcommand}?', _pattern(telling[-1]), f"`{key}`"),)
        if telling
        else ()
    )
    yield Fact("error", line, steps_of(fix.steps, prefix), slug(fix.subcommand), questions)


# Rules.


def _proven_words(evidence: TraceEvidence) -> set[str]:
    """Words that proved to matter: those of commands that worked and of settings that were left."""
    texts = [item.command for item in evidence.workflow]
    texts += [file.content for file in evidence.files if file.path.endswith(SETTINGS_FILES)]
    texts += [PurePosixPath(file.path).stem for file in evidence.files]
    return {word.lower() for text in texts for word in re.findall(r"(?<!\w)[A-Za-z][\w-]{2,}", text)}


def _rule(sentence: str, known: set[str], sources: tuple[str, ...]) -> Fact:
    words = re.findall(r"[\w-]+", sentence)
    telling = [
        word
        for word in words
        if word.lower() in known and word.lower() not in STOP_WORDS and len(word) > 2 and words.count(word) == 1
    ]
    questions: tuple[Question, ...] = ()
    if telling:
        gap = re.sub(rf"\b{re.escape(telling[0])}\b", "____", sentence, count=1)
        questions = (Question(f"Fill in the blank: {gap}", _pattern(telling[0]), telling[0]),)
    return Fact("rule", sentence, sources, slug(sentence), questions)


# What was printed, and settings.


def _printed(seen: Observation, prefix: str) -> Iterator[Fact]:
    line = seen.line.strip("-=> \t➜✓•*").removeprefix("Output: ")
    if '"' in line or not quotable(seen.command, line) or len(seen.command) > MAX_VALUE:
        return
    if portable(seen.command) == seen.command and portable(line) == line:  # else it is about one run
        yield Fact("printed", f'`{seen.command}` prints "{line}".', (f"{prefix}s{seen.step}",), slug(seen.command))


def _settings(file: FinalFile, prefix: str) -> Iterator[Fact]:
    """The settings of a file that an error asked for, as one line."""
    name = PurePosixPath(file.path).name
    if not name.endswith(SETTINGS_FILES) or not file.whole:
        return
    lines = [line.strip() for line in file.content.splitlines() if line.strip() and not line.strip().startswith("#")]
    found = [match for line in lines if (match := _SETTING.match(line))]
    if (
        not found
        or len(found) != len(lines)
        or len(found) > MAX_SETTINGS
        or not quotable(*lines)
        or portable(file.content) != file.content
    ):
        return
    questions = tuple(
        Question(f"What is the {match['key']} in {name}?", _pattern(value), value)
        for match in found
        if (value := match["value"].strip("\"'")) and len(value) <= MAX_VALUE
    )
    listed = ", ".join(f"`{line.rstrip(',')}`" for line in lines)
    yield Fact("setting", f"`{name}` holds {listed}.", steps_of(file.steps, prefix), slug(name), questions)


# Words.


def steps_of(numbers: Iterable[int], prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}s{number}" for number in numbers)


def as_infinitive(purpose: str) -> str:
    """What an agent said a command is for, if it can follow the word "to"; else empty."""
    plain = _MOMENT.sub("", purpose.strip().rstrip(".:!")).strip()
    if not re.fullmatch(r"[A-Za-z]+(?: [\w'./()-]+){1,9}", plain) or re.match(
        r"(?i)(?:i|it|now|the|this|that|let|let's|we|runs|try|trying|again|first|next|then|ok|okay|before|since)\b",
        plain,
    ):
        return ""
    first, _, rest = plain.partition(" ")
    if first.lower().endswith(("ing", "ed")) or _AT_THAT_MOMENT.search(plain):
        return ""
    return f"{first if first.isupper() else first.lower()} {rest}"


def _arguments(words: tuple[str, ...], head: str) -> tuple[str, ...]:
    """The words of a command after its program and verb."""
    rest = [word for word in words if not re.fullmatch(r"(?:python|node|ruby|perl|bash|sh|deno|uv|npx)[\d.]*|-m", word)]
    for word in head.split():
        for place, other in enumerate(rest):
            if other == word or PurePosixPath(other).name == word:
                del rest[place]
                break
    return tuple(rest)


def _pattern(answer: str) -> str:
    """A regular expression that finds the words of an answer, whole and in order; anything for a placeholder."""
    words = [
        r"\S+" if re.fullmatch(r"<[\w.-]+>", word) else re.escape(word) for word in re.split(r"[\s=]+", answer) if word
    ]
    return r"(?<![\w-])" + r"[\s=\"'`]+".join(words) + r"(?![\w-])"


def slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())[:6])
