"""An Agent is how a model is run on a task: what it is shown, and what it may do. It returns a Trace.

Kinds: `chat` (the skill in the prompt, one answer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from upskill.models import Model
from upskill.registry import Registry
from upskill.skill import Skill
from upskill.traces import Trace

AGENTS = Registry("agent", "upskill.agents", {"chat": "upskill.agents.chat:Chat"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task as an agent gets it. The only thing that differs between arms is the skill."""

    prompt: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    skill: Skill | None = None
    seed: int | None = None
    temperature: float | None = None
    max_output_tokens: int = 1024


class Agent(Protocol):
    async def run(self, task: Task, model: Model) -> Trace: ...
