"""What of a skill is handed on: as files, as a plugin for agents, as an index for a website."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.errors import UsageError
from upskill.plain import dict_or_empty
from upskill.skills.archives import zip_files
from upskill.skills.files import MANIFEST, SkillFile, hash_files
from upskill.skills.frontmatter import name_problems
from upskill.skills.skill import CARD, HIDDEN_FROM_STUDENTS, RECEIPT, Skill

# https://agent-plugins.org/specification, version 1.0.0
PLUGIN_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
# https://github.com/cloudflare/agent-skills-discovery-rfc, version 0.2.0
INDEX_SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
WELL_KNOWN = ".well-known/agent-skills"


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
        "version": str(version or f"0.0.0-h{hash_files(skills)}"),  # agents cache by version
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


def index_files(packed: Iterable[Packed]) -> list[SkillFile]:
    """index.json, with an archive of each skill that has several files, and every file for clients that fetch those."""
    entries: list[dict[str, Any]] = []
    files: list[SkillFile] = []
    for one in packed:
        name = one.skill.name
        paths = [file.path for file in one.files]
        kind, url, data = "skill-md", f"{name}/{MANIFEST}", one.files[0].data
        if paths != [MANIFEST]:
            kind, url, data = "archive", f"{name}.zip", zip_files(one.files)
            files.append(SkillFile(f"{WELL_KNOWN}/{url}", data))
        entry = {"name": name, "type": kind, "description": one.skill.description, "url": url}
        # opencode reads `files`, which version 0.1.0 had; other clients ignore it.
        entries.append(
            entry | {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "files": paths}
        )
        files += one.below(f"{WELL_KNOWN}/{name}")
    index = {"$schema": INDEX_SCHEMA, "skills": sorted(entries, key=lambda entry: entry["name"])}
    return [*files, SkillFile(f"{WELL_KNOWN}/index.json", _json(index))]


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
