"""A Skill is a folder with a SKILL.md: read leniently, validated strictly, hashed and saved byte for byte.

skill         Skill, and finding skills in a folder
files         SkillFile: reading, hashing and writing the folder
frontmatter   the YAML at the top of SKILL.md, and what is wrong with it by the specification
markdown      blocks of code in a text
blocks        the parts of a skill that can be taken out or rewritten one by one
security      what could be an attack: hidden text, downloads that a shell runs, reading keys
placebo       a skill of the same form and length that says nothing
starter/      the files of a new skill, for `upskill init`
changes       which skills a branch changed, and what they were before
archives      zips with the same bytes everywhere, and reading archives that may be hostile
seen          which cases a text of the skill was edited against: the record of shown results
packing       what of a skill is handed on: as files, or as a plugin
install       copying a skill to where an agent looks for it
agent_specs   AGENT_SPECS: one row per real agent, which everything about that agent is derived from
catalogs      what of each description a model sees in an agent's catalog
fixes         what is wrong with a SKILL.md and can be fixed without understanding it
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
