"""Isolation: proof that no arm saw the skill of another.

If agents use a sandbox, every trial with a skill gets a copy of it with a canary of its own: a word that is nowhere
else. A foreign canary, or the folder of the skill under test in an arm without it, means that the arms were not
isolated from each other, and then no number of the run means anything.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from upskill.agents.activation import CANARY, find_canaries, folder_uses
from upskill.plain import digest_text
from upskill.skills import Skill
from upskill.traces import Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

SEARCH_SECONDS = 20  # seconds
MAX_FOUND = 100  # canaries
CANARY_DIGITS = 16  # in a canary


def canary_for(key: str) -> str:
    """The canary of the trial with this key: always the same one, so that a resumed run sends the same requests."""
    return CANARY + digest_text(f"canary of {key}")[:CANARY_DIGITS]


def plant_canary(skill: Skill, canary: str) -> Skill:
    """The skill with this canary at the end of its body."""
    return skill.with_body(f"{skill.body.rstrip()}\n\n<!-- {canary} -->\n")


async def find_leak(trace: Trace, own: str, hidden: str, sandbox: Sandbox | None) -> str:
    """The evidence that this trial has seen a skill that it must not see; empty if there is none.

    `own` is the canary of the trial, empty if it has no skill; `hidden` is the name of the skill it must not see.
    """
    for number, found in find_canaries(trace):
        if _is_foreign(found, own):
            return f"step {number} shows the canary {found} of another trial"
    if hidden:
        for number, arguments in folder_uses(trace, hidden):
            return f"step {number} reaches for the folder of the skill: {arguments[:200]}"
    if sandbox is None:
        return ""
    # An agent may have done things that its trace does not show.
    from upskill.sandboxes import Limits  # noqa: PLC0415 - only if there is a sandbox

    places = shlex.join([f"{CANARY}[0-9a-f]{{{CANARY_DIGITS}}}", sandbox.workspace, sandbox.home])
    line = f"grep -rhoaE -- {places} | grep -vxF -m {MAX_FOUND} -- {shlex.quote(own)}"
    # If a student left more than can be searched in that time, what was found by then decides: an error would be a way
    # out for a student about to fail.
    done = await sandbox.run(line, Limits(wall=SEARCH_SECONDS))
    foreign = sorted(found for found in set(done.output.split()) if _is_foreign(found, own))
    return f"a file that was left behind has the canary {foreign[0]} of another trial" if foreign else ""


def _is_foreign(found: str, own: str) -> bool:
    """Whether a canary is that of another trial. A small model may make mistakes when it copies its own."""
    matching = sum(one == other for one, other in zip(found, own, strict=False)) - len(CANARY)
    return matching < CANARY_DIGITS // 2
