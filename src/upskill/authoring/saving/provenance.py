"""Provenance is `skill_meta.json`: who made a skill, from what, at what cost. Students never see the file.

Upstream's `metadata` and `tests` are kept until the skill gets a suite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.outputs import whole_file
from upskill.plain import dict_or_empty, list_or_empty, load_json
from upskill.skills import Skill
from upskill.suites import Suite

FILE = "skill_meta.json"
OWN_KNOWLEDGE = "own"  # cited as evidence: the teacher knew it, and nothing that was given says it
EVALS = "evals/evals.json"
SUITE = "evals/suite.json"
OWN_SUITES = ("evals/suite.yaml", "evals/suite.yml", "evals/suite.json")
WRITTEN = {"metadata": {"written": True}}  # in a suite file that a model wrote
VERSION = "1.0.0"  # of a skill that is new
MATERIAL = "evals/material.jsonl"  # what the skill was made from
DRAFT, UNPROVEN = "draft, unproven", "unproven"  # states of a skill that was not evaluated


def shared_name(model: str) -> str:
    """The name of a model as a skill records it: of a path on this machine, only the last part."""
    provider, _, place = model.partition(":")
    return f"{provider}:{Path(place).name}" if place.startswith(("/", "..")) else model


@dataclass(frozen=True, slots=True)
class SearchCost:
    search: str  # its id: the same search, done again, has the same
    spent: Mapping[str, tuple[int, float | None]]  # tokens and dollars by role; None: no price

    @property
    def cost_usd(self) -> float | None:
        return _sum(cost for _, cost in self.spent.values())

    def to_dict(self) -> dict[str, Any]:
        spent = {
            role: {"tokens": tokens, "cost_usd": _rounded(cost)}
            for role, (tokens, cost) in self.spent.items()
        }
        tokens = sum(tokens for tokens, _ in self.spent.values())
        cost = _rounded(self.cost_usd)
        return {"search": self.search, "tokens": tokens, "cost_usd": cost, "spent": spent}


@dataclass(frozen=True, slots=True)
class Provenance:
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Of `cite_lines`.
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    evidence: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    other_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # kept as they are

    @classmethod
    def of(cls, skill: Skill) -> Provenance:
        data = skill.read(FILE)
        if data is None:
            return cls()
        try:
            fields = dict(load_json(data))
            sources: dict[str, tuple[str, ...]] = {}
            for row in fields.pop("sources", ()):
                key = "\n".join(row[name] for name in ("after", "line") if name in row)
                sources[key] = tuple(row["evidence"])
            metadata, evidence = (dict(fields.pop(name, {})) for name in ("metadata", "evidence"))
            return cls(metadata, sources, evidence, fields)
        except (ValueError, TypeError, KeyError) as error:
            file = f"{skill.folder or skill.name}/{FILE}"
            raise UsageError(f"{file}: not what upskill writes: {error}") from error

    @property
    def tests(self) -> list[Any]:
        """Upstream's, from before it had suites."""
        return list_or_empty(self.other_fields.get("tests") or self.other_fields.get("cases"))

    def add_to(self, skill: Skill) -> Skill:
        """The skill with this provenance. Only sources of lines that the body has, and evidence they cite, are kept."""
        places = {key for keys in _places(skill.body.splitlines()) for key in keys}
        sources: list[dict[str, Any]] = []
        cited: set[str] = set()
        for key, ids in self.sources.items():
            if key in places:
                after, _, line = key.rpartition("\n")
                row = {"line": line, "evidence": list(ids)}
                sources.append({"after": after, **row} if "\n" in key else row)
                cited.update(ids)
        fields: dict[str, Any] = {"metadata": dict(self.metadata)}
        if sources:
            evidence = {name: row for name, row in self.evidence.items() if name in cited}
            fields |= {"sources": sources, "evidence": evidence}
        return skill.with_file(FILE, _json({**fields, **self.other_fields}))

    def with_sources(
        self, sources: Mapping[str, Iterable[str]], evidence: Mapping[str, Mapping[str, str]]
    ) -> Provenance:
        more = {
            line.strip(" \t"): tuple(dict.fromkeys(ids))
            for line, ids in sources.items()
            if line.strip()
        }
        return replace(
            self, sources={**self.sources, **more}, evidence={**self.evidence, **evidence}
        )

    def with_author(self, model: str, task: str) -> Provenance:
        metadata: dict[str, Any] = {
            "version": VERSION,
            "generated_by": shared_name(model),
            "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "source_task": task,
            "test_pass_rate": None,
        }
        return replace(self, metadata=metadata | dict(self.metadata))

    def with_state(self, state: str) -> Provenance:
        """The same, marked as a draft or as unproven; empty for a skill that was evaluated."""
        metadata = {name: value for name, value in self.metadata.items() if name != "state"}
        return replace(self, metadata=metadata | ({"state": state} if state else {}))

    def with_request(self, model: str, request: str) -> Provenance:
        version = str(self.metadata.get("version", VERSION))
        numbers = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", version)
        metadata = {
            "version": f"{numbers[1]}.{int(numbers[2]) + 1}.0" if numbers else version,
            "previous_version": version,
            "improved_by": shared_name(model),
            "improved_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "request": request,
        }
        return replace(self, metadata=dict(self.metadata) | metadata)

    def with_cost(self, cost: SearchCost) -> Provenance:
        """The same, with the cost of one more search; of a search that is done again, the last counts."""
        rows = [row for row in _making(self) if row.get("search") != cost.search]
        making = {"making": [*rows, cost.to_dict()]}
        return replace(self, other_fields={**self.other_fields, **making})


