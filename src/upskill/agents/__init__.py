"""An Agent is how a model is run on a task: what it sees and what it may do. It returns a Trace.

Kinds, one module each:

    chat          the skill in the prompt, one answer
    tools         our own loop: the skill in a catalog, commands and files in a sandbox
    claude_code, codex, opencode    the real programs, in a sandbox (their rows are in `AGENT_SPECS`)
    acp           any program that speaks the Agent Client Protocol (`acp_client`: runs beside it in the sandbox)

`toolbox` has the catalog and the tools of `tools`. Parts of the real programs: `program` (finding and running one),
`proxy` (its only way to the model), `allow_list` (what it may send there). `activation` tells which skills it saw,
`mcp` has the MCP servers of a suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from upskill.models import Address, Model, Role, ToolCall
from upskill.registry import Registry
from upskill.sandboxes import Sandbox, Setup
from upskill.skills import MANIFEST, Skill
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.models.ledger import Ledger

AGENTS = Registry(
    "agent",
    "upskill.agents",
    {
        "chat": "upskill.agents.chat:Chat",
        "tools": "upskill.agents.tools:Tools",
        "acp": "upskill.agents.acp:Acp",
        **{spec.name: spec.agent for spec in AGENT_SPECS.values() if spec.agent},
    },
)

# The same for all agents of ours and in both arms; an agent may add to it.
SYSTEM = "You are a helpful assistant. Do exactly what the user asks."


@dataclass(frozen=True, slots=True)
class Bounds:
    """When an agent in a sandbox is stopped."""

    turns: int = 20
    tokens: int | None = None
    seconds: float = 600.0
    until_activated: bool = False  # or when the skill under test is opened


@dataclass(frozen=True, slots=True)
class Task:
    """One task for an agent. Between arms, only the skill differs."""

    prompt: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    skill: Skill | None = None
    seed: int | None = None
    temperature: float | None = None
    max_output_tokens: int = 1024
    distractors: tuple[Skill, ...] = ()  # skills that are on offer in every arm
    bounds: Bounds = Bounds()
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )  # as in a suite

    @property
    def offered_skills(self) -> tuple[Skill, ...]:
        """Sorted by name, so that a position gives nothing away."""
        return tuple(
            sorted(
                (*self.distractors, *((self.skill,) if self.skill else ())),
                key=lambda skill: skill.name,
            )
        )


@dataclass(frozen=True, slots=True)
class Student:
    """The model under test, and its sandbox.

    A real program talks to the address through a proxy: `keys` are for the proxy, never for the sandbox. Agents that
    see their steps report them to `on_step`, and ask `replay` for a call's result before they carry it out.
    """

    address: Address
    model: Model
    sandbox: Sandbox | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    ledger: Ledger | None = None
    prices: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    on_step: Callable[[Step], None] | None = None
    replay: Callable[[ToolCall], Step | None] | None = None
    role: Role = (
        "student"  # that its calls are entered under: a teacher does a lesson like a student a task
    )


class Agent(Protocol):
    needs_sandbox: ClassVar[bool]  # it runs commands

    def setup(self, task: Task) -> Setup:
        """What the sandbox is opened with, if the agent or a check needs one."""
        ...

    async def run(self, task: Task, student: Student) -> Trace: ...


@runtime_checkable
class ExternalAgent(Protocol):
    """A program that asks its model itself, so its replies are not cached."""

    @property
    def version(self) -> str:
        """Which version is installed; part of a trial's key."""
        ...

    def check(self, address: Address, keys: Mapping[str, str], sandbox: str = "") -> None:
        """Before the first call: UsageError if it does not work with this model in this kind of sandbox."""
        ...


def skill_files(skills: Iterable[Skill], folder: str) -> tuple[dict[str, bytes], frozenset[str]]:
    """The files that a student may see, by their path in `folder`, and which of them are executable."""
    files: dict[str, bytes] = {}
    runnable: set[str] = set()
    for skill in skills:
        for path in (MANIFEST, *skill.resources):
            files[f"{folder}/{skill.name}/{path}"] = skill.read(path) or b""
            if path != MANIFEST and skill.is_runnable(path):
                runnable.add(f"{folder}/{skill.name}/{path}")
    return files, frozenset(runnable)
