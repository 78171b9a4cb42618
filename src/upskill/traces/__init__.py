"""A Trace is what an agent did with one task: every turn and tool call with its output, and what it used up.

It is what an agent returns, what checks look at, what the store keeps, and what a skill can be made from. The traces
that other programs wrote are read by `read_trace`, which knows a file by its content. Kinds of files: `claude-code`,
`codex`, `opencode`, `cursor`, `gemini`, `atif`, `messages` (OpenAI and Anthropic), `markdown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from upskill.errors import UsageError
from upskill.registry import Registry
from upskill.skills.agent_specs import AGENT_SPECS

if TYPE_CHECKING:
    from upskill.traces.reading import Format, Sample

# The first format that recognises a file reads it, so the least specific come last. What Cursor and Gemini CLI write
# also looks like Claude Code's, which is why the rows of agents are asked from the last to the first.
FORMATS = Registry(
    "trace format",
    "upskill.formats",
    {
        **{spec.trace_format: spec.trace_reader for spec in reversed(AGENT_SPECS.values()) if spec.trace_reader},
        "atif": "upskill.traces.atif:FORMAT",
        "messages": "upskill.traces.messages:FORMAT",
        "markdown": "upskill.traces.markdown:FORMAT",
    },
)

StepKind = Literal["system", "user", "assistant", "thinking", "tool"]
Status = Literal["ok", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used. Cached tokens are part of the input tokens, reasoning tokens part of the output tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


NO_USAGE = Usage(cost_usd=0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: something said, thought, or one tool call together with what came back."""

    kind: StepKind
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: str = ""
    status: Status = "unknown"
    seconds: float | None = None
    at: str = ""  # when, as the file says it
    agent: str = ""  # the sub-agent that did it; empty for the agent itself


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps are counted from 1 where they are cited. What follows `model` is known of traces that were read."""

    steps: tuple[Step, ...]
    usage: Usage = NO_USAGE
    stop: str = ""  # why the model stopped, in the provider's word
    model: str = ""  # the name the provider answered under
    goal: str = ""  # what the person asked for first
    agent: str = ""  # the program, or the format of the file
    source: str = ""  # where it was read
    cwd: str = ""  # the folder that the agent worked in
    session: str = ""
    started: str = ""
    malformed: int = 0  # lines that could not be read
    warnings: tuple[str, ...] = ()
    turns: int = 0  # how often the model was asked, where that is known

    @property
    def answer(self) -> str:
        """The last thing the assistant said."""
        return next((step.text for step in reversed(self.steps) if step.kind == "assistant"), "")

    @property
    def calls(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind == "tool")


def read_trace(path: str | Path, format: str = "") -> Trace:  # noqa: A002
    """Read a trace in any known format; UsageError when the file is none."""
    from upskill.traces.reading import Sample  # noqa: PLC0415 - leans on this page

    sample = Sample.of(Path(path))
    chosen: Format = FORMATS.load(format or _detect(sample))
    return chosen.read(sample.path)


def detect_format(path: str | Path) -> str:
    """The name of the format that a file is in."""
    from upskill.traces.reading import Sample  # noqa: PLC0415

    return _detect(Sample.of(Path(path)))


def _detect(sample: Sample) -> str:
    for name in dict.fromkeys([*FORMATS.table, *FORMATS.names()]):
        known: Format = FORMATS.load(name)
        if known.detects(sample):
            return name
    why = f": {sample.broken}" if sample.broken else ""
    raise UsageError(
        f"{sample.path}: is not a trace in any known format{why}",
        f"Formats: {', '.join(FORMATS.names())}. A text file needs lines such as `User:`, `Assistant:` or `$ command`.",
    )
