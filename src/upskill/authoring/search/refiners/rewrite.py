"""`rewrite`: a teacher edits a few lines of the body, the description, or a file beside it; code enforces how few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

from upskill.authoring.material.material import OWN_KNOWLEDGE, Material
from upskill.authoring.saving.provenance import Provenance, sourced_lines
from upskill.authoring.search.refiners import (
    REQUEST_TOKENS,
    Edit,
    EditKind,
    Failure,
    LineEdit,
    Proposal,
    Refiner,
    TriedEdits,
    apply_all,
)
from upskill.authoring.writing.grounding import overruled_lines, uncovered_by
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
from upskill.models import Model
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redaction.redact import redact

MAX_EDITS = 6
MAX_REWRITTEN_SHARE = (
    0.4  # of the body's tokens, or of half the tokens asked for, whichever is more
)
MAX_FAILURES_SHOWN = 12  # shown at a time
MAX_PASSING_SHOWN = 4
MAX_EVIDENCE_SHOWN = 24_000  # characters of evidence that stands behind failures
FILE_FOLDERS = ("references/", "scripts/")  # whose files may be edited
SHOWN_FOLDERS = (*FILE_FOLDERS, "examples/")
MAX_FILE_SHOWN = 16_000  # characters
KINDS: tuple[EditKind, ...] = (*get_args(LineEdit), "describe", "write_file", "delete_file")


class Rewrite(Refiner):
    def __init__(self, model: Model, material: Material | None = None, tokens: int = 800) -> None:
        super().__init__(model, material, tokens)
        self.times_shown: Counter[str] = Counter()  # of each failing case

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        budget = int(MAX_REWRITTEN_SHARE * max(skill.tokens, self.tokens / 2))
        budget = max(budget, REQUEST_TOKENS) if self.material.skill else budget
        # Files that are there may be written anew, whatever their size.
        existing = (
            text for path, text in _text_files(skill).items() if path.startswith(FILE_FOLDERS)
        )
        file_tokens = max(self.file_tokens, estimate_tokens("".join(existing)))
        body = f"{skill.tokens} tokens now and may have {self.max_tokens(skill)}"
        kinds = [kind for kind in KINDS if kind != "write_file" or file_tokens]
        edit = {
            "kind": {"type": "string", "enum": kinds},
            "line": {"type": "integer"},
            "path": text_schema(80),
            "text": text_schema(4 * max(file_tokens, budget)),
            "evidence": list_schema(text_schema(20), 8),
            "why": text_schema(200),
        }
        # Those first that were shown least often.
        ordered = sorted(failures, key=lambda failure: self.times_shown[failure.case])
        self.times_shown.update(failure.case for failure in ordered[:MAX_FAILURES_SHOWN])
        question = StructuredRequest(
            "revising the skill",
            read_prompt(
                "revise_skill",
                edits=MAX_EDITS,
                tokens=budget,
                body=body,
                file_kinds="write_file or delete_file" if file_tokens else "delete_file",
                file_tokens=file_tokens or "none: nobody wants new ones",
            ),
            self._prompt(skill, ordered, tried),
            object_schema(
                {"note": text_schema(400), "edits": list_schema(object_schema(edit), MAX_EDITS)}
            ),
            max_output_tokens=4 * budget + 1000 + file_tokens,
            seed=attempt,
        )

        async def read(answer: dict[str, Any], last: bool) -> Proposal | None:
            proposal = self._read(answer, _EditReader(skill, budget, file_tokens), last=last)
            if proposal is None:
                return None
            written = {edit.path for edit in proposal.edits if edit.kind == "write_file"}
            problems = (
                await file_problems(proposal.skill, self.material, file_tokens) if written else []
            )
            broken = [f"{path}: {why}" for path, why in problems if path in written]
            overruled = overruled_lines(proposal.skill, self.material)
            if not last and (
                wrong := [*self._ungrounded(proposal), *broken, *(why for _, why in overruled)]
            ):
                raise InvalidAnswer("; ".join(wrong))
            # What the skill said before may stay, if need be.
            before = {place for place, _ in overruled_lines(skill, self.material)}
            return (
                None if broken or any(place not in before for place, _ in overruled) else proposal
            )

        try:
            return await ask(self.model, question, read, repairs=1)
        except NoUsableAnswer:
            return None

    def _ungrounded(self, proposal: Proposal) -> list[str]:
        """What new lines say and their evidence does not. Kept all the same, they are marked as the teacher's own."""
        files = _text_files(proposal.skill)
        return [
            f"{edit!s:.60} says {', '.join(map(repr, missing[:5]))}, which is not in {', '.join(edit.evidence)}"
            for edit in proposal.edits
            if edit.line_edit and edit.evidence
            if (missing := uncovered_by(edit.text, edit.evidence, self.material, files))
        ]

    def _prompt(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits]
    ) -> str:
        # Edits name lines by number, so a line can be shown without its secrets and still be found.
        lines = dict(enumerate(redact(skill.body).splitlines(), start=1))
        if len(lines) != len(skill.body.splitlines()):  # a secret of several lines
            lines = {
                number: redact(line) for number, line in enumerate(skill.body.splitlines(), start=1)
            }
        task_field = "request" if self.material.skill is not None else "task"
        files = {
            path: redact(_cut(text, MAX_FILE_SHOWN)) for path, text in _text_files(skill).items()
        }
        sources = self._sources(skill)
        shown_failures = failures[:MAX_FAILURES_SHOWN]
        # What stands behind the failures, where it is not in the material that is quoted anyway.
        evidence: dict[str, str] = {}
        left = MAX_EVIDENCE_SHOWN
        for name, text in (item for failure in shown_failures for item in failure.texts.items()):
            if name not in evidence and name not in self.material.by_id and left > 0:
                evidence[name] = redact(_cut(text, min(2000, left)))
                left -= len(evidence[name])
        passing = [redact(_cut(prompt, 300)) for prompt in self.passing[:MAX_PASSING_SHOWN]]
        fields = {
            task_field: self.material.task,
            "description": redact(skill.description),
            "lines": lines,
            **({"files": files} if files else {}),
            **({"sources": sources} if sources else {}),
            "failures": [
                {
                    "asked": redact(failure.prompt),
                    "answered": redact(_cut(failure.answer)),
                    "wrong": list(failure.reasons),
                    **({"evidence": list(failure.evidence)} if failure.evidence else {}),
                }
                for failure in shown_failures
            ],
            "failures_not_shown": len(failures) - len(shown_failures),
            **({"passing": passing} if passing else {}),
            **({"evidence": evidence} if evidence else {}),
            "tried_before": [_describe_tried(edits) for edits in tried],
        }
        text = json.dumps(fields, ensure_ascii=False, indent=0)
        return f"{text}\n\n{self.material.quoted()}" if self.material.pieces else text

    def _sources(self, skill: Skill) -> dict[int, list[str]]:
        if self.material.skill is None:
            return {}
        return {
            number: list(line.ids)
            for number, line in enumerate(sourced_lines(skill), start=1)
            if line.ids
        }

    def _read(self, answer: dict[str, Any], reader: _EditReader, *, last: bool) -> Proposal | None:
        """The proposal, empty where the teacher says so. Edits that do not apply are refused once, then dropped."""
        skill = reader.skill
        if answer.get("edits") == []:
            return Proposal(skill, (), str(answer.get("note", "")))
        for item in list_or_empty(answer.get("edits")):
            reader.add(dict_or_empty(item))
        edits, wrong = reader.usable, reader.wrong
        longest = self.max_tokens(skill)
        changed = apply_all(skill, edits)
        if changed.tokens > longest:
            wrong.append(
                f"the body would have about {changed.tokens} tokens; at most {longest} are allowed"
            )
            edits = [edit for edit in edits if edit.kind != "insert"] if last else edits
            changed = apply_all(skill, edits)
        if wrong and not last:
            raise InvalidAnswer("; ".join(wrong))
        if not changed.body.strip() or changed.visible_hash == skill.visible_hash:
            if not last:
                raise InvalidAnswer("no edit changes anything")
            return None
        written = {
            line: edit.evidence
            for edit in edits
            if edit.line_edit
            for line in edit.text.splitlines()
        }
        sources = {
            line: self.material.resolve_citations(ids or (OWN_KNOWLEDGE,))
            for line, ids in written.items()
        }
        provenance = Provenance.of(skill).with_sources(sources, self.material.excerpts())
        return Proposal(
            provenance.add_to(changed), tuple(edits), str(answer.get("note", "")), tuple(wrong)
        )


