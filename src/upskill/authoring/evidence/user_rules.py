"""Rules of the person: what to do always or never, what to leave alone, and what comes before what.

A rule is a sentence of a correction, or of the first message beside the task, that can be understood by itself. Of two
that contradict each other the later one stands. What the person told the agent to drop is taught nowhere, and no order
of commands may break a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from upskill.authoring.evidence.command_roles import program_and_verb
from upskill.authoring.evidence.evidence import MAX_TURN, UserMessage, WorkflowCommand
from upskill.authoring.evidence.placeholders import quotable, without_values
from upskill.authoring.evidence.trace_commands import split_words

STOP_WORDS = frozenset(
    (
        *("the", "and", "for", "are", "was", "were", "with", "from", "that", "this", "then", "than", "into", "only"),
        *("also", "not", "one", "but", "you", "your", "has", "have", "had", "its", "always", "never", "use", "run"),
        *("before", "after", "first", "must", "should", "please", "until", "when", "while", "all", "any", "new"),
    )
)
# A sentence that gives a rule, and words that only make sense beside what they point at.
_ORDERS = re.compile(
    r"^(?:always|never|don't|do not|use|prefer|only|make sure|pass|name|label|keep|put|set|sign|run|avoid|add|call)\b",
    re.I,
)
# Orders that are rules only where a word says that they hold beyond the moment.
_ONCE = re.compile(r"^(?:run|add|set|put|call|sign|pass|name|label|keep)\b", re.I)
_HOLDS = re.compile(
    r"\b(?:always|never|every|each|any|all|before|after|whenever|when|instead|not|rather|must|only|without|unless)\b|\s--?[a-z]|`",
    re.I,
)
_STANDS = re.compile(r"(?:always|never|only|don['’]t|do not|(?:you )?must)\b", re.I)
_RULE = re.compile(r"\b(?:always|never|must|mustn't|should not|shouldn't|instead of|rather than)\b", re.I)
_SPEAKS = re.compile(r"\b(?:i|i'm|i've|i'd|me|my|you|yours?|we|our|let's)\b|fuck|shit|wtf|\bdamn|\.\.\.", re.I)
_POINTS = re.compile(
    r"\b(?:it|its|they|them|these|those|same|undo|revert|above|below|one more|existing|earlier|previous|current|second"
    r"|third|line \d+|still)\b|^(?:should|must|is|are|was)\b|\b\d$"
    r"|\b(?:this|that)\b(?! [a-z]{3,} (?:is|are|has|uses|needs|belongs|runs|lives))",
    re.I,
)
# What is about one occasion, one person or one secret.
_FOR_ONCE = re.compile(
    r"^never mind\b|\bline \d+|\d[\d ()/-]{6,}\d|\b(?:pin|password|passcode)\b.*\d|\bagain\W*$"
    r"|\b(?:yet|for now|today|tonight|tomorrow)\b",
    re.I,
)
_NAME = r"[\w@./+-]*\w"
_NOT_USE = (
    r"(?:do(?:n['’]t| not)|never|stop|quit|avoid|no longer)\s+(?:ever\s+)?"
    r"(?:us(?:e|ing)|run(?:ning)?|call(?:ing)?|go(?:ing)? with)"
)
_DROP = r"(?:forget(?:\s+about)?|drop|ditch|scrap|abandon|get rid of)"
# What the person gives up: "forget poetry", "don't use docker here", "pnpm, not npm", "uv instead of pip".
_GIVES_UP = re.compile(
    rf"\b(?:{_NOT_USE}|{_DROP}|(?:use|take|prefer|run)\b[^.;:!?\n]{{1,60}}?(?:\binstead of|\brather than|,\s*not))"
    r"\s+(?:the\s+)?(?P<what>[^.;:,!?\n]+?)"
    r"(?=\s+(?:and (?!\w+[.!]?$)|but|so|because|since|it|use|go|as)\b|\.(?:\s|$)|[;:,!?\n]|$)",
    re.I,
)
_AGAINST = re.compile(r"\b(?:not|never|don['’]t|stop|forget|no longer)\s+(?P<what>[^.;:,!?]+)", re.I)
_CONDITION = re.compile(
    r"\b(?:without|before|after|unless|until|when|if|while|on|for|during|against|forget to)\b", re.I
)
_FILLERS = frozenset(
    (
        *(
            "the",
            "a",
            "an",
            "any",
            "that",
            "this",
            "here",
            "anymore",
            "more",
            "again",
            "please",
            "at",
            "all",
            "in",
            "repo",
            "one",
        ),
        *(
            "project",
            "command",
            "tool",
            "cli",
            "flag",
            "option",
            "now",
            "today",
            "ever",
            "for",
            "of",
            "to",
            "using",
            "use",
            "run",
        ),
    )
)
_ALLOWS = re.compile(
    r"\b(?:use|using|always|run|keep|back to|fine|ok(?:ay)?|allowed|can|may|must|should|fixed|works)\b", re.I
)
_TAKES_BACK = re.compile(
    r"^\W*(?:never ?mind|scratch that|forget (?:that|it|what i said)|ignore (?:that|my last|what i said)"
    r"|i take that back)",
    re.I,
)


def sentences_of(text: str) -> list[str]:
    plain = " ".join(text.strip().strip("\"'").split())
    return [_without_opening(part) for part in re.split(r"(?<=[.!?])\s+", plain)]


def rules_of(
    corrections: Sequence[UserMessage], turns: Sequence[UserMessage], known: set[str]
) -> Iterator[tuple[str, int]]:
    """The rules that stand at the end, each with its step. `known` words proved to matter."""
    found = [(sentence, turn.step) for turn in turns[:1] for sentence in _rules_beside_task(turn.text, known)]
    found += [(sentence, item.step) for item in corrections for sentence in _rules(item.text, known)]
    said = [(sentence, turn.step) for turn in turns for sentence in sentences_of(turn.text)]
    last = 0
    for turn in turns:
        if _TAKES_BACK.match(turn.text):
            found = [(sentence, step) for sentence, step in found if step != last]
        last = turn.step
    for sentence, step in found:
        later = [other for other, when in said if when > step]
        if not any(contradicts(other, sentence) for other in later):
            yield sentence, step


def _rules_beside_task(text: str, known: set[str]) -> Iterator[str]:
    """The rules of the first message: what it says beside the task to do always or never."""
    items = re.split(r"\n\s*(?:[-*•]|\d+[.)])\s+|\n\s*\n", text)
    sentences = [sentence for item in items for sentence in sentences_of(item) if sentence]
    if len(text) > MAX_TURN or len(sentences) < 2:
        return  # all of it is the task
    for sentence in sentences:
        if _STANDS.match(sentence):
            yield from _rules(sentence, known)


def _rules(text: str, known: set[str]) -> Iterator[str]:
    """The sentences of a correction that give a rule and can be understood by themselves."""
    for part in sentences_of(text):
        sentence = _as_rule(part, known)
        words = sentence.split()
        if len(words) < 3 or len(sentence) > 200 or not quotable(sentence) or sentence.endswith("?"):
            continue
        orders, standing = bool(_ORDERS.match(sentence)), bool(re.match(r"(?:always|never)\b", sentence, re.I))
        orders = orders and not (_ONCE.match(sentence) and not _HOLDS.search(sentence))
        if not (orders or _RULE.search(sentence)) or _SPEAKS.search(sentence) or _FOR_ONCE.search(sentence):
            continue
        if (_POINTS.search(sentence) and not standing) or without_values(sentence) != sentence:
            continue
        named = {word.lower() for word in re.findall(r"[A-Za-z][\w-]{2,}", sentence)} - STOP_WORDS
        if named & known or re.search(r"`|\s-{1,2}[a-zA-Z]|_|/", sentence) or standing:
            yield sentence[0].upper() + sentence[1:] + ("" if sentence[-1] in ".!" else ".")


def _as_rule(sentence: str, known: set[str]) -> str:
    """What a person ordered as a rule for others: "forget poetry, use uv" is "Use uv, not poetry"."""
    sentence = re.sub(r"^you (?:should not|shouldn't|must not|mustn't)\b", "Do not", sentence, flags=re.I)
    sentence = re.sub(r"^you (?:should|must|have to|need to)\b\s*", "", sentence, flags=re.I)
    sentence = re.sub(r"^(?:stop|quit) using\b", "Do not use", sentence, flags=re.I)
    swap = re.fullmatch(
        rf"(?:{_NOT_USE}|{_DROP})\s+(?:the\s+)?(?P<old>{_NAME})(?:\s+here)?\s*(?:,|;|:|-|—|and|but)+\s*(?:just\s+|please\s+)?"
        rf"(?:use|go with|switch to|take)\s+(?P<new>{_NAME}(?:\s{_NAME}){{0,2}}?)(?:\s+instead)?[.!]*",
        sentence,
        re.I,
    )
    if swap:
        return f"Use {swap['new']}, not {swap['old']}"
    dropped = re.fullmatch(rf"{_DROP}\s+(?:the\s+)?(?P<old>{_NAME})[.!]*", sentence, re.I)
    return f"Do not use {dropped['old']}" if dropped and dropped["old"].lower() in known else sentence


def _without_opening(sentence: str) -> str:
    """A sentence without openings such as "no, please"."""
    for _ in range(3):
        sentence = re.sub(
            r"^(?:no|nope|yes|ok|okay|stop(?! using)|wait|actually|and|but|so|sure|please|well|hey|sorry"
            r"|i said|i meant)\b[,.!:]*\s*",
            "",
            sentence,
            flags=re.I,
        )
    admits = r"^[^:.,]*\b(?:i|wrong|sorry|correction|remember|note|rule|reminder)\b[^:.,]{0,30}:\s+"
    return re.sub(rf"{admits}(?=(?:always|never|use|don't|do not)\b)", "", sentence, flags=re.I)


# Contradictions.

# A sentence that decides something, and does not only tell or complain.
_DECIDES = re.compile(
    r"^(?:always|never|use|prefer|run|keep|only|go back|switch|set|do|don['’]t|stop|quit|avoid|forget|drop|ditch|scrap"
    r"|no need|no longer|(?:you|we) (?:can|may|should|must|don['’]t|do not|no longer|need not)"
    r"|there(?:['’]s| is) no need|it['’]?s (?:fine|ok))\b",
    re.I,
)
_DENIES = re.compile(
    rf"\b(?:{_NOT_USE}|{_DROP}|do(?:n['’]t| not)(?: (?:have|need) to)?|never|no need (?:to|for)|not|avoid|without"
    r"|instead of|rather than)\s+(?P<what>[^.;:,!?]+)",
    re.I,
)


def contradicts(later: str, earlier: str) -> bool:
    """Whether a later sentence takes back what an earlier one demands, or demands something else in its place."""
    if not _DECIDES.match(later):
        return False
    for_, against = _claims(earlier)
    for_later, against_later = _claims(later)
    if _ALLOWS.search(later) and _covers(against, for_later):
        return True
    return _covers(for_, against_later) or _differs_in_one_word(earlier, later)


def _claims(sentence: str) -> tuple[set[str], set[str]]:
    """The words of what a sentence is for and of what it is against."""
    if re.search(
        r"\b(?:never|don't|do not)\b(?! (?:have|need) to).*\b(?:without|before|until|unless)\b", sentence, re.I
    ):
        return _content(sentence), set()
    against: set[str] = set()
    rest = sentence
    for found in _DENIES.finditer(sentence):
        against |= _content(found["what"])
        rest = rest.replace(found[0], " ")
    return _content(rest), against


def _covers(one: set[str], two: set[str]) -> bool:
    return bool(one and two) and len(one & two) >= 0.6 * min(len(one), len(two))


def _differs_in_one_word(one: str, two: str) -> bool:
    """`Always use 4 workers` and `always use 2 workers`."""
    first, second = (re.findall(r"[\w-]+", text.lower()) for text in (one, two))
    changed = [place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    return len(first) == len(second) > 2 and len(changed) == 1


def _content(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"\w[\w-]+|\d+", text.lower()) if word not in STOP_WORDS | _FILLERS}


def _stem(word: str) -> str:
    return re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 4 else word.rstrip("s")


# What was given up.


@dataclass(frozen=True, slots=True)
class Objections:
    """What the person said not to use, and did not allow again."""

    turns: Sequence[UserMessage]

    def against(self, command: str, step: int) -> bool:
        """Whether a command that ran at this step is not the way, by what the person said."""
        words = split_words(command)
        subcommand = program_and_verb(words).split()
        parts = {part.lower() for word in (*words, *subcommand) for part in (word, *word.split("=", 1))}
        options = {part.lstrip("-") for part in parts}  # by its bare name only with its value: "the wasm target"
        given_up = any(given <= (options | parts if len(given) > 1 else parts) for given in self._given_up())
        return given_up or self._objected(words, step)

    def _given_up(self) -> Iterator[set[str]]:
        for turn in self.turns:
            for found in _GIVES_UP.finditer(turn.text):
                what = found["what"]
                if _is_conditional(what):
                    continue
                for one in re.split(r"\s+(?:or|nor|and)\s+|/(?=\w)", what):
                    words = {word.lower() for word in re.findall(r"[\w@./+-]+", one)}
                    given = {word.rstrip(".") for word in words} - _FILLERS - {""}
                    if given and not self._allowed(given, turn.step):
                        yield given

    def _allowed(self, words: set[str], step: int) -> bool:
        stems = {_stem(word) for word in words}
        later = [sentence for turn in self.turns if turn.step > step for sentence in sentences_of(turn.text)]
        return any(_ALLOWS.search(sentence) and stems <= _claims(sentence)[0] for sentence in later)

    def _objected(self, words: tuple[str, ...], step: int) -> bool:
        """Whether a later turn says that this is not the way: "do not create namespaces by hand"."""
        *_, verb = ("", *program_and_verb(words).split())
        named = _stems(word for word in words if not word.startswith("-"))
        for turn in self.turns:
            for found in _AGAINST.finditer(turn.text if turn.step > step else ""):
                said = _stems([found["what"]])
                if not _is_conditional(found[0]) and _stems([verb]) & said and len(named & said) > 1:
                    return True
        return False


def _is_conditional(objection: str) -> bool:
    return bool(_CONDITION.search(re.sub(r"\b(?:for|on) (?:this|that|now|it)\b", "", objection)))


def _stems(texts: Iterable[str]) -> set[str]:
    return {word.casefold().rstrip("s") for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}


# What comes before what.

_ORDER = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"^(?:never|don['’]t|do not)\b(?P<then>.+?)\b(?:without|before|until|unless)\b(?P<first>.+)",
        r"^(?:never|don['’]t|do not)\b(?P<first>.+?)\bafter\b(?P<then>.+)",
        r"^before\b(?P<then>[^,]+),(?P<first>.+)",
        r"^after\b(?P<first>[^,]+),(?P<then>.+)",
        r"(?P<first>.+?)\bbefore\b(?P<then>.+)",
        r"(?P<first>.+?)\bfirst,?\s+(?:and\s+)?then\b(?P<then>.+)",
        r"(?P<then>.+?)\b(?:only )?after\b(?P<first>.+)",
    )
)


def in_order(items: Sequence[WorkflowCommand], turns: Sequence[UserMessage]) -> list[WorkflowCommand]:
    """The commands with each one before those that the person wants after it."""
    placed = list(items)
    programs = {program for item in items for program in item.subcommand.split()[:1]}
    for sentence in (sentence for turn in turns for sentence in sentences_of(turn.text)):
        found = next((match for pattern in _ORDER if (match := pattern.search(sentence))), None)
        if found is None or not re.search(
            r"\b(?:always|never|must|don['’]t|do not|first|make sure|before|only)\b", sentence, re.I
        ):
            continue
        first = [item for item in placed if _does(item, found["first"], programs)]
        then = [item for item in placed if _does(item, found["then"], programs) and item not in first]
        late = [item for item in first if then and placed.index(item) > placed.index(then[0])]
        rest = [item for item in placed if item not in late]
        if late:
            place = rest.index(then[0])
            placed = [*rest[:place], *late, *rest[place:]]
    return placed


def _does(item: WorkflowCommand, phrase: str, programs: set[str]) -> bool:
    """Whether a phrase of the person speaks of this command: of its verb, and of no other program."""
    said = {_stem(word) for word in re.findall(r"[a-z](?:[\w.-]*\w)?", phrase.lower())}
    program, *verbs = item.subcommand.split() or [""]
    named = {name for name in programs if _stem(name.lower()) in said}
    return (not named or program in named) and _stem((verbs or [program])[-1].lower()) in said
