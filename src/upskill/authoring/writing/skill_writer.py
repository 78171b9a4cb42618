from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
    ask,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.authoring.writing.summarize import (
    DEFAULT_BUDGET,
    SMALL_BUDGET,
    Tell,
    no_message,
    summarize,
)
from upskill.errors import UsageError
from upskill.models import Model
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redaction.redact import redact

LENGTH_TOLERANCE = 1.5  # times the tokens asked for
MAX_ADVICE = 12  # blocks that are sent back at a time
MAX_DESCRIPTION = 1024  # characters, by the format
MAX_QUESTIONS = 5
SCRIPTS, REFERENCES = "scripts/", "references/"
FILE_TOLERANCE = 1.5  # times the tokens that files may have
SECONDS = 20.0  # for a script to print its help
MENTIONED = re.compile(r"(?<![\w/.-])(?:scripts|references)/[\w./-]*\w")

Problem = tuple[str, str]  # the file, and what is wrong with it


class Draft(NamedTuple):
    skill: Skill
    missing: tuple[str, ...]  # questions that the task depends on and the material does not answer


def _draft_schema(
    tokens: int, material: Material, *, small: bool, has_files: bool
) -> dict[str, Any]:
    """Form of the teacher's answer. A small model is held to fewer and shorter blocks, or it would not stop."""
    ids = sorted(material.ids)
    # Where there are few ids, no other can be written at all.
    evidence = {"type": "string", "enum": ids} if len(ids) <= 40 else text_schema(20)
    block = {
        "text": text_schema(160 if small else 1200),
        "evidence": list_schema(evidence, 2 if small else 12),
    }
    file = {"path": text_schema(80), "text": text_schema(20_000)}
    max_blocks = min(12, tokens // 20) if small else max(8, tokens // 10)
    return object_schema(
        {
            "name": text_schema(64),
            "description": text_schema(240 if small else MAX_DESCRIPTION),
            "blocks": list_schema(object_schema(block), max_blocks, 1),
            **({"files": list_schema(object_schema(file), 0 if small else 4)} if has_files else {}),
            "missing": list_schema(text_schema(200), 0 if small else MAX_QUESTIONS),
        }
    )


async def write_skill(  # noqa: PLR0913 - options, by name
    material: Material,
    model: Model,
    tokens: int = 800,
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
    """A skill whose `skill_meta.json` cites the source of each line. Retries (`repairs`), then drops bad files.

    `opens_files`: whether the student can read more than the body. `small_student`: whether it can only look things up,
    so that the form of the text decides. `form`: your own words on how to write the text, instead of ours.
    """
    material = await summarize(material, model, budget=budget, tell=tell)
    small = budget < SMALL_BUDGET
    user = f"The task, as a JSON string:\n{json.dumps(material.task, ensure_ascii=False)}"
    if material.skill is not None:
        older = {
            "name": material.skill.name,
            "description": material.skill.description,
            "body": redact(material.skill.body),
        }
        user += f"\n\nThe older skill that this one replaces, as JSON:\n{json.dumps(older, ensure_ascii=False)}"
    if not opens_files:
        user += "\n\nThe student that it is tested on sees the blocks alone and cannot open a file."
    if material.pieces:
        user += f"\n\n{material.quoted()}"
    files = read_prompt("write_skill_files", tokens=file_tokens) if file_tokens else ""
    form = form or read_prompt("form_for_small" if small_student else "form_for_capable")
    request = StructuredRequest(
        "writing the skill",
        read_prompt("write_skill", tokens=tokens, files=files, form=form.strip()),
        user,
        _draft_schema(tokens, material, small=small, has_files=file_tokens > 0),
        max_output_tokens=3 * tokens + 1500 + (0 if small else 2 * file_tokens),
        title="1-skill",
    )

    async def read(answer: dict[str, Any], last: bool) -> Draft:
        skill, advice = _read_draft(answer, material, tokens, name)
        if not small:  # a small model could not fix that; such lines are marked
            advice += _ungrounded(answer, material)
        wrong = await file_problems(skill, material, file_tokens)
        if (advice or wrong) and not last:
            raise InvalidAnswer("; ".join([*advice, *(f"{path}: {why}" for path, why in wrong)]))
        if advice:
            tell(f"Kept a draft with problems: {'; '.join(advice)}.")
        if wrong:
            files = "; ".join(f"{path} ({why})" for path, why in wrong)
            tell(f"Left out these files and the lines that mention them: {files}.")
            skill = without_files(skill, {path for path, _ in wrong})
        if tokens < skill.tokens <= LENGTH_TOLERANCE * tokens:
            tell(
                f"The skill has about {skill.tokens:,} tokens, but {tokens:,} were requested (--tokens):"
                f" up to {int(LENGTH_TOLERANCE * tokens):,} are accepted, so that no fact is lost over a few words."
            )
        return Draft(skill, tuple(read_ids(answer.get("missing"))[:MAX_QUESTIONS]))

    return await ask(model, request, read, repairs=repairs)


def _read_draft(
    answer: dict[str, Any], material: Material, tokens: int, name: str
) -> tuple[Skill, list[str]]:
    """The skill and its flaws. InvalidAnswer if no skill can be made of the answer."""
    blocks = _read_blocks(answer)
    body = ""
    for text, _ in blocks:  # an empty line between any two that are not list items
        follows = _is_item(text) and _is_item(body.rpartition("\n")[2])
        body += ("\n" if follows else "\n\n" if body else "") + text
    if not body.strip():
        raise InvalidAnswer("the blocks contain no text")
    try:
        skill = Skill.new(
            name or as_name(str(answer.get("name", ""))),
            " ".join(str(answer.get("description", "")).split()),
            body,
        )
        for path, text in _read_written_files(answer):
            if not path.startswith(("references/", "scripts/")):
                raise InvalidAnswer(f"the file {path!r} is not in references/ or scripts/")
            skill = skill.with_file(path, text.encode(), executable=path.startswith("scripts/"))
    except UsageError as error:
        raise InvalidAnswer(error.message) from error
    except UnicodeEncodeError as error:
        raise InvalidAnswer("it contains half a character, which cannot be saved") from error
    if errors := [
        problem.message for problem in skill.problems("strict") if problem.level == "error"
    ]:
        raise InvalidAnswer("; ".join(errors))
    sources = cite_lines(
        (line, (material.resolve_citations(ids) or (OWN_KNOWLEDGE,)) if is_fact(line) else None)
        for text, ids in blocks
        for line in text.splitlines()
    )
    provenance = Provenance().with_sources(sources, material.excerpts())
    return provenance.add_to(skill), _advice(skill, blocks, material, tokens)


def _read_blocks(answer: dict[str, Any]) -> list[tuple[str, list[str]]]:
    items = [dict_or_empty(item) for item in list_or_empty(answer.get("blocks"))]
    blocks = [
        (str(item.get("text", "")).strip("\n"), read_ids(item.get("evidence"))) for item in items
    ]
    return [(text, ids) for text, ids in blocks if text.strip()]


def _read_written_files(answer: dict[str, Any]) -> list[tuple[str, str]]:
    items = [dict_or_empty(item) for item in list_or_empty(answer.get("files"))]
    return [(str(item.get("path", "")), str(item.get("text", ""))) for item in items]


def _advice(
    skill: Skill, blocks: list[tuple[str, list[str]]], material: Material, tokens: int
) -> list[str]:
    advice: list[str] = []
    if skill.tokens > LENGTH_TOLERANCE * tokens:
        advice.append(f"the blocks have about {skill.tokens} tokens; {tokens} were asked for")
    unknown = sorted({name for _, ids in blocks for name in ids} - material.ids)
    if unknown:
        advice.append(f"no evidence has the id {', '.join(unknown[:5])}")
    bare = [text for text, ids in blocks if not ids and any(map(is_fact, text.splitlines()))]
    if bare and material.pieces:
        advice += [f"the block {text[:60]!r} cites no evidence" for text in bare]
    return advice


def _ungrounded(answer: dict[str, Any], material: Material) -> list[str]:
    advice: list[str] = []
    files = dict(_read_written_files(answer))
    for text, ids in _read_blocks(answer):
        if (
            ids
            and material.ids.issuperset(ids)
            and (missing := uncovered_by(text, ids, material, files))
        ):
            things = ", ".join(repr(thing) for thing in missing[:5])
            advice.append(
                f"the block {text[:60]!r} says {things}, which is not in {', '.join(ids)}: cite what says it,"
                f' leave it out, or cite "{OWN_KNOWLEDGE}" if you know it yourself'
            )
    return advice[:MAX_ADVICE]


def _is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)]) ", line) is not None


