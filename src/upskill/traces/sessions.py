from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from upskill.errors import UsageError, did_you_mean
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec
from upskill.traces import FORMATS
from upskill.traces.formats import Format, Sample

LAST = "last"
MAX_SESSIONS = 1_000  # of an agent that are looked at in a folder
# Names that all sessions of an agent share, in a folder for each.
SHARED_NAMES = (
    *("events", "wire", "main", "agents", "context", "chat_history"),
    *("transcript", "logs", ".system_generated", "store"),
)


@dataclass(frozen=True, slots=True)
class Session:
    """A stored session; `changed` is in seconds since 1970."""

    agent: str
    path: Path
    changed: float

    @property
    def name(self) -> str:
        stem = Path(self.path.name.removesuffix(".zst")).stem
        return next(
            name
            for name in (stem, *(each.name for each in self.path.parents))
            if name not in SHARED_NAMES
        )


# By the name of the trace format, which is also what people type before `:last`.
SESSION_AGENTS: dict[str, AgentSpec] = {
    spec.trace_format: spec for spec in AGENT_SPECS.values() if spec.session_files
}
_BY_NAME = {
    name: spec
    for spec in SESSION_AGENTS.values()
    for name in (spec.trace_format, spec.name, *spec.aliases)
}


def find_sessions(agent: str = "", environment: Mapping[str, str] = os.environ) -> list[Session]:
    """The sessions of one agent or of all, latest first."""
    specs = [_find_agent(agent)] if agent else SESSION_AGENTS.values()
    sessions = chain.from_iterable(_sessions_of(spec, environment) for spec in specs)
    return sorted(sessions, key=lambda session: (-session.changed, str(session.path)))


def _find_agent(name: str, otherwise: str = "") -> AgentSpec:
    if name not in _BY_NAME:
        raise UsageError(
            f"{name!r} is not an agent whose sessions upskill can find",
            did_you_mean(name, SESSION_AGENTS, otherwise=otherwise),
        )
    return _BY_NAME[name]


def find_trace(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The file behind what a person typed: a path, `claude-code:last`, `codex:SESSION`, or a folder with sessions."""
    agent, colon, session_name = name.partition(":")
    if not colon or agent not in _BY_NAME:
        if Path(name).is_dir():
            return _latest_in(Path(name))
        if Path(name).exists() or Path(name).parent.is_file():
            return Path(name)
        if colon and len(agent) > 1 and not set(agent) & set("/\\."):
            _find_agent(
                agent, f"Agents: {', '.join(SESSION_AGENTS)}; for example claude-code:last."
            )
        hint = "Pass a file or AGENT:last. Run `upskill trace list` to see the sessions on this machine."
        raise UsageError(f"{name}: no such file", hint)
    spec = _find_agent(agent)
    sessions = find_sessions(agent, environment)
    latest = session_name in (LAST, "")
    fitting = [session for session in sessions if latest or session_name in session.name]
    if not sessions:
        raise UsageError(
            f"{spec.title} has no sessions in {spec.folder_in(environment)}",
            f"Set {spec.folder_variable} if they are elsewhere."
            if spec.folder_variable
            else "Pass the file itself.",
        )
    if not fitting:
        raise UsageError(
            f"{spec.title} has no session named {session_name!r}",
            f"The latest is {spec.trace_format}:{LAST} ({sessions[0].name}); run `upskill trace list` to see more.",
        )
    exact = [session for session in fitting if session.name == session_name]
    if not latest and not exact and len(fitting) > 1:
        raise UsageError(
            f"{spec.title} has {len(fitting)} sessions that match {session_name!r}",
            "Pass more of the name.",
        )
    known: Format = FORMATS.load(spec.trace_format)
    by_people = (
        session for session in fitting if latest and known.is_main and known.is_main(session.path)
    )
    return next(by_people, (exact or fitting)[0]).path


def _latest_in(folder: Path) -> Path:
    """The latest session in a folder of an agent: the one with all its data, or any on the way down to a session."""
    sessions: list[tuple[float, Path]] = []
    for spec in SESSION_AGENTS.values():
        known: Format = FORMATS.load(spec.trace_format)
        tails = {
            pattern.split("/", skip)[-1]
            for pattern in spec.session_files
            for skip in range(pattern.count("/") + 1)
        }
        paths = chain.from_iterable(folder.glob(tail) for tail in tails)
        if folder.parent.name == "message":  # opencode's, with the messages of one session
            paths = folder.parent.parent.glob(f"session/*/{folder.name}.json")
        for path in (folder / spec.session_database, *islice(paths, MAX_SESSIONS)):
            with suppress(OSError, UsageError):  # not a session
                if path.is_file() and known.detects(Sample.open(path)):
                    sessions.append((path.stat().st_mtime, path))
    if not sessions:
        raise UsageError(
            f"{folder}: contains no sessions", "Run `upskill trace list` to see where sessions are."
        )
    return max(sessions)[1]


def _sessions_of(spec: AgentSpec, environment: Mapping[str, str]) -> Iterator[Session]:
    folder = spec.folder_in(environment)
    for path in chain.from_iterable(folder.glob(pattern) for pattern in spec.session_files):
        with suppress(OSError):  # deleted meanwhile
            info = path.stat()
            if info.st_size:
                yield Session(spec.trace_format, path, info.st_mtime)
    database = folder / spec.session_database
    if not spec.session_database or not database.is_file():
        return
    known: Format = FORMATS.load(spec.trace_format)
    with suppress(
        UsageError
    ):  # another program's file, or an unknown version: its sessions can still be exported
        for session_id, changed in known.sessions(database) if known.sessions else ():
            yield Session(spec.trace_format, database / session_id, changed)
