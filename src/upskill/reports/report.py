"""A Report is what a verb has to say, as one document. A verb builds it, and each medium has one renderer.

Numbers stay numbers until a renderer formats them. A sentence is made once, by the builder, and printed verbatim
everywhere. What stands between backticks in a sentence is code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from upskill.runs.planning.plan import CheckFinding, Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.traces import Step
from upskill.verdicts.line import SIGNS, decision_in_words

if TYPE_CHECKING:
    from upskill.verdicts.interval import Estimate
    from upskill.verdicts.verdict import Reading, Verdict

# How a renderer writes the numbers of a column.
Kind = Literal[
    "text",
    "code",  # an id or a command
    "count",  # 1,795
    "share",  # 0.77 is 77%
    "points",  # 0.45 is +45
    "decimal",  # 2.5
    "dollars",  # 0 is "free", None is a dash
]
# Columns that are not text or counts, by name.
KINDS: Mapping[Kind, Sequence[str]] = {
    "code": ["Run", "Folder", "Id", "Hash", "Parent", "File", "Requirement"],
    "share": [
        *("Passes", "Without", "With", "Pass rate (95% interval)", "Activated", "Tool errors"),
        *("Recall", "Accuracy", "Precision", "Score", "False triggers"),
        *("Reach it", "Alone", "Share"),
    ],
    "points": [
        *("Lift", "Lift in points", "Lift activated", "Lift not activated"),
        *("Change", "Worth in points (95% interval)"),
    ],
    "decimal": ["Turns", "Tool calls"],
    "dollars": ["Cost", "Cost per pass"],
}
# Columns that a narrow terminal leaves out.
SPARE = [
    "Tokens per task",
    "Cost per pass",
    "When",
    "Hash",
    "Parent",
    "Description",
    "Arm",
    "Student",
    "Needed by",
    "Pass rates",
    "Rounds",
    "Without → with",
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
MAX_MARKS = 10  # draws that have a sign each
# Of trials, as a sign and a tone.
MARKS: Mapping[bool | None, tuple[str, Tone]] = {
    True: ("✓", "good"),
    False: ("✗", "bad"),
    None: ("·", "open"),
}
Outcome = Literal["worse", "failing", "sometimes", "fixed", "passing", "missing"]
OUTCOMES: Mapping[Outcome, Tone] = {
    "worse": "bad",
    "failing": "bad",
    "sometimes": "bad",
    "fixed": "good",
    "passing": "good",
    "missing": "open",
}


@dataclass(frozen=True, slots=True)
class Rate:
    """77% (37/48). Not measured where `of` is 0."""

    passed: int
    of: int
    share: float | None = None  # the mean over cases or groups, where it differs from passed / of

    @classmethod
    def of_arm(cls, arm: Mapping[str, Any]) -> Rate:
        """From an arm as in JSON."""
        return cls(arm["passed"], arm["passed"] + arm["failed"], arm["pass_rate"])

    @property
    def value(self) -> float:
        return self.passed / self.of if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class Measure:
    """+75 (+56 to +87): a value and its interval. A page draws those of a column on one axis."""

    value: float | None
    low: float | None = None
    high: float | None = None
    about: str = ""  # "tasks like these"
    other: Measure | None = None  # the other reading

    @classmethod
    def of(cls, estimate: Estimate) -> Measure:
        return cls(estimate.value, *estimate.interval)

    @classmethod
    def of_lift(cls, reading: Reading | Verdict) -> Measure:
        return cls(reading.lift, *(reading.interval or (None, None)))


@dataclass(frozen=True, slots=True)
class Change:
    """69 → 777; only the second where the first is not known."""

    before: float | Rate | None
    after: float | Rate | None

    @classmethod
    def of_rates(cls, verdict: Mapping[str, Any]) -> Change:
        """From a verdict as in JSON, without and with the skill."""
        return cls(Rate.of_arm(verdict["baseline"]), Rate.of_arm(verdict["skill"]))

    @classmethod
    def of_tokens(cls, verdict: Mapping[str, Any]) -> Change:
        """Per task."""
        tokens: list[float | None] = []
        for arm in (verdict["baseline"], verdict["skill"]):
            scored = arm["passed"] + arm["failed"]
            used = arm["input_tokens"] + arm["output_tokens"]
            tokens.append(used / scored if scored else None)
        return cls(*tokens)


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
Row = Mapping[str, Any]  # cells by the names of their columns; an estimate becomes a measure


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind = "text"
    spare: bool = False  # a narrow terminal leaves it out

    @property
    def is_number(self) -> bool:
        return self.kind not in ("text", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    note: str = ""  # below it
    is_detail: bool = False  # only where there is room: on a page, and with --verbose

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        title: str = "",
        *,
        note: str = "",
        is_detail: bool = False,
        kind: Kind = "count",  # of columns of numbers that have no kind of their own
    ) -> Table:
        """Renderers leave out a table without rows."""
        every = [{name: _as_cell(value) for name, value in row.items()} for row in rows]
        names = every[0] if every else ()
        return cls(
            columns=tuple(_column(name, [row[name] for row in every], kind) for name in names),
            rows=tuple(tuple(row.values()) for row in every),
            title=title,
            note=note,
            is_detail=is_detail,
        )


def _as_cell(value: Any) -> Cell:
    is_estimate = hasattr(value, "level")  # its class would load numpy
    return Measure.of(value) if is_estimate else value


def _column(name: str, cells: Sequence[Cell], usual: Kind) -> Column:
    is_text = any(isinstance(cell, str | bool | Headline) for cell in cells)
    kinds: list[Kind] = [kind for kind, names in KINDS.items() if name in names]
    kinds.append("text" if is_text else usual)
    return Column(name, kinds[0], name in SPARE)


@dataclass(frozen=True, slots=True)
class Note:
    """A caveat belongs to the verdict and is printed everywhere; an alarm says that the numbers cannot be used."""

    text: str
    kind: Literal["alarm", "caveat", "note", "detail"] = "note"
    lines: Sequence[str] = ()  # below it


@dataclass(frozen=True, slots=True)
class NextCommand:
    command: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Text with a heading, folded on a page: the skill, the settings, the commands that reproduce a run."""

    title: str
    text: str = ""
    lines: Mapping[str, str] | None = None  # or values by name


