"""One row per real agent: what it is called, how it is installed, and where it keeps skills and sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Catalog:
    """How an agent lists skills for its model, and what it does when they do not fit."""

    source: str
    seen: str  # when we looked
    line: str = "{name}{description}"  # what a skill takes up
    share: float = 0  # of the context window; 0 without a limit
    context: int = 0  # tokens, of the models it usually runs
    unit: Literal["tokens", "characters"] = "characters"  # what it counts in, at four to a token
    characters: int = 0  # the limit, if it does not depend on the context window
    max_description: int = 0
    overflow: Literal["", "shorten", "names", "drop"] = (
        ""  # all of them; the last have no description, or are missing
    )

    def budget(self, context: int | None = None) -> int:
        """In its unit; 0: no limit."""
        return self.characters or int(
            (context or self.context) * self.share * (1 if self.unit == "tokens" else 4)
        )

    def cost(self, line: str) -> int:
        return self.cost_of(len(line.encode())) if self.unit == "tokens" else len(line)

    def cost_of(self, size: int) -> int:
        return (size + 3) // 4 if self.unit == "tokens" else size


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An empty field means that the agent has no such thing, or that upskill makes no use of it."""

    name: str  # what people type
    title: str  # what people read
    aliases: tuple[str, ...] = ()
    # Skills
    project_skills: str = ".agents/skills"  # below the folder of a project
    user_skills: str = ""  # below the home folder
    skill_tool: str = ""  # the tool that opens a skill
    catalog: Catalog | None = None  # None: not published
    # The program
    program: str = ""  # the command on the PATH
    install: str = ""  # the command that installs it
    log_in: str = ""  # what a person does to log in
    login_variables: tuple[
        str, ...
    ] = ()  # environment variables that hold its login, or say where it is
    companion: tuple[str, str] = (
        "",
        "",
    )  # a command it needs beside it as a student, and how to install that
    prices: str = ""  # the provider whose prices it is charged at
    agent: str = ""  # "module:attribute": the class that runs it in a sandbox, with its tools
    model: str = ""  # "module:attribute": the Command that lets it answer as a plain model
    # What it keeps in the home folder
    folder: str = ""  # below the home folder
    moved_folder: str = (
        ""  # where that folder is if a variable is set, as "$VARIABLE" or "$VARIABLE/below"
    )
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
        return (
            Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home())
            / self.folder
        )


