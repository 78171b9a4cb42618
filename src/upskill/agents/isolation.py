"""Isolation: proof that no arm saw the skill of another.

If agents use a sandbox, every trial with a skill gets a copy of it with a canary of its own: a word that is nowhere
else. The canary of another trial of the run, or a tool that shows the folder of the skill under test in an arm without
it, means that the arms were not isolated from each other, and then no number of the run means anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upskill.agents.activation import CANARY, arguments_text, find_canaries
from upskill.plain import digest_text
from upskill.skills import Skill
from upskill.traces import Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

SEARCH_SECONDS = 20  # seconds
MAX_CANARIES = 10_000  # canaries
CANARY_DIGITS = 16  # in a canary


def canary_for(key: str) -> str:
    """The canary of the trial with this key: always the same one, so that a resumed run sends the same requests."""
    return CANARY + digest_text(f"canary of {key}")[:CANARY_DIGITS]


def plant_canary(skill: Skill, canary: str) -> Skill:
    """The skill with this canary at the end of its body."""
    return skill.with_body(f"{skill.body.rstrip()}\n\n<!-- {canary} -->\n")


@dataclass(frozen=True, slots=True)
class HiddenSkill:
    """The skill that a trial must not see: where this run keeps it, and the text of the case, which may name a folder
    like that itself."""

    skill: Skill
    home: str  # of the student
    case: str

    def used_by(self, trace: Trace) -> Iterator[tuple[int, str]]:
        """The tool calls that show where this run keeps the skill, with the number of the step.

        That is a hidden folder of the home folder, such as ~/.claude/skills/NAME. Any other path proves nothing unless
        a tool shows it before the student or the case has named it.
        """
        name = re.escape(self.skill.name)
        kept = rf"(?:\.[\w-]+/)+(?:[\w-]+/)?skills/{name}(?![\w-])"
        source = rf"|{re.escape(str(self.skill.folder.resolve()))}(?![\w-])" if self.skill.folder else ""
        full_path = re.compile(rf"(?:~|\$HOME|\$\{{HOME\}}|{re.escape(self.home)})/{kept}")
        shown = re.compile(rf"(?:^|[\s/'\"]){kept}{source}", re.MULTILINE)
        named = self.case
        for number, step in enumerate(trace.steps, 1):
            arguments = arguments_text(step)
            named += f"\n{step.text}\n{arguments}"
            if step.kind != "tool":
                continue
            used = full_path.search(f"{arguments}\n{step.output}")
            discovered = self.skill.name not in named and step.status != "error" and shown.search(step.output)
            if discovered or (used and used[0].split("/", 1)[1] not in self.case):
                yield number, arguments


async def find_leak(
    trace: Trace, own: str, canaries: Callable[[], Container[str]], hidden: HiddenSkill | None, sandbox: Sandbox | None
) -> str:
    """The evidence that this trial has seen a skill that it must not see; empty if there is none.

    `own` is the canary of the trial, empty if it has no skill; `canaries` gives those of the whole run: one that is
    not among them was made up, or copied badly.
    """
    for number, canary in find_canaries(trace):
        if canary != own and canary in canaries():
            return f"step {number} shows the canary {canary} of another trial"
    for number, arguments in hidden.used_by(trace) if hidden else ():
        return f"step {number} reaches for the folder of the skill: {arguments[:200]}"
    if sandbox is None:
        return ""
    # An agent may have done things that its trace does not show.
    from upskill.sandboxes import Limits  # noqa: PLC0415 - only if there is a sandbox

    search = shlex.join([f"{CANARY}[0-9a-f]{{{CANARY_DIGITS}}}", sandbox.workspace, sandbox.home])
    line = f"grep -rhoaE -- {search} | grep -vxF -m {MAX_CANARIES} -- {shlex.quote(own)}"
    # If a student left more than can be searched in that time, what was found by then decides: an error would be a way
    # out for a student about to fail.
    done = await sandbox.run(line, Limits(wall=SEARCH_SECONDS))
    foreign = sorted(canary for canary in set(done.output.split()) - {own} if canary in canaries())
    return f"a file that was left behind has the canary {foreign[0]} of another trial" if foreign else ""