async def file_problems(skill: Skill, material: Material, tokens: int) -> list[Problem]:
    """What is wrong with the files of a draft. A script has to print its help in a sandbox, and exit with 0."""
    files = [path for path in skill.resources if path.startswith((SCRIPTS, REFERENCES))]
    if not files and not MENTIONED.search(skill.body):
        return []
    known = evidence_text(material.ids, material)
    problems = list(_form_problems(skill, files, known, tokens))
    for path in files:  # a reference may only say what the material says, where there is any
        if (
            path.startswith(REFERENCES)
            and material.pieces
            and (missing := uncovered(_text(skill, path), known))
        ):
            problems.append(
                (path, f"it says {', '.join(map(repr, missing[:5]))}, which is not in the material")
            )
    scripts = [path for path in files if path.startswith(SCRIPTS)]
    return problems + await _run_scripts(skill, scripts) if scripts else problems


def without_files(skill: Skill, paths: set[str]) -> Skill:
    """Also drops the lines of the body that point to these files."""
    lines = [line for line in skill.body.splitlines() if not paths & set(MENTIONED.findall(line))]
    if not any(line.strip() for line in lines):
        raise InvalidAnswer(
            f"{', '.join(sorted(paths))} cannot be used, and nothing else is left in the blocks"
        )
    for path in paths:
        skill = skill.without_file(path)
    return skill.with_body("\n".join(lines))


