"""Where the agents on this machine keep their sessions: one row each, and how a person names one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from upskill.errors import UsageError, did_you_mean
from upskill.traces import Trace, read_trace

LAST = "last"


@dataclass(frozen=True, slots=True)
class Session:
    """A session that is kept here; `changed` is in seconds since 1970."""

    agent: str
    path: Path
    changed: float

    @property
    def name(self) -> str:
        """What it may be called after `agent:`."""
        return self.path.stem


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where an agent keeps sessions: its home (a variable may move it), and patterns below it."""

    agent: str
    title: str
    variable: str
    home: str
    patterns: tuple[str, ...]
    databases: tuple[str, ...] = ()

    def folder(self, environment: Mapping[str, str]) -> Path:
        home = Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home())
        if self.agent == "opencode":  # the variable names the folder above
            return Path(environment.get(self.variable) or home / ".local" / "share") / "opencode"
        return Path(environment.get(self.variable) or home / self.home)


SESSION_FOLDERS: dict[str, SessionFolder] = {
    row.agent: row
    for row in (
        SessionFolder("claude-code", "Claude Code", "CLAUDE_CONFIG_DIR", ".claude", ("projects/*/*.jsonl",)),
        SessionFolder(
            "codex",
            "Codex",
            "CODEX_HOME",
            ".codex",
            ("sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"),
        ),
        SessionFolder(
            "opencode",
            "opencode",
            "XDG_DATA_HOME",
            ".local/share/opencode",
            ("storage/session/*/*.json",),
            ("opencode.db",),
        ),
        SessionFolder(
            "cursor",
            "Cursor",
            "CURSOR_CONFIG_DIR",
            ".cursor",
            ("projects/*/agent-transcripts/*/*.jsonl", "projects/*/agent-transcripts/*.jsonl"),
        ),
        SessionFolder(
            "gemini", "Gemini CLI", "", ".gemini", ("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl")
        ),
    )
}
ALSO_CALLED = {"claude": "claude-code", "claude_code": "claude-code", "gemini-cli": "gemini", "gemini_cli": "gemini"}


def find_sessions(agent: str = "", environment: Mapping[str, str] | None = None) -> list[Session]:
    """The sessions of one agent or of all, latest first."""
    given = os.environ if environment is None else environment
    places = [place_of(agent)] if agent else SESSION_FOLDERS.values()
    found = list(chain.from_iterable(_sessions_in(place, given) for place in places))
    return sorted(found, key=lambda session: (-session.changed, str(session.path)))


def place_of(agent: str) -> SessionFolder:
    name = ALSO_CALLED.get(agent, agent)
    if name not in SESSION_FOLDERS:
        raise UsageError(f"no agent whose sessions we know is called {agent!r}", did_you_mean(agent, SESSION_FOLDERS))
    return SESSION_FOLDERS[name]


def find_trace(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """The file behind what a person typed: a path, or `claude-code:last`, `codex:SESSION`, …"""
    agent, colon, wanted = name.partition(":")
    if not colon or ALSO_CALLED.get(agent, agent) not in SESSION_FOLDERS:
        if Path(name).exists() or Path(name).parent.is_file():
            return Path(name)
        if colon and len(agent) > 1 and not set(agent) & set("/\\."):
            raise UsageError(
                f"no agent whose sessions we know is called {agent!r}",
                did_you_mean(
                    agent,
                    SESSION_FOLDERS,
                    otherwise=f"Agents: {', '.join(SESSION_FOLDERS)}; for example claude-code:last.",
                ),
            )
        raise UsageError(
            f"{name}: no such file", "Give a file, or AGENT:last; `upskill trace list` shows what is here."
        )
    place = place_of(agent)
    sessions = find_sessions(place.agent, environment)
    fitting = [session for session in sessions if wanted in (LAST, "") or wanted in session.name]
    if not sessions:
        folder = place.folder(os.environ if environment is None else environment)
        raise UsageError(
            f"{place.title} has no sessions in {folder}",
            f"Set {place.variable} if they are elsewhere." if place.variable else "Give the file itself.",
        )
    if not fitting:
        raise UsageError(
            f"{place.title} has no session called {wanted!r}",
            f"The latest is {place.agent}:{LAST} ({sessions[0].name}); `upskill trace list` shows more.",
        )
    exact = [session for session in fitting if session.name == wanted]
    if wanted not in (LAST, "") and not exact and len(fitting) > 1:
        raise UsageError(f"{len(fitting)} sessions of {place.title} fit {wanted!r}", "Write more of its name.")
    return (exact or fitting)[0].path


def load_trace(name: str) -> Trace:
    """Read what a person typed: a path, or `claude-code:last`."""
    return read_trace(find_trace(name))


def _sessions_in(place: SessionFolder, environment: Mapping[str, str]) -> Iterator[Session]:
    folder = place.folder(environment)
    for pattern in place.patterns:
        for path in _glob(folder, pattern):
            try:
                info = path.stat()
            except OSError:  # gone since
                continue
            if info.st_size:
                yield Session(place.agent, path, info.st_mtime)
    for name in place.databases:
        if (folder / name).is_file():
            yield from _in_database(place.agent, folder / name)


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _in_database(agent: str, database: Path) -> Iterator[Session]:
    from upskill.traces import FORMATS  # noqa: PLC0415

    # A kind is reached through its table.
    inside: Callable[[Path], list[tuple[str, float, str]]] | None = FORMATS.load(agent).inside
    if inside is None:
        return
    try:
        for id, changed, _ in inside(database):  # noqa: A001
            yield Session(agent, database / id, changed)
    except UsageError:
        return  # another program's file, or a version we do not know: its sessions can still be exported
