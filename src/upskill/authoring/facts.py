"""Facts: the evidence of a trace as lines of a skill, with questions that ask for what they state.

Only what is sure becomes a fact: commands that worked, errors whose cure follows from what changed, rules that the
person gave in so many words, lines that a command printed, and the settings that an error asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from upskill.authoring.command_roles import program_and_verb
from upskill.authoring.evidence import Observation, TraceEvidence, UserMessage, WorkflowCommand
from upskill.authoring.fixes import ErrorFix
from upskill.authoring.trace_commands import split_words
from upskill.authoring.trace_files import FinalFile
from upskill.traces.redact import MARK

MAX_VALUE, MAX_COMMAND, MAX_MESSAGE = 60, 160, 120  # characters
MAX_SETTINGS = 10
SETTINGS_FILES = (".toml", ".ini", ".cfg", ".conf", ".env", ".yaml", ".yml", ".json", ".properties")
CODE_FILES = re.compile(
    r"\.(?:py|pyi|ipynb|[cm]?[jt]sx?|rs|go|java|kt|scala|c|h|cc|cpp|hpp|cs|rb|php|swift|m|lua|pl|r|jl|ex|exs|hs|ml|css"
    r"|scss|html?|vue|svelte|sql|sh|bash|zsh|ps1|proto|graphql|tex|dart|zig)$",
    re.I,
)
_STOP_WORDS = frozenset(
    (
        *("the", "and", "for", "are", "was", "were", "with", "from", "that", "this", "then", "than", "into", "only"),
        *("also", "not", "one", "but", "you", "your", "has", "have", "had", "its", "always", "never", "use", "run"),
        *("before", "after", "first", "must", "should", "please", "until", "when", "while", "all", "any", "new"),
    )
)
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*[=:]\s*(?P<value>[^\s#{\[|>&*].*?)\s*,?\s*$"""
)
# A sentence that gives a rule, and words that only make sense beside what they point at.
_ORDERS = re.compile(
    r"^(?:always|never|don't|do not|use|prefer|only|make sure|pass|name|label|keep|put|set|sign|run|avoid|add|call)\b",
    re.I,
)
_RULE = re.compile(r"\b(?:always|never|must|mustn't|should not|shouldn't|instead of|rather than)\b", re.I)
_SPEAKS = re.compile(r"\b(?:i|i'm|i've|i'd|me|my|you|yours?|we|our|let's)\b|fuck|shit|wtf|\bdamn|\.\.\.", re.I)
_POINTS = re.compile(
    r"\b(?:it|its|they|them|these|those|same|undo|revert|above|below|one more|existing|earlier|previous|current|second"
    r"|third|line \d+|still)\b|^(?:should|must|is|are|was)\b|\b\d$"
    r"|\b(?:this|that)\b(?! [a-z]{3,} (?:is|are|has|uses|needs|belongs|runs|lives))",
    re.I,
)
_GENERIC_ERROR = re.compile(
    r"^(?:npm error )?(?:command failed|exit(?:ed)?\b.*|failed|error|errors? (?:found|occurred)|build failed|code \d+"
    r"|make: \*\*\*.*|killed|terminated|aborted|traceback.*|assertionerror|assert .*"
    r"|-* ?fail(?:ed)?: .*|test .*failed|\W*)$|[│┌└▲✖❯─]",
    re.I,
)
_EVERYONE_KNOWS = re.compile(
    r"(?:sudo )?(?:apt-get|apt|apk|brew|dnf|yum) (?:-\S+ )*(?:update|upgrade|install|add)\b.*"
    r"|(?:npm|pnpm|yarn|bun)(?: install| i)?"
    r"|\S+ (?:-\S+ )*(?:uninstall|remove)\b.*|pip\d? install (?:-U |--upgrade )?pip|make clean|git \w+"
)
# What an agent adds to the purpose of a command, about the moment and not about the command.
_MOMENT = re.compile(
    r"\s(?:again|after|before|to (?:verify|test|check|see|confirm|make sure)|directly|with fixed?|once more|now"
    r"|so that|since|because|instead)\b.*"
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
    for item in evidence.workflow:
        if not _objected(item.command, item.step, evidence.corrections):
            yield from _command(item, prefix, for_once)
    templates = {item.subcommand: item.command for item in evidence.workflow}
    for fix in evidence.fixes:
        if fix.kind == "file" or not _objected(fix.fix, fix.steps[-1], evidence.corrections):
            yield from _error(fix, templates.get(fix.subcommand, ""), prefix)
    known = _proven_words(evidence)
    for item in evidence.corrections:
        for sentence in _rules(item.text, known):
            yield _rule(sentence, known, (f"{prefix}s{item.step}",))
    errors = {" ".join(fix.error.split()) for fix in evidence.fixes}
    for seen in evidence.observations:
        if seen.line not in errors:
            yield from _printed(seen, prefix)
    asked_for = {fix.fix for fix in evidence.fixes if fix.kind == "file"}
    for file in evidence.files:
        if file.path in asked_for:
            yield from _settings(file, prefix)


def _quotable(*texts: str) -> bool:
    """Whether texts fit between backquotes on one line, and hold no redacted secret."""
    return all(text.strip() and "\n" not in text and MARK.rstrip() not in text and "`" not in text for text in texts)


# Commands that worked.


def _command(item: WorkflowCommand, prefix: str, for_once: set[str]) -> Iterator[Fact]:
    command = portable(item.command)
    words = split_words(command)
    if words[:1] and words[0].startswith(("<", "/", "~")):
        return  # a program that is on one machine only
    if not _quotable(command) or len(command) > MAX_COMMAND:
        return
    temporary = any(PurePosixPath(word).name in for_once or word.startswith(("/tmp/", "/var/")) for word in words)  # noqa: S108
    if item.subcommand and (temporary or _EVERYONE_KNOWS.fullmatch(command)):
        return
    purpose = as_infinitive(item.purpose) if command == item.command else ""
    folder = item.folder if item.folder and not item.folder.startswith(("/", "~", "$", "..")) else ""
    where = f" (in `{folder}`)" if folder and _quotable(folder) else ""
    said = f"{purpose[0].upper()}{purpose[1:]}: `{command}`{where}" if purpose else f"`{command}`{where}"
    program = (item.subcommand or command).split()[0]
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
        _slug(item.subcommand),
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


def _error(fix: ErrorFix, template: str, prefix: str) -> Iterator[Fact]:
    message = bare_message(fix.error, fix.subcommand)
    cure = _cure(fix, template)
    if not fix.related or cure is None or not _quotable(message) or _GENERIC_ERROR.search(message):
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
    yield Fact("error", line, steps_of(fix.steps, prefix), _slug(fix.subcommand), questions)


def _cure(fix: ErrorFix, template: str) -> tuple[str, str] | None:
    """What to do, as the end of a sentence, and the words in it that matter; None where that is not clear."""
    if fix.kind == "before":
        first = portable(fix.fix)
        return (f"run `{first}` first", first) if _quotable(first) and len(first) <= MAX_COMMAND else None
    if fix.kind == "file":
        return _cure_in_file(fix)
    if fix.folder:
        return (f"run it in `{fix.folder}`", fix.folder) if _quotable(fix.folder) else None
    if not _quotable(*fix.added, *fix.dropped) or len(fix.added) > 3 or len(fix.dropped) > 2:
        whole = len(fix.fix) <= MAX_COMMAND and _quotable(fix.fix)
        return (f"run `{fix.fix}` instead", fix.fix) if whole and fix.added else None
    added = " ".join(fix.added)
    if fix.added and fix.dropped:
        if not _replaces(fix):
            return None
        return f"use `{added}` instead of `{' '.join(fix.dropped)}`", added
    if fix.added:
        first = fix.added[0]
        # A value that varied later is no part of the cure.
        parts = [re.sub(r"\s.*", "", part) for part in fix.added]
        varied = [re.search(rf"{re.escape(part)} (<[\w-]+>)", template) for part in parts]
        added = " ".join(
            f"{part} {found[1]}" if found else whole
            for part, found, whole in zip(parts, varied, fix.added, strict=True)
        )
        verb = "set" if re.match(r"[A-Z_]+=", first) else "run it with" if first in ("sudo", "uv") else "add"
        return f"{verb} `{added}`", added
    return f"leave out `{' '.join(fix.dropped)}`", " ".join(fix.dropped)


def _replaces(fix: ErrorFix) -> bool:
    """Whether the new words stand in for the old ones, and are not just another thing to work on."""
    old, new = " ".join(fix.dropped), " ".join(fix.added)
    return (
        any(word.lstrip("-") in fix.error for word in old.split())
        or old.split()[0] == new.split()[0]
        or all(part.startswith("-") for part in (*fix.dropped, *fix.added))
        or SequenceMatcher(None, old, new).ratio() >= 0.6
    )


def _cure_in_file(fix: ErrorFix) -> tuple[str, str] | None:
    name = PurePosixPath(fix.fix).name
    path = fix.fix if not fix.fix.startswith(("/", "~")) else name
    if CODE_FILES.search(name) or not _quotable(path):
        return None  # code that was mended is mended
    if fix.change is not None:
        old, new = (_changed_part(fix.change[0], fix.change[1]), _changed_part(fix.change[1], fix.change[0]))
        if old and new and _quotable(old, new) and len(old) + len(new) <= MAX_COMMAND:
            return f"in `{path}`, change `{old}` to `{new}`", new
        if new and _quotable(new) and len(new) <= MAX_COMMAND and not old:
            return f"add `{new}` to `{path}`", new
    return f"{'write' if fix.written else 'edit'} `{path}`", path


def _changed_part(text: str, other: str) -> str:
    """The lines of an edit that the other side has not."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    apart = [line for line in lines if line not in {" ".join(line.split()) for line in other.splitlines()}]
    return "\n".join(apart)


def bare_message(error: str, subcommand: str) -> str:
    """An error message without the program's name in front and the advice at its end."""
    message = re.sub(r"^(?:[^\w\-\"'(\[./~]+|\S+ error=)+", "", " ".join(error.split()))
    message = re.sub(r"^(?:E {1,3}|! |npm (?:ERR!|error) |thread .{0,40}panicked at \S+ )", "", message)
    message = re.sub(
        r"^/?(?:usr/)?(?:bin/)?(?:ba|z)?sh: (?:line )?\d+: |^\S*\(?\d+[:,]\d+\)?:? +(?:error +)?", "", message
    )
    message = re.sub(r"^(?:[a-z_]\w*\.)+[A-Z]\w+: ", "", message)
    message = re.sub(rf"^{re.escape(subcommand)}:\s*", "", message)
    for word in subcommand.split():
        message = re.sub(rf"^{re.escape(word)}:\s*", "", message)
    message = re.sub(r"^(?:[\w.]*error|fatal)\b(?: TS\d+)?(?::\s*| - )", "", message, flags=re.I)
    for word in subcommand.split():
        message = re.sub(rf"^{re.escape(word)}:\s*", "", message)
    message = re.split(r"\s*;\s|\s+\((?=use |run |try |no |hint|--|see )|\.\s", message)[0].strip().rstrip(".:,")
    return message.replace('"', "'").replace("`", "'")


# Rules.

_AGAINST = re.compile(r"\b(?:not|never|don['’]t|stop|forget|no longer)\s+(?P<what>[^.;:,!?]+)", re.I)


def _objected(command: str, step: int, corrections: Sequence[UserMessage]) -> bool:
    """Whether the person said later that this is not the way: "do not create namespaces by hand"."""
    *_, verb = ("", *program_and_verb(split_words(command)).split())
    words = _stems(word for word in split_words(command) if not word.startswith("-"))
    for item in corrections:
        for found in _AGAINST.finditer(item.text if item.step > step else ""):
            said = _stems([found["what"]])
            condition = re.search(r"\b(?:without|before|unless|until|forget to)\b", found[0], re.IGNORECASE)
            if not condition and _stems([verb]) & said and len(words & said) > 1:
                return True
    return False


def _stems(texts: Iterable[str]) -> set[str]:
    return {word.casefold().rstrip("s") for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}


# What is about one occasion, one person or one secret.
_FOR_ONCE = re.compile(
    r"^never mind\b|\bline \d+|\d[\d ()/-]{6,}\d|\b(?:pin|password|passcode)\b.*\d|\bagain\W*$", re.I
)


def _rules(text: str, known: set[str]) -> Iterator[str]:
    """The sentences of a correction that give a rule and can be understood by themselves."""
    plain = " ".join(text.strip().strip("\"'").split())
    for part in re.split(r"(?<=[.!?])\s+", plain):
        sentence = _without_opening(part)
        sentence = re.sub(r"^you (?:should not|shouldn't|must not|mustn't)\b", "Do not", sentence, flags=re.I)
        sentence = re.sub(r"^you (?:should|must|have to|need to)\b\s*", "", sentence, flags=re.I)
        words = sentence.split()
        if len(words) < 3 or len(sentence) > 200 or not _quotable(sentence) or sentence.endswith("?"):
            continue
        orders, standing = bool(_ORDERS.match(sentence)), bool(re.match(r"(?:always|never)\b", sentence, re.I))
        if not (orders or _RULE.search(sentence)) or _SPEAKS.search(sentence) or _FOR_ONCE.search(sentence):
            continue
        if _POINTS.search(sentence) and not standing:
            continue
        named = {word.lower() for word in re.findall(r"[A-Za-z][\w-]{2,}", sentence)} - _STOP_WORDS
        if named & known or re.search(r"`|\s-{1,2}[a-zA-Z]|_|/", sentence) or standing:
            yield sentence[0].upper() + sentence[1:] + ("" if sentence[-1] in ".!" else ".")


def _without_opening(sentence: str) -> str:
    """A sentence without openings such as "no, please"."""
    for _ in range(3):
        sentence = re.sub(
            r"^(?:no|nope|yes|ok|okay|stop|wait|actually|and|but|so|sure|please|well|hey|i said|i meant)\b[,.!:]*\s*",
            "",
            sentence,
            flags=re.I,
        )
    return sentence


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
        if word.lower() in known and word.lower() not in _STOP_WORDS and len(word) > 2 and words.count(word) == 1
    ]
    questions: tuple[Question, ...] = ()
    if telling:
        gap = re.sub(rf"\b{re.escape(telling[0])}\b", "____", sentence, count=1)
        questions = (Question(f"Fill in the blank: {gap}", _pattern(telling[0]), telling[0]),)
    return Fact("rule", sentence, sources, _slug(sentence), questions)


