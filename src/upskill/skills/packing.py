"""What of a skill is handed on: as files, or as a plugin for agents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.errors import UsageError
from upskill.plain import dict_or_empty
from upskill.skills.files import MANIFEST, SkillFile, hash_files
from upskill.skills.frontmatter import name_problems
from upskill.skills.seen import without_seen
from upskill.skills.skill import CARD, HIDDEN_FROM_STUDENTS, RECEIPT, Skill

# https://agent-plugins.org/specification, version 1.0.0
PLUGIN_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"


@dataclass(frozen=True, slots=True)
class Packed:
    """A skill without what only evaluation reads, but with its receipt and card; links are files."""

    skill: Skill
    files: tuple[SkillFile, ...]
    left_out: tuple[str, ...]

    def below(self, folder: str) -> list[SkillFile]:
        return [replace(file, path=f"{folder}/{file.path}") for file in self.files]


def pack(skill: Skill, *, with_evals: bool = False) -> Packed:
    skill.require_valid()
    kept = {
        file.path
        for file in skill.files
        if with_evals
        or file.path in (RECEIPT, CARD)
        or not file.path.startswith(HIDDEN_FROM_STUDENTS)
    }
    files = [_without_link(skill, file) for file in skill.files if file.path in kept]
    if MANIFEST not in kept:  # but skill.md
        files = [
            replace(file, path=MANIFEST) if file.path == MANIFEST.lower() else file
            for file in files
        ]
    return Packed(
        skill, tuple(files), tuple(file.path for file in skill.files if file.path not in kept)
    )


def plugin_files(packed: Sequence[Packed], name: str) -> list[SkillFile]:
    """One layout for Agent Plugins 1.0, Claude Code and Codex: a plugin that is also a marketplace of itself."""
    if problem := next(name_problems(name, None), None):
        raise UsageError(
            f"{name!r} is not a valid plugin name: {problem.message}",
            "Use lowercase letters, digits and -.",
        )
    skills = [file for one in packed for file in one.below(f"skills/{one.skill.name}")]
    first = packed[0].skill
    is_one = len(packed) == 1
    version = dict_or_empty(first.frontmatter.get("metadata")).get("version") if is_one else None
    about: dict[str, Any] = {
        "name": name,
        "version": str(
            version or f"0.0.0-h{hash_files(filter(None, map(without_seen, skills)))}"
        ),  # agents cache by version
        "description": first.description
        if is_one
        else f"Skills: {', '.join(one.skill.name for one in packed)}",
    }
    if is_one and first.frontmatter.get("license"):
        about["license"] = str(first.frontmatter["license"])
    entry = {"name": name, "source": "./", "description": about["description"]}
    manifests: Mapping[str, Any] = {
        "plugin.json": {"$schema": PLUGIN_SCHEMA, **about},
        ".claude-plugin/plugin.json": about,
        ".claude-plugin/marketplace.json": {
            "name": name,
            "owner": {"name": name},
            "plugins": [entry],
        },
    }
    return [*(SkillFile(path, _json(content)) for path, content in manifests.items()), *skills]


def _without_link(skill: Skill, file: SkillFile) -> SkillFile:
    if not file.link:
        return file
    data = skill.read(file.path)
    if data is None:
        raise UsageError(
            f"{skill.name}/{file.path}: a link to a folder", "Put the files themselves there."
        )
    return SkillFile(file.path, data, skill.is_runnable(file.path))


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
