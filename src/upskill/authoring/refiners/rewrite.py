"""`rewrite`: a teacher edits a few lines of the body. How few is enforced in code, not just asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from upskill.authoring.material import OWN_KNOWLEDGE, Material
from upskill.authoring.prompts import read_prompt
from upskill.authoring.provenance import Provenance
from upskill.authoring.refiners import Edit, Failure, Proposal, RejectedEdits
from upskill.authoring.structured import InvalidAnswer, NoUsableAnswer, StructuredRequest, ask
from upskill.models import Model
from upskill.plain import dict_or_empty, list_or_empty, object_schema
from upskill.skills import Skill, estimate_tokens
from upskill.traces.redact import redact

MAX_EDITS = 6
MAX_REWRITTEN_SHARE = 0.4  # of the body's tokens, or of half the tokens asked for, whichever is more
GROWTH_LIMIT = 1.25  # times the tokens asked for
MAX_FAILURES_SHOWN = 12  # shown at a time


class Rewrite:
    def __init__(self, model: Model, material: Material | None = None, tokens: int = 800) -> None:
        self.model = model
        self.material = material or Material("")
        self.tokens = tokens

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], rejected: Sequence[RejectedEdits], attempt: int
    ) -> Proposal | None:
        budget = int(MAX_REWRITTEN_SHARE * max(skill.tokens, self.tokens / 2))
        evidence = {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 8}
        edit: dict[str, Any] = {
            "kind": {"type": "string", "enum": ["replace", "insert", "delete"]},
            "line": {"type": "integer"},
            "text": {"type": "string", "maxLength": 1200},
            "evidence": evidence,
            "why": {"type": "string", "maxLength": 200},
        }
        fields: dict[str, Any] = {
            "note": {"type": "string", "maxLength": 400},
            "edits": {"type": "array", "items": object_schema(edit), "maxItems": MAX_EDITS},
        }
        question = StructuredRequest(
            "revising the skill",
            read_prompt("revise_skill", edits=MAX_EDITS, tokens=budget),
            self._prompt(skill, failures, rejected),
            object_schema(fields),
            max_output_tokens=4 * budget + 1000,
            seed=attempt,
        )

        def read(answer: dict[str, Any], last: bool) -> Proposal | None:
            return self._read(answer, skill, budget, last=last)

        try:
            return await ask(self.model, question, read, repairs=1)
        except NoUsableAnswer:
            return None

    def _prompt(self, skill: Skill, failures: Sequence[Failure], rejected: Sequence[RejectedEdits]) -> str:
        # Edits name lines by number, so a line can be shown without its secrets and still be found.
        lines = dict(enumerate(redact(skill.body).splitlines(), start=1))
        if len(lines) != len(skill.body.splitlines()):  # a secret of several lines
            lines = {number: redact(line) for number, line in enumerate(skill.body.splitlines(), start=1)}
        shown = {
            "task": self.material.task,
            "description": skill.description,
            "lines": lines,
            "failures": [
                {
                    "asked": redact(failure.prompt),
                    "answered": redact(_cut(failure.answer)),
                    "wrong": list(failure.reasons),
                    **({"evidence": list(failure.evidence)} if failure.evidence else {}),
                }
                for failure in failures[:MAX_FAILURES_SHOWN]
            ],
            "failures_not_shown": max(0, len(failures) - MAX_FAILURES_SHOWN),
            "tried_before": [{"edits": [str(edit) for edit in one.edits], "result": one.why} for one in rejected],
        }
        text = json.dumps(shown, ensure_ascii=False, indent=0)
        return f"{text}\n\n{self.material.quoted()}" if self.material.pieces else text

    def _read(self, answer: dict[str, Any], skill: Skill, budget: int, *, last: bool) -> Proposal | None:
        """The proposal. Edits that do not apply are refused once; after that they are dropped."""
        lines = skill.body.splitlines()
        edits, wrong = _read_edits(answer, len(lines), budget)
        longest = max(skill.tokens, int(GROWTH_LIMIT * self.tokens))
        body = apply_edits(lines, edits)
        if estimate_tokens(body) > longest:
            wrong.append(f"the body would have about {estimate_tokens(body)} tokens, and may have {longest}")
            edits = [edit for edit in edits if edit.kind != "insert"] if last else edits
            body = apply_edits(lines, edits)
        if wrong and not last:
            raise InvalidAnswer("; ".join(wrong))
        if not edits or not body.strip() or body.strip() == skill.body.strip():
            if not last:
                raise InvalidAnswer("there is no edit that changes anything")
            return None
        written = {line: edit.evidence for edit in edits for line in edit.text.splitlines()}
        sources = {line: self.material.resolve_citations(ids or (OWN_KNOWLEDGE,)) for line, ids in written.items()}
        changed = skill.with_body(body)
        provenance = Provenance.of(skill).with_sources(sources, self.material.excerpts())
        changed = provenance.add_to(changed)
        return Proposal(changed, tuple(edits), str(answer.get("note", "")), tuple(wrong))


def apply_edits(lines: Sequence[str], edits: Sequence[Edit]) -> str:
    """The body after these edits, whose line numbers all refer to the body before."""
    after: dict[int, list[str]] = {}
    instead: dict[int, list[str]] = {}
    for edit in edits:
        if edit.kind == "insert":
            after.setdefault(edit.line, []).append(edit.text)
        else:
            instead[edit.line] = [edit.text] if edit.kind == "replace" else []
    result = list(after.get(0, []))
    for number, line in enumerate(lines, start=1):
        result += instead.get(number, [line])
        result += after.get(number, [])
    return "\n".join(result)


def _read_edits(answer: dict[str, Any], lines: int, budget: int) -> tuple[list[Edit], list[str]]:
    """The edits that can be applied, and what is wrong with the others."""
    kept: list[Edit] = []
    wrong: list[str] = []
    touched: set[int] = set()
    spent = 0
    for item in list_or_empty(answer.get("edits")):
        fields = dict_or_empty(item)
        kind, line, text = fields.get("kind"), fields.get("line"), str(fields.get("text", "")).rstrip("\n")
        ids = tuple(str(name) for name in list_or_empty(fields.get("evidence")))
        if kind not in ("replace", "insert", "delete") or not isinstance(line, int):
            wrong.append("an edit has no kind or no line")
            continue
        edit = Edit(kind, line, "" if kind == "delete" else text, ids, str(fields.get("why", "")))
        cost = estimate_tokens(edit.text)
        first = 0 if kind == "insert" else 1
        if not first <= line <= lines:
            wrong.append(f"there is no line {line} to {kind}")
        elif kind != "insert" and line in touched:
            wrong.append(f"line {line} is changed twice")
        elif kind != "delete" and not text.strip():
            wrong.append(f"{kind} at line {line} has no text")
        elif len(kept) >= MAX_EDITS or spent + cost > budget:
            wrong.append(f"{edit!s:.60} is over the budget of {MAX_EDITS} edits and {budget} tokens")
        else:
            kept.append(edit)
            spent += cost
            touched |= {line} if kind != "insert" else set()
    return kept, wrong


def _cut(text: str, most: int = 2000) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} characters more)"