AGENT_SPECS: dict[str, AgentSpec] = {
    spec.name: spec
    for spec in (
        AgentSpec(
            name="generic", title="any agent that reads .agents", user_skills=".agents/skills"
        ),
        AgentSpec(
            name="claude-code",
            title="Claude Code",
            aliases=("claude", "claude_code"),
            project_skills=".claude/skills",
            user_skills=".claude/skills",
            skill_tool="Skill",
            catalog=Catalog(
                source="https://code.claude.com/docs/en/skills",
                seen="2026-09-16",
                line="- {name}: {description}\n",
                share=0.01,
                context=200_000,
                max_description=1536,
                overflow="names",
            ),
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
            catalog=Catalog(
                source="https://github.com/openai/codex/blob/343074d420/codex-rs/ext/skills/src/render.rs",
                seen="2026-08-22",
                line="- {name}: {description} (file: r0/{name}/SKILL.md)\n",
                share=0.02,
                context=272_000,
                unit="tokens",
                max_description=1024,
                overflow="shorten",
            ),
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
            skill_tool="skill",
            catalog=Catalog(
                source="https://github.com/anomalyco/opencode/blob/d545d8fba5/packages/opencode/src/skill/index.ts",
                seen="2026-08-19",
            ),
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
            session_files=(
                *("projects/*/agent-transcripts/*/*.jsonl", "projects/*/agent-transcripts/*.jsonl"),
                "chats/*/*/store.db",
            ),
            session_database="../.config/Cursor/User/globalStorage/state.vscdb",
            trace_format="cursor",
            trace_reader="upskill.traces.readers.cursor:FORMAT",
        ),
        AgentSpec(
            name="gemini-cli",
            title="Gemini CLI",
            aliases=("gemini_cli",),
            user_skills=".gemini/skills",
            catalog=Catalog(
                source="https://github.com/google-gemini/gemini-cli/blob/5411f113ca/packages/core/src/prompts/snippets.ts",
                seen="2026-08-21",
            ),
            folder=".gemini",
            session_files=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
            trace_format="gemini",
            trace_reader="upskill.traces.readers.gemini:FORMAT",
        ),
        AgentSpec(
            name="copilot",
            title="GitHub Copilot",
            user_skills=".copilot/skills",
            catalog=Catalog(
                source="https://github.com/github/copilot-cli/issues/2314",
                seen="2026-03-26",
                line="<skill>\n  <name>{name}</name>\n  <description>{description}</description>\n"
                "  <location>user</location>\n</skill>\n",
                characters=15_000,
                overflow="drop",
            ),
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
            catalog=Catalog(
                source="https://github.com/badlogic/pi-mono/blob/83378aad/packages/coding-agent/src/core/skills.ts",
                seen="2026-03-15",
            ),
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
            catalog=Catalog(
                source="https://github.com/QwenLM/qwen-code/blob/db0519563d/packages/core/src/tools/skill-utils.ts",
                seen="2026-08-22",
            ),
            folder=".qwen",
            session_files=("projects/*/chats/*.jsonl", "tmp/*/chats/*.jsonl"),
            trace_format="qwen-code",
            trace_reader="upskill.traces.readers.qwen:FORMAT",
        ),
        AgentSpec(
            name="kimi",
            title="Kimi",
            folder=".",  # two below it, of an older program and its successor
            session_files=(
                ".kimi-code/sessions/*/*/agents/main/wire.jsonl",
                ".kimi/sessions/*/*/context.jsonl",
            ),
            trace_format="kimi",
            trace_reader="upskill.traces.readers.kimi:FORMAT",
        ),
        AgentSpec(
            name="grok",
            title="Grok CLI",
            folder=".grok",
            moved_folder="$GROK_HOME",
            session_files=("sessions/*/*/chat_history.jsonl",),
            trace_format="grok",
            trace_reader="upskill.traces.readers.grok:FORMAT",
        ),
        AgentSpec(
            name="droid",
            title="Factory Droid",
            folder=".factory",
            session_files=("sessions/*/*.jsonl",),
            trace_format="droid",
            trace_reader="upskill.traces.readers.droid:FORMAT",
        ),
        AgentSpec(
            name="antigravity",
            title="Antigravity",
            folder=".gemini",
            session_files=("antigravity*/brain/*/.system_generated/logs/transcript.jsonl",),
            trace_format="antigravity",
            trace_reader="upskill.traces.readers.antigravity:FORMAT",
        ),
        AgentSpec(
            name="amp",
            title="Amp",
            folder=".local/share/amp",
            moved_folder="$XDG_DATA_HOME/amp",
            session_files=("threads/T-*.json",),
            trace_format="amp",
            trace_reader="upskill.traces.readers.amp:FORMAT",
        ),
    )
}

# Those that can run trials, for help.
REAL_AGENTS = ", ".join(
    (*(spec.name for spec in AGENT_SPECS.values() if spec.agent), "acp:COMMAND")
)

# Of the Agent Client Protocol, besides opencode: the command on the PATH, and the one that installs it.
ACP_PROGRAMS = {
    "claude-agent-acp": "npm install -g @agentclientprotocol/claude-agent-acp",
    "claude-code-acp": "npm install -g @zed-industries/claude-code-acp",
    "codex-acp": "npm install -g @agentclientprotocol/codex-acp",
    "copilot": "npm install -g @github/copilot",
    "gemini": "npm install -g @google/gemini-cli",
    "goose": "brew install block-goose-cli",
    "kimi": "npm install -g @moonshot-ai/kimi-code",
    "qwen": "npm install -g @qwen-code/qwen-code",
}
