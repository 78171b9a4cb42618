"""A Query is a request to an agent, and whether a skill should trigger on it; Queries are those of one skill.

They are kept in the ecosystem's `eval_queries.json`: `[{"query": "…", "should_trigger": true}]`. Which part a query
is in (train, validation or test) follows from its own words, so adding one leaves the others where they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input
from upskill.plain import as_list, as_mapping, digest, short
from upskill.skills import Skill
from upskill.suites.suite import make_id

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
TRAIN_SHARE, VALIDATION_SHARE = 0.4, 0.3  # the rest is for the test
PATHS_IN_SKILL = ("evals/eval_queries.json", "eval_queries.json")
MAX_FILE_BYTES = 5_000_000

LIST_KEYS = ("queries", "eval_queries", "evals")
TEXT_KEYS = ("query", "prompt", "text", "input")
SHOULD_KEYS = ("should_trigger", "shouldTrigger", "should-trigger", "should_activate")
NOTE_KEYS = ("id", "note", "notes", "comment", "reason", "rationale", "category", "tags")
_HINT = 'Write [{"query": "…", "should_trigger": true}, …].'


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    should_trigger: bool

    @property
    def id(self) -> str:
        return make_id(self.text, digest(_normalize(self.text)))

    def plain(self) -> dict[str, Any]:
        return {"query": self.text, "should_trigger": self.should_trigger}


@dataclass(frozen=True)
class Queries:
    all: tuple[Query, ...]
    source: str = ""
    whole: tuple[Query, ...] = ()  # where these are only a part: all queries, which decide who is in which part

    @classmethod
    def load(cls, path: str | Path) -> Queries:
        return cls.read(read_input(path, most=MAX_FILE_BYTES, hint=f"Give a file of queries. {_HINT}"), str(path))

    @classmethod
    def of(cls, skill: Skill) -> Queries | None:
        """The queries in a skill's folder; None when it has none."""
        for place in PATHS_IN_SKILL:
            if (data := skill.read(place)) is not None:
                return cls.read(data, str(skill.folder / place) if skill.folder else place)
        return None

    @classmethod
    def read(cls, data: bytes, where: str) -> Queries:
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{where}: is larger than {MAX_FILE_BYTES // 10**6} MB", "Is this the right file?")
        try:
            value = json.loads(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}: is not UTF-8 text (byte {error.start})", "Save it as UTF-8.") from error
        except json.JSONDecodeError as error:
            raise UsageError(f"{where}: line {error.lineno}: not valid JSON: {error.msg}", _HINT) from error
        except RecursionError as error:
            raise UsageError(f"{where}: is nested too deeply", _HINT) from error
        return cls.parse(value, where)

    @classmethod
    def parse(cls, value: object, where: str = "queries") -> Queries:
        """Queries from plain data: a list, a list below `queries`, or a list of texts for each of the two kinds."""
        found = [
            _read_query(item, f"{where}: query {number}") for number, item in enumerate(_items(value, where), start=1)
        ]
        if not found:
            raise UsageError(f"{where}: has no queries", _HINT)
        seen: dict[str, int] = {}
        for number, query in enumerate(found, start=1):
            words = _normalize(query.text)
            if words in seen:
                raise UsageError(
                    f"{where}: query {number} repeats query {seen[words]}", "Keep one of them; --repeats repeats all."
                )
            seen[words] = number
        return cls(tuple(found), where)

    @property
    def should_trigger(self) -> tuple[Query, ...]:
        return tuple(query for query in self.all if query.should_trigger)

    @property
    def should_not_trigger(self) -> tuple[Query, ...]:
        return tuple(query for query in self.all if not query.should_trigger)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The part of each query, by its text."""
        everything = Queries(self.whole or self.all)
        return _split(everything.should_trigger) | _split(everything.should_not_trigger)

    def part(self, *parts: Part) -> Queries:
        """Only the queries of these parts."""
        taken = tuple(query for query in self.all if self.parts[query.text] in parts)
        return Queries(taken, self.source, self.whole or self.all)

    def plain(self) -> list[dict[str, Any]]:
        return [query.plain() for query in self.all]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Query]:
        return iter(self.all)


def _split(queries: Sequence[Query]) -> dict[str, Part]:
    """The part of each query of one kind.

    Only the words of a query decide, except that test, and then validation, borrow one from train where they would
    have none: the one that a second hash puts first. So adding a query can only move a borrowed one back, never
    forward: what train or validation has seen does not become a test.
    """
    found: dict[str, Part] = {query.text: part_of(query.text) for query in queries}
    borrowers: tuple[Part, ...] = ("test", "validation")
    for part in borrowers:
        train = [text for text, where in found.items() if where == "train"]
        if part not in found.values() and len(train) > 1:
            found[min(train, key=lambda text: _hash_to_unit(f"borrowed {_normalize(text)}"))] = part
    return found


def part_of(text: str) -> Part:
    """The part that the words of a query put it in."""
    place = _hash_to_unit(_normalize(text))
    if place < TRAIN_SHARE:
        return "train"
    return "validation" if place < TRAIN_SHARE + VALIDATION_SHARE else "test"


def _hash_to_unit(text: str) -> float:
    """A number from 0 to 1 that only the text decides."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def _normalize(text: str) -> str:
    """Two queries are the same when they differ only in spaces and capitals."""
    return " ".join(text.casefold().split())


def _items(value: object, where: str) -> Iterable[Any]:
    if (items := as_list(value)) is not None:
        return items
    mapping = as_mapping(value)
    if mapping is None:
        raise UsageError(f"{where}: is not a list of queries but {short(value)}", _HINT)
    if isinstance(mapping.get("should_trigger"), list):
        kinds = {"should_trigger": True, "should_not_trigger": False}
        _check_fields(mapping, (*kinds, "skill_name"), where)
        return [
            {"query": text, "should_trigger": should}
            for kind, should in kinds.items()
            for text in as_list(mapping.get(kind, [])) or []
        ]
    keys = [key for key in LIST_KEYS if key in mapping]
    if len(keys) != 1 or (items := as_list(mapping[keys[0]])) is None:
        raise UsageError(f"{where}: is not a list of queries", _HINT)
    _check_fields(mapping, (keys[0], "skill_name", "version", "description"), where)
    return items


def _check_fields(mapping: dict[str, Any], known: Iterable[str], where: str) -> None:
    names = tuple(known)
    if unknown := sorted(set(mapping) - set(names)):
        hint = did_you_mean(unknown[0], names, otherwise=_HINT)
        raise UsageError(f"{where}: no field is called {unknown[0]!r}", hint)


def _read_query(value: Any, place: str) -> Query:
    fields = as_mapping(value)
    if fields is None:
        raise UsageError(f"{place}: is not an object but {short(value)}", _HINT)
    _check_fields(fields, (*TEXT_KEYS, *SHOULD_KEYS, *NOTE_KEYS), place)
    text, should = _one_of(fields, TEXT_KEYS, place), _one_of(fields, SHOULD_KEYS, place)
    if text is not None and not str(text).strip():
        raise UsageError(f"{place}: the query is empty", _HINT)
    if not isinstance(text, str):
        raise UsageError(f"{place}: the query must be a text, not {short(text)}", _HINT)
    if not isinstance(should, bool):
        raise UsageError(f"{place}: should_trigger must be true or false, not {short(should)}", _HINT)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{place}: has half of a surrogate pair in it", "Write the character itself, or both halves."
        ) from error
    return Query(text.strip(), should)


def _one_of(fields: dict[str, Any], names: Sequence[str], place: str) -> Any:
    given = [name for name in names if name in fields]
    if not given:
        raise UsageError(f"{place}: has no {names[0]}", _HINT)
    if len(given) > 1:
        raise UsageError(f"{place}: {given[0]} and {given[1]} say the same thing", f"Keep {given[0]}.")
    return fields[given[0]]
