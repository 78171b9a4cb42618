"""`rewrite`: a teacher reads all failures and edits a few lines of the body, the description, or a file beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

from upskill.authoring.material.material import OWN_KNOWLEDGE, quote
from upskill.authoring.revising import (
    REQUEST_TOKENS,
    Edit,
    EditKind,
    Failure,
    LineEdit,
    Proposal,
    RevisionRequest,
    Tried,
    apply_all,
)
from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.writing.grounding import evidence_text, uncovered, uncovered_by
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.skill_writer import file_problems
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    NoUsableAnswer,
    StructuredRequest,
    ask,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.errors import UsageError
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redaction.redact import redact

MAX_EDITS = 12
MAX_REWRITTEN_SHARE = 0.5  # of the body's tokens, or of half the tokens asked for
MAX_FAILURES_SHOWN = 24
MAX_PASSING_SHOWN = 4
MIN_ANSWER = 6  # characters: a shorter answer may stand in a line by chance
FILE_FOLDERS = ("references/", "scripts/")  # whose files may be edited
SHOWN_FOLDERS = (*FILE_FOLDERS, "examples/")
MAX_FILE_SHOWN = 16_000  # characters
KINDS: tuple[EditKind, ...] = (*get_args(LineEdit), "describe", "write_file", "delete_file")


async def propose_edits(asked: RevisionRequest) -> Proposal | None:
    """The proposal, empty where the teacher would change nothing; None where none can be applied."""
    skill = asked.skill
    budget = int(MAX_REWRITTEN_SHARE * max(skill.tokens, asked.tokens / 2))
    if asked.material.skill:
        budget = max(budget, REQUEST_TOKENS)
    # Files that are there may be written anew, whatever their size.
    texts = [text for path, text in _text_files(skill).items() if path.startswith(FILE_FOLDERS)]
    file_tokens = max(asked.file_tokens, estimate_tokens("".join(texts)))
    kinds = [kind for kind in KINDS if kind != "write_file" or file_tokens]
    edit = {
        "kind": {"type": "string", "enum": kinds},
        "line": {"type": "integer"},
        "path": text_schema(80),
        "text": text_schema(4 * max(file_tokens, budget)),
        "evidence": list_schema(text_schema(20), 8),
    }
    edits = list_schema(object_schema(edit), MAX_EDITS)
    request = StructuredRequest(
        "revising the skill",
        read_prompt(
            "revise_skill",
            edits=MAX_EDITS,
            tokens=budget,
            body=f"{skill.tokens} tokens now and may have {asked.max_tokens}",
            file_kinds="write_file or delete_file" if file_tokens else "delete_file",
            file_tokens=file_tokens or "none: nobody wants new ones",
        ),
        _describe(asked),
        object_schema({"note": text_schema(400), "edits": edits}),
        max_output_tokens=4 * budget + 1000 + file_tokens,
        title=asked.title,
        seed=asked.attempt,
    )

    async def read(answer: dict[str, Any], last: bool) -> Proposal | None:
        proposal = _read(answer, asked, _EditReader(skill, budget, file_tokens), last=last)
        written = {edit.path for edit in proposal.edits if edit.kind == "write_file"}
        wrong = list(_copied_answers(proposal, asked))
        if written:
            problems = await file_problems(proposal.skill, asked.material, file_tokens)
            wrong += [f"{path}: {why}" for path, why in problems if path in written]
        if last:
            return None if wrong else proposal
        wrong += _ungrounded(proposal, asked)
        if wrong:
            raise InvalidAnswer("; ".join(wrong))
        return proposal

    try:
        return await ask(asked.model, request, read, repairs=1)
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
        fields["sources"] = {number: list(line.ids) for number, line in sourced if line.ids}
    fields["failures"] = [_describe_failure(each) for each in failures]
    if left := len(asked.failures) - len(failures):
        fields["failures_not_shown"] = left
    if asked.passing:
        fields["passing"] = [redact(_cut(p, 300)) for p in asked.passing[:MAX_PASSING_SHOWN]]
    if asked.tried:
        fields["tried_before"] = [_describe_tried(each) for each in asked.tried]
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
        "wrong": list(failure.reasons),
    }
    return fields | ({"evidence": list(failure.evidence)} if failure.evidence else {})


def _describe_tried(tried: Tried) -> dict[str, Any]:
    """With the answers that were given with these edits, so that it shows what they did."""
    return {
        "edits": [_cut(redact(str(edit)), 1200) for edit in tried.edits],
        "result": tried.result,
        "failed_with_them": [_describe_failure(each) for each in tried.failures[:MAX_EDITS]],
    }


def _read(
    answer: dict[str, Any], asked: RevisionRequest, reader: _EditReader, *, last: bool
) -> Proposal:
    """Edits that do not apply are refused once, then dropped."""
    skill = asked.skill
    note = str(answer.get("note", ""))
    if answer.get("edits") == []:
        return Proposal(skill, (), note)
    for item in list_or_empty(answer.get("edits")):
        reader.add(dict_or_empty(item))
    edits, wrong = reader.usable, reader.wrong
    changed = apply_all(skill, edits)
    if changed.tokens > asked.max_tokens:
        wrong.append(
            f"the body would have about {changed.tokens} tokens; at most {asked.max_tokens} are allowed"
        )
        edits = [edit for edit in edits if edit.kind != "insert"] if last else edits
        changed = apply_all(skill, edits)
    if not changed.body.strip() or changed.visible_hash == skill.visible_hash:
        raise InvalidAnswer("; ".join([*wrong, "no edit changes anything"]))
    if wrong and not last:
        raise InvalidAnswer("; ".join(wrong))
    sources: dict[str, tuple[str, ...]] = {}
    for edit in edits:
        for line in edit.text.splitlines() if edit.line_edit else ():
            cited = asked.material.resolve_citations(edit.evidence or (OWN_KNOWLEDGE,))
            sources[line] = cited or (OWN_KNOWLEDGE,)
    provenance = Provenance.of(skill).with_sources(sources, asked.material.excerpts())
    return Proposal(provenance.add_to(changed), tuple(edits), note)


def _ungrounded(proposal: Proposal, asked: RevisionRequest) -> Iterator[str]:
    """What new lines say and their evidence does not. Kept all the same, they are marked as the teacher's own."""
    files = _text_files(proposal.skill)
    for edit in proposal.edits:
        if not edit.line_edit or not edit.evidence:
            continue
        # What the skill said before needs no new evidence.
        new_things = uncovered(edit.text, asked.skill.body)
        cited = uncovered_by(edit.text, edit.evidence, asked.material, files)
        if missing := [thing for thing in cited if thing in new_things]:
            things = ", ".join(map(repr, missing[:5]))
            yield f"{edit!s:.60} says {things}, which is not in {', '.join(edit.evidence)}"


