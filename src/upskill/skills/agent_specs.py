"""One row per real agent: what it is called, how it is installed, and where it keeps skills and sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An empty field means that the agent has no such thing, or that upskill makes no use of it."""

    name: str  # what people type
    title: str  # what people read
    aliases: tuple[str, ...] = ()
    # Skills
    project_skills: str = ".agents/skills"  # below the folder of a project
    user_skills: str = ""  # below the home folder
    skill_tool: tuple[str, str] = ("", "")  # the tool that opens a skill, and its argument with the skill's name
    # The program
    program: str = ""  # the command on the PATH
    install: str = ""  # the command that installs it
    log_in: str = ""  # what a person does to log in
    login_variables: tuple[str, ...] = ()  # environment variables that hold its login, or say where it is
    companion: tuple[str, str] = ("", "")  # a command it needs beside it as a student, and how to install that
    prices: str = ""  # the provider whose prices it is charged at
    agent: str = ""  # "module:attribute": the class that runs it in a sandbox, with its tools
    model: str = ""  # "module:attribute": the Command that lets it answer as a plain model
    # What it keeps in the home folder
    folder: str = ""  # below the home folder
    moved_folder: str = ""  # where that folder is if a variable is set, as "$VARIABLE" or "$VARIABLE/below"
    memory_file: str = ""  # in that folder: read in every call, and nothing turns that off
    session_files: tuple[str, ...] = ()  # patterns below that folder
    session_database: str = ""  # a file in that folder with many sessions
    trace_format: str = ""
    trace_reader: str = ""  # "module:attribute": the Format

    @property
    def folder_variable(self) -> str:
        """The environment variable that moves the agent's folder."""
        return self.moved_folder.removeprefix("$").partition("/")[0]

    def folder_in(self, environment: Mapping[str, str] = os.environ) -> Path:
        """The folder in which the agent keeps its sessions, its login and its settings."""
        if moved := environment.get(self.folder_variable):
            return Path(moved, self.moved_folder.partition("/")[2])
        return Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home()) / self.folder


AGENT_SPECS: dict[str, AgentSpec] = {
    spec.name: spec
    for spec in (
        AgentSpec(name="generic", title="any agent that reads .agents", user_skills=".agents/skills"),
        AgentSpec(
            name="claude-code",
            title="Claude Code",
            aliases=("claude", "claude_code"),
            project_skills=".claude/skills",
            user_skills=".claude/skills",
            skill_tool=("Skill", "skill"),
            program="claude",
            install="npm install -g @anthropic-ai/claude-code",
            log_in="start `claude` once and log in, or set CLAUDE_CODE_OAUTH_TOKEN (from `claude setup-token`)",
            login_variables=(
                "CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CONFIG_DIR",
                "ANTHROPIC_AUTH_TOKEN",
                "ANTHROPIC_BASE_URL",
            ),
            prices="anthropic",
            agent="upskill.agents.claude_code:ClaudeCode",
            model="upskill.models.command.claude_code:COMMAND",
            folder=".claude",
            moved_folder="$CLAUDE_CONFIG_DIR",
            session_files=("projects/*/*.jsonl",),
            trace_format="claude-code",
            trace_reader="upskill.traces.readers.claude_code:FORMAT",
        ),
        AgentSpec(
            name="codex",
            title="Codex",
            user_skills=".agents/skills",
            program="codex",
            install="npm install -g @openai/codex",
            log_in="run `codex login`, or set CODEX_API_KEY",
            login_variables=("CODEX_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
            prices="openai",
            agent="upskill.agents.codex:Codex",
            model="upskill.models.command.codex:COMMAND",
            folder=".codex",
            moved_folder="$CODEX_HOME",
            memory_file="AGENTS.md",
            session_files=(
                *("sessions/*/*/*/rollout-*.jsonl", "sessions/*/*/*/rollout-*.jsonl.zst"),
                *("archived_sessions/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl.zst"),
            ),
            trace_format="codex",
            trace_reader="upskill.traces.readers.codex:FORMAT",
        ),
        AgentSpec(
            name="opencode",
            title="opencode",
            user_skills=".config/opencode/skills",
            skill_tool=("skill", "name"),
            program="opencode",
            install="npm install -g opencode-ai",
            log_in="run `opencode auth login`",
            login_variables=("OPENCODE_API_KEY", "OPENCODE_CONFIG"),
            companion=("rg", "ripgrep: apt install ripgrep"),
            agent="upskill.agents.opencode:OpenCode",
            model="upskill.models.command.opencode:COMMAND",
            folder=".local/share/opencode",
            moved_folder="$XDG_DATA_HOME/opencode",
            session_files=("storage/session/*/*.json",),
            session_database="opencode.db",
            trace_format="opencode",
            trace_reader="upskill.traces.readers.opencode:FORMAT",
        ),
        AgentSpec(
            name="cursor",
            title="Cursor",
            project_skills=".cursor/skills",
            user_skills=".cursor/skills",
            folder=".cursor",
            moved_folder="$CURSOR_CONFIG_DIR",
            session_files=("projects/*/agent-transcripts/*/*.jsonl", "projects/*/agent-transcripts/*.jsonl"),
            trace_format="cursor",
            trace_reader="upskill.traces.readers.cursor:FORMAT",
        ),
        AgentSpec(
            name="gemini-cli",
            title="Gemini CLI",
            aliases=("gemini_cli",),
            user_skills=".gemini/skills",
            folder=".gemini",
            session_files=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
            trace_format="gemini",
            trace_reader="upskill.traces.readers.gemini:FORMAT",
        ),
        AgentSpec(
            name="copilot",
            title="GitHub Copilot",
            user_skills=".copilot/skills",
            folder=".copilot",
            moved_folder="$COPILOT_HOME",
            session_files=("session-state/*/events.jsonl", "session-state/*.jsonl"),
            trace_format="copilot",
            trace_reader="upskill.traces.readers.copilot:FORMAT",
        ),
        AgentSpec(
            name="pi",
            title="Pi",
            project_skills=".pi/skills",
            user_skills=".pi/agent/skills",
            folder=".pi/agent",
            moved_folder="$PI_CODING_AGENT_DIR",
            session_files=("sessions/*/*.jsonl",),
            trace_format="pi",
            trace_reader="upskill.traces.readers.pi:FORMAT",
        ),
        AgentSpec(
            name="qwen-code",
            title="Qwen Code",
            aliases=("qwen",),
            project_skills=".qwen/skills",
            user_skills=".qwen/skills",
            folder=".qwen",
            session_files=("projects/*/chats/*.jsonl", "tmp/*/chats/*.jsonl"),
            trace_format="qwen-code",
            trace_reader="upskill.traces.readers.qwen:FORMAT",
        ),
    )
}

REAL_AGENTS = ", ".join(spec.name for spec in AGENT_SPECS.values() if spec.agent)  # those that can run trials, for help