def _form_problems(skill: Skill, files: list[str], known: str, tokens: int) -> Iterator[Problem]:
    named = sorted({*MENTIONED.findall(skill.body)})
    for path in named:
        # What the material names is a file of the user's own.
        if path not in files and path not in known:
            yield path, "a block names it, but the file does not exist"
    for path in files:
        if path not in named:
            yield path, "no block says when to read or run it"
    size = sum(estimate_tokens(_text(skill, path)) for path in files)
    if size > FILE_TOLERANCE * tokens:
        yield (
            max(files, key=lambda path: len(_text(skill, path))),
            f"the files have {size} tokens, {tokens} are allowed",
        )


async def _run_scripts(skill: Skill, scripts: list[str]) -> list[Problem]:
    from upskill.sandboxes import Limits, Setup, choose_sandbox  # noqa: PLC0415 - only where something is run

    try:
        sandbox = (await choose_sandbox()).backend
    except UsageError:
        return [(path, "no sandbox works here, so it could not be tried") for path in scripts]
    files = {path: skill.read(path) or b"" for path in skill.resources}
    problems: list[Problem] = []
    async with await sandbox.open(Setup(files=files, runnable=frozenset(scripts))) as opened:
        for path in scripts:
            if not files[path].startswith(b"#!"):
                problems.append((path, "its first line is not #! and an interpreter"))
                continue
            done = await opened.run([f"./{path}", "--help"], Limits(wall=SECONDS, cpu=SECONDS))
            output = (done.output + done.error).strip()
            if done.code or done.killed_why:
                why = done.killed_why or f"exit code {done.code}"
                problems.append(
                    (path, f"`{path} --help` fails in a sandbox ({why}): {output[-300:]}")
                )
            elif not output:
                problems.append((path, f"`{path} --help` prints nothing"))
    return problems


def _text(skill: Skill, path: str) -> str:
    return (skill.read(path) or b"").decode("utf-8", errors="replace")
