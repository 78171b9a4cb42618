"""Activation: whether an agent that was offered a skill opened it, and which of its files it read.

A skill counts as activated when its body came before the model: through the agent's own tool for skills, through a
plain read of its SKILL.md, or, whatever the way, when the canary in the body shows up in a tool's output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Step, Trace

# The tools by which agents open a skill, and the argument that names it. The first is that of our own agent.
OPENERS = {"activate_skill": "name", **dict(spec.skill_tool for spec in AGENT_SPECS.values() if any(spec.skill_tool))}
CANARY = "upskill-canary-"
_CANARY = re.compile(re.escape(CANARY) + r"[0-9a-f]{16}")


def activated(trace: Trace, skill: str, canary: str = "") -> bool:
    """Whether the skill of this name was opened."""
    return any(_opens(step, skill) or (canary and canary in step.output) for step in trace.calls)


def resources_read(trace: Trace, skill: str) -> list[str]:
    """The files of the skill that tool calls named and got, SKILL.md apart, in the order of their first reading."""
    path = re.compile(rf"skills/{re.escape(skill)}/([\w./-]*\w)")
    found = (match[1] for step in trace.calls if step.status != "error" for match in path.finditer(_said(step)))
    return [name for name in dict.fromkeys(found) if name.lower() != "skill.md"]


def canaries(trace: Trace) -> Iterator[tuple[int, str]]:
    """Every canary that shows up anywhere in a trace, with the number of its step."""
    for number, step in enumerate(trace.steps, 1):
        for match in _CANARY.finditer(f"{step.text}\n{_said(step)}\n{step.output}"):
            yield number, match[0]


def touches(trace: Trace, skill: str) -> Iterator[tuple[int, str]]:
    """The tool calls that name the folder of the skill, or were shown it, with the number of the step."""
    path = re.compile(rf"skills/{re.escape(skill)}(?![\w-])")
    for number, step in enumerate(trace.steps, 1):
        if step.kind == "tool" and (path.search(_said(step)) or path.search(step.output)):
            yield number, _said(step)


def _opens(step: Step, skill: str) -> bool:
    if step.status == "error":
        return False
    named = OPENERS.get(step.tool)
    if named is not None and step.arguments.get(named) == skill:
        return True
    return bool(re.search(rf"skills/{re.escape(skill)}/SKILL\.md\b", _said(step), re.IGNORECASE))


def _said(step: Step) -> str:
    """The arguments of a call as one text, in which a path is written as it was meant."""
    return json.dumps(dict(step.arguments), ensure_ascii=False).replace("\\/", "/") if step.arguments else ""