def _making(provenance: Provenance) -> list[dict[str, Any]]:
    return [dict_or_empty(row) for row in list_or_empty(provenance.other_fields.get("making"))]


def is_fact(line: str) -> bool:
    return bool(re.search(r"\w", line)) and not line.lstrip().startswith(("#", "```", "~~~"))


def cite_lines(lines: Iterable[tuple[str, tuple[str, ...] | None]]) -> dict[str, tuple[str, ...]]:
    """The evidence of each line; None: nothing to cite. Where equal lines cite differently, also by place: after the
    line before it."""
    cited = list(lines)
    sources: dict[str, tuple[str, ...]] = {}
    for keys, (_, ids) in zip(_places(line for line, _ in cited), cited, strict=True):
        for key in dict.fromkeys(keys):
            if ids is not None:
                sources[key] = tuple(dict.fromkeys([*sources.get(key, ()), *ids]))
    return {
        key: ids
        for key, ids in sources.items()
        if "\n" not in key or ids != sources[key.rpartition("\n")[2]]
    }


def _places(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line, and its place: the line before it that is not empty, and itself."""
    before = ""
    for line in map(str.strip, lines):
        yield line, f"{before}\n{line}" if line else ""
        before = line or before


@dataclass(frozen=True, slots=True)
class SourcedLine:
    text: str
    ids: tuple[str, ...]
    is_own: bool  # it says something that only the teacher says
    is_untold: bool  # nothing says where it comes from: it was there before the teacher, or a person wrote it


def sourced_lines(skill: Skill) -> list[SourcedLine]:
    sources, lines = Provenance.of(skill).sources, skill.body.splitlines()
    found = [sources.get(place, sources.get(line)) for line, place in _places(lines)]
    return [
        SourcedLine(
            line,
            ids or (),
            is_fact(line) and OWN_KNOWLEDGE in (ids or ()),
            is_fact(line) and ids is None,
        )
        for line, ids in zip(lines, found, strict=True)
    ]


def own_lines(skill: Skill) -> tuple[list[str], int]:
    """The lines that say something which only the teacher says, and how many lines state something."""
    lines = [line for line in sourced_lines(skill) if is_fact(line.text)]
    return [line.text.strip() for line in lines if line.is_own], len(lines)


def is_from_memory(skill: Skill) -> bool:
    """A model wrote it, and no line of it cites anything but the task."""
    provenance = Provenance.of(skill)
    cited = {name for ids in provenance.sources.values() for name in ids} - {OWN_KNOWLEDGE, "task"}
    has_material = skill.read(MATERIAL) is not None or "source_files" in provenance.metadata
    return bool(provenance.metadata.get("generated_by")) and not cited and not has_material


def making_cost(skill: Skill, older: Skill | None = None) -> float | None:
    """Dollars spent on a skill beyond what an older one already cost; None if unknown."""
    try:
        before = (
            {row.get("search") for row in _making(Provenance.of(older))} if older else set[Any]()
        )
        rows = [row for row in _making(Provenance.of(skill)) if row.get("search") not in before]
    except UsageError:  # a broken file is no reason not to evaluate the skill
        return None
    return _sum(_amount(row.get("cost_usd")) for row in rows) if rows else None


def add_suite(skill: Skill, suite: Suite) -> Skill:
    """The skill with this suite as `evals/evals.json`. Tests that its `skill_meta.json` had are in there now."""
    if skill.read(FILE) is not None:
        provenance = Provenance.of(skill)
        kept = {**provenance.other_fields}
        kept.pop("tests", None)
        kept.pop("cases", None)
        skill = replace(provenance, other_fields=kept).add_to(skill)
    replaced = has_written_suite(skill)
    # evals.json keeps paths in `files`, so a student would see other names.
    if replaced or any(case.files for case in suite.cases):
        mark = WRITTEN if replaced or suite.source == "generated" else {}
        return skill.with_file(SUITE, _json({**mark, **suite.to_dict()}))
    limit = {"max_output_tokens": suite.max_output_tokens} if suite.max_output_tokens else {}
    rows: list[dict[str, Any]] = []
    for case in suite.cases:
        fields = case.to_dict()
        expected = case.expected_output or case.reference
        row = {"id": fields.pop("id"), "prompt": fields.pop("prompt")}
        rows.append({**row, **({"expected_output": expected} if expected else {}), **fields})
    return skill.with_file(EVALS, _json({"skill_name": skill.name, **limit, "evals": rows}))


def has_written_suite(skill: Skill) -> bool:
    try:
        suite = dict_or_empty(load_json(skill.read(SUITE) or b"null"))
    except ValueError:
        return False
    return dict_or_empty(suite.get("metadata")).get("written") is True


def own_suite(skill: Skill) -> str:
    """The suite that a person wrote, which upskill never changes; empty where there is none."""
    written = SUITE if has_written_suite(skill) else ""
    return next((name for name in OWN_SUITES if skill.file(name) and name != written), "")


def save_suite(skill: Skill, suite: Suite) -> tuple[Skill, Suite]:
    """Add a suite to the folder of a skill that has none, and nothing else; returns both as read back."""
    assert skill.folder is not None
    file = skill.folder / SUITE
    with whole_file(file) as stream:
        stream.write(_json({**WRITTEN, **suite.to_dict()}))
    return Skill.load(skill.folder), Suite.load(file)


def _sum(costs: Iterable[float | None]) -> float | None:
    amounts = list(costs)
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) if len(known) == len(amounts) else None


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, 8)


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
