"""Isolation: proof that no arm saw the skill of another.

Where agents act, every trial with a skill gets a copy of it with a canary of its own: a word that is nowhere else. A
canary, or the folder of the skill under test, in a trial of an arm without that skill means that the arms were not
apart, and then no number of the run means anything.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from upskill.agents.activation import CANARY, canaries, touches
from upskill.plain import digest_text
from upskill.skills import Skill
from upskill.traces import Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

MOST_SEARCHED = 20  # seconds
MOST_FOUND = 100  # canaries
HEXADECIMALS = 16  # in a canary


def canary_of(key: str) -> str:
    """The canary of the trial with this key. It follows from the key, so that a run that goes on asks the same."""
    return CANARY + digest_text(f"canary of {key}")[:HEXADECIMALS]


def plant_canary(skill: Skill, canary: str) -> Skill:
    """The skill with this canary at the end of its body, where it costs least and is read with the rest."""
    return skill.with_body(f"{skill.body.rstrip()}\n\n<!-- {canary} -->\n")


async def find_leak(trace: Trace, own: str, hidden: str, sandbox: Sandbox | None) -> str:
    """What shows that this trial has seen a skill that it must not; empty where nothing does.

    `own` is the canary of the trial, empty where it has no skill; `hidden` the name of the skill that is kept from it.
    """
    for number, found in canaries(trace):
        if _is_strange(found, own):
            return f"step {number} shows the canary {found} of another trial"
    if hidden:
        for number, said in touches(trace, hidden):
            return f"step {number} reaches for the folder of the skill: {said[:200]}"
    if sandbox is None:
        return ""
    # What an agent does not tell of may have left something behind.
    from upskill.sandboxes import Limits  # noqa: PLC0415 - only where something acts

    places = shlex.join([f"{CANARY}[0-9a-f]{{{HEXADECIMALS}}}", sandbox.workspace, sandbox.home])
    line = f"grep -rhoaE -- {places} | grep -vxF -m {MOST_FOUND} -- {shlex.quote(own)}"
    # Where a student left more than can be searched in that time, what was found until then decides: an error would
    # be a way out for those who are about to fail.
    done = await sandbox.run(line, Limits(wall=MOST_SEARCHED))
    strange = sorted(found for found in set(done.output.split()) if _is_strange(found, own))
    return f"a file that was left behind has the canary {strange[0]} of another trial" if strange else ""


def _is_strange(found: str, own: str) -> bool:
    """Whether a canary is of another trial. A small model that copies its own one down may slip on the way."""
    alike = sum(one == other for one, other in zip(found, own, strict=False)) - len(CANARY)
    return alike < HEXADECIMALS // 2