@dataclass
class _EditReader:
    skill: Skill
    budget: int
    file_tokens: int
    usable: list[Edit] = field(default_factory=list[Edit])
    wrong: list[str] = field(default_factory=list[str])

    def add(self, fields: Mapping[str, Any]) -> None:
        kind, line = fields.get("kind"), fields.get("line")
        if kind not in KINDS or (kind in get_args(LineEdit) and not isinstance(line, int)):
            self.wrong.append("an edit has no kind or no line")
            return
        edit = Edit(
            kind,
            line if isinstance(line, int) and kind in get_args(LineEdit) else 0,
            "" if kind in ("delete", "delete_file") else str(fields.get("text", "")).rstrip("\n"),
            tuple(read_ids(fields.get("evidence"))),
            str(fields.get("why", "")),
            str(fields.get("path", "")) if kind in ("write_file", "delete_file") else "",
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
        if edit.kind != "insert" and any(
            other.line == edit.line and other.kind != "insert" for other in self.usable
        ):
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
        try:
            changed = apply_all(self.skill, [edit])
        except (UsageError, UnicodeEncodeError) as error:
            return str(error)
        errors = [
            problem.message for problem in changed.problems("strict") if problem.level == "error"
        ]
        before = [problem.message for problem in self.skill.problems("strict")]
        return "; ".join(message for message in errors if message not in before)

    def _over_budget(self, edit: Edit) -> str:
        limit = self.file_tokens if edit.path else self.budget
        edits = [other for other in (*self.usable, edit) if other.kind != "describe"]
        texts = (f"{other.text}\n" for other in edits if bool(other.path) == bool(edit.path))
        tokens = estimate_tokens("".join(texts))
        fits = tokens <= limit or edit.kind == "describe"
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


def _describe_tried(tried: TriedEdits) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "edits": [_cut(redact(str(edit)), 1200) for edit in tried.edits],
        "result": tried.result,
        "fixed": [redact(_cut(prompt, 300)) for prompt in tried.fixed],
        "broken": [redact(_cut(prompt, 300)) for prompt in tried.broken],
    }
    return {key: value for key, value in fields.items() if value or key in ("edits", "result")}


def _cut(text: str, limit: int = 2000) -> str:
    return (
        text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} characters more)"
    )