def _copied_answers(proposal: Proposal, asked: RevisionRequest) -> Iterator[str]:
    """No new text may hold the answer to a shown case that the material and the skill lack: it would teach the test."""
    material = asked.material
    if not material.pieces:
        return
    known = _plain(f"{evidence_text(material.ids, material)}\n{asked.skill.body}")
    for case in asked.cases:
        answer = _plain(case.reference)
        if len(answer) < MIN_ANSWER or answer in known:
            continue
        for edit in proposal.edits:
            if answer in _plain(edit.text):
                yield (
                    f"{edit!s:.60} has the answer to a practice task, which the material does not have:"
                    " state the rule that leads to it"
                )


def _plain(text: str) -> str:
    """Without spaces, quotes and the case of letters."""
    return "".join(text.split()).casefold().translate(str.maketrans("", "", "`'\""))


@dataclass
class _EditReader:
    skill: Skill
    budget: int
    file_tokens: int
    usable: list[Edit] = field(default_factory=list[Edit])
    wrong: list[str] = field(default_factory=list[str])

    def add(self, fields: Mapping[str, Any]) -> None:
        kind, line = fields.get("kind"), fields.get("line")
        is_line = kind in get_args(LineEdit)
        if kind not in KINDS or (is_line and not isinstance(line, int)):
            self.wrong.append("an edit has no kind or no line")
            return
        text = "" if kind in ("delete", "delete_file") else str(fields.get("text", ""))
        edit = Edit(
            kind=kind,
            line=line if is_line and isinstance(line, int) else 0,
            text=text.rstrip("\n"),
            evidence=tuple(read_ids(fields.get("evidence"))),
            path=str(fields.get("path", "")) if kind in ("write_file", "delete_file") else "",
        )
        problem = self._line_problem(edit) if edit.line_edit else self._other_problem(edit)
        problem = problem or self._over_budget(edit)
        if problem:
            self.wrong.append(problem)
        else:
            self.usable.append(edit)

    def _line_problem(self, edit: Edit) -> str:
        first = 0 if edit.kind == "insert" else 1
        if not first <= edit.line <= len(self.skill.body.splitlines()):
            return f"there is no line {edit.line} to {edit.kind}"
        changed = [other.line for other in self.usable if other.kind in ("replace", "delete")]
        if edit.kind != "insert" and edit.line in changed:
            return f"line {edit.line} is changed twice"
        if edit.kind != "delete" and not edit.text.strip():
            return f"{edit.kind} at line {edit.line} has no text"
        return ""

    def _other_problem(self, edit: Edit) -> str:
        if any(not other.line_edit and other.path == edit.path for other in self.usable):
            return f"{edit.path or 'the description'} is changed twice"
        if edit.kind != "delete_file" and not edit.text.strip():
            return f"{edit.kind} has no text"
        if edit.kind == "describe":
            if redact(self.skill.description) != self.skill.description:
                return "the description holds something that you were not shown, so it cannot be rewritten"
        elif not edit.path.startswith(FILE_FOLDERS):
            return f"the file {edit.path!r} is neither below references/ nor below scripts/"
        elif edit.kind == "delete_file" and self.skill.file(edit.path) is None:
            return f"there is no file {edit.path!r} to delete"
        elif self.skill.file(edit.path) is not None:
            # Only who has seen the whole file loses nothing by writing it anew.
            text = _text_files(self.skill).get(edit.path)
            if text is None or redact(text) != text or len(text) > MAX_FILE_SHOWN:
                return f"the file {edit.path!r} holds something that you were not shown, so it cannot be changed"
        return self._format_problem(edit)

    def _format_problem(self, edit: Edit) -> str:
        try:
            changed = apply_all(self.skill, [edit])
        except (UsageError, UnicodeEncodeError) as error:
            return str(error)
        before = [problem.message for problem in self.skill.problems("strict")]
        errors = [each.message for each in changed.problems("strict") if each.level == "error"]
        return "; ".join(message for message in errors if message not in before)

    def _over_budget(self, edit: Edit) -> str:
        limit = self.file_tokens if edit.path else self.budget
        edits = [other for other in (*self.usable, edit) if other.kind != "describe"]
        texts = [f"{other.text}\n" for other in edits if bool(other.path) == bool(edit.path)]
        fits = edit.kind == "describe" or estimate_tokens("".join(texts)) <= limit
        if fits and len(self.usable) < MAX_EDITS:
            return ""
        return f"{edit!s:.60} is over the budget of {MAX_EDITS} edits and {limit} tokens"


def _text_files(skill: Skill) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in skill.resources:
        file = skill.file(path)
        if path.startswith(SHOWN_FOLDERS) and file is not None and not file.link:
            with suppress(UnicodeDecodeError):
                texts[path] = file.data.decode()
    return texts


def _cut(text: str, limit: int = 2000) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … ({len(text) - limit:,} characters more)"
