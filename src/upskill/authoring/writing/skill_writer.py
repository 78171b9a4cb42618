"""Write a skill from material: blocks that cite what they come from, and files beside them that were tried."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from upskill.authoring.material.material import OWN_KNOWLEDGE, Material
from upskill.authoring.saving.output import as_name
from upskill.authoring.saving.provenance import Provenance, cite_lines, is_fact
from upskill.authoring.writing.grounding import evidence_text, uncovered, uncovered_by
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    REPAIRS,
    InvalidAnswer,
    StructuredRequest,
    Tell,
    ask,
    list_schema,
    no_message,
    read_ids,
    read_items,
    text_schema,
)
from upskill.authoring.writing.summarize import DEFAULT_BUDGET, summarize
from upskill.errors import UsageError
from upskill.models import Model
from upskill.plain import object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redaction.redact import redact

CHARACTERS = 4  # of a token; a limit is told in characters, which anybody can count
MAX_DESCRIPTION = 1024  # characters, by the format
MAX_FLAWS = 12  # that are sent back
MAX_QUESTIONS = 5
SCRIPTS, REFERENCES = "scripts/", "references/"
SECONDS = 20.0  # for a script to print its help
MENTIONED = re.compile(r"(?<![\w/.-])(?:scripts|references)/[\w./-]*\w")


class Draft(NamedTuple):
    skill: Skill
    missing: tuple[str, ...]  # questions that the task depends on and the material does not answer


class Block(NamedTuple):
    text: str
    ids: list[str]


async def write_skill(  # noqa: PLR0913 - options, by name
    material: Material,
    model: Model,
    tokens: int = 1_500,
    *,
    file_tokens: int = 2_000,
    opens_files: bool = True,
    small_student: bool = True,
    form: str = "",
    name: str = "",
    budget: int = DEFAULT_BUDGET,
    repairs: int = REPAIRS,
    tell: Tell = no_message,
) -> Draft:
    """A skill whose `skill_meta.json` cites the source of each line. What is wrong goes back once.

    `opens_files`: whether the student can read more than the body. `small_student`: whether it can only look things up,
    so that the form of the text decides. `form`: your own words on how to write the text, instead of ours. `repairs`:
    how often an answer may be sent back.
    """
    material = await summarize(material, model, budget=budget, tell=tell)
    form = form or read_prompt("form_for_small" if small_student else "form_for_capable")
    limit = CHARACTERS * tokens
    files = read_prompt("write_skill_files", tokens=file_tokens) if file_tokens else ""
    prompt = read_prompt("write_skill", characters=f"{limit:,}", files=files, form=form.strip())
    request = StructuredRequest(
        "writing the skill",
        prompt,
        _describe(material, opens_files=opens_files),
        _draft_schema(tokens, material, has_files=file_tokens > 0),
        max_output_tokens=3 * tokens + 1500 + 2 * file_tokens,
        title="1-skill",
    )

    async def read(answer: dict[str, Any]) -> tuple[tuple[Draft, list[str]], list[str]]:
        blocks = [
            Block(str(item.get("text", "")).strip("\n"), read_ids(item.get("evidence")))
            for item in read_items(answer.get("blocks"))
        ]
        blocks = [block for block in blocks if block.text.strip()]
        skill = _build_skill(answer, blocks, material, name)
        flaws = list(dict.fromkeys(_find_flaws(skill, blocks, material)))[:MAX_FLAWS]
        if flaw := length_flaw(skill.body, limit):
            flaws.insert(0, flaw)
        told = [f"Kept a draft with problems: {'; '.join(flaws)}."] if flaws else []
        if wrong := await file_problems(skill, material, file_tokens):
            flaws += [f"{path}: {why}" for path, why in wrong.items()]
            skill = _without_files(skill, {*wrong})
            if not skill.body.strip():
                raise InvalidAnswer("; ".join(flaws))
            left_out = "; ".join(f"{path} ({why})" for path, why in wrong.items())
            told.append(f"Left out these files and the lines that mention them: {left_out}.")
        missing = read_ids(answer.get("missing"))[:MAX_QUESTIONS]
        return (Draft(skill, tuple(missing)), told), flaws

    draft, told = await ask(model, request, read, repairs=repairs)
    for line in told:
        tell(line)
    return draft


def _describe(material: Material, *, opens_files: bool) -> str:
    parts = [f"The task, as a JSON string:\n{json.dumps(material.task, ensure_ascii=False)}"]
    if older := material.skill:
        fields = {"name": older.name, "description": older.description, "body": redact(older.body)}
        text = json.dumps(fields, ensure_ascii=False)
        parts.append(f"The older skill that this one replaces, as JSON:\n{text}")
    if not opens_files:
        parts.append(
            "The student that it is tested on sees the blocks alone and cannot open a file."
        )
    if material.pieces:
        parts.append(material.quoted())
    return "\n\n".join(parts)


def _draft_schema(tokens: int, material: Material, *, has_files: bool) -> dict[str, Any]:
    ids = sorted(material.ids)
    # Where there are few ids, no other can be written at all.
    evidence = {"type": "string", "enum": ids} if len(ids) <= 40 else text_schema(20)
    block = {"text": text_schema(1200), "evidence": list_schema(evidence, 12)}
    fields: dict[str, Any] = {
        "name": text_schema(64),
        "description": text_schema(MAX_DESCRIPTION),
        "blocks": list_schema(object_schema(block), max(8, tokens // 10), 1),
    }
    if has_files:
        file = {"path": text_schema(80), "text": text_schema(20_000)}
        fields["files"] = list_schema(object_schema(file), 4)
    return object_schema({**fields, "missing": list_schema(text_schema(200), MAX_QUESTIONS)})


def _build_skill(
    answer: dict[str, Any], blocks: list[Block], material: Material, name: str
) -> Skill:
    """InvalidAnswer if no skill can be made of the answer."""
    body = ""
    for text, _ in blocks:  # an empty line between any two that are not list items
        follows = _is_item(text) and _is_item(body.rpartition("\n")[2])
        body += ("\n" if follows else "\n\n" if body else "") + text
    if not body.strip():
        raise InvalidAnswer("the blocks contain no text")
    description = " ".join(str(answer.get("description", "")).split())
    try:
        skill = Skill.new(name or as_name(str(answer.get("name", ""))), description, body)
        for item in read_items(answer.get("files")):
            path = str(item.get("path", ""))
            if not path.startswith((REFERENCES, SCRIPTS)):
                raise InvalidAnswer(f"the file {path!r} is not in references/ or scripts/")
            data = str(item.get("text", "")).encode()
            skill = skill.with_file(path, data, executable=path.startswith(SCRIPTS))
    except UsageError as error:
        raise InvalidAnswer(error.message) from error
    except UnicodeEncodeError as error:
        raise InvalidAnswer("it contains half a character, which cannot be saved") from error
    problems = [each.message for each in skill.problems("strict") if each.level == "error"]
    if problems:
        raise InvalidAnswer("; ".join(problems))
    cited = (
        (line, (material.resolve_citations(ids) or (OWN_KNOWLEDGE,)) if is_fact(line) else None)
        for text, ids in blocks
        for line in text.splitlines()
    )
    return Provenance().with_sources(cite_lines(cited), material.excerpts()).add_to(skill)


def _find_flaws(skill: Skill, blocks: list[Block], material: Material) -> list[str]:
    flaws: list[str] = []
    files = text_files(skill)
    for text, ids in blocks:
        start = f"the block {text[:60]!r}"
        if unknown := [name for name in ids if name not in material.ids]:
            flaws.append(f"no evidence has the id {', '.join(unknown)}")
        elif not ids and material.pieces and any(map(is_fact, text.splitlines())):
            flaws.append(f"{start} cites no evidence")
        elif ids and (missing := uncovered_by(text, ids, material, files)):
            things = ", ".join(map(repr, missing[:5]))
            flaws.append(
                f"{start} says {things}, which is not in {', '.join(ids)}: cite what says it,"
                f' leave it out, or cite "{OWN_KNOWLEDGE}" if you know it yourself'
            )
    return flaws


def length_flaw(body: str, limit: int) -> str:
    if len(body) <= limit:
        return ""
    return f"the text has {len(body):,} characters, and {limit:,} are allowed: leave out what matters least"


def _is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)]) ", line) is not None


# Files beside the text
# ------------------------------------------------------------------------------------------------


def text_files(skill: Skill) -> dict[str, str]:
    files = {path: skill.read(path) or b"" for path in skill.resources}
    return {path: data.decode("utf-8", errors="replace") for path, data in files.items()}


async def file_problems(skill: Skill, material: Material, tokens: int) -> dict[str, str]:
    """What is wrong with the files of a draft. A script has to print its help in a sandbox, and exit with 0."""
    named = {*MENTIONED.findall(skill.body)}
    texts = text_files(skill)
    files = {path: texts[path] for path in texts if path.startswith((SCRIPTS, REFERENCES))}
    if not files and not named:
        return {}
    known = evidence_text(material.ids, material)
    problems: dict[str, str] = {}
    for path in sorted(named - files.keys()):
        if path not in known:  # what the material names is a file of the user's own
            problems[path] = "a block names it, but the file does not exist"
    for path, text in files.items():
        if path not in named:
            problems[path] = "no block says when to read or run it"
        elif path.startswith(REFERENCES) and material.pieces and uncovered(text, known):
            things = ", ".join(map(repr, uncovered(text, known)[:5]))
            problems[path] = f"it says {things}, which is not in the material"
    if (size := estimate_tokens("".join(files.values()))) > tokens:
        largest = max(files, key=lambda path: len(files[path]))
        problems[largest] = f"the files have {size} tokens, {tokens} are allowed"
    scripts = [path for path in files if path.startswith(SCRIPTS)]
    return problems | await _run_scripts(skill, scripts) if scripts else problems


def _without_files(skill: Skill, paths: set[str]) -> Skill:
    """Also without the lines of the body that point to these files."""
    lines = [line for line in skill.body.splitlines() if not paths & {*MENTIONED.findall(line)}]
    for path in paths:
        skill = skill.without_file(path)
    return skill.with_body("\n".join(lines))


async def _run_scripts(skill: Skill, scripts: list[str]) -> dict[str, str]:
    from upskill.sandboxes import Limits, Setup, choose_sandbox  # noqa: PLC0415 - only where something is run

    try:
        sandbox = (await choose_sandbox()).backend
    except UsageError:
        return dict.fromkeys(scripts, "no sandbox works here, so it could not be tried")
    files = {path: skill.read(path) or b"" for path in skill.resources}
    problems: dict[str, str] = {}
    async with await sandbox.open(Setup(files=files, runnable=frozenset(scripts))) as opened:
        for path in scripts:
            if not files[path].startswith(b"#!"):
                problems[path] = "its first line is not #! and an interpreter"
                continue
            done = await opened.run([f"./{path}", "--help"], Limits(wall=SECONDS, cpu=SECONDS))
            output = (done.output + done.error).strip()
            if done.code or done.killed_why:
                why = done.killed_why or f"exit code {done.code}"
                problems[path] = f"`{path} --help` fails in a sandbox ({why}): {output[-300:]}"
            elif not output:
                problems[path] = f"`{path} --help` prints nothing"
    return problems
