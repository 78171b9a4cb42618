"""A check by a function in a Python file beside the suite, run in the workspace."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from upskill.agents.activation import without_openings
from upskill.checks import Evidence, Finding, ReadText, Text
from upskill.checks.workspace import CheckDir, ProgramCheck, output_excerpt
from upskill.errors import CheckError, MissingTool
from upskill.plain import as_mapping

HARNESS = Path(__file__).with_name("harness.py")


class PythonCheck(ProgramCheck):
    """Passes when this function of this file beside the suite says so. It is called with the answer, the path of the
    workspace and the steps of the trace; it returns a boolean, or one with a reason. Where it raises an error, the
    trial has failed. `source` is the text of the file, read with the suite."""

    file: Text
    function: Text = "check"
    timeout: float = Field(default=60.0, gt=0, le=3600)
    source: SkipJsonSchema[Text]
    reads_answer: ClassVar[bool] = True
    revision: ClassVar[int] = 4  # it ran where the student had worked once

    @classmethod
    def resolve(cls, config: dict[str, Any], read: ReadText) -> dict[str, Any]:
        if "source" in config or not isinstance(config.get("file"), str):
            return config
        return {**config, "source": read(config["file"])}

    @field_validator("source")
    @classmethod
    def _compiles(cls, source: str) -> str:
        try:
            compile(source, "check", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"not valid Python: {error}") from error
        return source

    @property
    def program(self) -> str:
        return self.source

    async def run_in(self, check_dir: CheckDir, evidence: Evidence) -> Finding:
        python = await check_dir.find(["python3"])
        if not python:
            raise MissingTool("there is no python3 in the sandbox; install it for all users")
        token = secrets.token_hex(16)
        steps = [
            {name: getattr(step, name) for name in ("kind", "text", "tool", "output", "status")}
            | {"arguments": dict(step.arguments)}
            for step in without_openings(evidence.trace.steps, evidence.skill)
        ]
        call = {
            "token": token,
            "file": self.file,
            "source": self.source,
            "function": self.function,
            "arguments": [evidence.answer, check_dir.sandbox.workspace, steps],
        }
        path = await check_dir.put("call.json", json.dumps(call))
        line = [python, "-I", "-c", HARNESS.read_text(encoding="utf-8"), path]
        done = await check_dir.run(line, self.timeout)
        if done.killed_why:
            return Finding(False, f"{self.function} was killed: {output_excerpt(done)}")
        # Only the harness knows the token, so nothing else that was written counts.
        line = next((line for line in done.output.splitlines() if line.startswith(token)), "")
        verdict = as_mapping(json.loads(line.removeprefix(token))) if line else None
        if verdict is None:
            raise CheckError(
                f"{self.file}: {self.function} stopped without a result: {output_excerpt(done)}"
            )
        if verdict["error"]:
            raise CheckError(f"{self.file}: {verdict['error']}")
        passed: bool = verdict["passed"]
        reason = verdict["reason"] or f"{self.function} returned {passed}"
        return Finding(passed, reason)
