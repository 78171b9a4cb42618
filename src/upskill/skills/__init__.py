"""A Skill is a folder with a SKILL.md: read leniently, validated strictly, hashed and saved byte for byte."""

from upskill.skills.skill import (
    INVISIBLE,
    MANIFEST,
    Profile,
    Skill,
    SkillFile,
    estimate_tokens,
    find_skills,
    load_skills,
)

__all__ = [
    "INVISIBLE",
    "MANIFEST",
    "Profile",
    "Skill",
    "SkillFile",
    "estimate_tokens",
    "find_skills",
    "load_skills",
]
