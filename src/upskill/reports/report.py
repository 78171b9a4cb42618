"""A Report is what a verb has to say, as one document. A verb builds it, and each medium has one renderer.

Numbers stay numbers until a renderer formats them. A sentence is made once, by the builder, and printed verbatim
everywhere. What stands between backticks in a sentence is code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from upskill.runs.planning.plan import CheckFinding
from upskill.traces import Step
from upskill.verdicts.line import SIGNS, decision_in_words

if TYPE_CHECKING:
    from upskill.verdicts.arms import ArmSummary
    from upskill.verdicts.interval import Estimate

# How a renderer writes the numbers of a column.
Kind = Literal[
    "text",
    "code",  # an id or a command
    "count",  # 1,795
    "share",  # 0.77 is 77%
    "points",  # 0.45 is +45
    "change",  # 0.2 is +20%
    "decimal",  # 2.5
    "dollars",  # 0 is "free", None is a dash
]
# What a line is worth saying for; a medium gives each its color and its sign, never color alone.
Tone = Literal["good", "bad", "open", "neutral"]
# Of decisions.
TONES: Mapping[str, Tone] = {
    "helps": "good",
    "saves": "good",
    "hurts": "bad",
    "no effect": "neutral",
    "undecided": "open",
}
MAX_TITLE = 140  # characters of a prompt
Outcome = Literal["worse", "failing", "sometimes", "fixed", "passing", "missing"]


@dataclass(frozen=True, slots=True)
class Rate:
    """77% (37/48). Not measured where `of` is 0."""

    passed: int
    of: int
    share: float | None = None  # the mean over cases or groups, where it differs from passed / of

    @classmethod
    def of_arm(cls, arm: ArmSummary) -> Rate | None:
        return cls(arm.passed, arm.scored, arm.pass_rate) if arm.scored else None

    @property
    def value(self) -> float | None:
        if self.share is None and self.of:
            return self.passed / self.of
        return self.share


@dataclass(frozen=True, slots=True)
class Measure:
    """+75 (+56 to +87): a value and its interval. A page draws those of a column on one axis."""

    value: float | None
    low: float | None = None
    high: float | None = None
    about: str = ""  # "tasks like these"
    other: Measure | None = None  # the other reading

    @classmethod
    def of(cls, estimate: Estimate | None) -> Measure | None:
        return estimate and cls(estimate.value, estimate.low, estimate.high)


@dataclass(frozen=True, slots=True)
class Change:
    """69 → 777; only the second where the first is not known."""

    before: float | Rate | None
    after: float | Rate | None


@dataclass(frozen=True, slots=True)
class Headline:
    """A result in one line: ✓ helps on tasks like these: +45 points (+21 to +63), 20 cases."""

    text: str
    tone: Tone = "neutral"
    sign: str = ""

    @classmethod
    def of_decision(cls, verdict: Mapping[str, Any], limits: str = "") -> Headline:
        """From a verdict as in JSON: ✓ helps; only 2 of 8 cases."""
        decision = verdict["decision"]
        words = "; ".join(filter(None, [decision_in_words(verdict), limits]))
        return cls(words, TONES[decision], SIGNS[decision])


# A headline in the second cell is the decision of its row: a page writes it below the name that the row begins with.
Cell = str | float | bool | Rate | Measure | Change | Headline | None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind = "text"
    spare: bool = False  # a narrow terminal leaves it out

    @property
    def justify(self) -> Literal["left", "right"]:
        return "left" if self.kind in ("text", "code") else "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    note: str = ""  # below it
    is_detail: bool = False  # only where there is room: on a page, and with --verbose


@dataclass(frozen=True, slots=True)
class Note:
    """A caveat belongs to the verdict and is printed everywhere; an alarm says that the numbers cannot be used."""

    text: str
    kind: Literal["alarm", "caveat", "note", "detail"] = "note"
    lines: tuple[str, ...] = ()  # below it


@dataclass(frozen=True, slots=True)
class NextCommand:
    command: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Text with a heading, folded on a page: the skill, the settings, the commands that reproduce a run."""

    title: str
    text: str = ""
    is_code: bool = False
    lines: tuple[tuple[str, str], ...] = ()  # or names with their values


# Cases and their answers. They are read from the store when a renderer asks for them.
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """An answer of a student, and what the checks found. Equal draws of an arm are merged."""

    passed: bool | None  # None: missing
    seeds: tuple[int, ...]  # of the draws that were merged
    answer: str | None
    findings: tuple[CheckFinding, ...] = ()
    error: str = ""
    cause: str = ""  # why no answer could pass: "cut off at the limit"
    steps: tuple[Step, ...] = ()  # of an agent
    left_out: tuple[str, ...] = ()  # what was cut: "1,204 characters of the answer"
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float | None = None
    activated: bool | None = None
    mark: str = ""  # of a person: right, wrong, odd
    note: str = ""

    @property
    def review(self) -> str:
        """What a person said of it."""
        return ": ".join(filter(None, [self.mark, self.note]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAnswers:
    arm: str
    label: str  # "with the skill", "without"
    outcomes: tuple[bool | None, ...]  # of every draw, by seed
    draws: tuple[Draw, ...]  # failing ones first
    left_out: int = 0  # different answers that are not here
    is_control: bool = False  # placebo or a repeated baseline, which are folded


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswers:
    model: str
    outcome: Outcome
    arms: tuple[ArmAnswers, ...]  # with the skill first
    diff: tuple[tuple[str, str], ...] = ()  # words: ("=", …), ("-", without), ("+", with)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswers:
    id: str
    number: int  # in the suite
    prompt: str
    outcome: Outcome
    models: tuple[ModelAnswers, ...]
    tags: tuple[str, ...] = ()
    reference: str = ""
    expected: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: tuple[tuple[str, str], ...] = ()  # kind, how it is written
    settings: tuple[tuple[str, str], ...] = ()  # author, seen or fresh, group, limits
    left_out: tuple[str, ...] = ()
    command: str = ""  # that shows all of it

    @property
    def title(self) -> str:
        """The prompt in one line."""
        line = " ".join(self.prompt.split()) or self.id
        return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGroup:
    """Cases with the same outcome: worse, failing, sometimes, fixed, passing, missing."""

    outcome: Outcome
    title: str
    cases: tuple[CaseAnswers, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A line of JUnit. `kind` is empty for a test that holds."""

    group: str
    name: str
    seconds: float = 0.0
    kind: Literal["", "failure", "error", "skipped"] = ""
    message: str = ""
    details: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSuite:
    name: str
    tests: tuple[Test, ...]
    properties: tuple[tuple[str, str], ...] = ()
    output: str = ""


def _no_groups() -> Iterable[CaseGroup]:
    return ()


def _no_tests() -> Iterable[TestSuite]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str  # the heading of a page, without a sign
    data: Mapping[str, Any] | list[Any]  # the verb's JSON document
    name: str = ""  # what JUnit and Markdown head it with: a skill, or "ci"
    subject: str = ""  # above the title: which run, when, how large
    headlines: tuple[Headline, ...] = ()
    summary: str = ""  # With the skill 37 of 48 answers pass, without it 1.
    tables: tuple[Table, ...] = ()  # the first is the result
    notes: tuple[Note, ...] = ()  # the most urgent first
    saved: str = ""  # what was written where: Saved to skills/tern.
    next: tuple[NextCommand, ...] = ()
    sections: tuple[Section, ...] = ()
    groups: Callable[[], Iterable[CaseGroup]] = _no_groups
    tests: Callable[[], Iterable[TestSuite]] = _no_tests
    rows: tuple[Mapping[str, Any], ...] = ()  # of CSV
