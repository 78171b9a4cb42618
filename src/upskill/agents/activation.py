"""Which skills an agent saw: one that it was offered, or one that it must not see.

Every trial with a skill gets a copy with a canary of its own: a word that is nowhere else. The canary of another trial,
or a tool that shows the folder of the skill in an arm without it, means that the arms were not isolated.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from upskill.plain import digest_text
from upskill.sandboxes import Limits, Sandbox
from upskill.skills import Skill
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Step, Trace

# The tools that open a skill: ours, and those of real agents.
SKILL_TOOLS = {
    "activate_skill",
    *(spec.skill_tool for spec in AGENT_SPECS.values() if spec.skill_tool),
}
CANARY = "upskill-canary-"
CANARY_DIGITS = 16
CANARY_PATTERN = re.compile(f"{CANARY}[0-9a-f]{{{CANARY_DIGITS}}}")
SEARCH_SECONDS = 20
MAX_CANARIES = 10_000
MAX_HIDDEN = 8  # hidden folders within each other, above one with skills


def activated(trace: Trace, skill: str, canary: str = "") -> bool:
    return any(_opens(step, skill) or (canary and canary in step.output) for step in trace.calls)


def opened_skills(trace: Trace, skills: Iterable[str]) -> tuple[str, ...]:
    """Which of these skills were opened, in that order."""
    names = tuple(skills)
    return tuple(
        dict.fromkeys(name for step in trace.calls for name in names if _opens(step, name))
    )


def without_openings(steps: Iterable[Step], skill: str) -> list[Step]:
    """Steps that both arms can take, so that they can decide an outcome."""
    return [
        step
        for step in steps
        if step.tool not in SKILL_TOOLS and not (skill and _opens(step, skill))
    ]


def resources_read(trace: Trace, skill: str) -> list[str]:
    path = re.compile(rf"skills/{re.escape(skill)}/([\w./-]*\w)")
    texts = [_arguments_text(step) for step in trace.calls if step.status != "error"]
    names = dict.fromkeys(name for text in texts for name in path.findall(text))
    return [name for name in names if name.lower() != "skill.md"]


def _opens(step: Step, skill: str) -> bool:
    if step.status == "error":
        return False
    if (
        step.tool in SKILL_TOOLS and skill in step.arguments.values()
    ):  # programs name the argument differently
        return True
    return bool(
        re.search(rf"skills/{re.escape(skill)}/SKILL\.md\b", _arguments_text(step), re.IGNORECASE)
    )


def _arguments_text(step: Step) -> str:
    return (
        json.dumps(dict(step.arguments), ensure_ascii=False).replace("\\/", "/")
        if step.arguments
        else ""
    )


def canary_for(key: str) -> str:
    """Always the same for a trial, so that a resumed run sends the same requests."""
    return CANARY + digest_text(f"canary of {key}")[:CANARY_DIGITS]


def plant_canary(skill: Skill, canary: str) -> Skill:
    return skill.with_body(f"{skill.body.rstrip()}\n\n<!-- {canary} -->\n")


@dataclass(frozen=True, slots=True)
class HiddenSkill:
    """The skill that a trial must not see."""

    skill: Skill
    home: str  # of the student
    case: str  # its text, which may name such a folder itself

    def used_by(self, trace: Trace) -> Iterator[tuple[int, str]]:
        """The tool calls that show where this run keeps the skill, with the number of the step.

        That is a hidden folder of the home, such as ~/.claude/skills/NAME. Any other path proves nothing unless a tool
        shows it before the student or the case has named it.
        """
        name = re.escape(self.skill.name)
        hidden = rf"\.[\w-]+/(?:[\w-]+/)?skills/{name}(?![\w-])"
        source = (
            rf"|{re.escape(str(self.skill.folder.resolve()))}(?![\w-])" if self.skill.folder else ""
        )
        home = rf"(?:~|\$HOME|\$\{{HOME\}}|{re.escape(self.home)})"
        full_path = re.compile(rf"{home}/(?:\.[\w-]+/){{0,{MAX_HIDDEN}}}{hidden}")
        in_output = re.compile(rf"(?:^|[\s/'\"]){hidden}{source}", re.MULTILINE)
        named = self.case
        for number, step in enumerate(trace.steps, 1):
            arguments = _arguments_text(step)
            named += f"\n{step.text}\n{arguments}"
            if step.kind != "tool":
                continue
            used = full_path.search(f"{arguments}\n{step.output}")
            discovered = (
                self.skill.name not in named
                and step.status != "error"
                and in_output.search(step.output)
            )
            if discovered or (used and used[0].split("/", 1)[1] not in self.case):
                yield number, arguments


async def find_leak(
    trace: Trace,
    own: str,
    canaries: Callable[[], Container[str]],
    hidden: HiddenSkill | None,
    sandbox: Sandbox | None,
) -> str:
    """Evidence that this trial saw a skill it must not see; empty if there is none.

    `own` is its canary; `canaries` gives those of the run: any other was made up, or copied badly.
    """
    for number, step in enumerate(trace.steps, 1):
        for canary in CANARY_PATTERN.findall(
            f"{step.text}\n{_arguments_text(step)}\n{step.output}"
        ):
            if canary != own and canary in canaries():
                return f"step {number} shows the canary {canary} from another trial"
    for number, arguments in hidden.used_by(trace) if hidden else ():
        return f"step {number} uses the skill's folder: {arguments[:200]}"
    if sandbox is None:
        return ""
    # An agent may have done things that its trace does not show.
    search = shlex.join([CANARY_PATTERN.pattern, sandbox.workspace, sandbox.home])
    line = f"grep -rhoaE -- {search} | grep -vxF -m {MAX_CANARIES} -- {shlex.quote(own)}"
    # Whatever was found when time is up decides: an error would be a way out for a student about to fail.
    done = await sandbox.run(line, Limits(wall=SEARCH_SECONDS))
    foreign = sorted(canary for canary in set(done.output.split()) - {own} if canary in canaries())
    return (
        f"a file the student left has the canary {foreign[0]} from another trial" if foreign else ""
    )
