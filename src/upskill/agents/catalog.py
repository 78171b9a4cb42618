"""The catalog: which skills an agent of ours is offered, and what it is shown when it opens one.

Progressive disclosure, as the Agent Skills guidance has it: name and description always, the body when the skill is
activated, the files beside it only when they are read. Without a skill there is no block and no tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from upskill.models import Tool
from upskill.skills import MANIFEST, Skill

SKILLS = ".agents/skills"  # in the student's home folder
ACTIVATE = "activate_skill"
BEHAVIOUR = (
    f"These skills hold instructions for specific tasks: when a task fits the description of one, call {ACTIVATE} with "
    "its name before you begin, and take paths in its instructions as relative to its folder."
)


def catalog(skills: Iterable[Skill], folder: str) -> str:
    """What stands in the system prompt of these skills, which lie under `folder`."""
    rows = [
        f"<skill><name>{escape(skill.name)}</name><description>{escape(skill.description)}</description>"
        f"<location>{escape(f'{folder}/{skill.name}/{MANIFEST}')}</location></skill>"
        for skill in skills
    ]
    return "\n".join([BEHAVIOUR, "<available_skills>", *rows, "</available_skills>"]) if rows else ""


def activation(skill: Skill, folder: str) -> str:
    """What opening a skill shows: its body and folder, and which files lie beside it."""
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
        ACTIVATE,
        "Load the instructions of a skill.",
        {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False},
    )
