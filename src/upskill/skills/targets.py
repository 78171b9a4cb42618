"""A Target is where an agent looks for skills: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from upskill.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    title: str
    project: str  # below the project's folder
    user: str  # below the home folder

    def folder(self, *, user_wide: bool, project: Path, home: Path) -> Path:
        return home / self.user if user_wide else project / self.project


TARGETS: dict[str, Target] = {
    row.name: row
    for row in (
        Target("generic", "any agent that reads .agents", ".agents/skills", ".agents/skills"),
        Target("claude-code", "Claude Code", ".claude/skills", ".claude/skills"),
        Target("codex", "Codex", ".agents/skills", ".codex/skills"),
        Target("cursor", "Cursor", ".cursor/skills", ".cursor/skills"),
        Target("opencode", "opencode", ".agents/skills", ".config/opencode/skills"),
        Target("gemini-cli", "Gemini CLI", ".agents/skills", ".gemini/skills"),
        Target("copilot", "GitHub Copilot", ".agents/skills", ".copilot/skills"),
    )
}


def find_target(name: str) -> Target:
    if name not in TARGETS:
        raise UsageError(f"no agent is called {name!r}", did_you_mean(name, TARGETS))
    return TARGETS[name]
