"""Near-duplicate cases, however many, tell as much about other tasks as one of them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from upskill.plain import digest
from upskill.suites.suite import Case

SHARE = 0.9  # of their words that two prompts have in common
MAX_ADDED = 3  # words that one of two prompts may have on top
# Thai, Lao, Myanmar; Khmer; Kana; Han
_NO_SPACES = (
    r"\u0e00-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+|[^\w\s.,;:!?'\"…]")
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a again also an hello hey hi just kindly now ok okay once please pls thank thanks that the then this well",
    )
)
_COUNTER = r"(?:q|question|case|task|variant|version|no|nr|number)\W*"
_NUMBERED = re.compile(rf"^\W*(?:{_COUNTER})?\d+\s*[.:)\]}}#-]+\s*", re.IGNORECASE)
_NUMBER_AT_END = re.compile(
    rf"(?:[(\[{{#]\s*(?:{_COUNTER})?|\s{_COUNTER}|[.?!]\s+)\d+\W*$", re.IGNORECASE
)


def near_duplicates(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Pairs that ask the same on the same files: the same text, or nearly the same words and the same checks."""
    listed = list(cases)
    word_sets = [telling_words(case.prompt) for case in listed]
    same_text: dict[object, list[int]] = defaultdict(list)
    same_checks: dict[str, list[int]] = defaultdict(list)
    for index, case in enumerate(listed):
        same_text[digest(dict(case.files)), " ".join(_unnumbered(case.prompt).split())].append(
            index
        )
    for group in same_text.values():
        same_checks[_hash_of_checks(listed[group[0]])].append(group[0])
    pairs = {(group[0], other) for group in same_text.values() for other in group[1:]}
    for group in same_checks.values():
        pairs.update(_similar(group, word_sets))
    return [(listed[first].id, listed[second].id) for first, second in sorted(pairs)]


def group_near_duplicates(cases: Iterable[Case]) -> dict[str, str]:
    """For each case that has near-duplicates, the first of them; cases without, or with a group, are not named."""
    listed = [case for case in cases if not case.group]
    first = {case.id: case.id for case in listed}

    def root(case: str) -> str:
        while first[case] != case:
            case = first[case]
        return case

    order = {case.id: number for number, case in enumerate(listed)}
    for pair in near_duplicates(listed):
        earlier, later = sorted(map(root, pair), key=order.__getitem__)
        first[later] = earlier
    roots = {case.id: root(case.id) for case in listed}
    sizes = Counter(roots.values())
    return {case: first for case, first in roots.items() if sizes[first] > 1}


def describe_near_duplicates(groups: Mapping[str, str], most: int = 3) -> list[str]:
    members: dict[str, list[str]] = defaultdict(list)
    for case, first in groups.items():
        members[first].append(repr(case))
    if not members:
        return []
    named = [
        " and ".join(group)
        if len(group) == 2
        else ", ".join(group[:most]) + ", …" * (len(group) > most)
        for group in list(members.values())[:most]
    ]
    more = f"; and {len(members) - most} more groups" if len(members) > most else ""
    each = "" if len(members) == 1 else " within each group"
    advice = f"give them the same `group:`, so that they count as one{each}, or keep one of them"
    return [f"{'; '.join(named)}{more} ask nearly the same: {advice}"]


def telling_words(prompt: str) -> frozenset[str]:
    """The words of a prompt, and its signs other than punctuation; of scripts without spaces, each character."""
    text = _NUMBER_AT_END.sub("", _unnumbered(prompt)).casefold().replace("_", " ")
    # A mark that cannot be composed with its letter would end the word.
    text = "".join(char for char in text if not unicodedata.category(char).startswith("M"))
    words = frozenset(_TOKEN.findall(text))
    return (words - _FILLERS) or words or frozenset((text,))


def _unnumbered(prompt: str) -> str:
    """A prompt without what cannot be seen, and without a number before it that counts it."""
    visible = "".join(
        char for char in unicodedata.normalize("NFKC", prompt) if unicodedata.category(char) != "Cf"
    )
    return _NUMBERED.sub("", visible.strip())


def _hash_of_checks(case: Case) -> str:
    """A hash of what makes an answer right, and of the files it is about."""
    return digest([dict(case.files), telling_checks(case), case.reference])


def telling_checks(case: Case) -> list[list[Any]]:
    """Name and config of each check but limits of length, which may be out of reach."""
    return [
        [named.name, named.config]
        for named in case.checks
        if named.name not in ("min_length", "max_length")
    ]


def alike(first: frozenset[str], second: frozenset[str]) -> bool:
    both, either = len(first & second), len(first | second)
    only_added = both == min(len(first), len(second)) and either - both <= MAX_ADDED <= both
    return only_added or both >= SHARE * either


def _similar(group: list[int], word_sets: list[frozenset[str]]) -> set[tuple[int, int]]:
    """Pairs that share nearly all words, or where one adds a few; for speed, only those with a rare word in common."""
    counts = Counter(word for index in group for word in word_sets[index])
    rarest_first = {
        index: sorted(word_sets[index], key=lambda word: (counts[word], word)) for index in group
    }
    by_rarest: dict[str, list[int]] = defaultdict(list)
    by_rare: dict[str, list[int]] = defaultdict(list)
    for index, ranked in rarest_first.items():
        by_rarest[ranked[0]].append(index)
        for word in ranked[: len(ranked) - math.ceil(SHARE * len(ranked)) + 1]:
            by_rare[word].append(index)
    candidates = {pair for indexes in by_rare.values() for pair in combinations(indexes, 2)}
    for index, ranked in rarest_first.items():
        others = [
            other for word in ranked[: MAX_ADDED + 1] for other in by_rarest[word] if other != index
        ]
        candidates.update((min(index, other), max(index, other)) for other in others)
    return {
        (first, second)
        for first, second in candidates
        if alike(word_sets[first], word_sets[second])
    }
