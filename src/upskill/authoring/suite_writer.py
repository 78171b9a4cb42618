"""A model writes the test cases of a Skill; only cases that pass the quality probes are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill.authoring.material import Material, gather
from upskill.authoring.prompts import read_prompt
from upskill.authoring.skill_writer import as_name
from upskill.authoring.structured import InvalidAnswer, StructuredRequest, ask, read_ids
from upskill.authoring.summarize import DEFAULT_BUDGET, SMALL_BUDGET, Tell, material_budget, no_message, summarize
from upskill.errors import UpskillError, UsageError
from upskill.models import Model, ModelContext, Models
from upskill.models.addresses import resolve
from upskill.plain import as_mapping, dict_or_empty, list_or_empty, object_schema
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.suites.quality import probe_case
from upskill.suites.twins import near_duplicates
from upskill.traces.redact import redact

MAX_ROUNDS = 3  # the first request for cases, and two more for replacements
CHECK_KINDS = (
    *("contains", "contains_any", "not_contains", "equals", "starts_with", "regex", "not_regex"),
    *("json_schema", "max_length"),
)
PLAIN_CHECKS = frozenset(["contains", "max_length"])  # an answer that just lists the words passes these
# A suite of at least so many cases needs other checks in a quarter of them, of at least so many kinds.
VARIETY_FROM, OTHER_KINDS = 10, 2


async def write_suite(
    skill: Skill,
    model: Model,
    *,
    count: int = 12,
    material: Material | None = None,
    budget: int = DEFAULT_BUDGET,
    existing: Sequence[Case] = (),
    tell: Tell = no_message,
) -> Suite:
    """Cases for a skill, each of which passes the quality probes. Refused ones are asked for again, at most twice.

    They are made from the task and the material too, so that they also test what a draft of the skill left out. Of
    `existing` cases only train cases are shown to the writer. A suite of many cases needs other kinds of checks than
    `contains`; where the writer gives too few, the suite is kept and `tell` says so. A small model is not held to that.
    """
    if material is not None:
        material = await summarize(material, model, budget=budget, tell=tell)
    writer = _SuiteWriter(skill, model, count, material, tuple(existing), small=budget < SMALL_BUDGET)
    for number in range(MAX_ROUNDS):
        if len(writer.kept) == count:
            break
        await writer.ask_for_missing(first=number == 0)
    writer.fill_with_spares()
    kept, refused = writer.kept, writer.refused
    if len(kept) < max(3, count // 2):
        last = f"; the last one refused: {refused[-1]}" if refused else ""
        raise UpskillError(
            f"only {len(kept)} of {count} generated test cases can be used{last}",
            "Name a stronger model with --test-gen-model, or write the cases yourself and give them with --tests.",
        )
    if refused:
        tell(f"Refused {len(refused)} generated cases that an ignorant answer would pass or that broke a rule.")
    cases = tuple(kept.values())
    if missing_variety(cases, len(cases)):
        kinds = sorted(set[str]().union(*map(_other_kinds, cases)))
        tell(f"The generated cases have few kinds of checks beside contains: {', '.join(kinds) or 'none'}.")
    return Suite(cases, "generated")


def missing_variety(cases: Sequence[Case], count: int) -> int:
    """How many more cases with other kinds of checks than `contains` a suite of so many cases needs."""
    if count < VARIETY_FROM:
        return 0
    others = [kinds for case in cases if (kinds := _other_kinds(case))]
    return max(-(-count // 4) - len(others), OTHER_KINDS - len(set[str]().union(*others)), 0)


def _other_kinds(case: Case) -> set[str]:
    return {named.name for named in case.checks} - PLAIN_CHECKS


@dataclass
class _SuiteWriter:
    skill: Skill
    model: Model
    count: int
    material: Material | None
    existing: tuple[Case, ...]
    small: bool
    kept: dict[str, Case] = field(default_factory=dict[str, Case])
    spares: list[Case] = field(default_factory=list[Case])  # usable, but a case with another kind of check is wanted
    refused: list[str] = field(default_factory=list[str])  # why

    @property
    def known(self) -> list[Case]:
        return [*self.existing, *self.kept.values()]

    async def ask_for_missing(self, *, first: bool) -> None:
        for item in await self._ask("" if first or self.small else self._variety_request(), first=first):
            case, why = await self._read_case(item)
            if case is None:
                self.refused.append(why)
            elif len(self.kept) < self.count and (self.small or self._leaves_room_for_variety(case)):
                self.kept[case.id] = case
            else:
                self.spares.append(case)

    def fill_with_spares(self) -> None:
        for case in self.spares:
            if len(self.kept) < self.count and case.id not in self.kept and not _is_duplicate(case, self.known):
                self.kept[case.id] = case

    def _leaves_room_for_variety(self, case: Case) -> bool:
        return missing_variety([*self.kept.values(), case], self.count) < self.count - len(self.kept)

    def _variety_request(self) -> str:
        cases = list(self.kept.values())
        if not (needed := missing_variety(cases, self.count)):
            return ""
        used = set[str]().union(*map(_other_kinds, cases))
        unused = [kind for kind in CHECK_KINDS if kind not in PLAIN_CHECKS and kind not in used]
        return (
            f"At least {needed} of them must have a check of another kind than {' and '.join(sorted(PLAIN_CHECKS))};"
            f" not used so far: {', '.join(unused)}."
        )

    async def _ask(self, variety: str, *, first: bool) -> list[Any]:
        skill, material, count = self.skill, self.material, self.count - len(self.kept)
        shown: dict[str, Any] = {"name": skill.name, "description": skill.description, "body": redact(skill.body)}
        if material is not None and material.task:
            shown["task"] = material.task
        text = json.dumps(shown, ensure_ascii=False)
        if material is not None and material.pieces:
            text += f"\n\n{material.quoted()}"
        # No prompt contains a held-out case, not even this one.
        if prompts := [case.prompt for case in self.known if not case.held_out]:
            text += f"\n\nSome prompts that are there already, as JSON:\n{json.dumps(prompts[:40], ensure_ascii=False)}"
        if self.refused and not first:
            text += "\n\nThese cases were refused; write others:\n" + "\n".join(
                f"- {why}" for why in self.refused[-20:]
            )
        if variety:
            text += f"\n\n{variety}"
        request = StructuredRequest(
            "writing test cases",
            read_prompt("write_suite", count=count),
            text,
            _suite_schema(count, small=self.small),
            max_output_tokens=400 * count + 2000,
        )
        try:
            return await ask(self.model, request, lambda answer, _: list_or_empty(answer.get("cases")), repairs=0)
        except UpskillError as error:
            if isinstance(error.__cause__, InvalidAnswer):
                return []  # the next round asks again
            raise

    async def _read_case(self, item: Any) -> tuple[Case | None, str]:
        """The case when it can be used, else why not."""
        fields = as_mapping(item)
        if fields is None:
            return None, "a case that is not an object"
        fields["checks"] = [_read_check(check) for check in list_or_empty(fields.get("checks"))]
        # Not every model keeps to the schema, and a generated check must neither run anything nor ask a judge.
        if strange := [kind for check in fields["checks"] for kind in check if kind not in CHECK_KINDS]:
            return None, f"{strange[0]!r} is not a kind of check that was offered"
        ids = read_ids(fields.get("evidence"))
        fields["evidence"] = list(self.material.resolve_citations(ids)) if self.material else []
        try:
            case = Suite.parse([fields], "a generated case").cases[0]
        except UsageError as error:
            return None, error.message
        if any(case.id == other.id for other in self.known):
            return None, f"the id {case.id!r} is there already"
        if _is_duplicate(case, self.known):
            return None, f"case {case.id!r}: another case asks the same"
        weak = await probe_case(case, self.skill)
        return (None, str(weak[0])) if weak else (case, "")


def _is_duplicate(case: Case, others: Iterable[Case]) -> bool:
    return any(case.id in pair for pair in near_duplicates([*others, case]))


def _suite_schema(count: int, *, small: bool) -> dict[str, Any]:
    text = {"type": "string", "maxLength": 120 if small else 600}
    check = object_schema(
        {
            "kind": {"type": "string", "enum": ["contains", "max_length"] if small else list(CHECK_KINDS)},
            "texts": {
                "type": "array",
                "items": {"type": "string", "maxLength": 30 if small else 400},
                "maxItems": 2 if small else 6,
            },
            "number": {"type": "integer"},
        }
    )
    case = object_schema(
        {
            "id": {"type": "string", "maxLength": 60},
            "prompt": text,
            "checks": {"type": "array", "items": check, "minItems": 1, "maxItems": 2 if small else 5},
            "reference": text,
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 1 if small else 3},
            "evidence": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 6},
        }
    )
    return object_schema({"cases": {"type": "array", "items": case, "minItems": 1, "maxItems": count}})


def _read_check(item: Any) -> dict[str, Any]:
    check = dict_or_empty(item)
    kind, texts = str(check.get("kind")), list_or_empty(check.get("texts"))
    if kind == "max_length":
        return {kind: check.get("number")}
    if kind in ("contains", "contains_any", "not_contains"):
        return {kind: texts}
    if kind == "json_schema":
        try:
            return {kind: json.loads(texts[0] if texts else "")}
        except ValueError:
            return {kind: {"schema": "not JSON"}}
    return {kind: texts[0] if texts else ""}


async def generate_tests(
    task: str,
    model: str | None = None,
    config: Settings | None = None,
    *,
    skill: Skill | None = None,
    models: Models | None = None,
    count: int = 12,
) -> Suite:
    """Test cases for a task, or for a skill that was made for it. This is upstream's signature."""
    settings = config or Settings.load()
    name = model or settings.test_gen_model or settings.skill_generation_model or "local"
    subject = skill or Skill.new(as_name(task)[:40].strip("-") or "task", task[:300], task)
    async with models or Models(ModelContext.load(settings)) as opened:
        address = resolve(name, keys=opened.context.keys)
        writer = await opened.get(address, "test writer")
        return await write_suite(subject, writer, count=count, material=gather(task), budget=material_budget(address))
