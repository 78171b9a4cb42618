"""Install: copy a Skill to where an agent looks for skills, without losing what someone changed there."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from upskill.errors import UsageError, did_you_mean
from upskill.outputs import whole_file
from upskill.plain import read_json
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec
from upskill.skills.files import write_folder
from upskill.skills.skill import HIDDEN_FROM_STUDENTS, Skill

KEPT = ".upskill-kept"  # beside the skills: what was replaced
RECORD = ".upskill-installed.json"  # beside the skills: name -> fingerprint of what we installed

TARGETS: dict[str, AgentSpec] = {
    spec.name: spec for spec in AGENT_SPECS.values() if spec.user_skills
}

InstallStatus = Literal["installed", "updated", "unchanged", "replaced"]


@dataclass(frozen=True, slots=True)
class Installation:
    folder: Path
    status: InstallStatus
    kept: Path | None = None  # where the replaced folder went


def find_target(name: str) -> AgentSpec:
    if name not in TARGETS:
        raise UsageError(f"no agent named {name!r}", did_you_mean(name, TARGETS))
    return TARGETS[name]


def install(
    skill: Skill, skills_folder: str | Path, *, force: bool = False, with_evals: bool = False
) -> Installation:
    """Copy a skill into a folder of skills; files for evaluation only if `with_evals`.

    An installed copy is updated if unchanged; any other is left alone unless `force`, which keeps it in .upskill-kept.
    """
    skill.require_valid()
    if not with_evals:
        files = [file for file in skill.files if not file.path.startswith(HIDDEN_FROM_STUDENTS)]
        skill = replace(skill, files=tuple(files))
    root = Path(skills_folder)
    target = root / skill.name
    there = _fingerprint_at(target)
    status: InstallStatus = "replaced"
    backup: Path | None = None
    if not os.path.lexists(target):
        status = "installed"
    elif there == skill.fingerprint:
        status = "unchanged"
    elif there is not None and not target.is_symlink() and _recorded(root).get(skill.name) == there:
        status = "updated"
    elif not force:
        raise UsageError(
            f"{target}: this skill has changed since it was installed, or upskill did not install it",
            f"Compare the two. --force replaces it and moves the old one to {KEPT}/.",
        )
    else:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        # In a subfolder, where agents do not look: beside the skills it would be loaded as a skill.
        names = (
            root / KEPT / f"{skill.name}-{stamp}{suffix}"
            for suffix in ("", *map("-{}".format, range(2, 10_000)))
        )
        backup = next(path for path in names if not os.path.lexists(path))
    if status != "unchanged":
        write_folder(target, skill.files, skill.folders, keep_old_at=backup)
    record = _recorded(root) | {skill.name: skill.fingerprint}
    if record != _recorded(root):
        with whole_file(root / RECORD) as file:
            file.write((json.dumps(record, indent=2, sort_keys=True) + "\n").encode())
    return Installation(target, status, backup)


def _fingerprint_at(folder: Path) -> str | None:
    try:
        return Skill.load(folder).fingerprint
    except UsageError:
        return None


def _recorded(root: Path) -> dict[str, str]:
    return {name: str(value) for name, value in read_json(root / RECORD).items()}
