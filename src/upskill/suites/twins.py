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
MAX_ADDED = 3  # words that one of two prompts may have on top
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
    checks = [[named.name, named.config] for named in case.checks if named.name not in ("min_length", "max_length")]
    return digest([dict(case.files), checks, case.reference])


def _similar(group: list[int], words: list[frozenset[str]]) -> set[tuple[int, int]]:
    """Pairs that share nearly all words, or of which one only adds a few."""
    counts = Counter(word for index in group for word in words[index])
    rarest_first = {index: sorted(words[index], key=lambda word: (counts[word], word)) for index in group}
    candidates = {(min(pair), max(pair)) for find in (_sharing, _containing) for pair in find(rarest_first)}
    return {(one, two) for one, two in candidates if alike(words[one], words[two])}


def alike(one: frozenset[str], two: frozenset[str]) -> bool:
    both, either = len(one & two), len(one | two)
    only_added = both == min(len(one), len(two)) and either - both <= MAX_ADDED <= both
    return only_added or both >= SHARE * either


def _sharing(rarest_first: Mapping[int, list[str]]) -> Iterator[tuple[int, int]]:
    """Every pair that may share nearly all words. Such two have one of their rarest words in common, and where the
    first of those stands tells how many more there can be; a word that every case of a template has finds nobody."""
    found: dict[str, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, mine in rarest_first.items():
        rarest = list(enumerate(mine[: len(mine) - math.ceil(SHARE * len(mine)) + 1]))
        for place, word in rarest:
            for (size, their_place), others in found[word].items():
                most = min(len(mine) - place, size - their_place)
                if most >= SHARE * (len(mine) + size - most):
                    yield from ((other, index) for other in others)
        for place, word in rarest:
            found[word][len(mine), place].append(index)


def _containing(rarest_first: Mapping[int, list[str]]) -> Iterator[tuple[int, int]]:
    """Every pair of which one may be the other and a few words more: the rarest word of the smaller is among the
    first of the larger."""
    by_rarest: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, mine in rarest_first.items():
        by_rarest[mine[0], len(mine)].append(index)
    for index, mine in rarest_first.items():
        for added in range(MAX_ADDED + 1):
            for word in mine[: added + 1]:
                yield from ((other, index) for other in by_rarest[word, len(mine) - added] if other != index)
