"""Activation: whether an agent opened a skill that it was offered, and which of its files it read.

A skill counts as activated when the model got to see its body: through the agent's own tool for skills, by reading
its SKILL.md, or in any other way that puts the canary of the body into a tool's output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Step, Trace

# The tools that open a skill, with the argument that names it: ours, and those of real agents.
SKILL_TOOLS = {
    "activate_skill": "name",
    **dict(spec.skill_tool for spec in AGENT_SPECS.values() if any(spec.skill_tool)),
}
CANARY = "upskill-canary-"
_CANARY = re.compile(re.escape(CANARY) + r"[0-9a-f]{16}")


def activated(trace: Trace, skill: str, canary: str = "") -> bool:
    """Whether the skill of this name was opened."""
    return any(_opens(step, skill) or (canary and canary in step.output) for step in trace.calls)


def without_openings(steps: Iterable[Step], skill: str) -> list[Step]:
    """Steps without those that open a skill, which only one arm can take: what is left can decide an outcome."""
    return [step for step in steps if step.tool not in SKILL_TOOLS and not (skill and _opens(step, skill))]


def resources_read(trace: Trace, skill: str) -> list[str]:
    """The files of the skill, other than SKILL.md, that successful tool calls named, in order."""
    path = re.compile(rf"skills/{re.escape(skill)}/([\w./-]*\w)")
    found = (
        match[1] for step in trace.calls if step.status != "error" for match in path.finditer(arguments_text(step))
    )
    return [name for name in dict.fromkeys(found) if name.lower() != "skill.md"]


def find_canaries(trace: Trace) -> Iterator[tuple[int, str]]:
    """Every canary anywhere in a trace, with the number of its step."""
    for number, step in enumerate(trace.steps, 1):
        for match in _CANARY.finditer(f"{step.text}\n{arguments_text(step)}\n{step.output}"):
            yield number, match[0]


def _opens(step: Step, skill: str) -> bool:
    if step.status == "error":
        return False
    named = SKILL_TOOLS.get(step.tool)
    if named is not None and step.arguments.get(named) == skill:
        return True
    return bool(re.search(rf"skills/{re.escape(skill)}/SKILL\.md\b", arguments_text(step), re.IGNORECASE))


def arguments_text(step: Step) -> str:
    """The arguments of a call as one text, with unescaped paths."""
    return json.dumps(dict(step.arguments), ensure_ascii=False).replace("\\/", "/") if step.arguments else ""