# Cases and their answers. They are read from the store when a renderer asks for them.
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """An answer of a student, and what the checks found. Equal draws of an arm are merged."""

    result: Result  # of the first, cut to the size of the report
    answer: str | None
    seeds: tuple[int, ...] = ()  # of the draws that were merged
    cause: str = ""  # why no answer could pass: "cut off at the limit"
    mark: str = ""  # of a person: right, wrong, odd
    note: str = ""

    @property
    def steps(self) -> Sequence[Step]:
        """Of a student that does more than answer."""
        steps = self.result.trace.steps if self.result.trace else ()
        return steps if any(step.kind in ("tool", "thinking") for step in steps) else ()

    @property
    def problems(self) -> list[str]:
        leak = f"INVALID: {self.result.leak}" if self.result.leak else ""
        return [*filter(None, [self.cause, self.result.error, leak])]

    @property
    def failed(self) -> list[CheckFinding]:
        """What decided that it does not pass."""
        return [each for each in self.result.findings if each.decides and not each.passed]

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
    is_control: bool = False  # placebo or a repeated baseline, which are folded

    @property
    def marks(self) -> str:
        if len(self.outcomes) > MAX_MARKS:
            return f"{sum(map(bool, self.outcomes))}/{len(self.outcomes)}"
        return "".join(MARKS[passed][0] for passed in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswers:
    model: str
    outcome: Outcome
    arms: tuple[ArmAnswers, ...]  # with the skill first
    diff: tuple[tuple[str, str], ...] = ()  # words: ("=", …), ("-", without), ("+", with)

    @property
    def marks(self) -> str:
        """✓✓✗ → ✓✓✓: without the skill, then with it."""
        return " → ".join(arm.marks for arm in reversed(self.arms) if not arm.is_control)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswers:
    case: StoredCase  # cut to the size of the report
    number: int  # in the suite
    outcome: Outcome
    models: tuple[ModelAnswers, ...]
    facts: Mapping[str, str]  # author, seen or fresh, group, limits
    left_out: str  # 12 characters and 3 answers
    command: str  # that shows all of it

    @property
    def draws(self) -> list[Draw]:
        arms = [arm for answers in self.models for arm in answers.arms]
        return [draw for arm in arms for draw in arm.draws]

    @property
    def title(self) -> str:
        """The prompt in one line."""
        line = " ".join(self.case.prompt.split()) or self.case.id
        return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGroup:
    """Cases with the same outcome: worse, failing, sometimes, fixed, passing, missing."""

    outcome: Outcome
    title: str
    cases: tuple[CaseAnswers, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """A line of JUnit. `kind` is empty for a test that holds."""

    group: str
    name: str
    kind: Literal["", "failure", "error", "skipped"] = ""
    message: str = ""
    details: str = ""
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSuite:
    name: str
    tests: Sequence[Test]
    properties: Mapping[str, str] | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str  # the heading of a page, without a sign
    data: Mapping[str, Any] | list[Any]  # the verb's JSON document
    name: str = ""  # what JUnit and Markdown head it with: a skill, or "ci"
    subject: str = ""  # above the title: which run, when, how large
    headlines: Sequence[Headline] = ()
    summary: str = ""  # With the skill 37 of 48 answers pass, without it 1.
    tables: Sequence[Table] = ()  # the first is the result
    notes: Sequence[Note] = ()  # the most urgent first
    saved: str = ""  # what was written where: Saved to skills/tern.
    next: Sequence[NextCommand] = ()
    sections: Sequence[Section] = ()
    groups: Callable[[], Iterable[CaseGroup]] = tuple
    tests: Callable[[], Iterable[TestSuite]] = tuple
    rows: Sequence[Mapping[str, Any]] = ()  # of CSV