# What was printed, and settings.


def _printed(seen: Observation, prefix: str) -> Iterator[Fact]:
    line = seen.line.strip("-=> \t➜✓•*")
    if _quotable(seen.command) and MARK.rstrip() not in line and '"' not in line and len(seen.command) <= MAX_VALUE:
        yield Fact("printed", f'`{seen.command}` prints "{line}".', (f"{prefix}s{seen.step}",), _slug(seen.command))


def _settings(file: FinalFile, prefix: str) -> Iterator[Fact]:
    """The settings of a file that an error asked for, as one line."""
    name = PurePosixPath(file.path).name
    if not name.endswith(SETTINGS_FILES) or not file.whole:
        return
    lines = [line.strip() for line in file.content.splitlines() if line.strip() and not line.strip().startswith("#")]
    found = [match for line in lines if (match := _SETTING.match(line))]
    if not found or len(found) != len(lines) or len(found) > MAX_SETTINGS or not _quotable(*lines):
        return
    questions = tuple(
        Question(f"What is the {match['key']} in {name}?", _pattern(value), value)
        for match in found
        if (value := match["value"].strip("\"'")) and len(value) <= MAX_VALUE
    )
    listed = ", ".join(f"`{line.rstrip(',')}`" for line in lines)
    yield Fact("setting", f"`{name}` holds {listed}.", steps_of(file.steps, prefix), _slug(name), questions)


# Words.


def portable(command: str) -> str:
    """A command without paths that exist on one machine only."""
    return re.sub(
        r"(?<![\w=])(?:~|/home/[\w.-]+|/Users/[\w.-]+|/root)(?:/[\w.@+-]+){3,}/?",
        lambda found: "<file>" if re.search(r"\.\w{1,5}$", found[0]) else "<folder>",
        command,
    )


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
    if first.lower().endswith(("ing", "ed")):
        return ""
    return f"{first if first.isupper() else first.lower()} {rest}"


def _arguments(words: tuple[str, ...], head: str) -> tuple[str, ...]:
    """The words of a command after its program and verb."""
    rest = list(words)
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


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())[:6])
