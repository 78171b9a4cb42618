"""Provenance is the content of `skill_meta.json`: who made a skill, from what, at what cost.

The file has upstream's field `metadata` and three of our own: `sources` (the evidence behind each line of the body),
`evidence` (that evidence, as the teacher saw it) and `making` (what each search for the skill cost). Upstream's
`tests` are read and kept until the skill gets a suite of its own. Students never see the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_mapping, dict_or_empty, list_or_empty
from upskill.skills import Skill
from upskill.suites import Case, Suite

FILE = "skill_meta.json"
OWN_KNOWLEDGE = "own"  # cited as evidence: the teacher knew it, and nothing that was given says it
EVALS = "evals/evals.json"
SUITE = "evals/suite.json"
WRITTEN = {"metadata": {"written": True}}  # in a suite file that a model wrote
VERSION = "1.0.0"  # of a skill that is new
DRAFT, UNPROVEN = "draft, unproven", "unproven"  # states of a skill that was not evaluated

Spent = Mapping[str, tuple[int, float | None]]  # tokens and dollars by role; None: a price is not known


@dataclass(frozen=True, slots=True)
class SearchCost:
    """What one search for a skill cost."""

    search: str  # its id: the same search, done again, has the same
    spent: Spent

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, _ in self.spent.values())

    @property
    def cost_usd(self) -> float | None:
        return _sum(cost for _, cost in self.spent.values())

    def plain(self) -> dict[str, Any]:
        spent = {role: {"tokens": tokens, "cost_usd": _rounded(cost)} for role, (tokens, cost) in self.spent.items()}
        return {"search": self.search, "tokens": self.tokens, "cost_usd": _rounded(self.cost_usd), "spent": spent}

    @classmethod
    def from_json(cls, value: object) -> SearchCost:
        row = dict_or_empty(value)
        spent: dict[str, tuple[int, float | None]] = {}
        for role, spending in (as_mapping(row.get("spent")) or {"unknown": None}).items():
            used = dict_or_empty(spending)
            spent[role] = (int(_number(used.get("tokens")) or 0), _number(used.get("cost_usd")))
        return cls(str(row.get("search", "")), spent)


@dataclass(frozen=True, slots=True)
class Provenance:
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tests: tuple[Any, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # line -> evidence ids
    evidence: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    costs: tuple[SearchCost, ...] = ()
    other_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # fields that are not ours, kept

    @classmethod
    def of(cls, skill: Skill) -> Provenance:
        """The provenance that is stored with a skill; an empty one where there is none."""
        data = skill.read(FILE)
        if data is None:
            return cls()
        try:
            fields = as_mapping(json.loads(data.decode("utf-8-sig")))
        except ValueError as error:
            raise UsageError(f"{skill.folder or skill.name}/{FILE}: is not JSON: {error}") from error
        if fields is None:
            raise UsageError(f"{skill.folder or skill.name}/{FILE}: is not a JSON object")
        rows = [dict_or_empty(row) for row in list_or_empty(fields.pop("sources", []))]
        evidence = dict_or_empty(fields.pop("evidence", {}))
        return cls(
            dict_or_empty(fields.pop("metadata", {})),
            tuple(list_or_empty(fields.pop("tests", []))),
            {str(row.get("line", "")): tuple(map(str, list_or_empty(row.get("evidence")))) for row in rows},
            {key: {k: str(v) for k, v in dict_or_empty(row).items()} for key, row in evidence.items()},
            tuple(map(SearchCost.from_json, list_or_empty(fields.pop("making", [])))),
            fields,
        )

    def add_to(self, skill: Skill) -> Skill:
        """The skill with this provenance. Only sources of lines that the body has, and evidence they cite, are kept."""
        lines = {line.strip() for line in skill.body.splitlines()}
        sources = {line: ids for line, ids in self.sources.items() if line in lines}
        cited = {name for ids in sources.values() for name in ids}
        fields: dict[str, Any] = {"metadata": dict(self.metadata)}
        if self.tests:
            fields["tests"] = list(self.tests)
        if sources:
            fields["sources"] = [{"line": line, "evidence": list(ids)} for line, ids in sources.items()]
            fields["evidence"] = {name: dict(row) for name, row in self.evidence.items() if name in cited}
        if self.costs:
            fields["making"] = [one.plain() for one in self.costs]
        return skill.with_file(FILE, _json({**fields, **self.other_fields}))

    def with_sources(
        self, sources: Mapping[str, Iterable[str]], evidence: Mapping[str, Mapping[str, str]]
    ) -> Provenance:
        """The same, with the evidence behind more lines."""
        more = {line.strip(): tuple(dict.fromkeys(ids)) for line, ids in sources.items() if line.strip()}
        return replace(self, sources={**self.sources, **more}, evidence={**self.evidence, **evidence})

    def with_author(self, model: str, task: str) -> Provenance:
        """The same, with who made the skill, when and for what, where that is not known yet."""
        metadata: dict[str, Any] = {
            "version": VERSION,
            "generated_by": model,
            "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "source_task": task,
            "test_pass_rate": None,
        }
        return replace(self, metadata=metadata | dict(self.metadata))

    def with_state(self, state: str) -> Provenance:
        """The same, marked as a draft or as unproven; empty for a skill that was evaluated."""
        metadata = {name: value for name, value in self.metadata.items() if name != "state"}
        return replace(self, metadata=metadata | ({"state": state} if state else {}))

    def with_cost(self, cost: SearchCost) -> Provenance:
        """The same, with the cost of one more search; of a search that is done again, the last counts."""
        before = tuple(one for one in self.costs if one.search != cost.search)
        return replace(self, costs=(*before, cost))


def is_fact(line: str) -> bool:
    """Whether a line states something: it is no heading, rule or fence."""
    return bool(re.search(r"\w", line)) and not line.lstrip().startswith(("#", "```", "~~~"))


def own_lines(skill: Skill) -> tuple[list[str], int]:
    """The lines that nothing which was given stands behind, and how many lines state something.

    None of a skill that does not record where its lines come from.
    """
    sources = Provenance.of(skill).sources
    lines = [line.strip() for line in skill.body.splitlines() if is_fact(line)]
    return [line for line in lines if sources and OWN_KNOWLEDGE in sources.get(line, (OWN_KNOWLEDGE,))], len(lines)


def making_cost(skill: Skill, older: Skill | None = None) -> float | None:
    """Dollars that making a skill cost, beyond what was spent on an older one already; None where it is not known."""
    try:
        before = {one.search for one in Provenance.of(older).costs} if older else set[str]()
        making = [one for one in Provenance.of(skill).costs if one.search not in before]
    except UsageError:  # a broken file is no reason not to evaluate the skill
        return None
    return _sum(one.cost_usd for one in making) if making else None


def add_suite(skill: Skill, suite: Suite) -> Skill:
    """The skill with this suite as `evals/evals.json`. Tests that its `skill_meta.json` had are in there now."""
    if skill.read(FILE) is not None:
        skill = replace(Provenance.of(skill), tests=()).add_to(skill)
    replaced = has_written_suite(skill)
    # evals.json keeps paths in `files`, so a student would see other names.
    if replaced or any(case.files for case in suite.cases):
        mark = WRITTEN if replaced or suite.source == "generated" else {}
        return skill.with_file(SUITE, _json({**mark, **suite.plain()}))
    limit = {"max_output_tokens": suite.max_output_tokens} if suite.max_output_tokens else {}
    fields = {"skill_name": skill.name, **limit, "evals": [_as_eval(case) for case in suite.cases]}
    return skill.with_file(EVALS, _json(fields))


def has_written_suite(skill: Skill) -> bool:
    """Whether its evals/suite.json was written by a model, not by a person."""
    try:
        said = as_mapping(json.loads(skill.read(SUITE) or b"null"))
    except ValueError:
        return False
    return dict_or_empty(said and said.get("metadata")).get("written") is True


def save_suite(skill: Skill, suite: Suite) -> tuple[Skill, Suite]:
    """Add a written suite to the folder of a skill that has none, and nothing else; returns both as they are read."""
    assert skill.folder is not None
    place = skill.folder / SUITE
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_json({**WRITTEN, **suite.plain()}))
    except OSError as error:
        raise UsageError(f"{place}: cannot be written: {error.strerror or error}") from error
    return Skill.load(skill.folder), Suite.load(place)


def _as_eval(case: Case) -> dict[str, Any]:
    fields = case.plain()
    return {"id": fields.pop("id"), "prompt": fields.pop("prompt"), **_expectation(case), **fields}


def _expectation(case: Case) -> dict[str, str]:
    expected = case.expected_output or case.reference
    return {"expected_output": expected} if expected else {}


def _sum(costs: Iterable[float | None]) -> float | None:
    known: list[float] = []
    for cost in costs:
        if cost is None:
            return None
        known.append(cost)
    return math.fsum(known)


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, 8)


def _number(value: object) -> float | None:
    """A number that can be an amount of something, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
