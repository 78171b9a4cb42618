"""A check by a function in a Python file beside the suite, run where the agent was."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from upskill.agents.activation import without_openings
from upskill.checks import Evidence, Finding, ReadText, Text
from upskill.checks.check_dir import Full, open_check_dir, told
from upskill.checks.guard import disarm
from upskill.checks.workspace import SandboxCheck, sandbox_of
from upskill.errors import CheckError, MissingTool
from upskill.plain import as_mapping
from upskill.sandboxes import CommandResult

# What a function starts other programs with.
STARTS = re.compile(r"subprocess|runpy|\b(?:system|popen|pty|exec[lv]\w*|spawn\w*|posix_spawnp?)\b")
HARNESS = Path(__file__).with_name("harness.py")


class PythonCheck(SandboxCheck):
    """Passes when this function of this file beside the suite says so. It is called with the answer, the path of the
    workspace and the steps of the trace; it returns a boolean, or one with a reason, or fails an assertion. Where it
    raises anything else, the case's reference says who is to blame. `source` is the text of the file, read with the
    suite."""

    file: Text
    function: Text = "check"
    timeout: float = Field(default=60.0, gt=0, le=3600)
    source: SkipJsonSchema[Text]
    reads_answer: ClassVar[bool] = True

    @classmethod
    def resolve(cls, said: dict[str, Any], read: ReadText) -> dict[str, Any]:
        if "source" in said or not isinstance(said.get("file"), str):
            return said
        return {**said, "source": read(said["file"])}

    @field_validator("source")
    @classmethod
    def _compiles(cls, source: str) -> str:
        try:
            compile(source, "check", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"is not Python: {error}") from error
        return source

    async def run(self, evidence: Evidence) -> Finding:
        sandbox = sandbox_of(evidence)
        token = secrets.token_hex(16)
        steps = [
            {
                "kind": step.kind,
                "text": step.text,
                "tool": step.tool,
                "arguments": dict(step.arguments),
                "output": step.output,
                "status": step.status,
            }
            for step in without_openings(evidence.trace.steps, evidence.skill)
        ]
        told_it = {
            "token": token,
            "file": self.file,
            "source": self.source,
            "function": self.function,
            "arguments": [evidence.answer, sandbox.workspace, steps],
        }
        try:
            async with open_check_dir(sandbox) as place:
                starts = self.source if STARTS.search(self.source) else ""
                if wrong := await disarm(place, evidence, starts):
                    return wrong
                python = await place.find(["python3"])
                if not python:
                    raise MissingTool("there is no python3 in the sandbox; install it for all users")
                where = await place.put("call.json", json.dumps(told_it))
                harness = HARNESS.read_text(encoding="utf-8")
                done = await place.run([python, "-I", "-c", harness, where], self.timeout)
        except Full as full:
            return full.finding
        return self._finding(done, token)

    def _finding(self, done: CommandResult, token: str) -> Finding:
        if done.killed_why:
            return Finding(False, f"{self.function} was ended: {told(done)}")
        # Only the harness knows the token, so nothing else that was written counts.
        line = next((line for line in done.output.splitlines() if line.startswith(token)), "")
        said = as_mapping(json.loads(line.removeprefix(token))) if line else None
        if said is None:
            raise CheckError(f"{self.file}: {self.function} ended without a word: {told(done)}")
        if said["error"]:
            raise CheckError(f"{self.file}: {said['error']}")
        return Finding(said["passed"], said["reason"] or f"{self.function} says {'yes' if said['passed'] else 'no'}")
