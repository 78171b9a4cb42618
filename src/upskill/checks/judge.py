"""A check that a model makes: it reads the answer against one statement and quotes its evidence."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, ClassVar

from upskill.checks import Check, Evidence, Finding, Text
from upskill.errors import CheckError
from upskill.models import Message, Request

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "evidence": {"type": "string", "maxLength": 400},
        "reason": {"type": "string", "maxLength": 400},
        "passed": {"type": "boolean"},
    },
    "required": ["evidence", "reason", "passed"],
    "additionalProperties": False,
}


class Judge(Check):
    """Passes when the judge model finds that this statement is true of the answer."""

    statement: Text
    needs_judge: ClassVar[bool] = True

    async def look(self, evidence: Evidence) -> Finding:
        if evidence.ask is None:
            raise CheckError("no judge model was named", "Name one with --judge-model.")
        # The judge sees the task and the answer, and nothing of the arm they come from.
        shown = json.dumps(
            {"task": evidence.prompt, "answer": evidence.trace.answer, "statement": self.statement}, ensure_ascii=False
        )
        system = resources.files("upskill.prompts").joinpath("judge.md").read_text(encoding="utf-8").strip()
        reply = await evidence.ask(
            Request((Message("system", system), Message("user", shown)), max_output_tokens=1024, schema=SCHEMA)
        )
        try:
            said = json.loads(reply.text)
            passed, reason, quote = said["passed"], str(said["reason"]), str(said["evidence"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckError(f"the judge did not answer in the form asked for: {reply.text[:200]!r}") from error
        if not isinstance(passed, bool):
            raise CheckError(f"the judge said neither true nor false: {passed!r}")
        return Finding(passed, f"judge: {reason} (evidence: {quote!r})")
