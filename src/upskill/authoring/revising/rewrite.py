"""`rewrite`: a teacher reads all failures and edits a few lines of the body, the description, or a file beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, get_args

from upskill.authoring.material.material import OWN_KNOWLEDGE, quote
from upskill.authoring.revising import (
    LINE_EDITS,
    Edit,
    EditKind,
    Failure,
    Proposal,
    RevisionRequest,
    apply_edits,
)
from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.writing.grounding import evidence_text, uncovered, uncovered_by
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.skill_writer import (
    CHARACTERS,
    REFERENCES,
    SCRIPTS,
    file_problems,
    length_flaw,
)
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    NoUsableAnswer,
    StructuredRequest,
    ask,
    list_schema,
    read_ids,
    read_items,
    text_schema,
)
from upskill.errors import UsageError
from upskill.plain import object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redaction.redact import redact

MAX_EDITS = 12
MAX_FAILURES_SHOWN = 24
MAX_PASSING_SHOWN = 4
MIN_ANSWER = 6  # characters: a shorter answer may stand in a line by chance
FILE_FOLDERS = (REFERENCES, SCRIPTS)  # whose files may be edited
MAX_FILE_SHOWN = 16_000  # characters


async def propose_edits(asked: RevisionRequest) -> Proposal | None:
    """The proposal, empty where the teacher would change nothing; None where none can be applied."""
    skill = asked.skill
    limit = CHARACTERS * asked.max_tokens
    # Files that are there may be written anew, whatever their size.
    editable = [text for path, text in _text_files(skill).items() if path.startswith(FILE_FOLDERS)]
    file_tokens = max(asked.file_tokens, estimate_tokens("".join(editable)))
    edit = {
        "kind": {"type": "string", "enum": get_args(EditKind)},
        "line": {"type": "integer"},
        "path": text_schema(80),
        "text": text_schema(max(limit, CHARACTERS * file_tokens)),
        "evidence": list_schema(text_schema(20), 8),
    }
    edits = list_schema(object_schema(edit), MAX_EDITS)
    request = StructuredRequest(
        "revising the skill",
        read_prompt(
            "revise_skill",
            edits=MAX_EDITS,
            characters=f"{len(skill.body):,}",
            limit=f"{limit:,}",
            file_tokens=f"{file_tokens:,}",
        ),
        _describe(asked),
        object_schema({"note": text_schema(400), "edits": edits}),
        max_output_tokens=2 * asked.max_tokens + 1000 + file_tokens,
        title=asked.title,
        seed=asked.attempt,
    )

    async def read(answer: dict[str, Any]) -> tuple[Proposal, list[str]]:
        note = str(answer.get("note", ""))
        if answer.get("edits") == []:
            return Proposal(skill, (), note), []
        usable, flaws = _read_edits(answer.get("edits"), skill)
        changed = _apply(usable, asked)
        if not changed.body.strip() or changed.visible_hash == skill.visible_hash:
            raise InvalidAnswer("; ".join([*flaws, "no edit changes anything"]))
        wrong = list(_copied_answers(usable, asked))
        written = {each.path for each in usable if each.kind == "write_file"}
        if written:
            problems = await file_problems(changed, asked.material, file_tokens)
            wrong += [f"{path}: {why}" for path, why in problems.items() if path in written]
        if wrong:
            raise InvalidAnswer("; ".join(wrong))
        if flaw := length_flaw(changed.body, limit):
            flaws.append(flaw)
        flaws += _ungrounded(changed, usable, asked)
        return Proposal(changed, tuple(usable), note), flaws

    try:
        return await ask(asked.model, request, read, required=False)
    except NoUsableAnswer:
        return None


def _describe(asked: RevisionRequest) -> str:
    skill, material = asked.skill, asked.material
    # Edits name lines by number, so a line can be shown without its secrets and still be found.
    lines = redact(skill.body).splitlines()
    if len(lines) != len(skill.body.splitlines()):  # a secret of several lines
        lines = [redact(line) for line in skill.body.splitlines()]
    failures = asked.failures[:MAX_FAILURES_SHOWN]
    fields: dict[str, Any] = {
        "request" if material.skill else "task": material.task,
        "description": redact(skill.description),
        "lines": dict(enumerate(lines, start=1)),
    }
    if files := _text_files(skill):
        fields["files"] = {path: redact(_cut(text, MAX_FILE_SHOWN)) for path, text in files.items()}
    if material.skill:
        sourced = enumerate(sourced_lines(skill), start=1)
        fields["sources"] = {number: line.ids for number, line in sourced if line.ids}
    fields["failures"] = [_describe_failure(each) for each in failures]
    if left := len(asked.failures) - len(failures):
        fields["failures_not_shown"] = left
    if asked.passing:
        fields["passing"] = [redact(_cut(text, 300)) for text in asked.passing[:MAX_PASSING_SHOWN]]
    if asked.tried:
        # With the answers that were given with these edits, so that it shows what they did.
        fields["tried_before"] = [
            {
                "edits": [_cut(redact(str(edit)), 1200) for edit in tried.edits],
                "result": tried.result,
                "failed_with_them": [
                    _describe_failure(each) for each in tried.failures[:MAX_EDITS]
                ],
            }
            for tried in asked.tried
        ]
    text = json.dumps(fields, ensure_ascii=False, indent=0)
    if not material.pieces:
        return text
    # A request may need any of it; failures need what the cases rest on.
    evidence = [each.evidence for each in failures]
    is_known = all(evidence) and not material.skill
    cited = set[str]().union(*evidence) if is_known else set[str]()
    return f"{text}\n\n{quote(material.cited(cited))}"


def _describe_failure(failure: Failure) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "asked": redact(failure.prompt),
        "answered": redact(_cut(failure.answer)),
        "wrong": failure.reasons,
    }
    return fields | ({"evidence": failure.evidence} if failure.evidence else {})


def _read_edits(items: object, skill: Skill) -> tuple[list[Edit], list[str]]:
    """The edits that can be applied, and why others cannot."""
    usable: list[Edit] = []
    wrong: list[str] = []
    for fields in read_items(items)[:MAX_EDITS]:
        kind: Any = fields.get("kind")
        line = fields.get("line")
        if kind not in get_args(EditKind) or (kind in LINE_EDITS and not isinstance(line, int)):
            wrong.append("an edit has no kind or no line")
            continue
        edit = Edit(
            kind=kind,
            line=line if isinstance(line, int) else 0,
            text="" if kind.startswith("delete") else str(fields.get("text", "")).rstrip("\n"),
            evidence=tuple(read_ids(fields.get("evidence"))),
            path=str(fields.get("path", "")) if kind.endswith("file") else "",
        )
        if problem := _problem(edit, skill, usable):
            wrong.append(problem)
        else:
            usable.append(edit)
    return usable, wrong


def _problem(edit: Edit, skill: Skill, before: Sequence[Edit]) -> str:
    """Why an edit cannot be applied; empty where it can."""
    kind = edit.kind
    if kind in LINE_EDITS:
        first = 0 if kind == "insert" else 1
        if not first <= edit.line <= len(skill.body.splitlines()):
            return f"there is no {edit.place} to {kind}"
    elif kind != "describe" and not edit.path.startswith(FILE_FOLDERS):
        return f"the file {edit.path!r} is neither below references/ nor below scripts/"
    changed = {other.place for other in before if other.kind != "insert"}
    if kind != "insert" and edit.place in changed:
        return f"{edit.place} is changed twice"
    if not kind.startswith("delete") and not edit.text.strip():
        return f"the edit of {edit.place} has no text"
    if kind == "delete_file" and skill.file(edit.path) is None:
        return f"there is no file {edit.path!r} to delete"
    if kind == "describe" or (edit.path and skill.file(edit.path)):
        # Only who has seen the whole text loses nothing by writing it anew.
        text = skill.description if kind == "describe" else _text_files(skill).get(edit.path)
        if text is None or redact(text) != text or len(text) > MAX_FILE_SHOWN:
            return (
                f"{edit.place} holds something that you were not shown, so it cannot be rewritten"
            )
    return ""


def _apply(edits: Sequence[Edit], asked: RevisionRequest) -> Skill:
    try:
        changed = apply_edits(asked.skill, edits)
    except UsageError as error:
        raise InvalidAnswer(error.message) from error
    except UnicodeEncodeError as error:
        raise InvalidAnswer("it contains half a character, which cannot be saved") from error
    before = [problem.message for problem in asked.skill.problems("strict")]
    errors = [each.message for each in changed.problems("strict") if each.level == "error"]
    if new := [message for message in errors if message not in before]:
        raise InvalidAnswer("; ".join(new))
    sources: dict[str, tuple[str, ...]] = {}
    for edit in edits:
        cited = asked.material.resolve_citations(edit.evidence) or (OWN_KNOWLEDGE,)
        if edit.kind in LINE_EDITS:
            sources |= dict.fromkeys(edit.text.splitlines(), cited)
    provenance = Provenance.of(asked.skill).with_sources(sources, asked.material.excerpts())
    return provenance.add_to(changed)


def _ungrounded(changed: Skill, edits: Sequence[Edit], asked: RevisionRequest) -> Iterator[str]:
    """What new lines say and their evidence does not. Kept all the same, they are marked as the teacher's own."""
    files = _text_files(changed)
    for edit in edits:
        if edit.kind in LINE_EDITS and edit.evidence:
            # What the skill said before needs no new evidence.
            new_things = uncovered(edit.text, asked.skill.body)
            cited = uncovered_by(edit.text, edit.evidence, asked.material, files)
            if missing := [thing for thing in cited if thing in new_things]:
                things = ", ".join(map(repr, missing[:5]))
                yield f"{edit!s:.60} says {things}, which is not in {', '.join(edit.evidence)}"


def _copied_answers(edits: Sequence[Edit], asked: RevisionRequest) -> Iterator[str]:
    """No new text may hold the answer to a shown case that the material and the skill lack: it would teach the test."""
    material = asked.material
    known = _plain(f"{evidence_text(material.ids, material)}\n{asked.skill.body}")
    for case in asked.cases if material.pieces else ():
        answer = _plain(case.reference)
        for edit in edits:
            if len(answer) >= MIN_ANSWER and answer not in known and answer in _plain(edit.text):
                yield (
                    f"{edit!s:.60} has the answer to a practice task, which the material does not have:"
                    " state the rule that leads to it"
                )


def _plain(text: str) -> str:
    """Without spaces, quotes and the case of letters."""
    return "".join(text.split()).casefold().translate(str.maketrans("", "", "`'\""))


def _text_files(skill: Skill) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in skill.resources:
        file = skill.file(path)
        if path.startswith((*FILE_FOLDERS, "examples/")) and file is not None and not file.link:
            with suppress(UnicodeDecodeError):
                texts[path] = file.data.decode()
    return texts


def _cut(text: str, limit: int = 2000) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … ({len(text) - limit:,} characters more)"
