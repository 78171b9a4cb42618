"""An Agent is how a model is run on a task: what it is shown, and what it may do. It returns a Trace.

Kinds: `chat` (the skill in the prompt, one answer), `tools` (our own loop: the skill in a catalog, commands and files
in a sandbox), `claude-code`, `codex` and `opencode` (the real programs, in a sandbox).

An agent that acts says what its sandbox is to be opened with (`setup`); whoever runs the trial opens it, lets the
agent run in it, has the checks look at what was left there, and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from upskill.models import Address, Model
from upskill.registry import Registry
from upskill.skills import MANIFEST, Skill
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.models.ledger import Ledger
    from upskill.sandboxes import Sandbox, Setup

AGENTS = Registry(
    "agent",
    "upskill.agents",
    {
        "chat": "upskill.agents.chat:Chat",
        "tools": "upskill.agents.tools:Tools",
        **{spec.name: spec.agent for spec in AGENT_SPECS.values() if spec.agent},
    },
)

# The same for every agent of ours and in both arms; what an agent adds follows after it.
SYSTEM = "You are a helpful assistant. Do exactly what the user asks."


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where an agent that acts is stopped: turns of the model, tokens of all of them together, seconds in all."""

    turns: int = 20
    tokens: int | None = None
    seconds: float = 600.0
    until_activated: bool = False  # also where the skill under test is opened, if the agent can be ended there


@dataclass(frozen=True, slots=True)
class Task:
    """One task as an agent gets it. The only thing that differs between arms is the skill."""

    prompt: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    skill: Skill | None = None
    seed: int | None = None
    temperature: float | None = None
    max_output_tokens: int = 1024
    distractors: tuple[Skill, ...] = ()  # distractors: skills that are on offer in every arm
    bounds: Bounds = Bounds()

    @property
    def offered(self) -> tuple[Skill, ...]:
        """Every skill of the catalog, in the order of their names, so that the place gives nothing away."""
        return tuple(sorted((*self.distractors, *((self.skill,) if self.skill else ())), key=lambda skill: skill.name))


@dataclass(frozen=True, slots=True)
class Student:
    """The model that a trial is about, and the place where it may act.

    An agent that is a program of its own speaks to the address itself: `keys` are for the proxy that stands between
    them, never for the sandbox, and `ledger` counts and bounds what goes through it. `watch` is told of every step as
    it is done, by agents that see their steps one by one.
    """

    address: Address
    model: Model
    sandbox: Sandbox | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    ledger: Ledger | None = None
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])  # given ones
    watch: Callable[[Step], None] | None = None


class Agent(Protocol):
    acts: ClassVar[bool]  # it runs commands, so it is given a sandbox

    def setup(self, task: Task) -> Setup:
        """What the sandbox of this task is opened with, where the agent acts or a check wants one."""
        ...

    async def run(self, task: Task, student: Student) -> Trace: ...


@runtime_checkable
class ExternalAgent(Protocol):
    """An agent that is a program of its own: it has to be installed, it works with some models only, and it asks its
    model itself, so that no stored reply is used and none is kept."""

    def check(self, address: Address, keys: Mapping[str, str]) -> None:
        """Before the first call: UsageError where this model could not be its student."""
        ...


def skill_files(skills: Iterable[Skill], folder: str) -> dict[str, bytes]:
    """The files of these skills that a student may see, by their path under `folder`; links are followed."""
    return {
        f"{folder}/{skill.name}/{path}": skill.read(path) or b""
        for skill in skills
        for path in (MANIFEST, *skill.resources)
    }


def runnable_files(skills: Iterable[Skill], folder: str) -> frozenset[str]:
    """Those of `skill_files` that are programs."""
    return frozenset(
        f"{folder}/{skill.name}/{path}" for skill in skills for path in skill.resources if skill.is_runnable(path)
    )
