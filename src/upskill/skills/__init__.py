"""A Skill is a folder with a SKILL.md: read leniently, validated strictly, hashed and saved byte for byte.

skill         Skill, and finding skills in a folder
files         SkillFile: reading, hashing and writing the folder
frontmatter   the YAML at the top of SKILL.md, and what is wrong with it by the specification
markdown      blocks of code in a text, and what a model reads there and a person does not see
placebo       a skill of the same form and length that says nothing
starter/      the files of a new skill, for `upskill init`
changes       which skills a branch changed, and what they were before
install       copying a skill to where an agent looks for it
agent_specs   AGENT_SPECS: one row per real agent, which everything about that agent is derived from
"""

from upskill.skills.files import MANIFEST, SkillFile
from upskill.skills.frontmatter import Profile
from upskill.skills.skill import (
    BADGE,
    CARD,
    HIDDEN_FROM_STUDENTS,
    RECEIPT,
    REPLIES,
    Skill,
    estimate_tokens,
    find_skills,
    load_skills,
)

__all__ = [
    "BADGE",
    "CARD",
    "HIDDEN_FROM_STUDENTS",
    "MANIFEST",
    "RECEIPT",
    "REPLIES",
    "Profile",
    "Skill",
    "SkillFile",
    "estimate_tokens",
    "find_skills",
    "load_skills",
]
