"""Twins: cases that ask nearly the same. However many there are, they say as much about other tasks as one of them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import regex

from upskill.plain import digest
from upskill.suites.suite import Case

SHARE = 0.9  # of their words that two prompts have in common
MOST_ADDED = 3  # words that one of two prompts may have on top
_NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(rf"[{_NO_SPACES}]|[\w\p{{M}}--[{_NO_SPACES}]]+|[^\w\s\p{{M}}.,;:!?'\"…]", regex.V1)
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a again also an hello hey hi just kindly now ok okay once please pls thank thanks that the then this well",
    )
)
_COUNTER = r"(?:q|question|case|task|variant|version|no|nr|number)\W*"
_NUMBERED = re.compile(rf"^\W*(?:{_COUNTER})?\d+\s*[.:)\]}}#-]+\s*", re.IGNORECASE)
_NUMBER_AT_END = re.compile(rf"(?:[(\[{{#]\s*(?:{_COUNTER})?|\s{_COUNTER}|[.?!]\s+)\d+\W*$", re.IGNORECASE)


def near_duplicates(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Pairs of cases that ask the same on the same files: the same text, or nearly the same words and the same checks.

    Words that say nothing (please, the, a number that counts the questions) are left aside. Where the text differs and
    the checks or the reference differ too, the cases ask different things, however alike they look.
    """
    listed = list(cases)
    words = [_words(case.prompt) for case in listed]
    same_text: dict[object, list[int]] = defaultdict(list)
    same_checks: dict[str, list[int]] = defaultdict(list)
    for index, case in enumerate(listed):
        same_text[digest(dict(case.files)), " ".join(_unnumbered(case.prompt).split())].append(index)
    for group in same_text.values():
        same_checks[_asked(listed[group[0]])].append(group[0])
    pairs = {(group[0], other) for group in same_text.values() for other in group[1:]}
    for group in same_checks.values():
        pairs.update(_similar(group, words))
    return [(listed[one].id, listed[two].id) for one, two in sorted(pairs)]


def find_twins(cases: Iterable[Case]) -> dict[str, str]:
    """For each case that has twins, the first of them; cases without are not named."""
    listed = list(cases)
    first = {case.id: case.id for case in listed}

    def root(case: str) -> str:
        while first[case] != case:
            case = first[case]
        return case

    place = {case.id: number for number, case in enumerate(listed)}
    for pair in near_duplicates(listed):
        one, two = sorted(map(root, pair), key=place.__getitem__)
        first[two] = one
    twins = {case.id: root(case.id) for case in listed}
    sizes = Counter(twins.values())
    return {case: one for case, one in twins.items() if sizes[one] > 1}


def describe_twins(twins: Mapping[str, str], most: int = 3) -> list[str]:
    """What to say about them, if there are any."""
    groups: dict[str, list[str]] = defaultdict(list)
    for case, one in twins.items():
        groups[one].append(case)
    named = [
        f"{group[0]!r} and {group[1]!r}"
        if len(group) == 2
        else ", ".join(map(repr, group[:most])) + ", …" * (len(group) > most)
        for group in list(groups.values())[:most]
    ]
    if not named:
        return []
    more = f"; and {len(groups) - most} more groups" if len(groups) > most else ""
    return [f"{'; '.join(named)}{more} ask nearly the same and count as one in every interval; keep one of them"]


def _words(prompt: str) -> frozenset[str]:
    """The words of a prompt, and its signs other than punctuation; of scripts without spaces, each character."""
    text = _NUMBER_AT_END.sub("", _unnumbered(prompt)).casefold().replace("_", " ")
    found = frozenset(_TOKEN.findall(text))
    return (found - _FILLERS) or found or frozenset((text,))


def _unnumbered(prompt: str) -> str:
    """A prompt without what cannot be seen, and without a number before it that counts it."""
    seen = "".join(char for char in unicodedata.normalize("NFKC", prompt) if unicodedata.category(char) != "Cf")
    return _NUMBERED.sub("", seen.strip())


def _asked(case: Case) -> str:
    """A hash of what makes an answer right, and of the files it is about."""
    checks = [[named.name, named.written] for named in case.checks if named.name not in ("min_length", "max_length")]
    return digest([dict(case.files), checks, case.reference])


def _similar(group: list[int], words: list[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Pairs that share nearly all words, or of which one only adds a few. Each is looked up by its rarest words: two
    that are alike must have one of those in common, so not every pair has to be compared."""
    counts = Counter(word for index in group for word in words[index])
    by_word: dict[str, list[int]] = defaultdict(list)
    for index in sorted(group):
        mine = words[index]
        several = max(MOST_ADDED, len(mine) - math.ceil(SHARE * len(mine)))
        rarest = sorted(mine, key=lambda word: (counts[word], word))[: several + 1]
        for other in sorted({other for word in rarest for other in by_word[word]}):
            both, either = len(mine & words[other]), len(mine | words[other])
            only_added = both == min(len(mine), len(words[other])) and either - both <= MOST_ADDED <= both
            if only_added or both >= SHARE * either:
                yield other, index
        for word in rarest:
            by_word[word].append(index)
