"""Queries of a skill, split into train, validation and test. Adding one at the end does not move the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field

from upskill.checks import Text
from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.plain import as_list, as_mapping, digest, short
from upskill.skills import Skill
from upskill.skills.starter import EXAMPLE, skill_files
from upskill.suites.files import check_sound, decode
from upskill.suites.shapes import Shape, Strict, fit
from upskill.suites.suite import hash_to_unit, make_id

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
FIRES = "fires"  # the check of a case that is a query
PATHS_IN_SKILL = ("evals/eval_queries.json", "eval_queries.json")
MAX_FILE_BYTES = 5_000_000

_HINT = 'Use [{"query": "…", "should_trigger": true}, …].'


LIST_KEYS = ("queries", "eval_queries", "evals")
TEXT_KEYS = ("query", "prompt", "text", "input")
SHOULD_KEYS = ("should_trigger", "shouldTrigger", "should-trigger", "should_activate")
NOTE_KEYS = ("id", "note", "notes", "comment", "reason", "rationale", "category", "tags")


class _QueryShape(Strict):
    query: Text = Field(validation_alias=AliasChoices(*TEXT_KEYS))
    should_trigger: bool = Field(validation_alias=AliasChoices(*SHOULD_KEYS))


class _FileShape(Strict):
    queries: list[Any] = Field(validation_alias=AliasChoices(*LIST_KEYS))
    skill_name: Any = None
    version: Any = None
    description: Any = None


class _ListsShape(Strict):
    should_trigger: list[Any]
    should_not_trigger: list[Any] = Field(default_factory=list)
    skill_name: Any = None


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    should_trigger: bool

    @property
    def id(self) -> str:
        return make_id(self.text, digest(_normalize(self.text)))

    def to_dict(self) -> dict[str, Any]:
        return {"query": self.text, "should_trigger": self.should_trigger}


@dataclass(frozen=True)
class Queries:
    all: tuple[Query, ...]
    source: str = ""
    everything: tuple[
        Query, ...
    ] = ()  # where these are only a part: all queries, which decide who is in which part

    @classmethod
    def load(cls, path: str | Path) -> Queries:
        return cls.read(
            read_input(path, most=MAX_FILE_BYTES, hint=f"Pass a file with queries. {_HINT}"),
            str(path),
        )

    @classmethod
    def of(cls, skill: Skill) -> Queries | None:
        """The queries in a skill's folder; None when it has none."""
        for path in PATHS_IN_SKILL:
            if (data := skill.read(path)) is not None:
                return cls.read(data, str(skill.folder / path) if skill.folder else path)
        return None

    @classmethod
    def read(cls, data: bytes, where: str) -> Queries:
        value = decode(data, where)
        check_sound(value, where)
        return cls.parse(value, where)

    @classmethod
    def parse(cls, value: object, where: str = "queries") -> Queries:
        """Queries from plain data: a list, a list below `queries`, or a list of texts for each of the two kinds."""
        queries = [
            _read_query(item, f"{where}: query {number}")
            for number, item in enumerate(_items(value, where), start=1)
        ]
        if not queries:
            raise UsageError(f"{where}: no queries", _HINT)
        numbers: dict[str, int] = {}
        for number, query in enumerate(queries, start=1):
            if (first := numbers.setdefault(_normalize(query.text), number)) != number:
                raise UsageError(
                    f"{where}: query {number} repeats query {first}",
                    "Keep one of them; use --repeats to repeat queries.",
                )
        return cls(tuple(queries), where)

    @property
    def should_trigger(self) -> tuple[Query, ...]:
        return tuple(query for query in self.all if query.should_trigger)

    @property
    def should_not_trigger(self) -> tuple[Query, ...]:
        return tuple(query for query in self.all if not query.should_trigger)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The part of each query, by its text."""
        everything = Queries(self.everything or self.all)
        return _split(everything.should_trigger) | _split(everything.should_not_trigger)

    def part(self, *parts: Part) -> Queries:
        chosen = tuple(query for query in self.all if self.parts[query.text] in parts)
        return Queries(chosen, self.source, self.everything or self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Query]:
        return iter(self.all)


def starter_warning(skill: Skill, queries: Queries) -> str:
    """A warning if queries are still the example from `init` but the skill is not; otherwise empty."""
    example = Queries.read(
        skill_files("skill", "skill")["evals/eval_queries.json"].encode(), "init"
    )
    if EXAMPLE in skill.body.casefold() or not any(query in example.all for query in queries):
        return ""
    written = f"{queries.source}: these queries are still about {EXAMPLE}, the example from `upskill init`"
    return f"{written}; replace them with what people say when they need this skill, and when they do not"


def _split(queries: Sequence[Query]) -> dict[str, Part]:
    """The part of each query of one kind. Of each two in file order a hash draws one for the test, as is an odd last.

    The others are for validation and train by turns. Its partner may move an odd last one to train, never the reverse:
    what a search has seen does not become a test when queries are added at the end.
    """
    parts: dict[str, Part] = {}
    for start in range(0, len(queries), 2):
        *seen, test = sorted(
            queries[start : start + 2], key=lambda query: hash_to_unit(_normalize(query.text))
        )
        parts[test.text] = "test"
        parts |= {query.text: "train" if start % 4 else "validation" for query in seen}
    return parts


def _normalize(text: str) -> str:
    """Two queries are the same when they differ only in spaces and capitals."""
    return " ".join(text.casefold().split())


def _items(value: object, where: str) -> list[Any]:
    if (items := as_list(value)) is not None:
        return items
    mapping = as_mapping(value)
    if mapping is None:
        raise UsageError(f"{where}: expected a list of queries, got {short(value)}", _HINT)
    if isinstance(mapping.get("should_trigger"), list):
        lists = _fit(_ListsShape, mapping, where)
        return [
            {"query": text, "should_trigger": should}
            for texts, should in ((lists.should_trigger, True), (lists.should_not_trigger, False))
            for text in texts
        ]
    return _fit(_FileShape, mapping, where).queries


def _fit(kind: type[Shape], fields: dict[str, Any], where: str) -> Shape:
    try:
        return fit(kind, fields, where)
    except UsageError as error:
        raise UsageError(error.message, _HINT) from error


def _read_query(value: Any, where: str) -> Query:
    fields = as_mapping(value)
    if fields is None:
        raise UsageError(f"{where}: expected an object, got {short(value)}", _HINT)
    query = _fit(
        _QueryShape, {key: item for key, item in fields.items() if key not in NOTE_KEYS}, where
    )
    return Query(query.query.strip(), query.should_trigger)
