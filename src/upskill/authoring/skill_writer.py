"""A teacher writes a Skill from Material."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from upskill.authoring.material import TASK, Material, gather
from upskill.authoring.output import as_name
from upskill.authoring.prompts import read_prompt
from upskill.authoring.provenance import Provenance
from upskill.authoring.structured import InvalidAnswer, StructuredRequest, ask, read_ids
from upskill.authoring.summarize import DEFAULT_BUDGET, SMALL_BUDGET, Tell, material_budget, no_message, summarize
from upskill.authoring.teachers import NoTeacher
from upskill.errors import UsageError
from upskill.models import Model, ModelContext, Models
from upskill.models.addresses import resolve
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.traces.redact import redact

LENGTH_TOLERANCE = 1.5  # times the tokens asked for


def _draft_schema(tokens: int, material: Material, *, small: bool) -> dict[str, Any]:
    """Form of the teacher's answer. A small model is held to fewer and shorter blocks, or it would not stop."""
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
    """An id of the material; where there are few, no other can be written at all."""
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
    tell: Tell = no_message,
) -> Skill:
    """A valid skill whose `skill_meta.json` says which piece of the material each line came from.

    An answer that cannot be used (an invalid skill, evidence that does not exist) is asked for again, at most twice.
    Material that is too long for one prompt is summarized first. A given `name` replaces the teacher's.
    """
    material = await summarize(material, model, budget=budget, tell=tell)
    user = f"The task, as a JSON string:\n{json.dumps(material.task, ensure_ascii=False)}"
    if material.skill is not None:
        body = redact(material.skill.body)
        older = {"name": material.skill.name, "description": material.skill.description, "body": body}
        user += f"\n\nThe older skill that this one replaces, as JSON:\n{json.dumps(older, ensure_ascii=False)}"
    if material.pieces:
        user += f"\n\n{material.quoted()}"
    request = StructuredRequest(
        "writing the skill",
        read_prompt("write_skill", tokens=tokens),
        user,
        _draft_schema(tokens, material, small=budget < SMALL_BUDGET),
        max_output_tokens=3 * tokens + 1500,
        seed=seed,
    )

    def read(answer: dict[str, Any], last: bool) -> Skill:
        skill, advice = _read_draft(answer, material, tokens, name)
        if advice and not last:
            raise InvalidAnswer("; ".join(advice))
        if advice:
            tell(f"Kept a draft although {'; '.join(advice)}.")
        return skill

    return await ask(model, request, read)


def _read_draft(answer: dict[str, Any], material: Material, tokens: int, name: str) -> tuple[Skill, list[str]]:
    """The skill, and what a better draft would not have. InvalidAnswer where no skill can be made of the answer."""
    items = [dict_or_empty(item) for item in list_or_empty(answer.get("blocks"))]
    blocks = [(str(item.get("text", "")).strip("\n"), read_ids(item.get("evidence"))) for item in items]
    blocks = [(text, ids) for text, ids in blocks if text.strip()]
    body = _join_blocks([text for text, _ in blocks])
    if not body.strip():
        raise InvalidAnswer("blocks has no text: there is nothing to learn")
    try:
        skill = Skill.new(
            name or as_name(str(answer.get("name", ""))), " ".join(str(answer.get("description", "")).split()), body
        )
        for file in (dict_or_empty(item) for item in list_or_empty(answer.get("files"))):
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
    sources = {
        line: material.resolve_citations(ids) for text, ids in blocks for line in text.splitlines() if _is_fact(line)
    }
    task = {TASK: {"kind": TASK, "from": "", "text": material.task[:400]}}
    provenance = Provenance().with_sources(
        {line: ids for line, ids in sources.items() if ids}, task | material.excerpts()
    )
    return provenance.add_to(skill), _advice(skill, blocks, material, tokens)


def _advice(skill: Skill, blocks: list[tuple[str, list[str]]], material: Material, tokens: int) -> list[str]:
    found: list[str] = []
    if skill.tokens > LENGTH_TOLERANCE * tokens:
        found.append(f"the blocks have about {skill.tokens} tokens and {tokens} were asked for")
    unknown = sorted({name for _, ids in blocks for name in ids} - material.ids)
    if unknown:
        found.append(f"there is no evidence called {', '.join(unknown[:5])}")
    bare = [text for text, ids in blocks if not ids and any(map(_is_fact, text.splitlines()))]
    if bare and material.pieces:
        found.append(f"{len(bare)} blocks name no evidence (the first: {bare[0][:60]!r})")
    return found


def _join_blocks(texts: list[str]) -> str:
    """The blocks as Markdown: an empty line between any two that are not list items."""
    body = ""
    for text in texts:
        follows = _is_item(text) and _is_item(body.rpartition("\n")[2])
        body += ("\n" if follows else "\n\n" if body else "") + text
    return body


def _is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)]) ", line) is not None


def _is_fact(line: str) -> bool:
    """Whether a line states something: it is no heading, rule or fence."""
    return bool(re.search(r"\w", line)) and not line.lstrip().startswith(("#", "```"))


async def generate_skill(
    task: str,
    examples: Sequence[str] = (),
    model: str | None = None,
    config: Settings | None = None,
    *,
    models: Models | None = None,
    tokens: int = 800,
) -> Skill:
    """A skill for a task, unproven, by the model named here or in the config. This is upstream's signature."""
    settings = config or Settings.load()
    material = gather(task, examples=examples)
    async with models or Models(ModelContext.load(settings)) as opened:
        name = model or settings.skill_generation_model
        if not name:
            raise NoTeacher(opened.context.keys)
        address = resolve(name, keys=opened.context.keys)
        teacher = await opened.get(address, "teacher")
        skill = await write_skill(material, teacher, tokens, budget=material_budget(address))
    return Provenance.of(skill).with_author(address.name, material.task).add_to(skill)
