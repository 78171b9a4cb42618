"""Create: have a teacher write a Skill from Material, and a Suite of cases that tell knowing it from not knowing it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from upskill.authoring.material import OWN_KNOWLEDGE, TASK, Material, Piece, chunks, gather, quote
from upskill.authoring.output import as_name
from upskill.authoring.prompts import read_prompt
from upskill.authoring.provenance import Provenance
from upskill.authoring.structured import InvalidAnswer, StructuredRequest, ask
from upskill.errors import UpskillError, UsageError
from upskill.models import Address, Model, Models
from upskill.models.addresses import resolve
from upskill.models.embedded.local_models import LOCAL_MODELS, find_local_model
from upskill.plain import as_list, as_mapping, object_schema
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.suites.quality import near_duplicates, probe_case
from upskill.traces.redact import redact

MAX_ROUNDS = 3  # the first asking for cases and two more for replacements
DEFAULT_BUDGET = 60_000  # tokens of material that go into one prompt, where nothing is known of the model
SMALL_BUDGET = 4_000  # tokens of room below which a model is a small one
LENGTH_TOLERANCE = 1.5  # times the tokens asked for
VERSION = "1.0.0"
CHECK_KINDS = (
    *("contains", "contains_any", "not_contains", "equals", "starts_with", "regex", "not_regex"),
    *("json_schema", "max_length"),
)
PLAIN_CHECKS = frozenset(["contains", "max_length"])  # a suite of these alone is passed by saying the words
VARIETY_FROM = 10  # cases, from which on a suite has to have other kinds of checks as well
OTHER_KINDS = 2  # kinds of them, in at least a quarter of the cases

Tell = Callable[[str], None]


def _ignore(_: str) -> None:
    pass


def material_budget(address: Address) -> int:
    """How many tokens of material fit into one prompt of this model, beside what it is told and what it answers."""
    if address.provider == "local" and (address.model in LOCAL_MODELS or not address.model):
        return find_local_model(address.model).context // 4
    return DEFAULT_BUDGET


# A skill.


def _draft_schema(tokens: int, material: Material, *, small: bool) -> dict[str, Any]:
    """What a draft looks like. A small model is held to fewer and shorter blocks, or it would go on and on."""
    evidence = {"type": "array", "items": _evidence_schema(material.ids), "maxItems": 2 if small else 12}
    block: dict[str, Any] = {"text": {"type": "string", "maxLength": 160 if small else 1200}, "evidence": evidence}
    file: dict[str, Any] = {
        "path": {"type": "string", "maxLength": 80},
        "text": {"type": "string", "maxLength": 20_000},
    }
    return object_schema(
        {
            "name": {"type": "string", "maxLength": 64},
            "description": {"type": "string", "maxLength": 240 if small else 600},
            "blocks": {
                "type": "array",
                "items": object_schema(block),
                "minItems": 1,
                "maxItems": min(12, tokens // 20) if small else max(8, tokens // 10),
            },
            "files": {"type": "array", "items": object_schema(file), "maxItems": 0 if small else 4},
        }
    )


def _evidence_schema(ids: Iterable[str]) -> dict[str, Any]:
    """An id of the material: where there are few, nothing else can be said at all."""
    known = sorted(ids)
    return {"type": "string", "enum": known} if len(known) <= 40 else {"type": "string", "maxLength": 20}


async def write_skill(
    material: Material,
    model: Model,
    tokens: int = 800,
    *,
    name: str = "",
    seed: int | None = None,
    budget: int = DEFAULT_BUDGET,
    tell: Tell = _ignore,
) -> Skill:
    """A valid skill that says, in its `skill_meta.json`, which piece of the material each line came from.

    What does not hold up (an invalid skill, evidence that nobody gave) is asked for again, at most twice. Material
    that is too long for one prompt is summed up part by part first. With a `name` the skill is called so.
    """
    material = await summarize(material, model, budget=budget, tell=tell)
    user = f"The task, as a JSON string:\n{json.dumps(material.task, ensure_ascii=False)}"
    if material.skill is not None:
        body = redact(material.skill.body)
        older = {"name": material.skill.name, "description": material.skill.description, "body": body}
        user += f"\n\nThe older skill that this one replaces, as JSON:\n{json.dumps(older, ensure_ascii=False)}"
    if material.pieces:
        user += f"\n\n{material.quoted()}"
    question = StructuredRequest(
        "writing the skill",
        read_prompt("write_skill", tokens=tokens),
        user,
        _draft_schema(tokens, material, small=budget < SMALL_BUDGET),
        max_output_tokens=3 * tokens + 1500,
        seed=seed,
    )

    def read(said: dict[str, Any], last: bool) -> Skill:
        return _read_draft(said, material, tokens, name, last=last, tell=tell)

    return await ask(model, question, read)


def _read_draft(said: dict[str, Any], material: Material, tokens: int, name: str, *, last: bool, tell: Tell) -> Skill:
    blocks = [as_mapping(block) or {} for block in as_list(said.get("blocks")) or []]
    written = [(str(block.get("text", "")).strip("\n"), _ids(block.get("evidence"))) for block in blocks]
    written = [(text, ids) for text, ids in written if text.strip()]
    body = _join_blocks([text for text, _ in written])
    if not body.strip():
        raise InvalidAnswer("blocks has no text: there is nothing to learn")
    try:
        skill = Skill.new(
            name or as_name(str(said.get("name", ""))), " ".join(str(said.get("description", "")).split()), body
        )
        for file in (as_mapping(item) or {} for item in as_list(said.get("files")) or []):
            path, text = str(file.get("path", "")), str(file.get("text", ""))
            if not path.startswith(("references/", "scripts/")):
                raise InvalidAnswer(f"the file {path!r} is neither below references/ nor below scripts/")
            skill = skill.with_file(path, text.encode(), executable=path.startswith("scripts/"))
    except UsageError as error:
        raise InvalidAnswer(error.message) from error
    except UnicodeEncodeError as error:
        raise InvalidAnswer("it holds half a character, which cannot be saved") from error
    if errors := [problem.message for problem in skill.problems("strict") if problem.level == "error"]:
        raise InvalidAnswer("; ".join(errors))
    if advice := _advice(skill, written, material, tokens):
        if not last:
            raise InvalidAnswer("; ".join(advice))
        tell(f"Kept a draft although {'; '.join(advice)}.")
    sources = {
        line: material.resolve_citations(ids) for text, ids in written for line in text.splitlines() if _is_fact(line)
    }
    meta = Provenance().with_sources({line: ids for line, ids in sources.items() if ids}, _excerpts(material))
    return meta.add_to(skill)


def _advice(skill: Skill, written: list[tuple[str, list[str]]], material: Material, tokens: int) -> list[str]:
    """What a better draft would not have; a last draft is taken all the same."""
    found: list[str] = []
    if skill.tokens > LENGTH_TOLERANCE * tokens:
        found.append(f"the blocks have about {skill.tokens} tokens and {tokens} were asked for")
    unknown = sorted({name for _, ids in written for name in ids} - material.ids)
    if unknown:
        found.append(f"there is no evidence called {', '.join(unknown[:5])}")
    bare = [text for text, ids in written if not ids and any(map(_is_fact, text.splitlines()))]
    if bare and material.pieces:
        found.append(f"{len(bare)} blocks name no evidence (the first: {bare[0][:60]!r})")
    return found


def _excerpts(material: Material) -> dict[str, dict[str, str]]:
    return {TASK: {"kind": TASK, "from": "", "text": material.task[:400]}, **material.excerpts()}


def signed(skill: Skill, generated_by: str, task: str) -> Skill:
    """The skill with who made it, when and for what in its `skill_meta.json`; what stands there already stays."""
    meta = Provenance.of(skill)
    metadata: dict[str, Any] = {
        "version": VERSION,
        "generated_by": generated_by,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "source_task": task,
        "test_pass_rate": None,
    }
    return replace(meta, metadata={**metadata, **meta.metadata}).add_to(skill)


def _join_blocks(texts: list[str]) -> str:
    """Blocks as Markdown: list items follow each other, everything else stands apart."""
    body = ""
    for text in texts:
        follows = _is_item(text) and _is_item(body.rpartition("\n")[2])
        body += ("\n" if follows else "\n\n" if body else "") + text
    return body


def _is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)]) ", line) is not None


def _is_fact(line: str) -> bool:
    """A line that says something: no heading, no rule, no fence."""
    return bool(re.search(r"\w", line)) and not line.lstrip().startswith(("#", "```"))


def _ids(value: object) -> list[str]:
    return [str(item).strip() for item in as_list(value) or [] if str(item).strip()]


# Material that is too long for one prompt.


async def summarize(
    material: Material, model: Model, *, budget: int = DEFAULT_BUDGET, tell: Tell = _ignore
) -> Material:
    """The same material when it fits into so many tokens, else notes on all of it, with the pieces behind each."""
    first = material
    for _ in range(4):
        if material.tokens <= budget:
            break
        parts = chunks(material.pieces, budget)
        tell(f"The material has about {material.tokens:,} tokens: reading it in {len(parts)} parts.")
        asked = [_take_notes(material, part, number, len(parts), model, budget) for number, part in enumerate(parts, 1)]
        read = await asyncio.gather(*asked, return_exceptions=True)
        if failed := next((error for error in read if isinstance(error, BaseException)), None):
            raise failed
        notes = [note for found in read if isinstance(found, list) for note in found]
        if not notes:
            raise UpskillError("the teacher found nothing worth noting in the material", "Name a stronger model.")
        material = material.with_pieces(
            Piece(f"n{number}", "note", text, based_on=behind) for number, (text, behind) in enumerate(notes, start=1)
        )
    else:
        if material.tokens > budget:
            raise UpskillError(
                f"the notes on the material still have about {material.tokens:,} tokens, and {budget:,} fit",
                "Give less material, or name a teacher with a larger context.",
            )
    if material is first:
        return material
    used = {name for piece in material.pieces for name in piece.based_on}
    unused = len(first.pieces) - len(used & {piece.id for piece in first.pieces})
    left_out = f"{unused:,} of {len(first.pieces):,} pieces of the material: no note was made of them"
    if unused:
        tell(f"Left out: {left_out}.")
    return replace(material, left_out=(*material.left_out, *([left_out] if unused else [])))


async def _take_notes(
    material: Material, part: list[Piece], number: int, total: int, model: Model, budget: int
) -> list[tuple[str, tuple[str, ...]]]:
    # All notes together must fit into the same room, with some to spare.
    most = max(3, min(60, budget // (60 * total)))
    evidence = {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 12}
    note = object_schema({"text": {"type": "string", "maxLength": 400}, "evidence": evidence})
    schema = object_schema({"notes": {"type": "array", "items": note, "maxItems": most}})
    task = json.dumps(material.task, ensure_ascii=False)
    user = f"The task, as a JSON string:\n{task}\n\nPart {number} of {total} of the material:\n{quote(part)}"
    question = StructuredRequest(
        f"reading part {number} of the material",
        read_prompt("map_evidence", notes=most),
        user,
        schema,
        150 * most + 500,
    )
    known = Material("", tuple(part))

    def read(said: dict[str, Any], last: bool) -> list[tuple[str, tuple[str, ...]]]:
        notes = [as_mapping(item) or {} for item in as_list(said.get("notes")) or []]
        found = [
            (str(note.get("text", "")).strip(), known.resolve_citations(_ids(note.get("evidence")))) for note in notes
        ]
        bare = [text for text, ids in found if text and not set(ids) - {TASK, OWN_KNOWLEDGE}]
        if bare and not last:
            raise InvalidAnswer(f"{len(bare)} notes name no piece of this part (the first: {bare[0][:60]!r})")
        return [(text, ids) for text, ids in found if text and ids]

    return await ask(model, question, read)


# A suite.


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


async def write_suite(
    skill: Skill,
    model: Model,
    *,
    count: int = 12,
    material: Material | None = None,
    budget: int = DEFAULT_BUDGET,
    existing: Sequence[Case] = (),
    tell: Tell = _ignore,
) -> Suite:
    """Cases for a skill, each of which passed the gate; those that did not are asked for again at most twice.

    They are made from the task and the material where there is some, so that they also ask for what a draft of the
    skill left out. `beside` are cases that are there already: of those, only train cases are shown. Of many cases some
    must have other kinds of checks than `contains`; they are asked for in the same way, and what could not be had is
    told. A small model is not held to that.
    """
    if material is not None:
        material = await summarize(material, model, budget=budget, tell=tell)
    small = budget < SMALL_BUDGET
    kept: dict[str, Case] = {}
    spare: list[Case] = []  # in whose place a case with other kinds of checks is wanted
    refused: list[str] = []
    for number in range(MAX_ROUNDS):
        wanted = count - len(kept)
        if not wanted:
            break
        known = [*existing, *kept.values()]
        demand = "" if small or not number else _variety_request(list(kept.values()), count)
        asked = _ask_for_cases(skill, model, wanted, material, refused if number else [], known, demand, small=small)
        for item in await asked:
            case, why = await _accept(item, skill, material, {case.id: case for case in (*existing, *kept.values())})
            if case is None:
                refused.append(why)
            elif len(kept) < count and (small or missing_variety([*kept.values(), case], count) < count - len(kept)):
                kept[case.id] = case
            else:
                spare.append(case)
    for case in spare:
        if len(kept) < count and case.id not in kept and not _is_duplicate(case, [*existing, *kept.values()]):
            kept[case.id] = case
    if len(kept) < max(3, count // 2):
        last = f"; the last one refused: {refused[-1]}" if refused else ""
        raise UpskillError(
            f"only {len(kept)} of {count} generated test cases can be used{last}",
            "Name a stronger model with --test-gen-model, or write the cases yourself and give them with --tests.",
        )
    if refused:
        tell(f"Refused {len(refused)} generated cases that knowing nothing would pass or that broke a rule.")
    if missing_variety(list(kept.values()), len(kept)):
        kinds = sorted(set[str]().union(*map(_other_kinds, kept.values())))
        tell(f"The generated cases have few kinds of checks beside contains: {', '.join(kinds) or 'none'}.")
    return Suite(tuple(kept.values()), "generated")


def missing_variety(cases: Sequence[Case], count: int) -> int:
    """How many cases with other kinds of checks than `contains` a suite of so many cases still needs."""
    if count < VARIETY_FROM:
        return 0
    others = [kinds for case in cases if (kinds := _other_kinds(case))]
    return max(-(-count // 4) - len(others), OTHER_KINDS - len(set[str]().union(*others)), 0)


def _other_kinds(case: Case) -> set[str]:
    return {named.name for named in case.checks} - PLAIN_CHECKS


def _variety_request(cases: Sequence[Case], count: int) -> str:
    if not (needed := missing_variety(cases, count)):
        return ""
    there = set[str]().union(*map(_other_kinds, cases))
    unused = [kind for kind in CHECK_KINDS if kind not in PLAIN_CHECKS and kind not in there]
    return (
        f"At least {needed} of them must have a check of another kind than {' and '.join(sorted(PLAIN_CHECKS))};"
        f" not used so far: {', '.join(unused)}."
    )


def _is_duplicate(case: Case, others: Iterable[Case]) -> bool:
    return any(case.id in pair for pair in near_duplicates([*others, case]))


async def _ask_for_cases(
    skill: Skill,
    model: Model,
    count: int,
    material: Material | None,
    refused: list[str],
    known: Iterable[Case],
    demand: str = "",
    *,
    small: bool,
) -> list[Any]:
    shown: dict[str, Any] = {"name": skill.name, "description": skill.description, "body": redact(skill.body)}
    if material is not None and material.task:
        shown["task"] = material.task
    text = json.dumps(shown, ensure_ascii=False)
    if material is not None and material.pieces:
        text += f"\n\n{material.quoted()}"
    # A held-out case stands in no prompt, not even here.
    if there := [case.prompt for case in known if not case.held_out]:
        text += f"\n\nSome prompts that are there already, as JSON:\n{json.dumps(there[:40], ensure_ascii=False)}"
    if refused:
        text += "\n\nThese cases were refused; write others:\n" + "\n".join(f"- {why}" for why in refused[-20:])
    if demand:
        text += f"\n\n{demand}"
    question = StructuredRequest(
        "writing test cases",
        read_prompt("write_suite", count=count),
        text,
        _suite_schema(count, small=small),
        max_output_tokens=400 * count + 2000,
    )
    try:
        return await ask(model, question, lambda said, _: as_list(said.get("cases")) or [], repairs=0)
    except UpskillError as error:
        if isinstance(error.__cause__, InvalidAnswer):
            return []  # the next round asks again
        raise


async def _accept(
    item: Any, skill: Skill, material: Material | None, known: Mapping[str, Case]
) -> tuple[Case | None, str]:
    """The case when it may be used, else why not."""
    said = as_mapping(item)
    if said is None:
        return None, "a case that is not an object"
    said["checks"] = [_check(check) for check in as_list(said.get("checks")) or []]
    # Not every model keeps to the schema, and a generated check must neither run anything nor ask a judge.
    if strange := [kind for check in said["checks"] for kind in check if kind not in CHECK_KINDS]:
        return None, f"{strange[0]!r} is not a kind of check that was offered"
    said["evidence"] = list(material.resolve_citations(_ids(said.get("evidence")))) if material else []
    try:
        case = Suite.parse([said], "a generated case").cases[0]
    except UsageError as error:
        return None, error.message
    if case.id in known:
        return None, f"the id {case.id!r} is there already"
    if _is_duplicate(case, known.values()):
        return None, f"case {case.id!r}: another case asks the same"
    leaks = await probe_case(case, skill)
    return (None, str(leaks[0])) if leaks else (case, "")


def _check(said: Any) -> dict[str, Any]:
    check = as_mapping(said) or {}
    kind, texts = str(check.get("kind")), as_list(check.get("texts")) or []
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


# As upstream's users call it.


class Preferences(Protocol):
    """Which models to take where none is named: what `Config` has."""

    @property
    def skill_generation_model(self) -> str | None: ...
    @property
    def test_gen_model(self) -> str | None: ...


async def generate_skill(
    task: str,
    examples: Sequence[str] = (),
    model: str | None = None,
    config: Preferences | None = None,
    *,
    models: Models | None = None,
    tokens: int = 800,
) -> Skill:
    """A skill for a task, by the model named here or in the config."""
    material = gather(task, examples=examples)
    address = resolve(model or (config.skill_generation_model if config else None) or "local")
    async with models or Models() as opened:
        teacher = await opened.get(address, "teacher")
        skill = await write_skill(material, teacher, tokens, budget=material_budget(address))
    return signed(skill, address.name, material.task)


async def generate_tests(
    task: str,
    model: str | None = None,
    config: Preferences | None = None,
    *,
    skill: Skill | None = None,
    models: Models | None = None,
    count: int = 12,
) -> Suite:
    """Test cases for a task, or for a skill that was made for it."""
    preferred = (config.test_gen_model or config.skill_generation_model) if config else None
    address = resolve(model or preferred or "local")
    subject = skill or Skill.new(as_name(task)[:40].strip("-") or "task", task[:300], task)
    async with models or Models() as opened:
        writer = await opened.get(address, "test writer")
        return await write_suite(subject, writer, count=count, material=gather(task), budget=material_budget(address))
