"""A Trace is what an agent did with one task: every turn (`Step`) and tool call with its output, and its `Usage`.

readers         one file per format
redaction       takes secrets and home folders out of a trace
formats         `read_trace`; Format: how a kind of file is recognized and read; TraceBuilder
values          values out of files in which anything may be missing
sessions        the sessions that agents keep on this machine: `claude-code:last`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from upskill.plain import counted, short
from upskill.registry import Registry
from upskill.skills.agent_specs import AGENT_SPECS

# The first format that recognises a file reads it, so the least specific come last. What Cursor and Gemini CLI write
# also looks like Claude Code's, which is why the rows of agents are asked from the last to the first.
FORMATS = Registry(
    "trace format",
    "upskill.formats",
    {
        **{
            spec.trace_format: spec.trace_reader
            for spec in reversed(AGENT_SPECS.values())
            if spec.trace_reader
        },
        "swe-agent": "upskill.traces.readers.swe_agent:FORMAT",
        "mini-swe-agent": "upskill.traces.readers.mini_swe_agent:FORMAT",
        "openhands": "upskill.traces.readers.openhands:FORMAT",
        "inspect": "upskill.traces.readers.inspect_ai:FORMAT",
        "chatgpt": "upskill.traces.readers.chatgpt:FORMAT",
        "claude-ai": "upskill.traces.readers.claude_ai:FORMAT",
        "atif": "upskill.traces.readers.atif:FORMAT",
        "messages": "upskill.traces.readers.messages:FORMAT",
        "aider": "upskill.traces.readers.aider:FORMAT",
        "specstory": "upskill.traces.readers.specstory:FORMAT",
        "terminal": "upskill.traces.readers.terminal:FORMAT",
        "markdown": "upskill.traces.readers.markdown:FORMAT",
    },
)

StepKind = Literal["system", "user", "assistant", "thinking", "tool"]
Status = Literal["ok", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost. Cached tokens are part of the input tokens, reasoning tokens part of the output tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return self._combine(other, 1)

    def __sub__(self, other: Usage) -> Usage:
        """What is left of it, never less than nothing."""
        return self._combine(other, -1)

    def _combine(self, other: Usage, sign: int) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            max(0, self.input_tokens + sign * other.input_tokens),
            max(0, self.output_tokens + sign * other.output_tokens),
            max(0, self.cached_tokens + sign * other.cached_tokens),
            max(0, self.reasoning_tokens + sign * other.reasoning_tokens),
            max(0.0, (self.cost_usd or 0.0) + sign * (other.cost_usd or 0.0)) if known else None,
        )


NO_USAGE = Usage(cost_usd=0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: a message, a thought, or a tool call together with its result."""

    kind: StepKind
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: str = ""
    status: Status = "unknown"
    seconds: float | None = None
    at: str = ""  # when, as written in the file
    agent: str = ""  # the sub-agent that did it; empty for the agent itself


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps are cited by number, from 1. The fields after `model` are those of traces that were read from files."""

    steps: tuple[Step, ...]
    usage: Usage = NO_USAGE
    stop: str = ""  # why the model stopped, in the provider's words
    model: str = ""  # the name the provider answered under
    goal: str = ""  # the first request of the user
    agent: str = ""  # the program, or the format of the file
    source: str = ""  # the file it was read from
    cwd: str = ""  # the folder the agent worked in
    session: str = ""
    started: str = ""
    malformed: int = 0  # lines that could not be read
    warnings: tuple[str, ...] = ()
    turns: int = 0  # how often the model was asked, if known
    stop_details: str = ""  # why there is no answer, in the provider's words
    skipped: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # records that nothing was taken from, by kind

    def __repr__(self) -> str:
        return f"Trace({counted(len(self.steps), 'step')}, {short(self.answer)})"

    @property
    def answer(self) -> str:
        """The last message of the assistant."""
        return next((step.text for step in reversed(self.steps) if step.kind == "assistant"), "")

    @property
    def calls(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind == "tool")
