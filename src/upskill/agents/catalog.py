"""The catalog of skills that our own agent is offered, and what it sees when it opens one.

Progressive disclosure, as in the Agent Skills guidance: name and description always, the body when the skill is
activated, its other files only when they are read. Without a skill there is neither a catalog nor a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from upskill.models import Tool
from upskill.skills import MANIFEST, Skill

SKILLS_FOLDER = ".agents/skills"  # in the student's home folder
ACTIVATE_TOOL = "activate_skill"
INSTRUCTIONS = (
    "These skills hold instructions for specific tasks: when a task fits the description of one, call "
    f"{ACTIVATE_TOOL} with its name before you begin, and take paths in its instructions as relative to its folder."
)


def catalog_prompt(skills: Iterable[Skill], folder: str) -> str:
    """The part of the system prompt about these skills, which are in `folder`."""
    rows = [
        f"<skill><name>{escape(skill.name)}</name><description>{escape(skill.description)}</description>"
        f"<location>{escape(f'{folder}/{skill.name}/{MANIFEST}')}</location></skill>"
        for skill in skills
    ]
    return "\n".join([INSTRUCTIONS, "<available_skills>", *rows, "</available_skills>"]) if rows else ""


def activation_text(skill: Skill, folder: str) -> str:
    """What opening a skill shows: its body, its folder, and the names of its other files."""
    parts = [
        f"<skill_content name={quoteattr(skill.name)}>",
        skill.body.strip(),
        "",
        f"Folder of this skill: {folder}/{skill.name}",
    ]
    if skill.resources:
        parts += [
            "<skill_resources>",
            *(f"<file>{escape(path)}</file>" for path in skill.resources),
            "</skill_resources>",
        ]
    return "\n".join([*parts, "</skill_content>"])


def activate_tool(skills: Sequence[Skill]) -> Tool:
    """The tool that opens one of these skills."""
    name = {"type": "string", "enum": [skill.name for skill in skills], "description": "the skill's name"}
    return Tool(
        ACTIVATE_TOOL,
        "Load the instructions of a skill.",
        {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False},
    )
